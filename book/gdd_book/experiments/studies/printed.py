"""The supplement's draws taken literally, on layer 1 of digits, and mended one after another.

The whole algorithm runs as it stands (P2, P3, P4, P6, P7). What is no distribution at all as printed is read as the
nearest that can be drawn, and said so. Page: book/model/as-printed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.lib.stride_tricks import sliding_window_view

from gdd import MNIST, ChainSpec, ModelSpec, pretrain
from gdd.model.convolution import correlate, synthesise
from gdd.model.layer import reconstruction
from gdd.model.pooling import cut_into_blocks, one_hot
from gdd.model.spec import FLAT
from gdd.model.state import EMPTY
from gdd.sampler.pretrain import Fitted
from gdd_book.experiments.common import Outcome, along, experiment, outcome
from gdd_book.progress import Run
from gdd_book.training import HELD_DIGITS, digits

TRACES = ("residual", "gamma_e", "active")
#: a chain is given up when its residual has so many times the images' norm
DIVERGED = 1e3


@dataclass(frozen=True)
class Reading:
    """Which of the printed draws are mended."""

    likelihood: bool = False  # a position has probability theta exp(-Y / 2), not theta Y where that is positive (P2)
    shape: bool = False  # gamma_e has half a pixel's count for each pixel, and half of the squares (P6)
    one_weight_precision: bool = False  # gamma_w is one number of the layer, not one for each weight (P7)
    exact_atoms: bool = False  # an atom has the full covariance of its pixels (P4)
    #: a weight is drawn given all other weights, its map's too, though still at the same time (half of P3)
    all_others: bool = False


#: from the print to the model, one mended draw more in each
READINGS = {
    "as printed": Reading(),
    "P2 mended": Reading(True),
    "P2, P6 mended": Reading(True, True),
    "P2, P6, P7 mended": Reading(True, True, True),
    "all but P3 mended": Reading(True, True, True, True),
    "P3 mended by half": Reading(True, True, True, True, True),
}
#: the right sampler: blocks one after another; its noise precision learned, as printed, and held
RIGHT = ("all mended", "all mended, noise held")


@experiment(
    "printed-algorithm", seeds=(0, 1, 2), **HELD_DIGITS,
    demo={"data": "digits", "n_train": 10, "sweeps": 4},
    paper={"data": "mnist", "n_train": 100, "sweeps": 60},
)
def printed_algorithm(p: dict, run: Run) -> Outcome:
    """Layer 1 of the paper's model of digits, learned as the supplement prints it, and corrected step by step.

    ``residual`` (seed, reading, sweep): norm of what is left of the images over their norm, NaN once it has diverged;
    ``gamma_e``, mean over the images; ``active``, blocks of an image with a position.
    """
    subsets, sweeps = {}, p["sweeps"]
    right = MNIST.as_printed(), MNIST.with_fixed_precisions(p["noise_precision"], p["weight_precision"])
    with run.bar(len(p["seeds"]) * len(READINGS) * sweeps, "readings") as bar:
        for seed in p["seeds"]:
            images = digits(p | {"seed": seed})
            found = {
                name: literal_chain(images.values[:, 0], one, sweeps, seed, bar) for name, one in READINGS.items()}
            energy = float((images.values.astype(float) ** 2).sum()) / images.size
            for name, model in zip(RIGHT, right, strict=True):
                traces = right_layer(images, model, sweeps, seed).traces.isel(chain=0)
                values = traces.residual.values / np.sqrt(energy), traces.gamma_e.values, traces.active.values
                found[name] = xr.Dataset({name: ("sweep", one) for name, one in zip(TRACES, values, strict=True)})
            subsets[seed] = along("reading", found)
    return outcome(along("subset", subsets), p, images, model=MNIST.as_printed())


def right_layer(images: xr.DataArray, model: ModelSpec, sweeps: int, seed: int) -> Fitted:
    """Layer 1 of a model after so many sweeps of the library."""
    model = ModelSpec(model.layers[:1], model.image_size)
    return pretrain(images, model, ChainSpec(sweeps - 1, 1, seed, start="random")).layers[0]


def literal_chain(images: np.ndarray, reading: Reading, sweeps: int, seed: int, bar) -> xr.Dataset:
    """Run the printed draws on images (image, row, col), for one atom after another, until they diverge."""
    chain, norm = Literal(images, reading, np.random.default_rng(seed)), np.linalg.norm(images)
    traces = np.full((3, sweeps), np.nan)
    for sweep in range(sweeps):
        try:
            chain.sweep()
        except np.linalg.LinAlgError:  # numbers too large for a Cholesky root
            break
        residual = np.linalg.norm(chain.left) / norm
        if not residual < DIVERGED:
            break
        traces[:, sweep] = residual, chain.gamma_e.mean(), chain.z.sum() / len(images)
        bar.step()
    bar.step(int(np.isnan(traces[0]).sum()))
    return xr.Dataset({name: ("sweep", trace) for name, trace in zip(TRACES, traces, strict=True)})


class Literal:
    """State of the chain, and its draws; axes as in the supplement, with maps (image, atom, row, col)."""

    def __init__(self, images: np.ndarray, reading: Reading, generator: np.random.Generator):
        layer = MNIST.layers[0]
        self.reading, self.generator, self.pool = reading, generator, layer.pool
        self.sides, atoms = layer.atom_size, layer.atoms
        maps = [n - a + 1 for n, a in zip(images.shape[1:], self.sides, strict=True)]
        self.dictionary = generator.normal(size=(atoms, *self.sides)) / np.sqrt(np.prod(self.sides))
        self.w, self.z = np.zeros((len(images), atoms, *maps)), np.zeros((len(images), atoms, *maps), bool)
        self.gamma_w, self.gamma_d = np.ones(self.w.shape), np.ones(atoms)
        self.gamma_e = np.full(len(images), 1 / images.var())
        positions = self.pool[0] * self.pool[1]
        self.theta = np.full((len(images), atoms, positions + 1), 1 / (positions + 1))
        self.left = images.astype(float)

    def sweep(self) -> None:
        """Draw everything once."""
        with np.errstate(all="ignore"):  # of a chain that diverges
            for k in range(len(self.dictionary)):
                self.draw_atom(k)
                self.draw_map(k)
            if self.reading.one_weight_precision:
                active = self.w[self.z]
                self.gamma_w[:] = self.gamma(0.5 * active.size, 0.5 * (active**2).sum())
            squares = (self.left**2).sum(axis=(1, 2))
            shape, rate = (0.5 * self.left[0].size, 0.5) if self.reading.shape else (0.5, 1.0)
            self.gamma_e = self.gamma(shape, rate * squares)

    def gamma(self, shape, rate) -> np.ndarray:
        """Draw from a gamma distribution, its prior added."""
        return self.generator.standard_gamma(FLAT + shape) / (FLAT + rate)

    def without(self, k: int) -> np.ndarray:
        """What is left if one atom's maps are taken away."""
        return self.left + place(self.dictionary[k], self.z[:, k] * self.w[:, k])

    def draw_atom(self, k: int) -> None:
        """D and gamma_d."""
        maps, own = self.z[:, k] * self.w[:, k], self.without(k)
        linear = np.einsum("nijab,n,nij->ab", windows(own, maps.shape[1:]), self.gamma_e, maps)
        noise = self.generator.normal(size=self.sides)
        if self.reading.exact_atoms:
            matrix = gram(maps, self.gamma_e, self.sides) + self.gamma_d[k] * np.eye(linear.size)
            root = np.linalg.cholesky(matrix)
            mean = np.linalg.solve(matrix, linear.ravel())
            self.dictionary[k] = (mean + np.linalg.solve(root.T, noise.ravel())).reshape(self.sides)
        else:
            variance = 1 / ((self.gamma_e * (maps**2).sum(axis=(1, 2))).sum() + self.gamma_d[k])
            self.dictionary[k] = variance * linear + np.sqrt(variance) * noise
        self.left = own - place(self.dictionary[k], maps)
        self.gamma_d[k] = self.gamma(0.5, 0.5 * (self.dictionary[k] ** 2).sum())

    def draw_map(self, k: int) -> None:
        """W, gamma_w, Z and theta of one atom, all positions at once."""
        own, atom = self.without(k), self.dictionary[k]
        precision = self.gamma_e[:, None, None] * (atom**2).sum()
        seen = self.left if self.reading.all_others else own
        fits = self.gamma_e[:, None, None] * correlate(seen[:, None], atom[None, None])[:, 0]
        if self.reading.all_others:
            fits += precision * self.z[:, k] * self.w[:, k]
        variance = 1 / (precision * self.z[:, k] + self.gamma_w[:, k])
        self.w[:, k] = w = variance * self.z[:, k] * fits + np.sqrt(variance) * self.generator.normal(size=fits.shape)
        if not self.reading.one_weight_precision:
            self.gamma_w[:, k] = self.gamma(0.5, 0.5 * w**2)
        y = cut_into_blocks(precision * w**2 - 2 * fits * w, self.pool)
        log_weight = -0.5 * y if self.reading.likelihood else np.log(np.maximum(y, 0))
        log_mass = np.concatenate([log_weight, np.zeros((*y.shape[:3], 1))], axis=-1)
        log_mass += np.log(self.theta[:, k, None, None])
        gumbel = self.generator.gumbel(size=log_mass.shape)
        chosen = (log_mass + gumbel).argmax(axis=-1)
        counts = (chosen[..., None] == np.arange(y.shape[-1] + 1)).sum(axis=(1, 2))
        drawn = self.generator.standard_gamma(counts + 1 / counts.shape[1])
        self.theta[:, k] = np.maximum(drawn, 1e-300) / drawn.sum(axis=1, keepdims=True)
        positions = np.where(chosen == y.shape[-1], EMPTY, chosen)
        self.z[:, k] = one_hot(positions[:, None], w.shape[1:], self.pool)[:, 0]
        self.left = own - place(atom, self.z[:, k] * w)


def windows(images: np.ndarray, maps: tuple[int, int]) -> np.ndarray:
    """Pixels under an atom at every position: (image, row, col, atom_row, atom_col)."""
    return sliding_window_view(images, tuple(n - m + 1 for n, m in zip(images.shape[1:], maps, strict=True)), (1, 2))


def place(atom: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Images (image, row, col) of one atom at all positions of its maps."""
    return synthesise(atom[None, None], maps[:, None])[:, 0]


def gram(maps: np.ndarray, gamma_e: np.ndarray, sides: tuple[int, int]) -> np.ndarray:
    """Precision of an atom's pixels given its maps, (pixel, pixel): their autocorrelation by lags."""
    h, w = sides
    padded = np.pad(maps, ((0, 0), (h - 1, h - 1), (w - 1, w - 1)))
    lags = np.einsum("nijab,n,nij->ab", windows(padded, maps.shape[1:]), gamma_e, maps)
    rows, cols = (index.ravel() for index in np.indices(sides))
    return lags[rows[:, None] - rows + h - 1, cols[:, None] - cols + w - 1]


#: chains whose residuals `left_over` follows
SHOWN = {"as published": READINGS["as printed"], "half corrected": READINGS["P3 mended by half"]}


def left_over(images: xr.DataArray, sweeps: Sequence[int], seed: int, shown: int = 5) -> xr.Dataset:
    """What the chains of `SHOWN` and the right sampler, with its precisions held, leave of images.

    ``left`` (reading, sweep, image, row, col), of the first ``shown`` images; ``residual`` (reading, sweep), the norm
    of what is left of all over theirs; NaN behind a divergence. ``images`` (image, plane, row, col), of one plane;
    ``sweeps`` rising, 0 is the start
    """
    seen, found = images.values[:, 0].astype(float), {}
    for name, reading in SHOWN.items():
        chain, found[name] = Literal(seen, reading, np.random.default_rng(seed)), []
        for sweep in range(sweeps[-1] + 1):
            try:
                chain.sweep() if sweep else None
            except np.linalg.LinAlgError:
                chain.left[:] = np.nan
            found[name] += [chain.left.copy()] if sweep in sweeps else []
    found["corrected"] = []
    held = MNIST.with_fixed_precisions(HELD_DIGITS["noise_precision"], HELD_DIGITS["weight_precision"])
    for sweep in sweeps:  # a longer chain begins with the same sweeps
        layer = right_layer(images, held, sweep, seed) if sweep else None
        found["corrected"].append(seen if layer is None else seen - reconstruction(layer.state, layer.shape)[:, 0])
    left = xr.DataArray([*found.values()], {"reading": [*found], "sweep": list(sweeps)},
                        ("reading", "sweep", "image", "row", "col"))
    residual = np.sqrt((left**2).sum(("image", "row", "col"), skipna=False)) / np.linalg.norm(seen)
    return xr.Dataset({"left": left.isel(image=slice(shown)), "residual": residual})
