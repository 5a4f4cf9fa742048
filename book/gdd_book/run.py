"""The command ``gdd``: what data are here, run an experiment, build the book, measure the cost."""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

import gdd
from gdd.base.checks import GddError, check_whole
from gdd_book import checkout, experiments, models, records
from gdd_book.progress import AND_TERMINAL, LOG, Run, checkpoints, in_words, memory_in_words

MOST_JOBS = 1024
SECONDS_BETWEEN_SAVES = 60.0
#: folders at the beginning of a path: they tell about the machine's owner and help nobody else
FOLDERS = re.compile(r"(?<![\w./])/(?:[^/\s'\"]+/)+")
Result = TypeVar("Result")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 2 for an error that is said in one line, 130 if interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know ASCII only
    try:
        try:
            chosen = _parser().parse_args(arguments)
        finally:
            _print()  # help and version, which argparse has printed
        chosen.command(chosen)
    except GddError as error:
        print(f"gdd: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        _say_interrupted(chosen)
        return 130
    return 0


def run_experiment(
    name: str, scale: str, changes: Sequence[tuple[str, str]] = (), restart: bool = False, on_interrupt=lambda: None,
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


def _say_interrupted(chosen: argparse.Namespace) -> None:
    """Say how to go on, where there is something to go on from."""
    said = "interrupted"
    if chosen.command is _run:
        pairs = [word for pair in chosen.parameter for word in ("-p", *pair)]
        jobs = [] if chosen.jobs == 1 else ["--jobs", str(chosen.jobs)]
        jobs += [] if chosen.scheduler is None else ["--scheduler", chosen.scheduler]
        command = shlex.join(["gdd", "run", chosen.experiment, "--scale", chosen.scale, *pairs, *jobs])
        said += f"; the last checkpoint is kept, and this goes on from it:\n    {command}"
    print(f"\ngdd: {said}", file=sys.stderr)


def _print(*lines: object) -> None:
    """Print lines at once; GddError where they cannot be written: to a full disk, to a reader that has gone."""
    try:
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)
    except OSError as error:
        with suppress(OSError):  # what is left over goes nowhere, as Python would try once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise GddError(f"output: cannot be written ({error}); free space, or write it somewhere else") from error


def _data(chosen: argparse.Namespace) -> None:
    from gdd_book.data import sources

    files = sources.files_of(chosen.fetch) if chosen.fetch else sources.SOURCES
    paths = [sources.locate(one) if chosen.fetch else one.path for one in files]
    pairs = zip(files, paths, strict=True)
    _print(*(f"{one.dataset:12}{one.name:30}{path or f'missing; from {one.url}'}" for one, path in pairs))


def _run(chosen: argparse.Namespace) -> None:
    changes = [tuple(pair) for pair in chosen.parameter]
    if chosen.parameters:
        for name, value in experiments.parse(chosen.experiment, chosen.scale, changes).items():
            _print(f"{name} {','.join(map(str, value)) if isinstance(value, tuple) else value}")
        return
    say = partial(_say_interrupted, chosen)
    written = run_experiment(
        chosen.experiment, chosen.scale, changes, chosen.restart, say, chosen.jobs, chosen.scheduler
    )
    _print(written)


def _book(_: argparse.Namespace) -> None:
    checkout.need("book")
    try:
        from gdd_book.pages import notebooks
    except ModuleNotFoundError as error:
        raise GddError(f"book: the package {error.name} is not installed; pip install -e '.[book]'") from error
    _print(notebooks.build())


def _bench(chosen: argparse.Namespace) -> None:
    from gdd_book.figures import performance

    changes = [tuple(pair) for pair in chosen.parameter]
    path = run_experiment("bench", "demo", changes, on_interrupt=partial(_say_interrupted, chosen))
    for table in performance.tables(records.read(path)):
        _print(table.to_string(), "")
    _print(path)


class _Whole(argparse.HelpFormatter):
    """Lines of help that end between words, not at the hyphens of names that are to be typed."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gdd", description="Generative deep deconvolution: data, runs, book, cost.")
    parser.add_argument("--version", action="version", version=f"gdd {gdd.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    data = commands.add_parser("data", help="what data are here, and where; 'data fetch NAME' gets what is missing")
    data.set_defaults(command=_data, fetch=None)
    data.add_subparsers(metavar="fetch").add_parser("fetch").add_argument("fetch", metavar="NAME")

    run = commands.add_parser("run", help="run an experiment and write its record", formatter_class=_Whole)
    run.add_argument("experiment", metavar="EXPERIMENT", help=", ".join(experiments.names()))
    about = "demo: embedded digits, seconds to minutes (the default); paper: the paper's images and layer sizes"
    run.add_argument("--scale", choices=experiments.SCALES, default="demo", help=about)
    about = "start afresh, old checkpoints are set aside; by default a run goes on from them"
    run.add_argument("--restart", action="store_true", help=about)
    side = run.add_mutually_exclusive_group()
    side.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, where an experiment can use several")
    side.add_argument("--scheduler", metavar="ADDRESS", help="of dask, whose workers do what processes would")
    run.add_argument("--parameters", action="store_true", help="only list the parameters and their values")
    run.set_defaults(command=_run)

    commands.add_parser("book", help="execute the chapters and build the book").set_defaults(command=_book)
    bench = commands.add_parser("bench", help="measure the cost on this machine, and of the peers that are installed")
    bench.set_defaults(command=_bench)
    about = "set a parameter, once for each; a name that is not known is refused with a list of those that are"
    for command in (run, bench):
        command.add_argument(
            "-p", dest="parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help=about
        )
    return parser
