"""Hostile arguments, which the abuse tests put in place of the right ones, and what a case may end in."""

import resource
import signal
import warnings
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import xarray as xr
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gdd.base.checks import GddError

#: seconds of processor time after which a case hangs (compiling takes up to 90), bytes by which it may let memory grow
HANGS, GROWTH = 200, 2**30
#: the same cases in every run, however long they take
GIVEN = partial(settings, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))

#: sizes and counts that no machine holds; nothing here may be allocated
HUGE = (2**31 - 1, 2**31, 10**12, 2**63, 2**64, -(10**30), 10**400)
EDGES = (0, 1, -1, 0.0, -0.0, 1.0, 0.5, 1e-300, 1e-13, 1e13, 1e300, float("nan"), float("inf"), -float("inf"))
FOREIGN = (
    True, False, None, "", "3", "abc", "\udcff\x00", b"3", 1j, Fraction(1, 2), Decimal("1"), np.int8(3), np.uint8(200),
    np.float16(np.inf), np.float32(0.5), np.bool(True), [], [1], (), {}, {"a": 1}, object, range(3), [[1], [1, 2]],
)

numbers = st.one_of(
    st.sampled_from(EDGES), st.sampled_from(FOREIGN), st.sampled_from(HUGE), st.integers(-3, 12), st.floats(),
    st.builds(lambda: np.array(3.0)), st.builds(lambda: np.array([1.0, 2.0])),
)
counts = st.one_of(st.integers(-1, 4), numbers)
reals = st.one_of(st.floats(1e-12, 1e12), st.floats(0.1, 10), numbers)
sizes = st.one_of(
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.sampled_from(HUGE), st.sampled_from((1, 2, *HUGE))),
    st.tuples(numbers, numbers),
    st.sampled_from([(3,), (2, 2, 2), [2, 2], "22", (200, 200), (1, 40000)]),
    st.builds(lambda: np.array([2, 2])),
    numbers,
)
words = st.one_of(st.text(max_size=8), st.sampled_from(("image", "plane", "atom", "mean", "train")), numbers)
seeds = st.one_of(st.integers(0, 5), st.integers(-(2**70), 2**70), numbers)


def _nested(array):
    return array.tolist()


def _ragged(array):
    return [array.tolist(), [1.0]]


def _labelled(dims, order=None):
    def change(array):
        if array.ndim != len(dims):
            return xr.DataArray(array)
        labelled = xr.DataArray(array, dims=dims)
        return labelled.transpose(*order(dims)) if order else labelled

    return change


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def _at(value):
    def change(array):
        array = np.array(array, np.result_type(array, np.float32))
        if array.size:
            array.flat[array.size // 2] = value
        return array

    return change


def _every(value):
    return lambda array: np.full(array.shape, value, np.result_type(array, np.float64))


def _as(dtype):
    return lambda array: array.astype(dtype)


def _cut(axis, keep):
    def change(array):
        return array.take(range(min(keep, array.shape[axis])), axis) if axis < array.ndim else array

    return change


def _grown(axis):
    return lambda array: np.concatenate([array, array], axis) if axis < array.ndim else array


def _endless(array):
    shape = (10**6, *array.shape[1:-1], 10**9) if array.ndim > 1 else (10**14,)
    return np.broadcast_to(np.zeros((), array.dtype), shape)


VALUES = [_at(v) for v in (np.nan, np.inf, -np.inf, 1e300, -1e30, 1e7, 1e6, 1e-300)]
WHOLES = [_every(v) for v in (np.nan, 0.0, 1.0, 1e-300, 1e-20, 1e6, 1e300)]
TYPES = [_as(t) for t in (object, str, complex, bool, np.uint8, np.int8, np.int64, np.float16, np.longdouble, ">f8")]
SHAPES = [_cut(axis, keep) for axis in range(4) for keep in (0, 1, 2)] + [_grown(axis) for axis in range(4)]
SHAPES += [lambda a: a[0], lambda a: a[None], lambda a: a.ravel()]
LAYOUTS = [
    np.asfortranarray, lambda a: a[::-1], lambda a: a[..., ::-1], _read_only, _nested, _ragged,
    lambda a: np.broadcast_to(a[:1], a.shape) if a.ndim else a, lambda a: a.astype("datetime64[s]"),
    lambda a: np.ma.masked_array(a, a == a.flat[0]) if a.size else a, lambda a: a * 1e-3, lambda a: a * 1e5,
    lambda a: a.copy(),
]
OTHERS = [lambda a: None, lambda a: 3.0, lambda a: "images", lambda a: {}, lambda a: object(), lambda a: np.float64(2)]
OTHERS.append(_endless)


def arrays(valid, dims=()):
    """The valid array changed in one or two ways: values, type, number and sizes of axes, layout, names of axes."""
    others = ("image", *"abcdef"[: max(0, len(dims) - 1)])
    labels = [_labelled(dims), _labelled(dims, lambda d: d[::-1]), _labelled(others)]
    one = st.sampled_from(VALUES + WHOLES + TYPES + SHAPES + LAYOUTS)
    last = st.sampled_from(VALUES + TYPES + SHAPES + LAYOUTS + OTHERS + labels * 3)

    def change(pair):
        array = np.array(valid)
        for step in pair:
            if isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
                try:
                    with np.errstate(all="ignore"):
                        array = step(array)
                except (ValueError, IndexError, TypeError):  # a change that this array does not allow
                    return array
        return array

    return st.tuples(one, last).map(change) | last.map(lambda step: change((step,)))


def answer_of(call: Callable, may_be_nan: bool = False) -> str:
    """Make a call: 'result' or 'own error'; a failure for any other end, and for NaN in a result."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, HANGS)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = call()
    except GddError as error:
        message = str(error)
        assert 20 < len(message) < 2000, message
        return "own error"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < GROWTH, f"{grown / 1e6:.0f} MB more"
    assert may_be_nan or not list(nan_in(answer)), f"NaN without a word in {list(nan_in(answer))}"
    return "result"


def _hangs(*_):
    raise TimeoutError(f"no answer in {HANGS} s")


def nan_in(answer, path=""):
    """Paths of the arrays in a result that hold NaN."""
    if isinstance(answer, xr.Dataset):
        answer = dict(answer.variables)
    if isinstance(answer, Mapping):
        for key, part in answer.items():
            yield from nan_in(part, f"{path}/{key}")
    elif isinstance(answer, tuple | list):
        fields = getattr(answer, "_fields", range(len(answer)))
        for field, part in zip(fields, answer, strict=True):
            yield from nan_in(part, f"{path}/{field}")
    elif isinstance(answer, xr.DataArray | xr.Variable | np.ndarray | float):
        values = np.asarray(answer)
        if values.dtype.kind == "f" and np.isnan(values).any():
            yield path
