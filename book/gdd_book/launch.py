"""One run of an experiment: checkpoints, log, record and models; stopped by Ctrl-C, it can go on."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from gdd.base.checks import GddError, check_whole
from gdd_book import experiments, models, records
from gdd_book.progress import AND_TERMINAL, LOG, Run, checkpoints, in_words, memory_in_words

MOST_JOBS = 1024
SECONDS_BETWEEN_SAVES = 60.0
#: folders at the beginning of a path: they tell about the machine's owner and help nobody else
FOLDERS = re.compile(r"(?<![\w./])/(?:[^/\s'\"]+/)+")
Result = TypeVar("Result")


def run_experiment(
    name: str, scale: str, changes: Sequence[Sequence[str]] = (), restart: bool = False, on_interrupt=lambda: None,
    jobs: int = 1, scheduler: str | None = None,
) -> Path:
    """Run one experiment and write its record, with a log beside it; return the record's path. Models go beside it.

    Parameters
    ----------
    name, scale, changes : which experiment, at which scale, parameters that differ from its defaults
    restart : set old checkpoints aside; by default the run goes on from those that are its own
    on_interrupt : called at Ctrl-C, before the process ends
    jobs : processes, for an experiment that has parts to run side by side
    scheduler : address of a dask scheduler whose workers run these parts instead

    Raises
    ------
    GddError
        Unknown experiment, scale or parameter, several jobs where there is one, an unwritable folder: before any work.
        Bad data; a damaged checkpoint or another run's; a full disk.
    """
    experiment = experiments.get(name)
    parameters = experiments.parse(name, scale, changes)
    path = records.path_for(name, scale, parameters)
    if check_whole("jobs", jobs, 1, MOST_JOBS) > 1 and not experiment.in_parallel:
        raise GddError(f"jobs: {jobs} given; {name} has no parts to run side by side, leave --jobs out")
    if scheduler is not None and not experiment.in_parallel:
        raise GddError(f"scheduler: {scheduler} given; {name} has no parts to run side by side, leave --scheduler out")
    with logged(path.with_suffix(".log")):
        LOG.info("start: %s, %s scale%s", name, scale, ", old checkpoints set aside" if restart else "")
        LOG.info("settings: %s", records.as_json(parameters))
        LOG.info("machine: %s; gdd %s", records.machine(), records.code_checksum()[:12])
        run = Run(checkpoints(), restart, jobs, scheduler)
        own = run.folder(name, parameters)
        run.count_seconds(own / "seconds.json")

        def stopped() -> None:
            run.save()
            LOG.info("stopped by Ctrl-C; the last checkpoint is kept")
            on_interrupt()

        with saved_now_and_then(run):
            outcome = run_watched(lambda: experiment.run(parameters, run), stopped)
        made = {
            "experiment": name, "scale": scale, "parameters": parameters, "spec": outcome.spec, "seed": outcome.seed,
            "data_name": outcome.data_name, "data_checksum": outcome.data_checksum, "seconds": run.seconds,
        }
        for model, learned in outcome.learned.items():
            models.write(models.name_for(model, path), learned, records.as_json(records.made_by(**made)))
        written = records.write(path, outcome.dataset, **made)
        before = f", {in_words(run.before)} of them in earlier runs" if run.before else ""
        LOG.info("end: %s, %s%s, peak memory %s", written.name, in_words(run.seconds), before, memory_in_words())
    shutil.rmtree(own, ignore_errors=True)
    return written


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Write the lines of `LOG` to a file, to which every run of the same name adds its own; an error is the last one.

    Raises
    ------
    GddError
        The folder cannot be written. A line that cannot be written later is reported once, and the run goes on.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _LogFile(path, encoding="utf-8")
    except OSError as error:
        raise GddError(f"run log {path}: cannot be written ({error}); free space or set GDD_RESULTS") from error
    handlers = (file, _Terminal(AND_TERMINAL))
    LOG.setLevel(logging.INFO)
    for handler in handlers:
        LOG.addHandler(handler)
    try:
        yield
    except BaseException as error:
        LOG.info("stopped: %s, peak memory %s", error or type(error).__name__, memory_in_words())
        raise
    finally:
        for handler in handlers:
            LOG.removeHandler(handler)
            handler.close()


class _LogFile(logging.FileHandler):
    """Lines with a time and without folders."""

    lost = False

    def format(self, record: logging.LogRecord) -> str:
        now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.created))
        return f"{now}  {FOLDERS.sub('', record.getMessage())}"

    def handleError(self, record: logging.LogRecord) -> None:
        if not self.lost:
            said = f"gdd: run log {self.baseFilename}: cannot be written ({sys.exc_info()[1]}); lines are lost"
            tqdm.write(said, file=sys.stderr)
        self.lost = True


class _Terminal(logging.Handler):
    """Lines above the bars."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(f"gdd: {record.getMessage()}", file=sys.stderr)


@contextmanager
def saved_now_and_then(run: Run) -> Iterator[None]:
    """Keep the seconds of a run on disk within the block, for the run that goes on if this one is killed."""
    done = threading.Event()

    def save() -> None:
        while not done.wait(SECONDS_BETWEEN_SAVES):
            run.save()

    threading.Thread(target=save, daemon=True).start()
    try:
        yield
    finally:
        done.set()
        run.save()


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
