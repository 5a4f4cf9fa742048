"""What a case of the abuse tests may end in, and how many ended how."""

import resource
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import xarray as xr
from hypothesis import HealthCheck, settings
from matplotlib import pyplot

from gdd.base.checks import GddError

#: seconds of processor time after which a case hangs (compiling takes up to 90), bytes by which it may let memory grow
HANGS, GROWTH = 200, 2**30
#: how every function answered, over all tests of a run
ANSWERS: dict[str, Counter] = {}
#: the same cases in every run, however long they take
GIVEN = partial(settings, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def judge(call: Callable, name: str, nan: tuple[str, ...] | None = ()) -> str:
    """Make a call: 'result' or 'own error'; a failure for any other end, and for NaN anywhere but where it may be."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, HANGS)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = call()
    except GddError as error:
        said = str(error)
        assert 20 < len(said) < 2000, said
        return "own error"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        pyplot.close("all")
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < GROWTH, f"{name}: {grown / 1e6:.0f} MB more"
    if nan is not None:
        found = [path for path in nan_in(answer) if not path.endswith(("\0", *nan))]
        assert not found, f"{name}: NaN without a word in {found}"
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
