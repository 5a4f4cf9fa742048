"""Models as the experiments train them, on digits and on Caltech images.

Checkpoints lie in folders named after exactly what a chain depends on, see `gdd_book.progress`: experiments share
chains. Caltech images are grey, 128 x 128, local contrast normalised (`gdd.inference.contrast`), around 0 with a
standard deviation of about 0.7.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

import gdd
from gdd.base.axes import DICTIONARY, IMAGE, LABEL
from gdd.inference.contrast import WIDTH, normalise_contrast
from gdd.inference.deconvolution import precisions_of
from gdd.model import spec
from gdd.projection import project_layers
from gdd.results import Trained
from gdd.sampler.checkpoint import code_checksum
from gdd.sampler.pretrain import Pretrained, pretrain
from gdd.sampler.refine import Refined, refine
from gdd_book.data import datasets
from gdd_book.progress import Run

STAGES = ("pretrained", "refined")
CALTECH = ("caltech101", "caltech256")
#: models of Caltech images by name. The paper does not print the sizes of its two layers (Table 2): ours have the
#: bottom atoms of the three layers, pooled 8 x 8 at once, and top atoms that project to the same 96 x 96 pixels at the
#: same 5 x 5 positions
MODELS = {
    "three layers": spec.CALTECH101,
    "two layers": spec.ModelSpec((spec.LayerSpec(8, (17, 17), (8, 8)), spec.LayerSpec(16, (10, 10))), (128, 128)),
    "faces": spec.FACES,
    "faces, interpolation": spec.FACES_INTERPOLATION,
}
#: noise precisions of a refinement that begins at another than it ends at, ``first_noise``
RUNGS = 3
#: precisions whose chains stay healthy (book, inference/mixing, model/refinement and caltech/accuracy)
HELD_DIGITS = {"noise_precision": 100.0, "weight_precision": 0.1}
HELD_CALTECH = {"noise_precision": 3.0, "weight_precision": 0.1, "learned_planes": True}
#: of refinements measured before the scan over noise precisions (experiments/studies/depth.py): top atoms are strokes
HEALTHY_DIGITS, HEALTHY_CALTECH = HELD_DIGITS | {"refine_noise": 44.0}, HELD_CALTECH | {"refine_noise": 3.0}
#: the book's own, chosen by that scan: the noise has 4.5 times the digits' mean square, and top atoms are digits
DEEP_DIGITS = HELD_DIGITS | {"refine_noise": 1 / (spec.NOISE_IN_SIGNALS * spec.PIXEL_RMS**2)}


# ---- models
def model_for(noise_precision: float, weight_precision: float) -> spec.ModelSpec:
    """Return the paper's MNIST model with precisions that keep its chains healthy; 0 for the printed priors.

    Layer 1: gamma_e and gamma_w fixed at these values. Layer 2: one gamma_e for all images, learned; gamma_w learned.
    """
    if not noise_precision:
        return spec.MNIST.as_printed()
    return spec.MNIST.with_fixed_precisions(noise_precision, weight_precision)


def digits_model(p: Mapping[str, Any]) -> spec.ModelSpec:
    """Return the model of digits of these parameters; ``learned_planes`` keep layer 1 alive in refinement."""
    model = model_for(p["noise_precision"], p["weight_precision"])
    lower, upper = model.layers
    model = replace(model, layers=(lower, replace(upper, atoms=p.get("top_atoms", upper.atoms))))
    return model.with_learned_planes() if p.get("learned_planes") else model


def caltech_model(name: str, p: Mapping[str, Any]) -> spec.ModelSpec:
    """Return one of `MODELS` likewise; in its upper layers gamma_w is fixed too, at a tenth, as inputs are larger.

    A learned one can rise without end in a top layer of 30 images: weights and atoms shrink to nothing.
    """
    noise, weights = p["noise_precision"], p["weight_precision"]
    if not noise:
        return MODELS[name].as_printed()
    model = MODELS[name].with_fixed_precisions(noise, weights, weights / 10)
    return model.with_learned_planes() if p["learned_planes"] else model


def refinement_for(refine_noise: float, **settings) -> spec.RefinementSpec:
    """Return the refinement with this noise precision; 0: learned for each image under the printed flat prior (P15)."""
    noise = spec.Precision(fixed=refine_noise) if refine_noise else spec.Precision((IMAGE,))
    return spec.RefinementSpec(noise, **settings)


# ---- images
def digits(p: Mapping[str, Any], split: str = "train") -> xr.DataArray:
    """Training digits of these parameters, or ``p["n_test"]`` test digits."""
    return datasets.load(p["data"], split, n=p["n_train" if split == "train" else "n_test"], seed=p["seed"])


def caltech_images(p: Mapping[str, Any], split: str = "train", size: tuple[int, int] | None = None) -> xr.DataArray:
    """Pictures of the classes ``p["classes"]``, ``p["per_class"]`` of each in training, by ``p["seed"]``."""
    chosen = {name: p[name] for name in ("classes", "per_class", "seed")}
    return datasets.load(p["data"], split, size=size or MODELS[p["model"]].image_size, **chosen)


def pictures(p: Mapping[str, Any], classes: Sequence[str], per_class: int, held_out: int = 0) -> xr.DataArray:
    """Training pictures, ``per_class`` of each of these classes; or ``held_out`` others of all of them together.

    ``p["data"]`` may name the embedded digits in their stead, of classes "0" to "9", enlarged to the same size.
    """
    split, n = ("test", held_out) if held_out else ("train", None)
    counts = {"per_class": per_class, "n": n} if p["data"] in CALTECH else {"n": n or per_class * len(classes)}
    return datasets.load(p["data"], split, classes=classes, seed=p["seed"], size=spec.CALTECH101.image_size, **counts)


def normalised(images: xr.DataArray, width: int = WIDTH) -> xr.DataArray:
    """Contrast normalised, some images at a time: the double precision in between is large."""
    parts = [normalise_contrast(images.isel(image=slice(low, low + 200)), width) for low in range(0, len(images), 200)]
    return xr.concat(parts, IMAGE)


# ---- chains
class Setup(NamedTuple):
    """What a model is learned from."""

    images: xr.DataArray
    model: spec.ModelSpec
    seed: int


def setup_of(p: Mapping[str, Any], images: xr.DataArray | None = None) -> Setup:
    """What parameters describe: Caltech images if they name ``per_class``, else digits; ``images``: if at hand."""
    if "per_class" not in p:
        return Setup(digits(p) if images is None else images, digits_model(p), p["seed"])
    images = normalised(caltech_images(p)) if images is None else images
    text = ",".join((str(p["seed"]), *p["classes"]))  # a seed for each class, lest unused atoms be the same noise
    return Setup(images, caltech_model(p["model"], p), int(hashlib.sha256(text.encode()).hexdigest()[:7], 16))


class Learned(NamedTuple):
    """A chain that a run has finished, of which it keeps a model."""

    trained: Trained
    images: xr.DataArray  # (image, plane, row, col), from which it was learned
    chain: spec.ChainSpec  # of its last stage


def lengths(usual: tuple[int, int], **stages: tuple[int, int]) -> dict[str, int]:
    """Parameters of chains of these lengths, (burn-in, collected): of pretraining, and of others by their stage."""
    named = {"": usual} | {f"{stage}_": pair for stage, pair in stages.items()}
    return {f"{begin}{part}": n for begin, pair in named.items()
            for part, n in zip(("burn_in", "collect"), pair, strict=True)}


def chain_of(p: Mapping[str, Any], stage: str = "", seed: int | None = None) -> spec.ChainSpec:
    """Return the chain whose lengths have names that begin with ``stage``, such as "refine_" or "test_"."""
    return spec.ChainSpec(p[f"{stage}burn_in"], p[f"{stage}collect"], p["seed"] if seed is None else seed)


def folders_of(p: Mapping[str, Any], run: Run, setup: Setup) -> tuple[Path | None, Path | None]:
    """Folders of checkpoints: of pretraining and, if the parameters have one, of refinement."""
    depends = {"images": setup.images, "model": setup.model, "chain": _pretraining(p, setup.seed)}
    pretrained = run.folder("pretrained", depends)
    if not {"refine_noise", "refine_burn_in"} <= set(p):
        return pretrained, None
    depends |= {"refine_chain": chain_of(p, "refine_", setup.seed), "first_noise": p.get("first_noise", 0)}
    return pretrained, run.folder("refined", depends | {"refinement": _refinement(p, p["refine_noise"])})


def _pretraining(p: Mapping[str, Any], seed: int) -> spec.ChainSpec:
    return replace(chain_of(p, seed=seed), start="random" if p.get("random_start") else "patches")


def _refinement(p: Mapping[str, Any], noise: float) -> spec.RefinementSpec:
    return refinement_for(noise, **{name: p[name] for name in ("dictionary_every", "empty_blocks") if name in p})


def pretrained_model(p: Mapping[str, Any], run: Run, setup: Setup | None = None, label: str = "") -> Pretrained:
    """Only the first stage of `trained_models`; with ``random_start`` from random atoms in place of patches."""
    setup = setup or setup_of(p)
    chain, (folder, _) = _pretraining(p, setup.seed), folders_of(p, run, setup)
    with run.bar(chain.sweeps * len(setup.model.layers), f"{label}pretraining") as bar:
        return pretrain(setup.images, setup.model, chain, folder=folder, progress=bar, device=run.device)


def refined_model(p: Mapping[str, Any], fitted: Pretrained, run: Run, setup: Setup, label: str = "") -> Refined:
    """Only the second stage of `trained_models`.

    With ``first_noise`` the noise precision goes from there to ``refine_noise`` in `RUNGS` equal ratios and parts of
    the sweeps, each from the last state of the one before; the last alone is collected from and kept on disk.
    """
    chain, start, (_, folder) = chain_of(p, "refine_", setup.seed), fitted, folders_of(p, run, setup)
    rungs = np.geomspace(p["first_noise"], p["refine_noise"], RUNGS)[:-1] if p.get("first_noise") else ()
    part = chain.sweeps // RUNGS
    with run.bar(chain.sweeps, f"{label}refinement") as bar:
        for number, noise in enumerate(rungs, 1):
            short = spec.ChainSpec(part - 1, 1, setup.seed + 1000 * number)
            settings = _refinement(p, noise)
            start = refine(setup.images, fitted.model, short, settings, start, progress=bar, device=run.device)
        rest = replace(chain, burn_in=chain.burn_in - part * len(rungs))
        refinement = _refinement(p, p["refine_noise"])
        return refine(
            setup.images, fitted.model, rest, refinement, start, folder=folder, progress=bar, device=run.device
        )


def trained_models(
    p: Mapping[str, Any], run: Run, setup: Setup | None = None, label: str = ""
) -> dict[str, Pretrained | Refined]:
    """Pretrain a model and, if ``p["stages"]`` names it or is not there, refine it from there: a model for each stage.

    ``p`` : lengths of both chains, ``refine_noise``, what `setup_of` needs; ``label`` begins the bars' labels
    """
    setup = setup or setup_of(p)
    trained = {STAGES[0]: pretrained_model(p, run, setup, label)}
    if STAGES[1] in p.get("stages", STAGES):
        trained[STAGES[1]] = refined_model(p, trained[STAGES[0]], run, setup, label)
    return trained


def learned(name: str, trained: Mapping[str, Trained], setup: Setup, p: Mapping[str, Any]) -> dict[str, Learned]:
    """Return what a run keeps of the stages of `trained_models`, by the names of the models."""
    chains = dict(zip(STAGES, ("", "refine_"), strict=True))
    return {
        f"{name}-{stage}": Learned(one, setup.images, chain_of(p, chains[stage], setup.seed))
        for stage, one in trained.items()
    }


@cache
def code_of(*parts: str) -> str:
    """SHA-256 over the code of the sampler and the model, and over these other files or folders of the library."""
    root, digest = Path(gdd.__file__).parent, hashlib.sha256(code_checksum().encode())
    for path in sorted(path for part in parts for path in [*root.glob(f"{part}.py"), *root.glob(f"{part}/**/*.py")]):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


# ---- one model for each class of a Caltech set
def learn_classes(p: Mapping[str, Any], images: xr.DataArray, run: Run) -> list[xr.Dataset]:
    """Learn a model of every class from normalised images, or find it: of each what `learn_class` returns."""
    names, tasks, known = images.attrs["label_names"].split(","), [], []
    for name in p["classes"]:
        one = p | {"classes": (name,), "stages": STAGES[: 1 + p["refined"]]}
        setup = setup_of(one, images.isel(image=images[LABEL].values == names.index(name)))
        folders_of(one, run, setup)  # here, as a restart sets folders aside
        folder = run.folder("class-atoms", _class_atoms(one, setup))
        known.append(folder and folder.exists() and str(folder))
        tasks.append((one, setup, run.for_tasks()))
    classes = []
    with run.bar(len(tasks), "classes") as bar:
        for folder, one in zip(known, run.each(learn_class, tasks), strict=True):
            if folder:
                run.spent.setdefault(folder, float(one.attrs["seconds"]))
            classes.append(one)
            bar.step()
    return classes


def learn_class(p: Mapping[str, Any], setup: Setup, run: Run) -> xr.Dataset:
    """Learn the model of one class.

    Returns ``atoms`` (stage, atom, plane, atom_row, atom_col) in the image plane; ``gamma_e``, ``gamma_w`` (stage,).
    ``p["voters"]`` training images decide where the pixels of refined atoms go; of a pretrained model all do.
    """
    def compute() -> xr.Dataset:
        stages = trained_models(p, run, setup, f"{p['classes'][0]}, ")
        voters = min(p["voters"], len(setup.images)) if p["refined"] else None
        atoms = [project_layers(one, voters)[-1].values for one in stages.values()]
        gamma_e, gamma_w = zip(*map(precisions_of, stages.values()), strict=True)
        return xr.Dataset({
            "atoms": (("stage", *DICTIONARY), np.stack(atoms).astype(np.float32)),
            "gamma_e": ("stage", list(gamma_e)), "gamma_w": ("stage", list(gamma_w)),
        }, {"stage": list(stages)})

    return run.kept("class-atoms", compute, **_class_atoms(p, setup))


def _class_atoms(p: Mapping[str, Any], setup: Setup) -> dict[str, Any]:
    """What `learn_class` depends on."""
    later = [p["voters"], chain_of(p, "refine_"), _refinement(p, p["refine_noise"])] if p["refined"] else []
    chains = [_pretraining(p, setup.seed), *later]
    return {"images": setup.images, "model": setup.model, "chains": chains, "code": code_of("projection")}


def with_dictionaries(fitted: Pretrained, dictionaries: Iterable[np.ndarray]) -> Pretrained:
    """Return a pretrained model with other dictionaries; every layer keeps its own precisions."""
    layers = []
    for layer, atoms in zip(fitted.layers, dictionaries, strict=True):
        shared = layer.state.shared._replace(dictionary=atoms)
        layers.append(layer._replace(state=layer.state._replace(shared=shared)))
    return fitted._replace(layers=tuple(layers))
