"""A positive control: images that the model itself made, a class for every few top atoms, through the pipeline."""

import hashlib
from dataclasses import replace

import numpy as np
import xarray as xr

from gdd import project
from gdd.base.axes import ATOM, IMAGE, IMAGES, LABEL
from gdd.inference.deconvolution import precisions_of
from gdd.model.joint import layer_values
from gdd.model.layer import draw_positions
from gdd.model.spec import MNIST, PIXEL_RMS, ModelSpec
from gdd.model.state import EMPTY, JointLocal
from gdd.projection import collapse
from gdd_book.evaluate.atoms import match_atoms
from gdd_book.experiments.common import KINDS, Outcome, along, encode, error_of, experiment
from gdd_book.progress import Run
from gdd_book.training import Setup, lengths, pretrained_model, refined_model

CLASSES, BOTTOM_ATOMS, NOISE_SD = 10, 16, 0.05
#: where the blocks of an image are active: as the projection assumes, or anew in each image, as the model allows
POSITIONS = ("the same in all images", "drawn for each image")


def planted_dictionaries(per_class: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Bars at sixteen angles, 8 x 8; top atoms that put together eight of them each, at random: (atom, plane, h, w)."""
    row, col = np.mgrid[:8, :8] - 3.5
    angles = np.pi * np.arange(BOTTOM_ATOMS) / BOTTOM_ATOMS
    along = [np.stack([row * np.sin(a) + col * np.cos(a), row * np.cos(a) - col * np.sin(a)]) for a in angles]
    bars = np.stack([np.exp(-0.5 * ((u / 2.5) ** 2 + (v / 0.8) ** 2)) for u, v in along])
    top = np.zeros((CLASSES * per_class, BOTTOM_ATOMS, 6, 6))
    for atom in top.reshape(len(top), -1):
        atom[generator.choice(atom.size, 8, replace=False)] = generator.uniform(0.7, 1.3, 8)
    return [bars[:, None] / np.sqrt((bars**2).sum(axis=(1, 2)))[:, None, None, None], top]


def planted_images(
    dictionaries: list[np.ndarray], zhat: np.ndarray, per_class: int, model: ModelSpec, positions: str, count: int,
    split: str, generator: np.random.Generator,
) -> xr.DataArray:
    """Images (image, plane, row, col) of one active top coefficient each, at one of four places, and noise.

    ``zhat`` : position of the block under each pixel of each top atom, (atom, plane, h, w)
    """
    shapes, labels = model.shapes(), np.arange(count) % CLASSES
    z = np.full((count, len(zhat), *shapes[1].grid), EMPTY, np.int16)
    atoms, places = labels * per_class + generator.integers(0, per_class, count), generator.integers(0, 2, (2, count))
    z[np.arange(count), atoms, *places] = 0
    w = np.where(z == EMPTY, 0.0, generator.normal(1.0, 0.15, z.shape))
    below = draw_positions(count, model.layers[0], shapes[0], generator)
    if positions == POSITIONS[0]:
        rows, cols = zhat.shape[2:]
        for n, (atom, i, j) in enumerate(zip(atoms, *places, strict=True)):
            below[n, :, i : i + rows, j : j + cols] = zhat[atom]
    clean = layer_values(JointLocal((below,), z, w, np.ones(1)), dictionaries, shapes)[0]
    clean *= PIXEL_RMS / np.sqrt((clean**2).mean())
    noisy = (clean + NOISE_SD * generator.standard_normal(clean.shape)).astype(np.float32)
    attrs = {"split": split, "checksum": hashlib.sha256(noisy.tobytes()).hexdigest()}
    return xr.DataArray(noisy, {LABEL: (IMAGE, labels)}, IMAGES, attrs=attrs)


@experiment(
    "planted-classes", choices={"positions": POSITIONS}, seed=0, noises=(2.0, 8.0, 44.0), positions=POSITIONS,
    demo={"n_train": 100, "n_test": 100, "per_class": 2, **lengths((20, 5), refine=(20, 5), test=(20, 10))},
    paper={"n_train": 500, "n_test": 500, "per_class": 2, **lengths((60, 20), refine=(100, 20), test=(100, 50))},
)
def planted_classes(p: dict, run: Run) -> Outcome:
    """Learn, project, deconvolve and classify images with planted classes, at several noise precisions of refinement.

    For each (positions, stage), the stages being pretraining and each noise precision: the error in % of the paper's
    classifier from the sample and from the mean; and how well each planted top atom came back, as the correlation of
    its image with its best partner's, (atom,). ``error_of_pixels`` (positions,) beside them.
    """
    counts = BOTTOM_ATOMS, CLASSES * p["per_class"]  # the model of MNIST with as many atoms as are planted
    layers = (replace(layer, atoms=atoms) for layer, atoms in zip(MNIST.layers, counts, strict=True))
    model = replace(MNIST, layers=tuple(layers)).with_learned_planes()
    rows = {positions: _pipeline(positions, model, p, run) for positions in p["positions"]}
    checksum = hashlib.sha256("".join(row.attrs["checksum"] for row in rows.values()).encode()).hexdigest()
    dataset = along("positions", rows).drop_attrs(deep=False)
    return Outcome(dataset, {"model": model}, "planted classes", checksum, p["seed"])


def _pipeline(positions: str, model: ModelSpec, p: dict, run: Run) -> xr.Dataset:
    """All stages with these positions; the attribute ``checksum`` is that of the training images."""
    generator = np.random.default_rng(p["seed"])
    truth = planted_dictionaries(p["per_class"], generator)
    zhat = generator.integers(0, 9, truth[1].shape)
    train, test = (
        planted_images(truth, zhat, p["per_class"], model, positions, p[f"n_{split}"], split, generator)
        for split in ("train", "test")
    )
    setup, label = Setup(train, model, p["seed"]), f"positions {positions}, "
    stages = {"pretrained": (fitted := pretrained_model(p, run, setup, label))}
    for noise in p["noises"]:
        stages[f"refined at {noise:g}"] = refined_model(p | {"refine_noise": noise}, fitted, run, setup, label)
    planted = collapse(truth, [model.layers[0].pool], [zhat])[-1]
    judged = {}
    for name, one in stages.items():
        atoms = project(one)
        codes = [encode(images, atoms, one.model.stride, precisions_of(one), p) for images in (train, test)]
        judged[name] = xr.Dataset({
            "error": ("reading", [error_of([code[kind] for code in codes], train, test, p) for kind in KINDS]),
            "correlation": (ATOM, np.abs(match_atoms(atoms, planted, 3).correlation.values)),
            "winning_share": atoms.attrs["winning_share"][0],
        }, {"reading": ["sample", "mean"]})
    out = along("stage", judged)
    out["error_of_pixels"] = error_of((train, test), train, test, p)
    return out.assign_attrs(checksum=train.attrs["checksum"])
