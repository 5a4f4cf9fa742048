"""How two computations are held against each other: log densities, chains, numbers of threads. A disk that is full."""

import inspect
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from gdd.base.compiling import MOST_THREADS, on_threads
from gdd.model import distributions

#: p-values: right samplers pass above one, wrong ones must come out below the other
PASSES, FAILS = 1e-3, 1e-6

two_cores = pytest.mark.skipif(MOST_THREADS < 2, reason="one core only")


def assert_ratios(pairs: Iterable[tuple[float, float] | None], tolerance: float) -> None:
    """Differences of the first of each pair are differences of the second, until a None begins anew."""
    first, compared = None, 0
    for pair in pairs:
        if pair is None:
            first = None
        elif first is None:
            first = pair
        else:
            scale = max(1.0, *map(abs, (*pair, *first)))
            assert abs((pair[0] - first[0]) - (pair[1] - first[1])) < tolerance * scale
            compared += 1
    assert compared > 0


def assert_all_have_ratios(module: ModuleType, ratios: list[Callable], helpers: set[str]) -> None:
    """Every public function of a module has its ratio, but for helpers, which return no distribution."""
    own, kinds = (
        {n for n, found in inspect.getmembers(part, which) if found.__module__ == part.__name__ and n[0] != "_"}
        for part, which in ((module, inspect.isfunction), (distributions, inspect.isclass))
    )
    assert own - helpers == {ratio.__name__.removeprefix("ratio_") for ratio in ratios}
    for name in helpers:
        returned = str(inspect.signature(getattr(module, name)).return_annotation)
        assert not any(kind in returned for kind in kinds), name


def p_value_of_counts(found: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square of counts against what is expected; outcomes that expect fewer than 5 are lumped."""
    rare = expected < 5
    found, expected = np.append(found[~rare], found[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    return stats.chisquare(found[expected > 0], expected[expected > 0]).pvalue


def leftover(truth: np.ndarray, one: np.ndarray, other: np.ndarray, mask: np.ndarray) -> tuple[float, float]:
    """Error of one chain's mean times another's where the mask hides, in standard errors; mean product of both means.

    Given the observed pixels both chains are independent of the truth and of each other, so the expectation is 0 if
    they draw from the posterior. One chain alone would not do: its mean carries its own Monte Carlo error.
    """
    product = np.where(mask, 0, (truth - one) * other).sum(axis=(1, 2, 3))
    return product.mean() / (product.std() / np.sqrt(len(product))), (one * other)[~mask].mean()


def arrays_of(state: tuple) -> dict[str, np.ndarray]:
    """Every array of a state by name, a layer's with its number."""
    out = {}
    for part in state:
        for name, array in part._asdict().items():
            out |= {f"{name} {n}": one for n, one in enumerate(array)} if isinstance(array, tuple) else {name: array}
    return out


def digest_of(*parts) -> str:
    """Of every array of states, or of these arrays."""
    arrays = (array for part in parts for array in (arrays_of(part).values() if hasattr(part, "local") else part))
    return sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def assert_same_chain(one: tuple, other: tuple, tolerance: float) -> None:
    """Positions exactly; numbers up to rounding, which a chain of a few sweeps magnifies less than a thousandfold."""
    for name, array in arrays_of(one).items():
        if name.startswith(("positions", "z")):
            np.testing.assert_array_equal(array, arrays_of(other)[name], err_msg=name)
        else:
            np.testing.assert_allclose(array, arrays_of(other)[name], rtol=tolerance, atol=tolerance, err_msg=name)


class StopAt:
    """Progress that presses Ctrl-C after some sweeps."""

    def __init__(self, last: int) -> None:
        self.left = last

    def begin(self, *_) -> None:
        pass

    def step(self, **_) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def assert_threads_change_no_bit(run: Callable[[], tuple]) -> tuple:
    """Run on one thread and on two; return what it returned, (state, info)."""
    ends = []
    for threads in (1, 2):
        with on_threads(threads):
            ends.append(run())
    (state, info), (other, its_info) = ends
    np.testing.assert_equal(arrays_of(state), arrays_of(other))
    assert info.log_joint == its_info.log_joint
    return state, info


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes: the kernel refuses the write half way, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
