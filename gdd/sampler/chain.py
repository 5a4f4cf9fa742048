"""A chain: sweeps from a first state or from a checkpoint, its traces, and the collected sample of highest likelihood.

The chain of one layer and the chain of the joint model differ only in their sweep; both run here.
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
SHARE_OF_WRITING = 0.05  # largest share of the time; a checkpoint of 60,000 images is of the order of a gigabyte

State = LayerState | JointState
#: state and number of the sweep -> new state, its log likelihood, and the sweep's traces by name
Step = Callable[[State, int], tuple[State, float, Mapping[str, np.ndarray]]]


def run_chain(
    initial_state: Callable[[], State], step: Step, chain: ChainSpec, label: str, path: Path | None, owner: dict,
    progress, data: LayerData,
) -> ChainState:
    """Run all remaining sweeps, with a checkpoint at the start, every few minutes, and at the end.

    initial_state : gives the first state; called only if there is no checkpoint
    step : makes one sweep
    chain : lengths
    label : what progress and errors call the chain
    path, owner : of the checkpoint, see `gdd.sampler.checkpoint`; None for none
    progress : bar over sweeps with `begin` and `step`, or None
    data : input of the chain; several shards write checkpoints together, when the first one decides so

    GddError if a checkpoint is damaged, another chain's or of other code, or cannot be written: before any work; and if
    numbers overflow.

    *Checked:* tests/test_chain.py, tests/test_refine.py, tests/test_killed.py (stopped, killed, resumed: same bits).
    """
    shard, ended = data.shard, False
    chain_state = checkpoint.read(path, owner, data) if path else None
    if chain_state is None:
        chain_state = ChainState(0, initial_state(), None, -np.inf, {})
        if path:
            checkpoint.write(path, owner, chain_state, data)
    if progress is not None:
        progress.begin(label, chain.sweeps, chain_state.done, chain_state.seconds, str(path))
    saved, written, pause = time.monotonic(), chain_state.done, SECONDS_BETWEEN_CHECKPOINTS
    before, cpu_before = chain_state.seconds - saved, chain_state.cpu_seconds - time.process_time()
    try:
        with threadpool_limits(limits=1, user_api="blas"):  # sums inside BLAS must not depend on the number of threads
            while chain_state.done < chain.sweeps:
                chain_state = advance(chain_state, step, chain, label)
                chain_state = chain_state._replace(
                    seconds=before + time.monotonic(), cpu_seconds=cpu_before + time.process_time()
                )
                if progress is not None:
                    progress.step(**{name: float(chain_state.traces[name][-1]) for name in ("residual", "active")})
                if path and shard.reduce(itemgetter(0), time.monotonic() - saved >= pause):
                    now = time.monotonic()
                    checkpoint.write(path, owner, chain_state, data)
                    written, saved = chain_state.done, time.monotonic()
                    pause = max(SECONDS_BETWEEN_CHECKPOINTS, (saved - now) / SHARE_OF_WRITING)
        ended = True
    finally:
        if path and chain_state.done > written and (ended or shard.meet is None):  # one shard alone cannot write
            checkpoint.write(path, owner, chain_state, data)
    return chain_state


def advance(chain_state: ChainState, step: Step, chain: ChainSpec, label: str) -> ChainState:
    """Make one sweep; keep its state if it is collected and more likely than all before."""
    what = f"images: {label}, sweep {chain_state.done} left the range of numbers"
    try:
        state, log_likelihood, row = step(chain_state.state, chain_state.done)
    except np.linalg.LinAlgError as error:
        raise GddError(f"{what} ({error}); {REMEDY}") from error
    if not np.isfinite(log_likelihood):
        raise GddError(f"{what}, log-likelihood {log_likelihood}; {REMEDY}")
    before = chain_state.traces or {name: np.empty((0, *np.shape(new))) for name, new in row.items()}
    traces = {name: np.append(before[name], [new], axis=0) for name, new in row.items()}
    chain_state = chain_state._replace(done=chain_state.done + 1, state=state, traces=traces)
    if chain_state.done > chain.burn_in and (chain_state.best is None or log_likelihood > chain_state.best_likelihood):
        chain_state = chain_state._replace(best=state, best_likelihood=log_likelihood)
    return chain_state


def label_traces(chain_state: ChainState, axes: Mapping[str, tuple[str, ...]] | None = None) -> xr.Dataset:
    """Traces with dims (chain, draw) of one chain, and ``axes`` by name where a sweep has more than one number."""
    dims = {name: (CHAIN, DRAW, *(axes or {}).get(name, ())) for name in chain_state.traces}
    labelled = {name: (dims[name], np.asarray(values, float)[None]) for name, values in chain_state.traces.items()}
    return xr.Dataset(labelled, attrs={"seconds": chain_state.seconds, "cpu_seconds": chain_state.cpu_seconds})
