"""One run of an experiment: checkpoints, record and models; stopped by Ctrl-C, it can go on."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gdd.base.checks import GddError, check_whole
from gdd_book import experiments, models, records
from gdd_book.progress import Run, checkpoints

MOST_JOBS = 1024
Result = TypeVar("Result")


def run_experiment(name: str, scale: str, changes: Sequence[Sequence[str]] = (), restart: bool = False,
                   on_interrupt: Callable[[], None] = lambda: None, jobs: int = 1,
                   scheduler: str | None = None) -> Path:
    """Run one experiment as ``gdd run`` does, write its record and models; bad input is refused before any work."""
    experiment = experiments.get(name)
    parameters = experiments.parse(name, scale, changes)
    path = records.path_for(name, scale, parameters)
    check_whole("jobs", jobs, 1, MOST_JOBS)
    for option, value, usual in (("jobs", jobs, 1), ("scheduler", scheduler, None)):
        if value != usual and not experiment.in_parallel:
            raise GddError(f"{option}: {value} given; {name} has no parts to run side by side, leave --{option} out")
    records.check_writable(path)
    run = Run(checkpoints(), restart, jobs, scheduler, shown=True)
    outcome = run_watched(lambda: experiment.run(parameters, run), on_interrupt)
    made = {
        "experiment": name, "scale": scale, "parameters": parameters, "spec": outcome.spec, "seed": outcome.seed,
        "data_name": outcome.data_name, "data_checksum": outcome.data_checksum, "seconds": run.seconds,
    }
    changes = path.stem.split("--")[1 + (scale == "paper"):]  # without the paper's scale
    for model, learned in outcome.learned.items():
        models.write("--".join([model, *changes]), learned, records.as_json(records.made_by(**made)))
    return records.write(path, outcome.dataset, **made)


def run_watched(work: Callable[[], Result], stopped: Callable[[], None]) -> Result:
    """Do ``work`` in a thread of its own and return its result; at Ctrl-C call ``stopped`` and end the process.

    A compiled loop sees no signal before it returns. All of ours let other threads run meanwhile, so that the main one,
    which only waits, does. Nothing is tidied up: what has to last is on disk, where no end of a process can harm it.
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
