"""Dictionaries in the image plane, looked at and measured: Fig. 2a, 3 and 5, and the supplement's classes together."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from gdd import pretrain, project, refine
from gdd.base.axes import ATOM, DICTIONARY, DRAW, IMAGE, LABEL
from gdd.inference.contrast import normalise_contrast
from gdd.inference.deconvolution import InferenceChain
from gdd.model.joint import layer_values
from gdd.model.spec import ChainSpec, ModelSpec
from gdd.model.state import JointState
from gdd.projection import collapse, project_layers
from gdd.sampler.pretrain import Pretrained, fit_layer
from gdd.sampler.refine import Refined
from gdd_book import dictionaries, training
from gdd_book.data import datasets
from gdd_book.evaluate.atoms import gradient_kurtosis, high_frequency_share, match_atoms, scaled, stroke_share
from gdd_book.experiments.common import Outcome, experiment, outcome
from gdd_book.progress import Run

SHARPNESS = (high_frequency_share, gradient_kurtosis)


def uses_of(trained: Pretrained | Refined) -> np.ndarray:
    """How many blocks of all training images each top atom is active in, (atom,)."""
    local = (trained.layers[-1] if isinstance(trained, Pretrained) else trained).state.local
    return (local.z >= 0).sum(axis=(0, 2, 3))


def judge(
    kinds: Mapping[str, Sequence[dictionaries.Atoms]], axis: str, held_out: xr.DataArray, stride: tuple[int, int],
    precisions: tuple[float, float], p: Mapping[str, Any],
) -> xr.Dataset:
    """Reconstruct held-out images from atoms of unit norm, every kind under the same precisions and chain.

    ``rms`` (kind, axis) of the residual of a pixel, ``active`` coefficients per image, ``rms_of_images``: with none
    """
    chain = InferenceChain(p["test_burn_in"], p["test_collect"], p["seed"])
    options = {"gamma_e": precisions[0], "gamma_w": precisions[1], "chain": chain}
    found = [[dictionaries.rebuild(held_out, atoms, stride, **options) for atoms in both] for both in kinds.values()]
    rms, active = np.moveaxis(found, -1, 0)
    out = {"rms": (("kind", axis), rms), "active": (("kind", axis), active)}
    return xr.Dataset(out | {"rms_of_images": float(np.sqrt((held_out.values**2).mean()))})


def describe_projection(atoms: xr.DataArray, state: JointState, model: ModelSpec) -> xr.Dataset:
    """In how many blocks each projected atom is active, and how well projected atoms speak for the layers.

    ``uses`` (atom,); ``winning_share`` of the first pooled layer; ``projection_error`` (image,), see
    `gdd_book.dictionaries.projection_error`.
    """
    return xr.Dataset({
        "uses": (ATOM, (state.local.z >= 0).sum(axis=(0, 2, 3))),
        "winning_share": atoms.attrs["winning_share"][0],
        "projection_error": (IMAGE, dictionaries.projection_error(state, model, atoms)),
    })


def most_used(atoms: np.ndarray, uses: np.ndarray, count: int = 25) -> np.ndarray:
    """Atoms (atom, ...) that are used most, the first ``count`` of them: those that are looked at."""
    return atoms[np.argsort(-uses, kind="stable")[:count]]


def in_own_percents(images: np.ndarray) -> np.ndarray:
    """Images (..., row, col) in whole percents of each one's largest magnitude."""
    return np.rint(100 * images / np.abs(images).max(axis=(-2, -1), keepdims=True).clip(1e-12)).astype(np.int8)


# ---- Fig. 2a
PRETRAINED, NO_VOTE, CUT_DIGITS, REFINED, THRESHOLDED = KINDS = (
    "probabilistic", "probabilistic, no vote", "training digits", "refined", "refined, thresholded"
)  # a pretrained model, two yardsticks, and the model after refinement; the paper-scale record has average pooling too
REACH = 3  # pixels; a whole stride, by which an atom can move at no cost
TEST_PRECISIONS = (100.0, 0.1)  # of noise and weights in reconstructions, the same for every kind


@experiment(
    "mnist-dictionary", seed=0, **training.HEALTHY_DIGITS,
    demo={"data": "digits", "n_train": 200, "n_held_out": 100,
          **training.lengths((60, 20), refine=(60, 20), test=(60, 20))},
    paper={"data": "mnist", "n_train": 2000, "n_held_out": 500,
           **training.lengths((300, 100), refine=(80, 20), test=(150, 50))},
)
def mnist_dictionary(p: dict, run: Run) -> Outcome:
    """Top atoms in the image plane, after pretraining, after refinement, and thresholded.

    The model is trained twice, on disjoint halves of the training digits. Its projected atoms get the two measures of
    sharpness of `gdd_book.evaluate.atoms`, and two judges: how well atoms of one half match those of the other, and how
    well digits that training never saw are reconstructed from them. Beside the models stand two yardsticks: our
    pretrained atoms projected without the vote, and training digits taken as atoms.
    """
    train = datasets.load(p["data"], "train", n=p["n_train"], seed=p["seed"])
    held_out = datasets.load(p["data"], "test", n=p["n_held_out"], seed=p["seed"])
    model = training.digits_model(p)
    atoms, uses = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}
    for setup, trained in halves(train, model, p["seed"], p, run, "half"):
        pretrained, refined = trained.values()
        layers = [layer.state.shared.dictionary for layer in pretrained.layers]
        projected = {
            PRETRAINED: project(pretrained), NO_VOTE: collapse(layers, [model.layers[0].pool], [None])[-1],
            CUT_DIGITS: dictionaries.cut_atoms(setup.images.values, len(layers[-1]), model.projected_size),
            REFINED: project(refined),
        }
        projected[THRESHOLDED] = dictionaries.threshold(projected[REFINED])
        for kind, part in projected.items():
            atoms[kind].append(part)
            used = uses_of(refined if kind in (REFINED, THRESHOLDED) else pretrained)
            uses[kind].append(np.ones_like(used) if kind == CUT_DIGITS else used)
    dataset = _measure_halves(atoms, uses).merge(judge(atoms, "half", held_out, model.stride, TEST_PRECISIONS, p))
    chains = [training.chain_of(p, stage, 2 * p["seed"] + half) for stage in ("", "refine_") for half in (0, 1)]
    return outcome(dataset, p, train, model=model, chains=chains)


def halves(images: xr.DataArray, model: ModelSpec, seed: int, p: dict, run: Run, word: str) -> Iterator[tuple]:
    """Two disjoint halves, every other image each: what models of all stages are learned from, and these models."""
    for half in (0, 1):
        setup = training.Setup(images.isel(image=slice(half, None, 2)), model, 2 * seed + half)
        yield setup, training.trained_models(p, run, setup, f"{word} {half + 1}, ")


def _measure_halves(atoms: dict, uses: dict) -> xr.Dataset:
    """Sharpness of every atom, (kind, half, atom); correlation with its match in the other half, (kind, atom)."""
    axes = ("kind", "half", ATOM)
    matches = [match_atoms(atoms[kind][1], atoms[kind][0], REACH) for kind in KINDS]
    return xr.Dataset({f.__name__: (axes, [[f(part) for part in atoms[kind]] for kind in KINDS]) for f in SHARPNESS} | {
        "uses": (axes, [uses[kind] for kind in KINDS]),
        "correlation": (("kind", ATOM), [np.abs(match.correlation) for match in matches]),
        "most_used": (("kind", "shown", *DICTIONARY[1:]), dictionaries.rounded(np.stack([
            most_used(scaled(atoms[kind][0]), uses[kind][0]) for kind in KINDS
        ]))),
    }, {"kind": list(KINDS)})


# ---- how atoms come about
@experiment(
    "mnist-forming", seed=0, learned_planes=True, atoms=25, **training.HEALTHY_DIGITS,
    demo={"data": "digits", "n_train": 200, "burn_in": 40, "collect": 10,
          "sweeps": (1, 4, 16), "refine_sweeps": (1, 4)},
    paper={"data": "mnist", "n_train": 1000, "burn_in": 150, "collect": 50,
           "sweeps": (1, 2, 4, 8, 16, 32, 64, 128, 256), "refine_sweeps": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)},
)
def mnist_forming(p: dict, run: Run) -> Outcome:
    """Look at the projected top atoms after some sweeps of layer 2's pretraining, and then of refinement.

    Layer 1 is pretrained first, and held while layer 2 is. Between two looks a chain goes on with random numbers of its
    own, named by the sweeps done. The record has ``frames`` (frame, atom, plane, row, col) of the atoms that are used
    most in the end, in percent of each one's largest magnitude in that frame, and how much of an atom is one stroke.
    """
    setup = training.setup_of(p)
    with run.bar(2 * (p["burn_in"] + p["collect"]), "pretraining of layer 1") as bar:
        begun = pretrain(setup.images, setup.model, training.chain_of(p), progress=bar)
    looks, state = [], None
    with run.bar(p["sweeps"][-1], "pretraining of layer 2") as bar:
        for done, sweeps in pairwise((0, *p["sweeps"])):
            chain = ChainSpec(sweeps - done - 1, 1, p["seed"] + sweeps)
            top = fit_layer(begun.inputs[1], *begun.layers[1][:2], chain, 1, progress=bar, start=state)
            state, trained = top.state, begun._replace(layers=(begun.layers[0], top))
            looks.append((training.STAGES[0], sweeps, project(trained), uses_of(trained)))
    with run.bar(p["refine_sweeps"][-1], "refinement") as bar:
        for done, sweeps in pairwise((0, *p["refine_sweeps"])):
            chain = ChainSpec(sweeps - done - 1, 1, p["seed"] + sweeps)
            before = {name: value for name, value in p.items() if name not in ("atoms", "refine_sweeps")}
            folder = run.folder("forming", before | {"done": done, "at": sweeps})
            refinement = training.refinement_for(p["refine_noise"], dictionary_every=4)
            trained = refine(setup.images, setup.model, chain, refinement, trained, folder=folder, progress=bar)
            looks.append((training.STAGES[1], sweeps, project(trained), uses_of(trained)))
    stages, sweeps, atoms, uses = zip(*looks, strict=True)
    often = np.argsort(-uses[-1])[: p["atoms"]]
    frames = np.stack([one.values[often] for one in atoms])
    strokes = [float(stroke_share(one.values[use >= use.mean()]).mean()) for one, use in zip(atoms, uses, strict=True)]
    return outcome(xr.Dataset(
        {"frames": (("frame", *DICTIONARY), in_own_percents(frames)), "stroke_share": ("frame", strokes)},
        {"stage": ("frame", list(stages)), "sweep": ("frame", list(sweeps))},
    ), p, setup.images, model=setup.model)


# ---- Fig. 3
FACES = "training faces"
CHOICES = {"data": ("digits", *training.CALTECH), "stages": training.STAGES, "model": tuple(training.MODELS)}
TEST_GAMMA_W = 1e-3  # precision of the weights in reconstructions: atoms of unit norm need weights of some tens


@experiment(
    "caltech-faces", choices=CHOICES, seed=0, stages=training.STAGES, **training.HEALTHY_CALTECH,
    demo={"data": "digits", "class_name": "0", "n_train": 4, "n_held_out": 2,
          **training.lengths((6, 2), refine=(2, 1), test=(10, 5)), "voters": 1},
    paper={"data": "caltech101", "class_name": "Faces_easy", "n_train": 64, "n_held_out": 30,
           **training.lengths((60, 20), refine=(15, 5), test=(200, 50)), "voters": 8},
)
def caltech_faces(p: dict, run: Run) -> Outcome:
    """Atoms of three layers learned from faces, in the image plane, after pretraining and after refinement.

    Both models are trained twice, on disjoint sets of ``n_train`` faces; ``voters`` of them decide where the pixels of
    a refined model's atoms go. Atoms are measured and judged as those of `mnist_dictionary`, layer by layer. A
    yardstick are training faces, cut to the atoms' sizes and taken as atoms.
    """
    which = p, (p["class_name"],), 2 * p["n_train"]
    raw, held_out = training.pictures(*which), normalise_contrast(training.pictures(*which, p["n_held_out"]))
    train = normalise_contrast(raw)
    model = training.caltech_model("faces", p)
    stacks, chains, models = {}, [], {}
    for setup, trained in halves(train, model, p["seed"], p, run, "set"):
        chains.append(trained)
        models |= training.learned(f"caltech-faces-{len(chains)}", trained, setup, p)
        found = _projected(trained, p, len(setup.images))
        sizes = [(len(atoms), atoms.shape[2:]) for atoms in found[training.STAGES[0]]]
        found[FACES] = [dictionaries.cut_atoms(setup.images.values, count, size) for count, size in sizes]
        for kind, layers in found.items():
            stacks.setdefault(kind, []).append(layers)
    top = {kind: [layers[-1] for layers in both] for kind, both in stacks.items()}
    dataset = _measure_sets(stacks, dictionaries.reaches_of(model))
    dataset = dataset.merge(judge(top, "set", held_out, model.stride, (p["noise_precision"], TEST_GAMMA_W), p))
    refined = [trained[training.STAGES[1]].traces for trained in chains if training.STAGES[1] in trained]
    for name in ("residual", "active") if refined else ():
        dataset[f"refinement_{name}"] = ("set", DRAW), np.array([one[name].values[0] for one in refined], "f4")
    dataset["raw"] = (IMAGE, "row", "col"), np.rint(255 * raw.values[:8, 0]).astype(np.uint8)
    return outcome(dataset, p, raw, models, model=model, refinement=training.refinement_for(p["refine_noise"]))


def _projected(trained: dict, p: dict, images: int) -> dict[str, tuple[xr.DataArray, ...]]:
    """Atoms of every layer in the image plane for every stage."""
    return {stage: project_layers(one, min(p["voters"], images)) for stage, one in trained.items()}


def _measure_sets(stacks: dict, reaches: list[int]) -> xr.Dataset:
    """Atoms of the first set; of every atom, sharpness (kind, set, atom) and its match in the other set (kind, atom).

    The axis ``atom`` runs over all layers, with the coordinate ``layer``. ``winning_share`` (stage, set, pooled).
    """
    stages = [kind for kind in stacks if kind != FACES]
    out = dictionaries.pack([stacks[stage][0] for stage in stages]).assign_coords(stage=stages)
    for f in SHARPNESS:
        values = [[dictionaries.join_layers([f(atoms) for atoms in one]) for one in sets] for sets in stacks.values()]
        out[f.__name__] = xr.concat([xr.concat(part, "set") for part in values], "kind")
    matches = [dictionaries.match_layers(*sets[::-1], reaches) for sets in stacks.values()]
    out["correlation"] = xr.concat(matches, "kind")
    shares = [[one[-1].attrs["winning_share"] for one in stacks[stage]] for stage in stages]
    out["winning_share"] = ("stage", "set", "pooled"), shares
    return out.assign_coords(kind=list(stacks))


# ---- Fig. 5 and its like in the supplement
@experiment(
    "caltech-classes", choices=CHOICES, seed=0, stages=training.STAGES, **training.HEALTHY_CALTECH,
    demo={"data": "digits", "classes": ("0", "1"), "n_train": 3, **training.lengths((6, 2), refine=(2, 1)),
          "voters": 1},
    paper={"data": "caltech101", "classes": ("nautilus", "pyramid", "revolver", "umbrella"), "n_train": 15,
           **training.lengths((60, 20), refine=(30, 10)), "voters": 4},
)
def caltech_classes(p: dict, run: Run) -> Outcome:
    """Each class alone, and how alike the classes' dictionaries are, by layer.

    Every class is learned twice, from disjoint sets of ``n_train`` of its images. How well the atoms of two classes
    match is compared with how well those of two sets of one class do: a layer whose atoms match between classes as well
    as within one is common to the classes, one whose atoms do not belongs to its class.
    """
    model = training.caltech_model("three layers", p)
    stacks = {}
    for number, name in enumerate(p["classes"]):
        images = normalise_contrast(training.pictures(p, (name,), 2 * p["n_train"]))
        seed = p["seed"] * len(p["classes"]) + number  # unused atoms must not be the same noise
        for setup, trained in halves(images, model, seed, p, run, f"{name}, set"):
            for stage, layers in _projected(trained, p, len(setup.images)).items():
                stacks.setdefault(stage, []).append(layers)
    parts, match = [], partial(dictionaries.match_layers, reaches=dictionaries.reaches_of(model))
    for layers in stacks.values():  # of the first set and of the second set of every class in turn
        first, second = layers[::2], layers[1::2]
        same = xr.concat([match(b, a) for a, b in zip(first, second, strict=True)], "class")
        different = xr.concat([match(b, a) for a, b in combinations(first, 2)], "pair")
        parts.append(xr.Dataset({"same": same, "different": different}))
    dataset = xr.concat(parts, "stage").assign_coords({"stage": list(stacks), "class": list(p["classes"])})
    return outcome(dataset, p, images, model=model, refinement=training.refinement_for(p["refine_noise"]))


@experiment(
    "caltech-joint", choices=CHOICES, seed=0, stages=training.STAGES, **training.HEALTHY_CALTECH,
    demo={"data": "digits", "classes": ("0", "1"), "model": "three layers", "n_train": 3,
          **training.lengths((6, 2), refine=(2, 1)), "voters": 1},
    paper={"data": "caltech101", "classes": ("ketch", "nautilus", "revolver", "stop_sign", "umbrella", "windsor_chair"),
           "model": "faces", "n_train": 6, **training.lengths((60, 20), refine=(30, 10)), "voters": 6},
)
def caltech_joint(p: dict, run: Run) -> Outcome:
    """Several classes learned together: whose atoms they are, layer by layer.

    An atom that one class alone uses belongs to that class; one that all classes use alike is general. The measure is
    the share of an atom's weight in each image. ``n_train`` images of every class; ``voters`` of them, classes in turn,
    decide where the pixels of a refined model's atoms go.
    """
    images = training.pictures(p, p["classes"], p["n_train"])
    labels = images[LABEL].values  # classes in turn: the first images hold one of every class
    images = images.isel({IMAGE: np.lexsort((labels, pd.Series(labels).groupby(labels).cumcount()))})
    images = normalise_contrast(images)
    model = training.caltech_model(p["model"], p)
    setup = training.Setup(images, model, p["seed"])
    trained = training.trained_models(p, run, setup, "all classes, ")
    stacks = _projected(trained, p, len(images))
    known = images.attrs["label_names"].split(",")
    dataset = dictionaries.pack(list(stacks.values())).assign_coords({
        "stage": list(stacks), "class": (IMAGE, [known[label] for label in images[LABEL].values])
    })
    dataset["weight_share"] = xr.concat([weight_shares(trained[stage]) for stage in stacks], "stage")
    shown = np.rint(100 * images.values[: len(p["classes"]), 0]).clip(-127, 127).astype(np.int8)
    dataset["images"] = ("example", "row", "col"), shown
    models = training.learned("caltech-joint", trained, setup, p)
    return outcome(dataset, p, images, models, model=model, refinement=training.refinement_for(p["refine_noise"]))


def weight_shares(trained: Pretrained | Refined) -> xr.DataArray:
    """Share of the squared weight of every atom that each training image has, (image, atom).

    The axis ``atom`` runs over all layers, with the coordinate ``layer``. NaN for an atom that is never used. In a
    refined model the weights of a layer below the top are what the layers above draw there.
    """
    if isinstance(trained, Refined):
        (local, shared), shapes = trained.state, trained.model.shapes()
        weights = [*layer_values(local, shared.dictionaries, shapes)[1:], local.w]
    else:
        weights = [layer.state.local.w for layer in trained.layers]
    each = dictionaries.join_layers([(w.astype(float) ** 2).sum(axis=(2, 3)).T for w in weights]).transpose(IMAGE, ATOM)
    total = each.sum(IMAGE)
    return each / total.where(total > 0)


# ---- one class at the paper's lengths
@experiment(
    "caltech-class", choices=CHOICES | {"data": training.CALTECH}, data="caltech101", classes=("revolver",),
    per_class=30, seed=0, model="three layers", voters=10, **training.HEALTHY_CALTECH,
    demo=training.lengths((15, 5), refine=(6, 2)),
    paper=training.lengths((1500, 500), refine=(1500, 500)),
)
def caltech_class(p: dict, run: Run) -> Outcome:
    """One class, from its images to refined atoms: what it costs, and what every layer has learned.

    The record holds the CPU time of every part over all runs, traces, and the dictionary of every layer in the image
    plane, before and after refinement. ``voters`` training images decide where refined atoms' pixels go.
    """
    setup = training.setup_of(p)
    trained = training.trained_models(p, run, setup)
    fitted, refined = trained.values()
    chains = {f"layer {number}": layer.traces for number, layer in enumerate(fitted.layers, 1)}
    chains["refinement"] = refined.traces
    costs = {name: (one.attrs["cpu_seconds"], one.sizes[DRAW]) for name, one in chains.items()}
    projected = []
    for stage, one in trained.items():
        begun = time.process_time()
        projected.append(project_layers(one, min(p["voters"], len(setup.images))))
        costs[f"projection, {stage}"] = time.process_time() - begun, 0
    cpu, sweeps = (list(column) for column in zip(*costs.values(), strict=True))
    out: dict[str, Any] = {"cpu_seconds": ("part", cpu), "sweeps": ("part", sweeps)}
    out["pre_active"] = ("layer", DRAW), np.stack([layer.traces.active.values[0] for layer in fitted.layers])
    out |= {name: ("refine_draw", refined.traces[name].values[0]) for name in ("log_joint", "active")}
    for number, pair in enumerate(zip(*projected, strict=True), 1):
        atom = "atom_top" if number == len(projected[0]) else f"atom_{number}"
        axes = ("stage", atom, f"row_{number}", f"col_{number}")
        out[f"atoms_{number}"] = axes, np.stack([in_own_percents(one.values[:, 0]) for one in pair])
    out["winning_share"] = ("stage", "pooled_layer"), [one[-1].attrs["winning_share"] for one in projected]
    out["images"] = ("example", "row", "col"), in_own_percents(setup.images.values[:6, 0])
    out["projection_error"] = "image", dictionaries.projection_error(refined.state, refined.model, projected[1][-1])
    models = training.learned(f"caltech-{'-'.join(p['classes'])}", trained, setup, p)
    found = xr.Dataset(out, {"part": list(costs), "stage": list(training.STAGES)})
    return outcome(found, p, setup.images, models, model=fitted.model, refinement=refined.refinement)
