"""Independent pieces of work in several processes, told about in one place."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

import numba

from gdd.base.checks import GddError

#: what a process says besides its progress
READY, FAILED = "ready", "failed"


def run_tasks(
    work: Callable[..., None], tasks: Mapping[str, tuple], jobs: int, tell: Callable[[str, Any], None]
) -> None:
    """Call ``work(*arguments, say)`` for every task, in this process or in several others.

    Parameters
    ----------
    work : importable by its name; must leave its results in files, nothing is returned
    tasks : name -> arguments, begun in this order
    jobs : processes; 1 works in this one
    tell : called with the name of a task and whatever its ``say`` was called with

    Raises
    ------
    GddError
        What a task raised; a process that ended by itself. The other processes are ended; their files stay.

    Notes
    -----
    Processes are new ones, not copies: compiled threads do not survive a copy. When this process is killed the others
    end by themselves, the next time they say something or wait for work.

    *Source:* none. *Departs:* none. *Checked:* tests/test_processes.py, tests/test_class_parallel.py.
    """
    if jobs == 1:
        for name, arguments in tasks.items():
            work(*arguments, lambda message, name=name: tell(name, message))
        return
    context, waiting, crew = get_context("spawn"), list(tasks.items()), {}
    jobs = min(jobs, len(waiting))
    threads = max(1, numba.config.NUMBA_NUM_THREADS // max(1, jobs))
    try:
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, work, threads), daemon=True)
            process.start()
            theirs.close()
            crew[ours] = process
        at_work = dict.fromkeys(crew, "")
        while at_work:
            for pipe in wait(list(at_work)):
                _listen(pipe, crew[pipe], at_work, waiting, tell)
    finally:
        for process in crew.values():
            process.kill()
            process.join()


def _listen(pipe, process, at_work: dict, waiting: list, tell) -> None:
    """Take one message of a process; give it its next task, or none, when it is ready. Changes the two lists."""
    try:
        kind, content = pipe.recv()
    except (EOFError, OSError) as error:
        process.join()
        name = at_work[pipe] or "no task yet"
        raise GddError(f"jobs: a process ended with code {process.exitcode} ({name}); run again to go on") from error
    if kind == FAILED:
        raise GddError(f"{at_work[pipe]}: {content}")
    if kind != READY:
        tell(at_work[pipe], content)
    elif waiting:
        at_work[pipe], arguments = waiting.pop(0)
        pipe.send(arguments)
    else:
        del at_work[pipe]


def _serve(pipe, work, threads: int) -> None:
    """Do one task after another until the other side has no more, or has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side ends this process
    numba.set_num_threads(threads)

    def say(message) -> None:
        _send(pipe, ("", message))

    while True:
        _send(pipe, (READY, None))
        try:
            arguments = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            work(*arguments, say)
        except GddError as error:
            _send(pipe, (FAILED, str(error)))


def _send(pipe, message) -> None:
    """Send, or end at once where nobody listens any more: what has to last is on disk."""
    try:
        pipe.send(message)
    except OSError:
        os._exit(1)
