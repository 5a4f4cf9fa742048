"""A chain: sweeps from a first state or from a checkpoint, its traces, and the collected sample of highest likelihood.

The chain of one layer and the chain of the joint model differ in their sweep alone; both run here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from gdd.base.axes import CHAIN, DRAW
from gdd.base.checks import REMEDY, GddError
from gdd.model.spec import ChainSpec
from gdd.model.state import JointState, LayerData, LayerState
from gdd.sampler import checkpoint
from gdd.sampler.checkpoint import ChainState

SECONDS_BETWEEN_CHECKPOINTS = 120.0
SHARE_OF_WRITING = 0.05  # of the time, at most: a checkpoint of 60,000 images is of the order of a gigabyte

State = LayerState | JointState
#: state and number of the sweep -> new state, its log likelihood, and the sweep's traces by name
Step = Callable[[State, int], tuple[State, float, Mapping[str, np.ndarray]]]


def run_chain(
    first: Callable[[], State], step: Step, chain: ChainSpec, label: str, path: Path | None, owner: dict, progress,
    data: LayerData,
) -> ChainState:
    """Make every sweep that is missing. A checkpoint is written at the start, every few minutes, and at the end.

    Parameters
    ----------
    first : gives the first state; called only if there is no checkpoint
    step : makes one sweep
    chain : lengths
    label : what progress and errors call the chain
    path, owner : of the checkpoint, see `gdd.sampler.checkpoint`; None for none
    progress : bar over sweeps with `begin` and `step`, or None
    data : what the chain learns from; of several shards all write checkpoints together, when the first one says so

    Raises
    ------
    GddError
        A checkpoint that is damaged, another chain's or of other code, or that cannot be written: before any work.
        Numbers that overflow.

    Notes
    -----
    *Checked:* tests/test_chain.py, tests/test_refine.py, tests/test_killed.py (stopped, killed, resumed: same bits).
    """
    shard, ended = data.shard, False
    at = checkpoint.read(path, owner, data) if path else None
    if at is None:
        at = ChainState(0, first(), None, -np.inf, {})
        if path:
            checkpoint.write(path, owner, at, data)
    if progress is not None:
        progress.begin(label, chain.sweeps, at.done, at.seconds, str(path))
    begun, written, pause = time.monotonic(), at.done, SECONDS_BETWEEN_CHECKPOINTS
    saved, before, cpu_before = begun, at.seconds - begun, at.cpu_seconds - time.process_time()
    try:
        with threadpool_limits(limits=1, user_api="blas"):  # sums inside BLAS must not depend on the number of threads
            while at.done < chain.sweeps:
                at = advance(at, step, chain, label)
                at = at._replace(seconds=before + time.monotonic(), cpu_seconds=cpu_before + time.process_time())
                if progress is not None:
                    progress.step(residual=float(at.traces["residual"][-1]), active=float(at.traces["active"][-1]))
                if path and shard.reduce(itemgetter(0), time.monotonic() - saved >= pause):
                    now = time.monotonic()
                    checkpoint.write(path, owner, at, data)
                    written, saved = at.done, time.monotonic()
                    pause = max(SECONDS_BETWEEN_CHECKPOINTS, (saved - now) / SHARE_OF_WRITING)
        ended = True
    finally:
        if path and at.done > written and (ended or shard.allreduce is None):  # one shard alone cannot write
            checkpoint.write(path, owner, at, data)
    return at


def advance(at: ChainState, step: Step, chain: ChainSpec, label: str) -> ChainState:
    """Make one sweep; keep its state if it is collected and more likely than all before."""
    what = f"images: {label}, sweep {at.done} left the range of numbers"
    try:
        state, log_likelihood, row = step(at.state, at.done)
    except np.linalg.LinAlgError as error:
        raise GddError(f"{what} ({error}); {REMEDY}") from error
    if not np.isfinite(log_likelihood):
        raise GddError(f"{what}, log-likelihood {log_likelihood}; {REMEDY}")
    before = at.traces or {name: np.empty((0, *np.shape(new))) for name, new in row.items()}
    traces = {name: np.append(before[name], [new], axis=0) for name, new in row.items()}
    at = at._replace(done=at.done + 1, state=state, traces=traces)
    if at.done > chain.burn_in and (at.best is None or log_likelihood > at.best_likelihood):
        at = at._replace(best=state, best_likelihood=log_likelihood)
    return at


def label_traces(at: ChainState, axes: Mapping[str, tuple[str, ...]] | None = None) -> xr.Dataset:
    """Traces with dims (chain, draw) of one chain, and ``axes`` by name where a sweep has more than one number."""
    dims = {name: (CHAIN, DRAW, *(axes or {}).get(name, ())) for name in at.traces}
    labelled = {name: (dims[name], np.asarray(values, float)[None]) for name, values in at.traces.items()}
    return xr.Dataset(labelled, attrs={"seconds": at.seconds, "cpu_seconds": at.cpu_seconds})
