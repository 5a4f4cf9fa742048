"""What a run has besides its parameters: a bar of progress, folders of checkpoints, results that a later run reuses.

Folders are named after what they depend on: runs that need the same chain share it, in whatever order they come.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

from gdd.base import files
from gdd.base.checks import GddError
from gdd.base.files import user_path
from gdd.sampler.checkpoint import digest_of
from gdd_book.data.sources import cache_folder


class Bar(tqdm):
    """The bar of one or more stages, with the `begin` and `step` that the library's chains call."""

    def __init__(self, total: int, label: str, run: Run):
        seconds = 0.2 if sys.stderr.isatty() else 300.0  # a log needs fewer lines
        shown = {"disable": not run.shown, "mininterval": seconds, "miniters": 1, "smoothing": 0, "dynamic_ncols": True}
        super().__init__(total=total, desc=label, **shown)
        self._label, self._run = label, run

    def begin(self, stage: str, sweeps: int, done: int = 0, seconds: float = 0.0, chain: str = "") -> None:
        """Begin a stage, ``done`` sweeps of which were found at a checkpoint of ``chain`` and took ``seconds``."""
        self._run.spent.setdefault(chain, seconds)
        self.set_description(f"{self._label}, {stage}", refresh=False)
        self.reset(sweeps)
        self.n = self.initial = done  # time left is reckoned from the others
        self.refresh()

    def step(self, count: int = 1, **shown: float) -> None:
        """Count what is finished and show these numbers, for instance ``residual`` and ``active``."""
        self.set_postfix(shown, refresh=False)
        self.update(count)


@dataclass
class Run:
    """One run of an experiment; by default one that shows nothing and keeps nothing on disk."""

    cache: Path | None = None  # folder of the checkpoints' folders; None: no checkpoints
    restart: bool = False  # older folders of checkpoints are set aside when they are first asked for
    jobs: int = 1  # processes for tasks that can run side by side
    scheduler: str | None = None  # address of a dask scheduler, whose workers do these tasks instead
    shown: bool = False  # whether progress is shown
    device: str = "cpu"  # of the chains, "cpu" or "cuda"; it changes no result but for rounding
    spent: dict[str, float] = field(default_factory=dict)  # seconds of earlier runs on what this one has found, by name

    def __post_init__(self) -> None:
        self._begun, self._asked = time.monotonic(), set()

    @property
    def seconds(self) -> float:
        """Seconds of this run, and those that earlier ones spent on what it has found."""
        return sum(self.spent.values()) + time.monotonic() - self._begun

    def bar(self, total: int, label: str) -> Bar:
        """Open a bar of progress."""
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
        return self if self.jobs == 1 and self.scheduler is None else Run(self.cache, device=self.device)

    def folder(self, name: str, depends: Mapping[str, Any]) -> Path | None:
        """Folder of checkpoints that depend on these values (arrays, numbers, words, dataclasses); not made here."""
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

        ``depends`` : see `folder`, code by `gdd_book.training.code_of`. The attribute ``seconds`` counts what all runs
        spent.
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
