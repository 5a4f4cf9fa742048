"""How deep a refined model is, by the noise precision of its refinement: what top atoms are made of, what they predict.

The book's precision is chosen here, on training images alone and without labels. The rule, written before any record:
of the noise precisions tried, the one with the least squared error on hidden halves of training images that the model
did not learn from, filled in at that same precision, mean over subsets. Page: book/model/depth.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from gdd import project
from gdd.base.axes import ATOM, DICTIONARY
from gdd.base.checks import GddError
from gdd.inference.contrast import normalise_contrast
from gdd.inference.deconvolution import precisions_of
from gdd.projection import project_layers
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined
from gdd_book import training
from gdd_book.data import datasets
from gdd_book.dictionaries import projection_error, rounded
from gdd_book.evaluate.atoms import best_parts
from gdd_book.evaluate.baselines import choose_components
from gdd_book.evaluate.interpolation import hidden_error, interpolate_joint, interpolate_one_layer
from gdd_book.experiments.atoms import describe_projection, in_own_percents, most_used, uses_of
from gdd_book.experiments.common import Outcome, along, encode, error_of, experiment, outcome
from gdd_book.experiments.images import HIDING, REAL, SOURCES, describe, fill_plainly, generate, hide_halves
from gdd_book.experiments.studies.mnist_readings import normalised
from gdd_book.progress import Run

#: of an atom, by how many of layer 1's atoms at one place each
PARTS = (1, 2, 3)


@experiment(
    "mnist-depth", seeds=(0, 1, 2), **training.HELD_DIGITS, learned_planes=True, dictionary_every=4, top_atoms=160,
    random_start=False, empty_blocks=False, first_noise=0.0,
    demo={"data": "digits", "n_train": 200, "n_others": 40, "noises": (2.0, 44.0),
          **training.lengths((30, 10), refine=(30, 10), test=(20, 10))},
    paper={"data": "mnist", "n_train": 1000, "n_others": 1000, "noises": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 44.0, 100.0),
           **training.lengths((60, 20), refine=(100, 20), test=(40, 20))},
)
def mnist_depth(p: dict, run: Run) -> Outcome:
    """One pretrained model refined at several noise precisions, on several subsets; what came of it.

    For each (subset, noise): the top atoms and what they are made of; how the layers fit and what the projection loses;
    the squared error on hidden pixels of ``n_others`` / 5 training digits that the model did not learn from, filled in
    at the noise precision of the refinement; digits drawn from the model; and the error of the paper's classifier on
    other training digits, by reading.
    """
    if 0.0 in p["noises"]:
        raise GddError("noises: 0 given; positive noise precisions are compared")
    found = along("subset", {seed: _subset(p | {"seed": seed}, run) for seed in p["seeds"]})
    first = training.setup_of(p | {"seed": p["seeds"][0]})
    return outcome(found, p, first.images, model=first.model)


def other_digits(p: Mapping, train: xr.DataArray) -> xr.DataArray:
    """The first ``n_others`` training digits that are not in ``train``."""
    every = datasets.load(p["data"], "train")
    return every[~np.isin(every.number, train.number)][: p["n_others"]]


def _subset(p: dict, run: Run) -> xr.Dataset:
    """Everything of one subset, by noise precision, the lowest first; and what needs no refinement."""
    setup, label, found = training.setup_of(p), f"subset {p['seed']}, ", {}
    train, fitted = setup.images, training.pretrained_model(p, run, setup, label)
    others = other_digits(p, train)
    for noise in sorted(p["noises"]):
        own = {name: value for name, value in p.items() if name not in ("seeds", "noises")} | {"refine_noise": noise}
        one = training.refined_model(own, fitted, run, setup, f"{label}noise precision {noise:g}, ")
        found[noise] = run.kept(
            "mnist-depth", lambda one=one, own=own: describe_depth(one, (train, others), own),
            images=train, others=others, settings=own, code=training.code_of("projection", "inference"),
        )
    return along("noise", found).merge(_without_depth(fitted, (train, others), p))


def describe_depth(one: Refined, both: tuple[xr.DataArray, xr.DataArray], p: Mapping) -> xr.Dataset:
    """All that the record holds of one refined model."""
    atoms, (bottom, top), last = project(one), one.state.shared.dictionaries, _last(one)
    found = describe_projection(atoms, one.state, one.model)
    found = found.assign({
        "projection_error": found.projection_error.mean(),
        "most_used": (("shown", *DICTIONARY[1:]), in_own_percents(most_used(atoms.values, found.uses.values))),
        "explained": ((ATOM, "parts"), explained_by_parts(atoms.values[:, 0], bottom[:, 0])),
        "effective_entries": (ATOM, effective((top**2).reshape(len(top), -1))),
        "active": float(last.active), "residual": float(last.residual), "cpu_seconds": one.traces.attrs["cpu_seconds"],
    }).assign_coords(parts=list(PARTS))
    train, others = (images.values for images in both)
    made = {SOURCES[1]: generate(one.state, one, len(others) // 2, p["seed"])[SOURCES[1]], REAL: others[1::2]}
    apart = [float(describe(some, others[::2], train, p["seed"]).told_apart) for some in made.values()]
    drawn = xr.Dataset({"told_apart": ("source", apart)}, {"source": list(made)})
    return xr.merge([found, hidden_errors(one, both[1], p), drawn, _readings(one, atoms.values, both, p)])


def _last(one: Refined) -> xr.Dataset:
    """Means of the traces over the last ten sweeps."""
    return one.traces.isel(chain=0, draw=slice(-10, None)).mean()


# ---- what an atom is made of
def explained_by_parts(atoms: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Share of each atom's energy that one, two, three atoms of layer 1 explain, by matching pursuit: (atom, parts).

    ``atoms`` (atom, row, col), ``bottom`` (bottom_atom, row, col). 1 for a copy; about 0.02 for white noise of 25 x 25
    """
    left, energy, out = atoms[:, None].astype(float), (atoms**2).sum(axis=(1, 2)).clip(1e-300), []
    for _ in PARTS:
        left -= best_parts(left, bottom[:, None])
        out.append(1 - (left**2).sum(axis=(1, 2, 3)) / energy)
    return np.stack(out, axis=1)


def effective(energies: np.ndarray) -> np.ndarray:
    """Effective number of entries, 1 / sum of squared shares: (atom,) from energies (atom, entry)."""
    return energies.sum(axis=1) ** 2 / (energies**2).sum(axis=1).clip(1e-300)


# ---- hidden pixels
def hidden_errors(one: Refined, others: xr.DataArray, p: Mapping) -> xr.Dataset:
    """Squared error on hidden pixels, (hiding, hidden_image), and some pictures."""
    shown, chain, noise = others[: len(others) // 5], training.chain_of(p, "test_"), one.refinement.noise.fixed
    errors, drawn = [], []
    for hide in HIDING.values():
        mask = hide(shown.shape, p["seed"])
        filled = interpolate_joint(shown, mask, one.model, one.state.shared, one.refinement, chain, noise).values
        errors.append(hidden_error(filled, shown, mask))
        drawn.append(filled[:12, 0])
    return xr.Dataset({
        "hidden_error": (("hiding", "hidden_image"), np.float32(errors)),
        "filled": (("hiding", "example", "row", "col"), rounded(np.array(drawn))),
    }, {"hiding": list(HIDING)})


def _without_depth(fitted: Pretrained, both: tuple[xr.DataArray, xr.DataArray], p: Mapping) -> xr.Dataset:
    """Squared error on the same hidden pixels by one layer, pretrained, and by methods that know no layers."""
    others = both[1]
    return plain_errors(others, both[0], p, fitted).assign({
        "truth": (("example", "row", "col"), rounded(others.values[:12, 0])),
        "error_of_pixels": error_of(both, *both, p),
    })


def plain_errors(
    others: xr.DataArray, train: xr.DataArray, p: Mapping, fitted: Pretrained | None = None
) -> xr.Dataset:
    """Squared error on the hidden pixels of `hidden_errors` without layers, and by layer 1 of ``fitted``."""
    shown, parts = others[: len(others) // 5], []
    for hide in HIDING.values():
        mask = hide(shown.shape, p["seed"])
        filled = fill_plainly(shown, mask, train, choose_components(train, mask), "digit")
        if fitted is not None:
            chain = training.chain_of(p, "test_")
            filled["one layer"] = interpolate_one_layer(shown, mask, fitted.layers[0], chain).values
        parts.append([hidden_error(one, shown, mask) for one in filled.values()])
    errors = ("hiding", "way", "hidden_image"), np.float32(parts)
    return xr.Dataset({"plain_error": errors}, {"hiding": list(HIDING), "way": list(filled)})


def _readings(one: Refined, atoms: np.ndarray, both: tuple[xr.DataArray, xr.DataArray], p: Mapping) -> xr.Dataset:
    """Error in % on training digits that neither the atoms nor the classifier learned from, by reading."""
    codes = [encode(images, atoms, one.model.stride, precisions_of(one), p) for images in both]
    found = {
        "normalised detectors": [normalised(images.values, atoms).max(axis=(2, 3)) for images in both],
        "sample": [code.ml_sample for code in codes], "mean": [code["mean"] for code in codes],
    }
    errors = [error_of(pair, *both, p) for pair in found.values()]
    return xr.Dataset({"error": ("reading", errors)}, {"reading": list(found)})


# ---- faces and classes of Caltech 101, three layers
#: top atoms that are kept of a class, those used most
SHOWN = 9


@experiment(
    "caltech-depth", choices={"data": ("digits", *training.CALTECH)}, seed=0, dictionary_every=4,
    **training.HELD_CALTECH,
    demo={"data": "digits", "classes": ("0",), "n_train": 10, "n_others": 2, "noises": (0.3, 3.0), "voters": 1,
          **training.lengths((6, 2), refine=(2, 1), test=(2, 1))},
    paper={"data": "caltech101", "classes": ("Faces_easy", "revolver", "umbrella"), "n_train": 24, "n_others": 8,
           "noises": (0.05, 0.15, 0.5, 1.0, 3.0, 10.0), "voters": 6,
           **training.lengths((60, 20), refine=(80, 20), test=(40, 20))},
)
def caltech_depth(p: dict, run: Run) -> Outcome:
    """Three layers of one class of pictures refined at several noise precisions, a class at a time.

    For each (class, noise): atoms of every layer in the image plane; active coefficients, residual, projection error,
    winning share; and the squared error on a hidden half of other training pictures of the class,
    filled in at the precision of the refinement, beside that of a blank, the mean picture and principal components.
    Pictures are contrast normalised, as everywhere on Caltech.
    """
    model, rows = training.caltech_model("faces", p), {}
    for name in p["classes"]:
        every = normalise_contrast(training.pictures(p, (name,), p["n_train"] + p["n_others"]))
        train, others = every[: p["n_train"]], every[p["n_train"] :]
        setup = training.Setup(train, model, p["seed"])
        fitted, found = training.pretrained_model(p, run, setup, f"{name}, "), {}
        for noise in p["noises"]:
            label = f"{name}, noise precision {noise:g}, "
            one = training.refined_model(p | {"refine_noise": noise}, fitted, run, setup, label)
            found[noise] = _describe_pictures(one, others, p)
        mask = hide_halves(others.shape)
        filled = fill_plainly(others, mask, train, choose_components(train, mask), "picture")
        errors = np.float32([hidden_error(part, others, mask) for part in filled.values()])
        plain = {"plain_error": (("way", "hidden_image"), errors)}
        plain["truth"] = ("example", "row", "col"), np.rint(100 * others.values[:4, 0]).astype(np.int16)
        rows[name] = along("noise", found).merge(xr.Dataset(plain, {"way": list(filled)}))
    return outcome(along("class", rows), p, every, model=model)


def _describe_pictures(one: Refined, others: xr.DataArray, p: Mapping) -> xr.Dataset:
    """Everything of one class and noise precision."""
    mask, test = hide_halves(others.shape), training.chain_of(p, "test_")
    noise, shared = one.refinement.noise.fixed, one.state.shared
    filled = interpolate_joint(others, mask, one.model, shared, one.refinement, test, noise).values
    layers = project_layers(one, p["voters"])
    last = _last(one)
    axes, uses = ("atom_{0}", "row_{0}", "col_{0}"), uses_of(one)
    drawn = [in_own_percents(atoms.values[:, 0]) for atoms in layers]
    drawn[-1] = most_used(drawn[-1], uses, SHOWN)
    out = {f"atoms_{number}": ([axis.format(number) for axis in axes], one) for number, one in enumerate(drawn, 1)}
    return xr.Dataset(out | {
        "uses": ("atom_3", most_used(uses, uses, SHOWN)),
        "active": float(last.active), "residual": float(last.residual),
        "hidden_error": ("hidden_image", hidden_error(filled, others, mask)),
        "filled": (("example", "row", "col"), np.rint(100 * filled[:4, 0]).clip(-999, 999).astype(np.int16)),
        "projection_error": float(projection_error(one.state, one.model, layers[-1]).mean()),
        "winning_share": layers[-1].attrs["winning_share"][0],
    })
