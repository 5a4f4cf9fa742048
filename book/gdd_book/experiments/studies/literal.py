"""The printed draws from images to classifier, in an order in which they run: block after block, not a whole map.

All else is as the supplement prints it, and what is no distribution is read as the nearest that can be drawn: an atom
has one variance (P4), every weight a precision of its own (P7), and a position is drawn at the weight that it happens
to have, with theta exp(-Y / 2) (P2). But gamma_d counts all pixels of an atom: with the printed shape, of one, atoms
that no image uses grow by several times in each sweep (P5). The noise precision of layer 1 is held, or drawn with its
right shape, or with the printed one (P6); layer 2's is always drawn. Page: book/model/as-printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.lib.stride_tricks import sliding_window_view

from gdd import ChainSpec, ModelSpec, Pretrained, pretrain, project
from gdd.inference.infer import precisions_of
from gdd.model.pooling import EMPTY, Blocks, cut_into_blocks
from gdd.model.spec import FLAT
from gdd.model.state import LayerData
from gdd.projection import collapse, render_projected, vote_positions
from gdd.sampler.pretrain import initial_state
from gdd_book.experiments.atoms import in_own_percents
from gdd_book.experiments.path import encode, error_of
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies.mnist_readings import normalised
from gdd_book.experiments.studies.printed import DIVERGED
from gdd_book.progress import Run
from gdd_book.training import HELD_DIGITS, digits, model_for

SAMPLERS = HELD, RIGHT, PRINTED, EXACT = "noise held", "noise drawn", "noise drawn, printed shape", "exact sampler"
KINDS = ("ml_sample", "mean")


@experiment(
    "printed-whole", seeds=(0,), **HELD_DIGITS,
    demo={"data": "digits", "n_train": 60, "n_test": 60, "burn_in": 2, "collect": 1, "test_burn_in": 2,
          "test_collect": 1},
    paper={"data": "mnist", "n_train": 300, "n_test": 300, "burn_in": 60, "collect": 20, "test_burn_in": 40,
           "test_collect": 20},
)
def printed_whole(p: dict, run: Run) -> Outcome:
    """Two layers learned, projected, and digits coded and classified, by the printed draws and by the exact sampler.

    ``error`` (subset, sampler, coder, feature_kind) of the paper's classifier on codes by the sampler itself, and on
    exact ones with the same atoms; ``error_of_pixels`` (subset,). ``left`` (subset, sampler): norm of what the
    sampler's own kept codes leave of the training digits, over that of the digits; ``active``: their coefficients, of
    a digit; ``uses`` (subset, sampler, atom): training digits that use a top atom; ``nearest`` likewise, of `nearest`.
    ``atoms_1``, ``atoms_2`` (subset, sampler, atom, row, col): in the image plane, in percent of each one's largest
    magnitude. ``diverged`` (subset, sampler): sweep of layer 1 in which its residual has `DIVERGED` times the digits'
    norm, 0 if none; where there is one, the rest is not known.
    """
    with run.bar(len(p["seeds"]) * len(SAMPLERS), "samplers") as bar:
        subsets = [_of_subset(p | {"seed": seed}, bar) for seed in p["seeds"]]
    found = xr.concat(subsets, "subset").assign_coords(subset=list(p["seeds"]))
    return outcome(found, p, digits(p | {"seed": 0}), model=_model(p))


def _model(p: Mapping) -> ModelSpec:
    return model_for(p["noise_precision"], p["weight_precision"])


def _of_subset(p: Mapping, bar) -> xr.Dataset:
    """Everything of one subset, by sampler."""
    pair, model, found = [digits(p), digits(p, "test")], _model(p), []
    fitted = pretrain(pair[0], model, ChainSpec(p["burn_in"], p["collect"], p["seed"]))
    for sampler in SAMPLERS:
        if sampler == EXACT:
            learned = Learned(fitted.layers[0].state.shared.dictionary, project(fitted).values)
        else:
            learned = learn(pair[0].values, model, sampler, p)
        found.append(_describe(learned, sampler, pair, fitted, p))
        bar.step()
    names = {"sampler": list(SAMPLERS), "coder": ["itself", EXACT], "feature_kind": list(KINDS)}
    return xr.concat(found, "sampler").assign_coords(names).assign(error_of_pixels=error_of(pair, *pair, p))


class Learned(NamedTuple):
    """Atoms of layer 1, and those of layer 2 in the image plane, (atom, plane, row, col); sweep of divergence, or 0."""

    bottom: np.ndarray
    atoms: np.ndarray
    diverged: int = 0


def _describe(learned: Learned, sampler: str, pair, fitted: Pretrained, p: Mapping) -> xr.Dataset:
    """What the record holds of one sampler."""
    atoms, model, size = learned.atoms, fitted.model, np.linalg.norm(pair[0].values)
    errors, left, active, uses = np.full((2, 2), np.nan), np.nan, np.nan, np.zeros(len(atoms), int)
    if not learned.diverged:
        own = exact = [encode(images, atoms, model.stride, precisions_of(fitted), p) for images in pair]
        if sampler != EXACT:
            right, held = sampler != PRINTED, p["noise_precision"] if sampler == HELD else None
            ways, seed = ((1, 1), model.stride, right, held), [p["seed"], 2]
            chains = [BlockByBlock(one.values.astype(float), atoms, *ways, np.random.default_rng(seed)) for one in pair]
            own = [code(chain, p) for chain in chains]
        errors = [[error_of([one[kind] for one in codes], *pair, p) for kind in KINDS] for codes in (own, exact)]
        sample = np.asarray(own[0][KINDS[0]])
        left = np.linalg.norm(pair[0].values - render_projected(atoms, sample, model.stride, model.image_size)) / size
        active, uses = np.count_nonzero(sample) / len(sample), (sample != 0).any(axis=(2, 3)).sum(axis=0)
    return xr.Dataset({
        "error": (("coder", "feature_kind"), errors), "left": left, "active": active, "diverged": learned.diverged,
        "uses": ("atom_2", uses),
        "nearest": ("atom_2", nearest(pair[0].values, atoms)),
        "atoms_1": (("atom_1", "row_1", "col_1"), in_own_percents(learned.bottom[:, 0])),
        "atoms_2": (("atom_2", "row_2", "col_2"), in_own_percents(atoms[:, 0])),
    })


def nearest(images: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Cosine of each atom and the window of an image that is most like it, but for the sign: (atom,)."""
    return np.abs(normalised(images.astype(np.float32), atoms.astype(np.float32))).max(axis=(0, 2, 3))


def learn(images: np.ndarray, model: ModelSpec, reading: str, p: Mapping) -> Learned:
    """Learn both layers, and project the upper one."""
    inputs, kept, held = images.astype(float), [], p["noise_precision"] if reading == HELD else None
    for number, (layer, shape) in enumerate(zip(model.layers, model.shapes(), strict=True)):
        begun = initial_state(LayerData(inputs), layer, shape, ChainSpec(seed=p["seed"]), number)
        atoms, generator = begun.shared.dictionary.astype(float), np.random.default_rng([p["seed"], number])
        chain = BlockByBlock(inputs, atoms, shape.block, (1, 1), reading != PRINTED, held, generator)
        best, least = None, np.inf
        for sweep in range(p["burn_in"] + p["collect"]):
            chain.sweep()
            if not chain.squares().sum() < DIVERGED**2 * (inputs**2).sum():
                size = model.layers[1].atoms, model.planes, *model.projected_size
                return Learned(chain.dictionary, np.zeros(size), sweep + 1)
            if sweep >= p["burn_in"] and (squares := chain.squares().sum()) < least:
                best, least = Kept(chain.dictionary.copy(), chain.blocks(), chain.gamma_e.copy()), squares
        kept.append(best)
        inputs, held = best.blocks.w, None
    (bottom, blocks, gamma_e), (top, above, _) = kept
    pool = model.layers[0].pool
    vote = vote_positions(images.astype(float), bottom, blocks, gamma_e, pool, top, above.w)
    return Learned(bottom, collapse([bottom, top], [pool], [vote.positions])[-1])


def code(chain, p: Mapping) -> dict[str, np.ndarray]:
    """Codes by a chain with fixed atoms, as its maps: each image's of least residual, and the mean."""
    best, total, least = np.zeros_like(chain.maps()), 0.0, np.full(len(chain.left), np.inf)
    for sweep in range(p["test_burn_in"] + p["test_collect"]):
        chain.sweep(learn=False)
        if sweep >= p["test_burn_in"]:
            squares, maps = chain.squares(), chain.maps()
            better = squares < least
            best[better], least[better] = maps[better], squares[better]
            total = total + maps
    return {KINDS[0]: best, KINDS[1]: total / p["test_collect"]}


class Kept(NamedTuple):
    """A sample of a layer."""

    dictionary: np.ndarray  # (atom, plane, atom_row, atom_col)
    blocks: Blocks
    gamma_e: np.ndarray  # (image,)


class BlockByBlock:
    """State of one layer's chain, and its draws: all images at the same time, one block after another.

    images (image, plane, row, col), dictionary (atom, plane, atom_row, atom_col), an atom's positions ``step`` pixels
    apart; maps are (image, atom, row, col), of whole blocks. In blocks of one position the prior is Bernoulli(1/K).
    """

    def __init__(self, images: np.ndarray, dictionary: np.ndarray, pool: tuple[int, int], step: tuple[int, int],
                 right_shape: bool, held: float | None, generator: np.random.Generator):
        self.left, self.dictionary, self.pool, self.step = images.copy(), dictionary.copy(), pool, step
        self.right_shape, self.held, self.generator = right_shape, held, generator
        sides = zip(images.shape[2:], dictionary.shape[2:], step, strict=True)
        count, (n, atoms) = pool[0] * pool[1], (len(images), len(dictionary))
        self.z = np.zeros((n, atoms, *((rows - own) // by + 1 for rows, own, by in sides)), bool)
        self.w, self.gamma_w = np.zeros(self.z.shape), np.ones(self.z.shape)
        self.gamma_d = np.ones(dictionary.shape[:2])
        self.gamma_e = np.full(n, held or 1 / images.var())
        self.theta = np.full((n, atoms, count + 1), 1 / (count + 1))
        if count == 1:
            self.theta[:] = 1 / atoms, 1 - 1 / atoms

    def maps(self) -> np.ndarray:
        """Weights where a position is active, 0 elsewhere."""
        return self.w * self.z

    def blocks(self) -> Blocks:
        """The same by block."""
        z, w = (cut_into_blocks(one, self.pool) for one in (self.z, self.maps()))
        return Blocks(np.where(z.any(axis=-1), z.argmax(axis=-1), EMPTY).astype(np.int16), w.sum(axis=-1))

    def squares(self) -> np.ndarray:
        """Squared norm of each image's residual."""
        return (self.left**2).sum(axis=(1, 2, 3))

    def sweep(self, learn: bool = True) -> None:
        """Draw everything once, atom after atom; without ``learn`` only what is an image's own."""
        (p, q), grid = self.pool, [side // by for side, by in zip(self.z.shape[2:], self.pool, strict=True)]
        for k in range(len(self.dictionary)):
            if learn:
                self.draw_atom(k)
            placed = self.placed(k)
            for i, j in np.ndindex(*grid):
                self.draw_block(k, np.s_[:, k, p * i : p * i + p, q * j : q * j + q], placed)
            if p * q > 1:
                self.draw_theta(k)
        if self.held is None:
            shape, rate = (0.5 * self.left[0].size, 0.5) if self.right_shape else (0.5, 1.0)
            self.gamma_e = self.gamma(np.full(len(self.left), shape), rate * self.squares())

    def gamma(self, shape: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """Draw from a gamma distribution, its prior added."""
        return (self.generator.standard_gamma(FLAT + shape) / (FLAT + rate)).clip(1e-100, 1e100)

    def placed(self, k: int) -> np.ndarray:
        """Atom k at every position of a block, (position, pixel) of the window that they reach."""
        atom, (p, q), (by, on) = self.dictionary[k], self.pool, self.step
        planes, h, w = atom.shape
        out = np.zeros((p, q, planes, h + (p - 1) * by, w + (q - 1) * on))
        for i, j in np.ndindex(p, q):
            out[i, j, :, i * by : i * by + h, j * on : j * on + w] = atom
        return out.reshape(p * q, -1)

    def draw_block(self, k: int, where: tuple, placed: np.ndarray) -> None:
        """W, gamma_w and Z of one block of atom k, given everything else."""
        n, (rows, cols), (by, on) = len(self.z), where[2:], self.step
        h, w = self.dictionary.shape[2:]
        window = self.left[:, :, rows.start * by : (rows.stop - 1) * by + h, cols.start * on : (cols.stop - 1) * on + w]
        z, weights = self.z[where].reshape(n, -1), self.w[where].reshape(n, -1)
        old = z * weights
        without = window.reshape(n, -1) @ placed.T + old @ (placed @ placed.T)  # of the block's own
        fits = self.gamma_e[:, None] * without
        precision = self.gamma_e[:, None] * (placed[0] ** 2).sum()
        variance = 1 / (precision * z + self.gamma_w[where].reshape(n, -1))
        weights = variance * z * fits + np.sqrt(variance) * self.generator.normal(size=z.shape)
        gamma_w = self.gamma(np.full(z.shape, 0.5), 0.5 * weights**2)
        log_odds = np.log(self.theta[:, k]) - 0.5 * np.c_[precision * weights**2 - 2 * fits * weights, np.zeros(n)]
        chosen = (log_odds + self.generator.gumbel(size=log_odds.shape)).argmax(axis=1)
        z = chosen[:, None] == np.arange(z.shape[1])
        shape = self.z[where].shape
        self.z[where], self.w[where], self.gamma_w[where] = (a.reshape(shape) for a in (z, weights, gamma_w))
        change = z * weights - old
        changed = change.any(axis=1)
        window[changed] -= (change[changed] @ placed).reshape(-1, *window.shape[1:])

    def draw_theta(self, k: int) -> None:
        """Probabilities of the positions of atom k, in each image."""
        active = cut_into_blocks(self.z[:, k], self.pool)
        counts = np.c_[active.sum(axis=(1, 2)), (~active.any(axis=-1)).sum(axis=(1, 2))]
        drawn = self.generator.standard_gamma(counts + 1 / counts.shape[1]).clip(1e-300)
        self.theta[:, k] = drawn / drawn.sum(axis=1, keepdims=True)

    def draw_atom(self, k: int) -> None:
        """D, all pixels with one variance and from the residual without the atom, and gamma_d."""
        atom, (image, row, col) = self.dictionary[k], np.nonzero(self.z[:, k])
        values = self.w[image, k, row, col]
        weighted, under = self.gamma_e[image] * values, np.s_[image, :, row, col]
        windows = sliding_window_view(self.left, atom.shape[1:], (2, 3), writeable=True)
        np.add.at(windows, under, values[:, None, None, None] * atom)
        linear = np.tensordot(weighted, windows[under], 1)
        variance = 1 / (weighted @ values + self.gamma_d[k])[:, None, None]
        self.dictionary[k] = variance * linear + np.sqrt(variance) * self.generator.normal(size=atom.shape)
        np.subtract.at(windows, under, values[:, None, None, None] * self.dictionary[k])
        squares, pixels = (self.dictionary[k] ** 2).sum(axis=(1, 2)), atom[0].size
        self.gamma_d[k] = self.gamma(np.full(len(atom), 0.5 * pixels), 0.5 * squares)
