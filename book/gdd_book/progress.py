"""What a run has besides its parameters: a line of progress, folders of checkpoints, results that a later run reuses.

Everything in the cache lies in a folder named after what it depends on: images and atoms by their content, models and
chains by their settings. Runs that need the same chain share it, in whatever order they come.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gdd.base import files
from gdd.base.checks import GddError
from gdd.base.files import user_path
from gdd.sampler.checkpoint import digest_of
from gdd_book.data.sources import cache_folder

#: on a terminal, where a line replaces the one before; and elsewhere, such as in a file
SECONDS_BETWEEN_LINES = {True: 0.2, False: 300.0}


class Bar:
    """One line, "n of m, time left", over one or more stages: a context manager that the library's chains call.

    Parameters
    ----------
    total : sweeps, images or whatever is counted
    label : what the line begins with
    run : shows lines or not; told of chains that an earlier run has made a part of
    """

    def __init__(self, total: int, label: str, run: Run):
        self._label, self._run, self._open = label, run, False
        self._enter(label, total, 0)

    def begin(self, stage: str, sweeps: int, done: int = 0, seconds: float = 0.0, chain: str = "") -> None:
        """Begin a stage, ``done`` sweeps of which were found at a checkpoint of ``chain`` and took ``seconds``."""
        self._enter(f"{self._label}, {stage}", sweeps, done)
        self._run.spent.setdefault(chain, seconds)
        if done:
            self._show(f"{done} of {sweeps} found at a checkpoint")

    def step(self, count: int = 1, **shown: float) -> None:
        """Count what is finished and show these numbers, for instance ``residual`` and ``active``."""
        self._done += count
        now, made = time.monotonic(), self._done - self._found
        if now - self._said >= SECONDS_BETWEEN_LINES[sys.stderr.isatty()]:
            left = timedelta(seconds=round((now - self._begun) / made * (self._total - self._done)))
            numbers = "".join(f", {name} {value:.4g}" for name, value in shown.items())
            self._show(f"{self._done} of {self._total}, {left} left{numbers}")

    def _enter(self, name: str, total: int, done: int) -> None:
        self._name, self._total, self._found, self._done = name, total, done, done
        self._begun = self._said = time.monotonic()

    def _show(self, text: str) -> None:
        self._said, line = time.monotonic(), f"{self._name}: {text}"
        if self._run.shown and sys.stderr.isatty():
            line, self._open = line[: shutil.get_terminal_size().columns - 1], True
            print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)
        elif self._run.shown:
            print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_) -> None:
        if self._open:
            print(file=sys.stderr)


@dataclass
class Run:
    """One run of an experiment; by default one that shows nothing and keeps nothing on disk.

    Attributes
    ----------
    cache : folder of the checkpoints' folders; None: no checkpoints
    restart : older folders of checkpoints are set aside when they are first asked for
    jobs : processes for tasks that can run side by side
    scheduler : address of a dask scheduler, whose workers do these tasks instead; None: none
    shown : whether progress is shown
    spent : seconds that earlier runs spent on what this one has found, by its name
    """

    cache: Path | None = None
    restart: bool = False
    jobs: int = 1
    scheduler: str | None = None
    shown: bool = False
    spent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun, self._asked = time.monotonic(), set()

    @property
    def seconds(self) -> float:
        """Seconds of this run, and those that earlier ones spent on what it has found."""
        return sum(self.spent.values()) + time.monotonic() - self._begun

    def bar(self, total: int, label: str) -> Bar:
        """Open a line of progress."""
        return Bar(total, label, self)

    def each(self, work: Callable, tasks: Sequence[tuple]) -> Iterator:
        """Give ``work(*task)`` of every task, in order: done here, or by the processes or workers that there are."""
        if self.for_tasks() is self:
            yield from (work(*task) for task in tasks)
            return
        from gdd import cluster

        threads = max(1, (os.cpu_count() or 1) // self.jobs)
        local = {"n_workers": self.jobs, "threads_per_worker": threads, "dashboard_address": ":0"}
        with cluster.Client(self.scheduler) if self.scheduler else cluster.Client(**local) as client:
            yield from cluster.each(work, tasks, client)

    def for_tasks(self) -> Run:
        """Return what tasks given to `each` have as their run: this one, or a silent one where others do them."""
        return self if self.jobs == 1 and self.scheduler is None else Run(self.cache)

    def folder(self, name: str, depends: Mapping[str, Any]) -> Path | None:
        """Folder of checkpoints that depend on these values; it is not made here.

        ``depends`` : arrays, numbers, words, dataclasses, and lists and mappings of these
        """
        if self.cache is None:
            return None
        text = json.dumps([name, depends], sort_keys=True, default=_plain)
        folder = self.cache / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if self.restart and folder not in self._asked and folder.is_dir():
            folder.rename(next(p for n in count(1) if not (p := folder.with_name(f"{folder.name}.aside{n}")).exists()))
        self._asked.add(folder)
        return folder

    def kept(self, name: str, compute: Callable[[], xr.Dataset], **depends) -> xr.Dataset:
        """What an earlier run left that depends on the same values; if there is none, or a damaged one, made anew.

        Parameters
        ----------
        name : of the folder
        compute : makes the result
        **depends : see `folder`; the code among them, see `gdd_book.training.code_of`

        Returns
        -------
        Dataset
            Its attribute ``seconds`` counts what all runs spent on it.

        Raises
        ------
        GddError
            The result cannot be written.
        """
        folder = self.folder(name, depends)
        path = folder and folder / "result.nc"
        if path and path.exists():
            with suppress(*files.UNREADABLE):
                files.check(result := files.load(path))
                self.spent.setdefault(str(folder), float(result.attrs["seconds"]))
                return result
        before = self.seconds
        result = compute()
        result = result.assign_attrs(seconds=self.seconds - before)
        if path:
            self.spent[str(folder)] = 0.0
            try:
                files.write(result, path)
            except files.UNWRITABLE as error:
                raise GddError(f"{path}: cannot be written ({error}); free space, and run again") from error
        return result


def _plain(value: Any) -> Any:
    """Arrays by their content, dataclasses by their fields, as JSON can have them."""
    if isinstance(value, xr.DataArray | np.ndarray):
        return digest_of([np.asarray(value)])
    return value.item() if isinstance(value, np.generic) else [type(value).__name__, asdict(value)]


def checkpoints() -> Path:
    """Folder of all folders of checkpoints: in ``GDD_CACHE``, else in the user's cache."""
    chosen = os.environ.get("GDD_CACHE")
    return (user_path("GDD_CACHE", chosen, folder=True) if chosen else cache_folder()) / "checkpoints"


def peak_memory() -> int:
    """Bytes that this process has held at most so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kibibytes everywhere else
