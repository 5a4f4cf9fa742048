"""The command ``gdd``: what data are here, run an experiment, build the book, measure the cost."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from gdd.base.checks import GddError, check_whole
from gdd_book import experiments, folders, machine, records
from gdd_book.interrupt import run_watched
from gdd_book.runlog import RunLog

MOST_JOBS = 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 2 for an error that is said in one line, 130 if interrupted."""
    chosen = _parser().parse_args(arguments)
    try:
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
    jobs: int = 1,
) -> Path:  # fmt: skip
    """Run one experiment and write its record, with a log beside it; return the record's path.

    Parameters
    ----------
    name, scale, changes : which experiment, at which scale, parameters that differ from its defaults
    restart : set old checkpoints aside; by default the run goes on from those that are its own
    on_interrupt : called at Ctrl-C, before the process ends
    jobs : processes, for an experiment that has parts to run side by side

    Raises
    ------
    GddError
        Unknown experiment, scale or parameter, several jobs where there is one, an unwritable folder, before any work;
        bad data; a damaged checkpoint or another run's; a full disk.
    """
    experiment = experiments.get(name)
    parameters = experiments.parse(name, scale, changes)
    path = records.path_for(name, scale, parameters)
    more = {} if check_whole("jobs", jobs, 1, MOST_JOBS) == 1 else {"jobs": jobs}
    if more and not getattr(experiment, "IN_PARALLEL", False):
        raise GddError(f"jobs: {jobs} given; {name} has no parts to run side by side, leave --jobs out")
    with RunLog(path.with_suffix(".log"), _settings(name, scale, parameters, restart)) as log:

        def work() -> experiments.Outcome:
            with folders.afresh(log.say) if restart else nullcontext():
                return experiment.run(parameters, log.bar, **more)

        def stopped() -> None:
            log.write("stopped by Ctrl-C; the last checkpoint is kept")
            on_interrupt()

        outcome = run_watched(work, stopped)
        written = records.write(
            path, outcome.dataset, experiment=name, scale=scale, parameters=parameters, spec=outcome.spec,
            seed=outcome.seed, data_name=outcome.data_name, data_checksum=outcome.data_checksum, seconds=log.seconds,
        )  # fmt: skip
        log.end(written)
    shutil.rmtree(experiments.checkpoint_folder(name, parameters), ignore_errors=True)
    return written


def _settings(name: str, scale: str, parameters: dict, restart: bool) -> list[str]:
    """First lines of a run's log."""
    return [
        f"start: {name}, {scale} scale{', old checkpoints set aside' if restart else ''}",
        f"settings: {records.as_json(parameters)}",
        f"machine: {machine.in_words()}; gdd {records.code_checksum()[:12]}",
    ]


def _say_interrupted(chosen: argparse.Namespace) -> None:
    """Say how to go on, where there is something to go on from."""
    said = "interrupted"
    if chosen.command is _run:
        pairs = [word for pair in chosen.parameter for word in ("-p", *pair)]
        jobs = [] if chosen.jobs == 1 else ["--jobs", str(chosen.jobs)]
        command = shlex.join(["gdd", "run", chosen.experiment, "--scale", chosen.scale, *pairs, *jobs])
        said += f"; the last checkpoint is kept, and this goes on from it:\n    {command}"
    print(f"\ngdd: {said}", file=sys.stderr)


def _data(chosen: argparse.Namespace) -> None:
    from gdd.data import datasets

    if chosen.fetch:
        print(datasets.fetch(chosen.fetch))
    else:
        print(datasets.inventory())


def _run(chosen: argparse.Namespace) -> None:
    changes = [tuple(pair) for pair in chosen.parameter]
    if chosen.parameters:
        for name, value in experiments.parse(chosen.experiment, chosen.scale, changes).items():
            print(name, ",".join(map(str, value)) if isinstance(value, tuple) else value)
        return
    say = partial(_say_interrupted, chosen)
    print(run_experiment(chosen.experiment, chosen.scale, changes, chosen.restart, say, chosen.jobs))


def _book(_: argparse.Namespace) -> None:
    from gdd_book.pages import notebooks

    print(notebooks.build())


def _bench(chosen: argparse.Namespace) -> None:
    from gdd_book.figures import performance

    changes = [tuple(pair) for pair in chosen.parameter]
    path = run_experiment("bench", "demo", changes, on_interrupt=partial(_say_interrupted, chosen))
    for table in performance.tables(records.read(path)):
        print(table.to_string(), end="\n\n")
    print(path)


class _Whole(argparse.HelpFormatter):
    """Lines of help that end between words, not at the hyphens of names that are to be typed."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gdd", description="Generative deep deconvolution: data, runs, book, cost.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    data = commands.add_parser("data", help="what data are here, and where; 'data fetch NAME' gets what is missing")
    data.set_defaults(command=_data, fetch=None)
    data.add_subparsers(metavar="fetch").add_parser("fetch").add_argument("fetch", metavar="NAME")

    run = commands.add_parser("run", help="run an experiment and write its record", formatter_class=_Whole)
    run.add_argument("experiment", metavar="EXPERIMENT", help=", ".join(experiments.names()))
    run.add_argument(
        "--scale", choices=experiments.SCALES, default="demo",
        help="demo: embedded digits, seconds to minutes (the default); paper: the paper's images and layer sizes",
    )  # fmt: skip
    begin = run.add_mutually_exclusive_group()
    begin.add_argument("--resume", dest="restart", action="store_false", help="go on from checkpoints (the default)")
    begin.add_argument("--restart", action="store_true", help="start afresh; old checkpoints are set aside")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, where an experiment can use several")
    run.add_argument("--parameters", action="store_true", help="only list the parameters and their values")
    run.set_defaults(command=_run, restart=False)

    commands.add_parser("book", help="execute the chapters and build the book").set_defaults(command=_book)
    bench = commands.add_parser("bench", help="measure the cost on this machine, and of the peers that are installed")
    bench.set_defaults(command=_bench)
    for command in (run, bench):
        command.add_argument(
            "-p", dest="parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"),
            help="set a parameter, once for each; a name that is not known is refused with a list of those that are",
        )  # fmt: skip
    return parser
