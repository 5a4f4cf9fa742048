"""Test time: one-layer deconvolution at the paper's chain lengths, at the shapes of MNIST and of Caltech 101.

Caltech's images and atoms are stand-ins of the right shapes, smooth random fields, every image the sum of some placed
atoms and noise: dictionaries of all 101 classes take hours. Chains are run in full on few images; the time per image
is theirs divided by their number. What beginning with a greedy pursuit saves stands beside it. What all images share,
the Gram matrix of the atoms, is a row of its own.
*Checked:* tests/test_bench.py.
"""

from __future__ import annotations

import time

import numpy as np
import xarray as xr
from scipy.ndimage import gaussian_filter

from gdd.inference.deconvolution import infer, make_problem, run_problem
from gdd.model.placement import placement_grid
from gdd.model.spec import CALTECH101
from gdd.projection import project_model
from gdd.sampler.pretrain import Pretrained
from gdd_book.benchmarks.rows import Row, ratio, row, single
from gdd_book.benchmarks.timing import Timing, time_in_turn

#: the paper's burn-in and collected sweeps at test time (Sec. 3), and how often a chain is timed
SWEEPS, REPEATS = (500, 200), 2
MNIST_IMAGES, CALTECH_IMAGES = 32, 2
#: stand-ins: placed atoms in an image, their typical weight, noise and precisions
PLACED, WEIGHT, NOISE, GAMMA_E, GAMMA_W = 60, 10.0, 0.03, 100.0, 0.05


def testing_rows(fitted: Pretrained, images: xr.DataArray, p: dict, progress) -> dict[str, Row]:
    """Milliseconds per image of both shapes."""
    atoms, pixels = project_model(fitted), images[:MNIST_IMAGES].astype(np.float32)
    burn_in, collect = SWEEPS
    run = lambda: infer(fitted, atoms, pixels, burn_in=burn_in, collect=collect, seed=p["seed"])  # noqa: E731
    active = float((run().ml_sample != 0).sum()) / len(pixels)
    seconds = time_in_turn({"MNIST": Timing(run, len(pixels))}, REPEATS, progress)["MNIST"]
    coefficients = len(atoms) * int(np.prod(fitted.layers[-1].shape.map_size))
    name = f"MNIST shapes, {coefficients} coefficients, {sum(SWEEPS)} sweeps"
    return {
        name: row(seconds), f"{name}: active": single(active, "per image"),
        **caltech_rows(p["caltech_atoms"], p["seed"], progress),
    }  # fmt: skip


def caltech_rows(number: int, seed: int, progress) -> dict[str, Row]:
    """The paper's shapes with this many atoms; the Gram matrix is made once and timed once."""
    size, stride = CALTECH101.image_size, CALTECH101.stride
    atoms, images = stand_ins(number, size, CALTECH101.projected_size, stride, seed)
    begun = time.process_time()
    problem = make_problem(atoms, size, stride, GAMMA_E, GAMMA_W)
    shared = time.process_time() - begun
    scaled = images * np.float32(GAMMA_E**0.5)
    zeros = np.zeros((len(images), number, *problem.grid), np.float32)
    run = lambda start=None: run_problem(problem, scaled, start, (seed, 0, *SWEEPS), False)  # noqa: E731
    active = float((run()[0] != 0).sum()) / len(images)
    jobs = {"Caltech": Timing(run, len(images)), "from zeros": Timing(lambda: run(zeros), len(images))}
    seconds = time_in_turn(jobs, REPEATS - 1, progress)
    name = f"Caltech shapes, {number * int(np.prod(problem.grid))} coefficients, {sum(SWEEPS)} sweeps"
    return {
        name: row(seconds["Caltech"]), f"{name}: active": single(active, "per image"),
        f"{name}: begun with zeros": row(seconds["from zeros"]),
        f"{name}: begun with zeros / with the pursuit": ratio(seconds["from zeros"], seconds["Caltech"]),
        "Caltech shapes: Gram matrix, once for all images": row(np.array([shared]), "ms"),
        "Caltech shapes: Gram matrix": single(problem.gram.nbytes / 1e6, "MB"),
    }  # fmt: skip


def stand_ins(number: int, size, reach, stride, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Atoms of unit norm (atom, 1, row, col), and images that they add up to, (image, 1, row, col)."""
    generator = np.random.default_rng(seed)
    atoms = generator.standard_normal((number, *reach), np.float32)
    for atom, width in zip(atoms, generator.uniform(1.5, 4.0, number), strict=True):
        atom[:] = gaussian_filter(atom, width)
    atoms /= np.sqrt((atoms**2).sum(axis=(1, 2), keepdims=True))
    grid = placement_grid(size, reach, stride)
    images = NOISE * generator.standard_normal((CALTECH_IMAGES, *size))
    for image in images:
        for atom in generator.integers(number, size=PLACED):
            top, left = (int(generator.integers(n)) * s for n, s in zip(grid, stride, strict=True))
            image[top : top + reach[0], left : left + reach[1]] += WEIGHT * generator.standard_normal() * atoms[atom]
    return atoms[:, None], images[:, None].astype(np.float32)
