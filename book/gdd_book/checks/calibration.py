"""Is a sweep right? Three tests of the whole sampler against the model, each exact in what it assumes.

* `exact_start`: state and data drawn from the model are already in equilibrium; sweeps with the data held must leave
  the law of every statistic where it was, whatever the mixing.
* `geweke`: the same with new data drawn between sweeps (Geweke 2004), over many sweeps.
* `ranks`: simulation-based calibration (Talts et al. 2018): the truth's rank among draws of a chain that started
  somewhere else is uniform. This one also needs the chain to forget its start.

Proper priors are needed. All statistics are unchanged by a permutation or a sign of the atoms. A case says what is
drawn and measured: `Case` is one layer, `gdd_book.checks.calibration_joint.JointCase` the joint model of several.

*Checked:* tests/test_joint.py, tests/test_calibration.py: the correct sampler passes, each of `gdd_book.checks.printed`
fails.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from scipy import stats

from gdd.model.layer import draw_data, draw_state, log_likelihood, reconstruction
from gdd.model.spec import LayerShape, LayerSpec
from gdd.model.state import EMPTY, LayerData, LayerState
from gdd.reference.layer_sweep import CORRECT, draw_map, draw_shared, plain_sweep
from gdd.reference.random import PRETRAIN, Key, shared_generator
from gdd.sampler.sweep import image_pass, sweep
from gdd_book.checks.printed import Pieces


class Case(NamedTuple):
    """A small layer under proper priors, and how many images it explains."""

    spec: LayerSpec
    shape: LayerShape
    images: int
    hidden: float = 0.0  # share of pixels that a mask hides at random

    @property
    def size(self) -> tuple[int, ...]:
        """Axes of the data, (image, plane, row, col)."""
        return (self.images, self.shape.planes, *self.shape.input_size)

    def draw_state(self, generator: np.random.Generator) -> LayerState:
        """All unknowns from their prior."""
        return draw_state(self.images, self.spec, self.shape, generator)

    def draw_data(self, state: LayerState, generator: np.random.Generator, mask: np.ndarray | None = None) -> LayerData:
        """Draw the data given all unknowns."""
        return draw_data(state, self.shape, generator, mask)

    def statistics(self, state: LayerState, data: LayerData) -> dict[str, float]:
        """Numbers by the names of `STATISTICS`."""
        return layer_statistics(state, data, self.shape)


Step = Callable[[LayerState, LayerData, Case, Key], LayerState]
Progress = Callable[[Iterable[int]], Iterable[int]]


def compiled_step(state: LayerState, data: LayerData, case: Case, key: Key) -> LayerState:
    """One sweep of the sampler."""
    return sweep(state, data, case.spec, case.shape, key)[0]


def plain_step(pieces: Pieces = CORRECT) -> Step:
    """Build a step from exchangeable pieces, through the compiled image pass where none of its pieces is exchanged."""

    def step(state: LayerState, data: LayerData, case: Case, key: Key) -> LayerState:
        spec, shape = case.spec, case.shape
        noise_in_pass = len(state.local.gamma_e) > 1 and pieces.gamma_e is not CORRECT.gamma_e
        if pieces.map is not draw_map or noise_in_pass:
            return plain_sweep(state, data, spec, shape, key, pieces)
        local = image_pass(state, data, spec, shape, key).local
        return draw_shared(state._replace(local=local), data, spec, shape, shared_generator(*key), pieces)

    return step


def layer_statistics(state: LayerState, data: LayerData, shape: LayerShape) -> dict[str, float]:
    """Statistics with light tails that together depend on every unknown and on the data."""
    local, shared = state
    active = local.z != EMPTY
    seen = np.ones(data.images.shape, bool) if data.mask is None else data.mask
    clean = np.where(seen, reconstruction(state, shape), 0.0)
    images = np.where(seen, data.images, 0.0)
    norms = (shared.dictionary**2).sum(axis=(1, 2, 3))
    apart = (local.w**2 * norms[:, None, None]).sum()  # energy of the reconstruction if nothing overlapped
    energy = np.sqrt((images**2).sum() * (clean**2).sum())
    return {
        "active blocks": float(active.mean()),
        "blocks alike": blocks_alike(local.z),
        "log gamma_e": float(np.log(local.gamma_e).mean()),
        "log gamma_d": float(np.log(shared.gamma_d).mean()),
        "log gamma_w": float(np.log(shared.gamma_w).mean()),
        "log atom norm": float(np.log(norms).mean()),
        "log weights": float(np.log1p((local.w**2).sum())),
        "overlap": float(np.log((1 + (clean**2).sum()) / (1 + apart))),
        "fit": float((images * clean).sum() / energy) if energy > 0 else 0.0,
        "log likelihood": float(log_likelihood(state, data, shape).mean() / seen[0].sum()),
    }


def blocks_alike(z: np.ndarray) -> float:
    """Root mean square over maps of how many blocks share a position."""
    return float(np.sqrt(sum(((z == m).sum(axis=(2, 3)) ** 2).mean() for m in range(int(z.max()) + 1))))


STATISTICS = (
    "active blocks", "blocks alike", "log gamma_e", "log gamma_d", "log gamma_w", "log atom norm", "log weights",
    "overlap", "fit", "log likelihood",
)


def draw_case(case: Case, seed: tuple[int, ...]) -> tuple[LayerState, LayerData, np.random.Generator]:
    """State and data from the model, and the generator that goes on from there."""
    generator = np.random.default_rng(seed)
    state = case.draw_state(generator)
    mask = generator.random(case.size) >= case.hidden if case.hidden else None
    return state, case.draw_data(state, generator, mask), generator


def measure(state: LayerState, data: LayerData, case: Case) -> np.ndarray:
    """Statistics of a case in the order of `STATISTICS`."""
    found = case.statistics(state, data)
    return np.array([found[name] for name in STATISTICS])


def exact_start(
    case: Case, step: Step, replicates: int, sweeps: int, seed: int = 0, bar: Progress = iter
) -> np.ndarray:
    """P-values (2, statistic) of no change in mean and in mean square after ``sweeps`` sweeps.

    Paired z-tests over independent replicates; squares are taken about the mean before, in units of its spread.
    """
    pairs = []
    for r in bar(range(replicates)):
        state, data, _ = draw_case(case, (seed, r))
        before = measure(state, data, case)
        for number in range(sweeps):
            state = step(state, data, case, Key(seed * 1_000_000 + r, PRETRAIN, 0, number))
        pairs.append((before, measure(state, data, case)))
    before, after = np.array(pairs).swapaxes(0, 1)
    centre, spread = before.mean(axis=0), before.std(axis=0)
    before, after = (before - centre) / spread, (after - centre) / spread
    return np.stack([paired(after - before), paired(after**2 - before**2)])


def paired(change: np.ndarray) -> np.ndarray:
    """Two-sided p-values that changes (replicate, statistic) have mean zero."""
    error = change.std(axis=0, ddof=1) / np.sqrt(len(change))
    return 2 * stats.norm.sf(np.abs(change.mean(axis=0)) / np.maximum(error, 1e-300))


def geweke(
    case: Case, step: Step, chains: int, length: int, forward: int, seed: int = 0, bar: Progress = iter
) -> np.ndarray:
    """P-values (2, statistic) that means and mean squares along alternating chains are those of forward draws.

    Every chain starts from the model and alternates a sweep with a draw of new data, so it is stationary at once.
    Chains are independent: the spread of their means is the Monte Carlo error, whatever the correlation inside them.
    """
    drawn = np.array([measure(*draw_case(case, (seed, 1, r))[:2], case) for r in range(forward)])
    centre, spread = drawn.mean(axis=0), drawn.std(axis=0)
    drawn = (drawn - centre) / spread
    means = []
    for r in bar(range(chains)):
        state, data, generator = draw_case(case, (seed, 2, r))
        path = []
        for number in range(length):
            state = step(state, data, case, Key(seed * 1_000_000 + r, PRETRAIN, 1, number))
            data = case.draw_data(state, generator, data.mask)
            path.append((measure(state, data, case) - centre) / spread)
        means.append([np.mean(path, axis=0), np.mean(np.square(path), axis=0)])
    means, expected = np.array(means), np.stack([drawn, drawn**2])  # (chain, 2, statistic), (2, draw, statistic)
    error = np.sqrt(means.var(axis=0, ddof=1) / chains + expected.var(axis=1) / forward)
    return 2 * stats.t.sf(np.abs(means.mean(axis=0) - expected.mean(axis=1)) / error, chains - 1)


def ranks(
    case: Case, step: Step, replicates: int, burn_in: int, draws: int, thin: int, seed: int = 0, bar: Progress = iter
) -> np.ndarray:
    """Rank of the truth among ``draws`` posterior draws, 0 to ``draws``: (replicate, statistic); ties at random."""
    out = []
    for r in bar(range(replicates)):
        truth, data, generator = draw_case(case, (seed, 3, r))
        state, _, _ = draw_case(case, (seed, 4, r))
        wanted, found = measure(truth, data, case), []
        for number in range(burn_in + draws * thin):
            state = step(state, data, case, Key(seed * 1_000_000 + r, PRETRAIN, 2, number))
            if number >= burn_in and (number - burn_in) % thin == thin - 1:
                found.append(measure(state, data, case))
        below, ties = (np.array(found) < wanted).sum(axis=0), (np.array(found) == wanted).sum(axis=0)
        out.append(below + generator.integers(0, ties + 1))
    return np.array(out)


def uniformity(rank: np.ndarray, draws: int, bins: int) -> np.ndarray:
    """Chi-square p-values that ranks (replicate, statistic) are uniform on 0..draws; ``bins`` must divide draws + 1."""
    counts = np.stack([np.bincount(column * bins // (draws + 1), minlength=bins) for column in rank.T])
    return stats.chisquare(counts, axis=1).pvalue


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values: the chance that any of all these tests is as extreme, if nothing is wrong."""
    flat = np.asarray(p_values, float).ravel()
    order = np.argsort(flat)
    adjusted = np.maximum.accumulate(flat[order] * np.arange(len(flat), 0, -1))
    out = np.empty_like(flat)
    out[order] = np.minimum(adjusted, 1.0)
    return out.reshape(np.shape(p_values))
