"""Trained models that the book ships, and the activations of some of their training images, labelled.

``results/models/<name>-<stage>.nc`` is what `gdd.load` reads, with `EXAMPLES` of the images that the model was learned
from and their activations; the attribute ``provenance`` is what `gdd_book.records` keeps of a run.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import gdd
from gdd import Refined, results
from gdd.base.axes import IMAGE, IMAGES, LABEL
from gdd.base.checks import GddError
from gdd.estimator import restored, saved
from gdd.inference.fixed_dictionary import shared_of
from gdd.model.joint import layer_values
from gdd.model.state import JointLocal
from gdd.projection import render_projected
from gdd.results import Trained
from gdd.sampler.checkpoint import digest_of
from gdd_book import checkout
from gdd_book.dictionaries import rounded
from gdd_book.evaluate.atoms import best_parts
from gdd_book.training import STAGES, Learned

#: where the book's own models lie
SHIPPED = checkout.BOOK / "results" / "models"
#: images whose activations are kept, as many of each label: digits, larger pictures
EXAMPLES, PICTURES = 100, 6
#: pixels up to which an image counts as a digit
DIGIT = 32 * 32
#: name of the images in a file
IMAGES_OF = "images"
#: to how many bits pictures are kept: a step is at most 2 ** -11 of the largest value
BITS = 12
#: coordinates of images that are kept: the number in its data set, and what the image shows
COORDINATES = ("number", LABEL)


def path_of(name: str) -> Path:
    """Where the model of this name lies."""
    return checkout.results() / "models" / f"{name}.nc"


def write(name: str, learned: Learned, provenance: str) -> Path:
    """Write the model of a chain with some of its images; ``provenance`` as JSON."""
    images, some = learned.images, example_images(learned.images)
    coordinates = {one: images.coords[one] for one in COORDINATES if one in images.coords}
    plain = xr.DataArray(images.values, coordinates, images.dims, IMAGES_OF)
    model = gdd.DeepDeconvolution.from_chain(learned.trained, plain, learned.chain)
    kept = results.select_images(learned.trained, some)
    model.chain_ = kept._replace(last=kept.state) if isinstance(kept, Refined) else kept  # one state will do
    model.coords_ = {one: values[some] for one, values in model.coords_.items()}
    data = small(saved(model).assign({IMAGES_OF: (IMAGES, plain.values[some])}))
    digest = digest_of([data[IMAGES_OF].values, None])
    results.write(data.assign_attrs(provenance=provenance, images_sha256=digest), path := path_of(name))
    return path


def small(data: xr.Dataset) -> xr.Dataset:
    """Dictionaries and traces to single precision; images larger than digits, and their top atoms, to `BITS` bits."""
    single = {
        name: one.astype(np.float32).astype(one.dtype) for name, one in data.items()
        if name.startswith(("dictionary_", "trace_"))
    }
    drawn = {name: data[name].astype(np.float32) for name in ("projected_atoms", IMAGES_OF)}
    if data[IMAGES_OF][0].size > DIGIT:
        drawn = {name: rounded(one, BITS) for name, one in drawn.items()}
    return data.assign(single | drawn)


def example_images(images: xr.DataArray) -> np.ndarray:
    """Numbers of the first images of each label, `EXAMPLES` or `PICTURES` in all, in the order of the images."""
    labels = images[LABEL].values if LABEL in images.coords else np.zeros(len(images))
    wanted = EXAMPLES if images[0].size <= DIGIT else PICTURES
    each = -(-wanted // len(np.unique(labels)))
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]))


def load(name: str) -> gdd.DeepDeconvolution:
    """Model of this name, as `gdd.load` reads it, its chain with the example images; GddError if there is none."""
    return _opened(name)[0]


def images_of(name: str) -> xr.DataArray:
    """Example images of a model: (image, plane, row, col), with label and number in the data set."""
    return results.read(existing(name))[IMAGES_OF]


def _opened(name: str) -> tuple[gdd.DeepDeconvolution, xr.DataArray]:
    """`load` and `images_of`."""
    data = results.read(existing(name))
    model, images = restored(data), data[IMAGES_OF]
    model.chain_ = results.with_images(model.chain_, images.values)
    return model, images


def names(beginning: str) -> list[str]:
    """Names, without their stage, of the models that the book ships and whose names begin so."""
    return sorted({path.stem.rpartition("-")[0] for path in SHIPPED.glob(f"{beginning}*.nc")})


def listed() -> pd.DataFrame:
    """What the book ships, a row a model: images, sweeps of its last stage, minutes of its run, size, code."""
    rows = {}
    for path in sorted(SHIPPED.glob("*.nc")):
        made = provenance(path.stem)
        p, stage = json.loads(made["parameters"]), "" if path.stem.endswith(STAGES[0]) else "refine_"
        of_each = p["n_train"] if "n_train" in p else p["per_class"]
        rows[path.stem] = {
            "images": of_each * len(p.get("classes", [""])),
            "sweeps": f"{p[f'{stage}burn_in']} + {p[f'{stage}collect']}",
            "minutes": f"{made['seconds'] / 60:.0f}", "MB": f"{path.stat().st_size / 1e6:.1f}",
            "code": made["code_sha256"][:8],
        }
    return pd.DataFrame(rows).T.rename_axis("model")


def existing(name: str) -> Path:
    """Path of a model that is there: among the user's results, else one that the book ships."""
    places = [path_of(name), SHIPPED / f"{name}.nc"]
    for path in places:
        if path.is_file():
            return path
    found = ", ".join(sorted({one.stem for path in places for one in path.parent.glob("*.nc")})) or "none"
    raise GddError(f"model: {name!r} given; there are {found}")


def provenance(name: str) -> dict:
    """What is known of the run that has learned a model: data, parameters, seconds, machine, code."""
    return json.loads(results.read(existing(name)).attrs["provenance"])


def activations(name: str, stages: Sequence[str] = STAGES) -> xr.Dataset:
    """Positions, weights and dense maps of every layer in the example images, one stage beside the other.

    ``map_1`` (stage, image, atom_1, row_1, col_1) and so on; ``projected_atoms`` (stage, projected_atom, plane,
    projected_row, projected_col); ``energy`` (stage, projected_atom), an atom's share of what the top atoms draw, each
    alone; ``images`` (image, plane, row, col), ``redrawn`` (stage, image, plane, row, col) from their top coefficients,
    each layer below at its own positions; the attribute ``stride`` in pixels.
    """
    models, images = zip(*(_opened(f"{name}-{stage}") for stage in stages), strict=True)
    joined = xr.concat(map(_activations, models), "stage", combine_attrs="override").assign_coords(stage=list(stages))
    return joined.assign({IMAGES_OF: images[0]})


def _activations(model: gdd.DeepDeconvolution) -> xr.Dataset:
    """`activations` of one stage."""
    data, top = model.to_dataset(dense=True), len(model.model_.layers)
    kept = data[[one for one in data.data_vars if one.startswith(("map_", "position_", "weight_", "projected_"))]]
    squares = (kept[f"map_{top}"].astype(float) ** 2).sum([IMAGE, f"row_{top}", f"col_{top}"]).values
    energy = squares * (model.atoms_.values**2).sum(axis=(1, 2, 3))
    kept["energy"] = "projected_atom", energy / energy.sum()
    kept["redrawn"] = IMAGES, redrawn(model.chain_)
    return kept.drop_attrs(deep=False).assign_attrs(stride=model.model_.stride)


#: what is drawn from a picture's top coefficients and positions, or from those of another picture
WAYS = (
    "all its own", "another's coefficients, own positions", "own coefficients, another's positions", "projected atoms",
)


def explained(name: str, stages: Sequence[str] = STAGES) -> xr.DataArray:
    """Share of the example images' energy that the best multiple of a drawing of each explains.

    (way, stage), ways as in `WAYS`: by each image's own top coefficients at its own positions in every layer; with
    the coefficients, or the positions, of the image before; by projected atoms, whose positions are the same for all.
    """
    rows = []
    for stage in stages:
        model, images = _opened(f"{name}-{stage}")
        trained, before = model.chain_, np.roll(np.arange(len(images)), 1)
        top = model.to_dataset(dense=True)[f"map_{len(model.model_.layers)}"].values
        drawn = (
            redrawn(trained), redrawn(trained, coefficients=before), redrawn(trained, positions=before),
            render_projected(model.atoms_.values, top, model.model_.stride, images.shape[2:]),
        )
        energy = (images.values.astype(float) ** 2).sum()
        rows.append([explained_energy(images.values, one).sum() / energy for one in drawn])
    return xr.DataArray(np.transpose(rows), {"way": list(WAYS), "stage": list(stages)}, ("way", "stage"))


def explained_energy(images: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Energy of the best multiple of each image's drawing: (image,)."""
    axes = (1, 2, 3)
    return (images * drawn).sum(axes) ** 2 / (drawn.astype(float) ** 2).sum(axes).clip(1e-12)


def one_atom(name: str, most: int = 10) -> xr.Dataset:
    """What the top atom that most example images use draws in each of them, the first ``most``: (image, row, col).

    ``picture`` the image; ``own`` the atom's coefficients through the image's own positions; ``projected`` by the
    projected atom; ``part`` the atom of layer 1 that explains most of ``own``, at its best place and weight.
    ``share_of_projected`` and ``share_of_part`` (image,) of the energy of ``own``, explained by their best multiples.
    """
    model, images = _opened(name)
    trained, maps = model.chain_, model.to_dataset(dense=True)[f"map_{len(model.model_.layers)}"].values
    atom = int((maps != 0).any(axis=(2, 3)).sum(axis=0).argmax())
    users = np.flatnonzero((maps[:, atom] != 0).any(axis=(1, 2)))[:most]
    alone = np.zeros_like(maps)
    alone[:, atom] = maps[:, atom]
    own = redrawn(trained, atom=atom)[users].astype(float)
    shared = trained.state.shared if isinstance(trained, Refined) else shared_of(trained)
    part = best_parts(own, shared.dictionaries[0].astype(float))
    flat = render_projected(model.atoms_.values, alone[users], model.model_.stride, images.shape[2:])
    pictures = {"picture": images.values[users], "own": own, "projected": flat, "part": part}
    energy = (own**2).sum((1, 2, 3)).clip(1e-12)
    shares = {f"share_of_{name}": explained_energy(own, pictures[name]) / energy for name in ("projected", "part")}
    found = xr.Dataset({one: ((IMAGE, "row", "col"), values[:, 0]) for one, values in pictures.items()})
    return found.assign({name: (IMAGE, values) for name, values in shares.items()})


def redrawn(
    trained: Trained, coefficients: np.ndarray | slice = slice(None), positions: np.ndarray | slice = slice(None),
    atom: int | None = None,
) -> np.ndarray:
    """Images that a chain's top coefficients draw, each layer below at its positions: (image, plane, row, col).

    ``coefficients``, ``positions`` : numbers of the images whose they are; ``atom`` : the only top atom that draws
    """
    if isinstance(trained, Refined):
        local, shared = trained.state.local, trained.state.shared
    else:  # a block of which no position is active draws nothing
        *below, top = (layer.state.local for layer in trained.layers)
        local, shared = JointLocal(tuple(one.z for one in below), top.z, top.w, top.gamma_e), shared_of(trained)
    local = local._replace(
        positions=tuple(one[positions] for one in local.positions), z=local.z[coefficients], w=local.w[coefficients]
    )
    if atom is not None:
        w = np.zeros_like(local.w)
        w[:, atom] = local.w[:, atom]
        local = local._replace(w=w)
    return layer_values(local, shared.dictionaries, trained.model.shapes())[0]
