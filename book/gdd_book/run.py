"""The command ``gdd``; the library is imported once a command needs it: `gdd --help` answers at once."""

import argparse
import importlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from types import ModuleType


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 2 for an error that is said in one line, 130 if interrupted."""
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know ASCII only
    try:
        chosen = _parser().parse_args(words)
        if chosen.command is _run and not chosen.experiment and not chosen.help:
            chosen.parser.error("EXPERIMENT: one is needed; gdd run --help lists them")
    finally:
        _print()  # help and version, which argparse has printed
    from gdd.base.checks import GddError  # with it comes the library

    chosen.interrupted = partial(_print_resume_command, words)
    try:
        chosen.command(chosen)
    except GddError as error:
        print(f"gdd: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        chosen.interrupted()
        return 130
    return 0


def _print_resume_command(words: Sequence[str]) -> None:
    """Say how to go on, where there is something to go on from."""
    print("\ngdd: interrupted", file=sys.stderr)
    if words[0] in ("run", "bench"):
        command = shlex.join(["gdd", *(word for word in words if word != "--restart")])
        print(f"The last checkpoint is kept, and this goes on from it:\n    {command}", file=sys.stderr)


def _print(*lines: object) -> None:
    """Print lines at once; say so, and end, where they cannot be written: to a full disk, to a reader that has gone."""
    try:
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)
    except OSError as error:
        with suppress(OSError):  # what is left over goes nowhere, as Python would try once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"gdd: output: cannot be written ({error}); free space, or write it somewhere else", file=sys.stderr)
        raise SystemExit(2) from error


def _data(chosen: argparse.Namespace) -> None:
    from gdd_book.data import sources

    files = sources.files_of(chosen.fetch) if chosen.fetch else sources.SOURCES
    paths = [sources.locate(one) if chosen.fetch else one.path for one in files]
    pairs = zip(files, paths, strict=True)
    _print(*(f"{one.dataset:12}{one.name:30}{path or f'missing; from {one.url}'}" for one, path in pairs))


def _run(chosen: argparse.Namespace) -> None:
    from gdd_book import experiments, records
    from gdd_book.launch import run_experiment

    if chosen.help:
        took = records.durations(chosen.experiment) if chosen.experiment else []
        _print(chosen.parser.format_help(), experiments.described(chosen.experiment), *took)
    else:
        _print(run_experiment(
            chosen.experiment, chosen.scale, chosen.parameter, chosen.restart, chosen.interrupted, chosen.jobs,
            chosen.scheduler, chosen.device,
        ))


def _bench(chosen: argparse.Namespace) -> None:
    from gdd_book import records
    from gdd_book.figures import performance
    from gdd_book.launch import run_experiment

    path = run_experiment("bench", "demo", chosen.parameter, on_interrupt=chosen.interrupted)
    for table in performance.tables(records.read(path)):
        _print(table.to_string(), "")
    _print(path)


def _chapter(chosen: argparse.Namespace) -> None:
    from gdd_book.parameters import from_yaml

    _print(_pages("chapter").run(chosen.page, chosen.output, [*chosen.parameter, *from_yaml(chosen.yaml)]))


def _book(_: argparse.Namespace) -> None:
    from gdd_book import checkout

    checkout.need("book")
    _print(_pages("notebooks").build())


def _pages(name: str) -> ModuleType:
    """A module that needs the extra ``book``; GddError where that is not installed."""
    from gdd.base.checks import GddError

    try:
        return importlib.import_module(f"gdd_book.pages.{name}")
    except ModuleNotFoundError as error:
        raise GddError(f"pages: the package {error.name} is not installed; pip install -e '.[book]'") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gdd", description="Generative deep deconvolution: data, runs, book, cost.")
    parser.add_argument("--version", action="version", version=f"gdd {version('gdd')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    data = commands.add_parser("data", help="what data are here, and where; 'data fetch NAME' gets what is missing")
    data.set_defaults(command=_data, fetch=None)
    data.add_subparsers(metavar="fetch").add_parser("fetch").add_argument("fetch", metavar="NAME")

    about, pairs = "run an experiment and write its record", "[-p NAME VALUE ...]"
    usage = f"%(prog)s EXPERIMENT {pairs} [options]"
    run = commands.add_parser("run", help=about, usage=usage, add_help=False, allow_abbrev=False)
    run.add_argument("experiment", metavar="EXPERIMENT", nargs="?", help="one of those that --help lists")
    run.add_argument("-h", "--help", action="store_true", help="this help; behind an EXPERIMENT, its parameters too")
    about = "demo: embedded digits, seconds to minutes (the default); paper: the paper's images and layer sizes"
    run.add_argument("--scale", choices=("demo", "paper"), default="demo", help=about)
    about = "start afresh, old checkpoints are set aside; by default a run goes on from them"
    run.add_argument("--restart", action="store_true", help=about)
    side = run.add_mutually_exclusive_group()
    side.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, where an experiment can use several")
    side.add_argument("--scheduler", metavar="ADDRESS", help="of dask, whose workers do what processes would")
    about = "cuda: learn models, and code most images, on an NVIDIA graphics processor: the same chains to rounding"
    run.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help=about)
    run.set_defaults(command=_run, parser=run)

    about = "run a page of the book at your parameters, as a notebook"
    chapter = commands.add_parser("chapter", help=about, usage=f"%(prog)s PAGE.md OUT.ipynb {pairs} [-y YAML ...]")
    chapter.add_argument("page", metavar="PAGE.md", help="such as book/mnist/error.md; - reads it from a pipe")
    chapter.add_argument("output", metavar="OUT.ipynb", help="the notebook to write; its folder must be there")
    about = "parameters as papermill's -y takes them, such as 'pool: [2, 2]'"
    chapter.add_argument("-y", dest="yaml", action="append", default=[], metavar="YAML", help=about)
    chapter.set_defaults(command=_chapter)

    commands.add_parser("book", help="execute the chapters and build the book").set_defaults(command=_book)
    bench = commands.add_parser("bench", help="measure the cost on this machine, and of the peers that are installed")
    bench.set_defaults(command=_bench)
    about = "set a parameter, once for each; several values with spaces or commas; an unknown name lists the known"
    for command in (run, chapter, bench):
        command.add_argument(
            "-p", dest="parameter", nargs="+", action="append", default=[], metavar=("NAME", "VALUE"), help=about
        )
    return parser
