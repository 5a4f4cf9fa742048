"""Ctrl-C that ends a run at once, also within a compiled loop that takes minutes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def run_watched(work: Callable[[], Result], stopped: Callable[[], None]) -> Result:
    """Do ``work`` in a thread of its own and return its result; at Ctrl-C call ``stopped`` and end the process.

    A compiled loop sees no signal before it returns. All of ours let other threads run meanwhile, so that the main one,
    which only waits, does. Nothing is tidied up: what has to last is on disk, where no end of a process can harm it.

    Notes
    -----
    *Source:* none. *Departs:* none. *Checked:* tests/test_interrupt.py.
    """
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    try:
        return future.result()
    except KeyboardInterrupt:
        if future.done():  # raised by the work itself
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stopped()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
    finally:
        pool.shutdown()
