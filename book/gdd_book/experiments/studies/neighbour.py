"""A program that does run: the sampler of a public course project on the model's predecessor, written anew from it.

Its draws are those of the supplement where these are wrong: all weights of a map at once, atoms with a diagonal
covariance (P3, P4). Both have the atom's own overlaps in their means. Further: weights only at the first place of each
block; one switch for each atom and image; a proper prior of each weight's precision. The project's write-up and its
program draw the switch in different ways, and both are run. Page: book/model/as-printed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.lib.stride_tricks import sliding_window_view

from gdd import MNIST
from gdd.model.spec import FLAT
from gdd_book.experiments.path import encode, error_of
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies.literal import EXACT, KINDS, code
from gdd_book.experiments.studies.printed import TRACES, right_chain, right_models, run_chain
from gdd_book.progress import Run
from gdd_book.training import HELD_DIGITS, digits

#: the two ways to draw the switch: whether it is the program's
SWITCHES = {"switch of the write-up": False, "switch of the program": True}
#: what the program sets: shape and rate of precisions of weights and of atoms; first gamma_e, a pixel
SHAPE, RATE, FIRST = 1.0, 1e-3, 1.0
#: size of the program's atoms, and how many
OWN_SIZES = (36, 7)


@experiment(
    "printed-neighbour", seeds=(0, 1, 2), **HELD_DIGITS,
    demo={"data": "digits", "n_train": 10, "sweeps": 6, "n_coded": 60, "n_test": 60, "test_burn_in": 3,
          "test_collect": 2},
    paper={"data": "mnist", "n_train": 100, "sweeps": 160, "n_coded": 300, "n_test": 300, "test_burn_in": 40,
           "test_collect": 20},
)
def printed_neighbour(p: dict, run: Run) -> Outcome:
    """Layer 1 of digits by the neighbour, by both of `SWITCHES`, and by the exact sampler with the same flat gamma_e.

    ``residual``, ``gamma_e`` and ``active`` (subset, sampler, sweep) as in `printed_algorithm`, of the paper's 32 atoms
    of 8 x 8 pixels, and of the program's own sizes. ``error`` (subset, switch, coder, feature_kind) of the paper's
    classifier on ``n_coded`` and ``n_test`` digits, coded with the neighbour's atoms by itself (its pi held too) and by
    the exact sampler with the same precisions; ``error_of_pixels`` (subset,).
    """
    with run.bar(len(p["seeds"]) * (3 * p["sweeps"] + 2), "neighbour") as bar:
        parts = [_of_subset(p | {"seed": seed}, bar) for seed in p["seeds"]]
    return outcome(xr.concat(parts, "subset").assign_coords(subset=list(p["seeds"])), p, digits(p | {"seed": 0}),
                   model=MNIST.as_printed())


def _of_subset(p: Mapping, bar) -> xr.Dataset:
    """Traces of all samplers of one subset, and the errors."""
    images, sizes = digits(p), (MNIST.layers[0].atoms, MNIST.layers[0].atom_size[0])
    pair, chains = [digits(p | {"n_train": p["n_coded"]}), digits(p, "test")], {}
    runs = {name: (sizes, program) for name, program in SWITCHES.items()}
    runs["program, its own sizes"] = OWN_SIZES, True
    for name, (own, program) in runs.items():
        chains[name] = learn(images.values[:, 0], own, program, p, bar)
    errors = []
    for name, program in SWITCHES.items():
        errors.append(_errors(pair, chains[name], program, p))
        bar.step()
    traces = [chain[list(TRACES)] for chain in chains.values()]
    traces.append(right_chain(images, right_models(p)[0], p["sweeps"], p["seed"]))
    found = xr.concat(traces, "sampler").assign_coords(sampler=[*chains, EXACT])
    return found.assign(
        error=(("switch", "coder", "feature_kind"), errors), error_of_pixels=error_of(pair, *pair, p),
    ).assign_coords(switch=list(SWITCHES), coder=["itself", EXACT], feature_kind=list(KINDS))


def learn(images: np.ndarray, sizes: tuple[int, int], program: bool, p: Mapping, bar) -> xr.Dataset:
    """Run a chain until it diverges: its traces; ``atoms`` and ``pi`` of the sweep of least residual."""
    chain = Neighbour(images, sizes, program, np.random.default_rng(p["seed"]))
    least, atoms, pi = np.inf, chain.dictionary.copy(), chain.pi

    def keep(residual: float) -> None:
        nonlocal least, atoms, pi
        if residual < least:
            least, atoms, pi = residual, chain.dictionary.copy(), chain.pi

    found = run_chain(chain, np.linalg.norm(images), p["sweeps"], bar, keep)
    return found.assign(atoms=(("atom", "atom_row", "atom_col"), atoms), pi=("atom", pi))


def _errors(pair, learned: xr.Dataset, program: bool, p: Mapping) -> list[list[float]]:
    """Error of the neighbour's codes and of exact ones, by kind."""
    atoms, coded, precisions = learned.atoms.values, [], (np.nan, np.nan)
    for images in pair:
        chain = Neighbour(images.values[:, 0], (len(atoms), atoms.shape[1]), program,
                          np.random.default_rng([p["seed"], len(coded)]), atoms, learned.pi.values)
        coded.append(code(chain, p))
        if len(coded) == 1:
            weights = chain.maps()[chain.maps() != 0]
            precisions = float(np.median(chain.gamma_e)), float(weights.size / (weights**2).sum())
    exact = [encode(images, atoms[:, None], MNIST.layers[0].pool, precisions, p) for images in pair]
    return [[error_of([one[kind] for one in codes], *pair, p) for kind in KINDS] for codes in (coded, exact)]


class Neighbour:
    """State of the chain, and its draws; images (image, pixel), a weight for each corner of a block as ``position``.

    ``dictionary``, ``pi`` : learned ones, for coding; without them it begins as the program does, with atoms of zeros
    """

    def __init__(self, images: np.ndarray, sizes: tuple[int, int], program: bool, generator: np.random.Generator,
                 dictionary: np.ndarray | None = None, pi: np.ndarray | None = None):
        (atoms, self.side), self.program, self.generator = sizes, program, generator
        self.rows, self.step = images.shape[1], MNIST.layers[0].pool[0]
        self.along = len(range(0, self.rows - self.side + 1, self.step))  # positions of a row
        self.dictionary = np.zeros((atoms, self.side, self.side)) if dictionary is None else dictionary.copy()
        self.left = images.reshape(len(images), -1).astype(float)
        self.switch = np.ones((len(images), atoms), bool)
        self.w = generator.normal(size=(len(images), atoms, self.along**2)) * (dictionary is None)
        self.gamma_d = self.gamma(np.zeros(self.dictionary.shape))
        self.gamma_e = np.full(len(images), FIRST * self.left.shape[1])
        self.pi = generator.beta(1 / atoms, 1 - 1 / atoms, size=atoms) if pi is None else pi

    def maps(self) -> np.ndarray:
        """Weights that are switched on, (image, atom, position)."""
        return self.w * self.switch[:, :, None]

    def squares(self) -> np.ndarray:
        """Squared norm of each image's residual."""
        return (self.left**2).sum(axis=1)

    def active(self) -> float:
        """Active weights of an image."""
        return np.count_nonzero(self.maps()) / len(self.w)

    def placed(self, k: int) -> np.ndarray:
        """Pictures of one atom at all positions, (position, pixel)."""
        out = np.zeros((self.along, self.along, self.rows, self.rows))
        for i, j in np.ndindex(out.shape[:2]):
            row, col = i * self.step, j * self.step
            out[i, j, row : row + self.side, col : col + self.side] = self.dictionary[k]
        return out.reshape(self.along**2, -1)

    def sweep(self, learn: bool = True) -> None:
        """Draw everything once; without ``learn`` only what is an image's own."""
        with np.errstate(all="ignore"):  # of a chain that diverges
            for k in range(len(self.dictionary)):
                pictures = self.placed(k)
                self.draw_switch(k, pictures)
                self.draw_weights(k, pictures)
                if learn:
                    self.draw_atom(k)
            on, (number, count) = self.switch.sum(axis=0), self.switch.shape
            if learn:
                drawn = self.generator.beta(on + 1 / count, number - on + 1 - 1 / count)
                self.pi = np.clip(drawn, 1e-300, 1 - 1e-16)
                self.gamma_d = self.gamma(self.dictionary)
            shape, rate = FLAT + 0.5 * self.left.shape[1], FLAT + 0.5 * self.squares()
            self.gamma_e = self.generator.standard_gamma(shape, size=number) / rate

    def gamma(self, values: np.ndarray) -> np.ndarray:
        """Draw the precision of each of these numbers."""
        return self.generator.standard_gamma(SHAPE + 0.5, size=values.shape) / (RATE + 0.5 * values**2)

    def draw_switch(self, k: int, pictures: np.ndarray) -> None:
        """b of one atom in all images.

        The write-up has the odds of the model given the present weights. The program takes odds for the probability,
        and those of an atom that is off from the prior alone.
        """
        drawn, was = self.w[:, k] @ pictures, self.switch[:, [k]]
        own = self.left + was * drawn
        gain = 0.5 * self.gamma_e * ((own**2).sum(axis=1) - ((own - drawn) ** 2).sum(axis=1))
        log_odds = np.log(self.pi[k]) - np.log1p(-self.pi[k]) + (gain * was[:, 0] if self.program else gain)
        uniform = self.generator.random(len(own))
        self.switch[:, k] = np.log(uniform) - (0 if self.program else np.log1p(-uniform)) < log_odds
        self.left = own - self.switch[:, [k]] * drawn

    def draw_weights(self, k: int, pictures: np.ndarray) -> None:
        """gamma_w and W of one atom: every weight given all others, all at the same time."""
        on, old = self.switch[:, [k]], self.w[:, k].copy()
        gamma_w, norm, noise = self.gamma(old), (self.dictionary[k] ** 2).sum(), self.gamma_e[:, None]
        variance = 1 / (noise * norm * on + gamma_w)
        mean = variance * on * noise * (self.left @ pictures.T + norm * old)
        self.w[:, k] = mean + np.sqrt(variance) * self.generator.normal(size=old.shape)
        self.left -= on * ((self.w[:, k] - old) @ pictures)

    def draw_atom(self, k: int) -> None:
        """D: every pixel given all others, all at the same time."""
        maps, old = self.w[:, k] * self.switch[:, [k]], self.dictionary[k].copy()
        weighted = (self.gamma_e[:, None] * maps).reshape(-1, self.along, self.along)
        images = self.left.reshape(-1, self.rows, self.rows)
        cut = sliding_window_view(images, old.shape, (1, 2))[:, :: self.step, :: self.step]
        squares = (self.gamma_e * (maps**2).sum(axis=1)).sum()
        variance = 1 / (squares + self.gamma_d[k])
        mean = variance * (np.tensordot(weighted, cut, 3) + squares * old)
        new = mean + np.sqrt(variance) * self.generator.normal(size=old.shape)
        self.dictionary[k] = new - old
        self.left -= maps @ self.placed(k)
        self.dictionary[k] = new
