"""A stretch of a chain: from its beginning, or from where a checkpoint left it, to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from gdd.sampler import checkpoint
from gdd.sampler.checkpoint import Progressed

SECONDS_BETWEEN_CHECKPOINTS = 120.0
SHARE_OF_WRITING = 0.05  # of the time, at most: a checkpoint of 60,000 images is of the order of a gigabyte
RESIDUAL, ACTIVE = 2, 3  # columns of every chain's traces


def run_to_end(
    begin: Callable[[], Progressed], advance: Callable[[Progressed], Progressed], sweeps: int, stage: str,
    path: Path | None, owner: str, progress,
) -> Progressed:  # fmt: skip
    """Make every sweep that is still missing; write a checkpoint before, now and then, and at the end.

    Parameters
    ----------
    begin : gives the chain before its first sweep; called only if there is no checkpoint
    advance : makes one sweep
    sweeps : of the whole chain
    stage : what the progress shows
    path, owner : of the checkpoint, see `gdd.sampler.checkpoint`; None for none
    progress : `gdd_book.progress.Bar`, optional

    Raises
    ------
    GddError
        A checkpoint that is damaged or another chain's, or that cannot be written: the first before any work.

    Notes
    -----
    *Source:* none. *Departs:* none. *Checked:* tests/test_chain.py, tests/test_refine.py, tests/test_killed.py.
    """
    at = checkpoint.read(path, owner) if path else None
    if at is None:
        at = begin()
        if path:
            checkpoint.write(path, owner, at)
    if progress is not None:
        progress.begin(stage, sweeps, at.done, at.seconds, owner)
    begun = saved = time.monotonic()
    written, pause = at.done, SECONDS_BETWEEN_CHECKPOINTS
    before, cpu_before = at.seconds - begun, at.cpu_seconds - time.process_time()
    try:
        with threadpool_limits(limits=1, user_api="blas"):  # sums inside BLAS must not depend on the number of threads
            while at.done < sweeps:
                at = advance(at)
                at = at._replace(
                    seconds=before + time.monotonic(), cpu_seconds=cpu_before + time.process_time()
                )  # fmt: skip
                if progress is not None:
                    progress.step(residual=float(at.traces[-1, RESIDUAL]), active=float(at.traces[-1, ACTIVE]))
                if path and time.monotonic() - saved >= pause:
                    now = time.monotonic()
                    checkpoint.write(path, owner, at)
                    written, saved = at.done, time.monotonic()
                    pause = max(SECONDS_BETWEEN_CHECKPOINTS, (saved - now) / SHARE_OF_WRITING)
    finally:
        if path and at.done > written:
            checkpoint.write(path, owner, at)
    return at
