"""The command ``gdd``: what data are here, run an experiment, build the book, measure the cost."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gdd import experiments, records
from gdd.axes import GddError
from gdd.progress import Bar


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 2 for an error that is said in one line, 130 if interrupted."""
    chosen = _parser().parse_args(arguments)
    try:
        chosen.command(chosen)
    except GddError as error:
        print(f"gdd: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gdd: interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        return 130
    return 0


def run_experiment(name: str, scale: str, changes: Sequence[tuple[str, str]] = ()) -> Path:
    """Run one experiment and write its record; return the record's path.

    Raises
    ------
    GddError
        Unknown experiment, scale or parameter, before any work; bad data; a record that cannot be written.
    """
    experiment = experiments.get(name)
    parameters = experiments.parse(name, scale, changes)
    path = records.path_for(name, scale, parameters)
    start = time.perf_counter()
    outcome = experiment.run(parameters, Bar)
    written = records.write(
        path, outcome.dataset, experiment=name, scale=scale, parameters=parameters, spec=outcome.spec,
        seed=outcome.seed, data_name=outcome.data_name, data_checksum=outcome.data_checksum,
        seconds=time.perf_counter() - start,
    )  # fmt: skip
    shutil.rmtree(experiments.checkpoint_folder(name, parameters), ignore_errors=True)
    return written


def _data(chosen: argparse.Namespace) -> None:
    from gdd import datasets

    if chosen.fetch:
        print(datasets.fetch(chosen.fetch))
    else:
        print(datasets.inventory())


def _run(chosen: argparse.Namespace) -> None:
    print(run_experiment(chosen.experiment, chosen.scale, [tuple(pair) for pair in chosen.parameter]))


def _book(_: argparse.Namespace) -> None:
    from gdd import notebooks

    print(notebooks.build())


def _bench(chosen: argparse.Namespace) -> None:
    from gdd.figures import performance

    path = run_experiment("bench", "demo", [tuple(pair) for pair in chosen.parameter])
    for table in performance.tables(records.read(path)):
        print(table.to_string(), end="\n\n")
    print(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gdd", description="Generative deep deconvolution: data, runs, book, cost.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    data = commands.add_parser("data", help="what data are here, and where; 'data fetch NAME' gets what is missing")
    data.set_defaults(command=_data, fetch=None)
    data.add_subparsers(metavar="fetch").add_parser("fetch").add_argument("fetch", metavar="NAME")

    run = commands.add_parser("run", help="run an experiment and write its record")
    run.add_argument("experiment", metavar="EXPERIMENT", help=", ".join(experiments.names()))
    run.add_argument("--scale", choices=experiments.SCALES, default="demo")
    run.set_defaults(command=_run)

    commands.add_parser("book", help="execute the chapters and build the book").set_defaults(command=_book)
    bench = commands.add_parser("bench", help="measure the cost on this machine, and of the peers that are installed")
    bench.set_defaults(command=_bench)
    for command in (run, bench):
        command.add_argument("-p", dest="parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    return parser
