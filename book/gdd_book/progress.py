"""What a run has besides its parameters: progress bars, log lines, checkpoint folders, and the seconds of all its runs.

A bar shows on a terminal. Its lines go to the logger `LOG`, for which `gdd_book.launch` opens a file beside the record.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gdd.base.files import user_path, written_whole
from gdd_book.data.sources import cache_folder

LOG = logging.getLogger("gdd_book.run")
#: level of lines that go to the terminal too
AND_TERMINAL = logging.INFO + 5
SECONDS_BETWEEN_LINES = 300.0
_SAVING = threading.Lock()  # the thread that saves seconds now and then is not the one that works


class Bar:
    """A bar over one or more stages: a context manager with the `begin` and `step` that the library's chains call.

    Parameters
    ----------
    total : sweeps, images or whatever is counted, of all stages together
    label : what is shown before the bar
    run : told of chains that an earlier run has made a part of
    silent : nothing is shown, as another process has given out the task
    """

    def __init__(self, total: int, label: str, run: Run | None = None, silent: bool = False):
        hidden = silent or not sys.stderr.isatty()
        self._bar = tqdm(total=total, desc=label, disable=hidden, unit="", dynamic_ncols=True)
        self._label, self._run, self._started = label, run, time.monotonic()
        self._enter(label, total, 0)

    def begin(self, stage: str, sweeps: int, done: int = 0, seconds: float = 0.0, chain: str = "") -> None:
        """Begin a stage, ``done`` sweeps of which were found at a checkpoint of ``chain`` and took ``seconds``."""
        self._enter(f"{self._label}, {stage}", sweeps, done)
        self._bar.set_description(self._name)
        if not self._bar.disable:
            self._bar.unit = " sweeps"
            self._bar.initial += done  # the time left is judged by the others
            self._bar.n += done
            self._bar.last_print_n += done
            self._bar.refresh()
        known = self._run is not None and self._run.found(chain, seconds)
        if not done:
            LOG.info("%s: %d sweeps", self._name, sweeps)
        elif done < sweeps:
            said = "%s: resumed after sweep %d of %d (%s in earlier runs)"
            LOG.log(AND_TERMINAL, said, self._name, done, sweeps, in_words(seconds))
        elif not known:
            LOG.log(AND_TERMINAL, "%s: %d sweeps found finished (%s)", self._name, sweeps, in_words(seconds))

    def step(self, count: int = 1, **shown: float) -> None:
        """Count what is finished and show these numbers after the bar, for instance ``residual`` and ``active``."""
        self._done += count
        numbers = {name: f"{value:.4g}" for name, value in shown.items()}
        place = {"sweep": f"{self._done}/{self._total}"} if self._total != self._bar.total else {}
        self._bar.set_postfix(place | numbers | {"memory": memory_in_words()}, refresh=False)
        self._bar.update(count)
        if time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            said = "".join(f", {name} {value}" for name, value in numbers.items())
            LOG.info("%s: %d of %d%s, %s left in this stage, peak memory %s", self._name, self._done, self._total,
                     said, in_words(self.left()), memory_in_words())

    def left(self) -> float:
        """Seconds that the stage still takes, at the mean speed of what this run has made of it."""
        made = self._done - self._found
        return (time.monotonic() - self._begun) / made * (self._total - self._done) if made else float("nan")

    def _enter(self, name: str, total: int, done: int) -> None:
        self._name, self._total, self._found, self._done = name, total, done, done
        self._begun = self._said = time.monotonic()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind, *_) -> None:
        self._bar.close()
        if kind is None:
            LOG.info("%s: done in %s", self._label, in_words(time.monotonic() - self._started))


@dataclass
class Run:
    """One run of an experiment; by default one that keeps nothing on disk.

    Attributes
    ----------
    cache : folder of the checkpoints' folders; None: no checkpoints
    restart : older folders of checkpoints are set aside when they are first asked for
    jobs : processes for tasks that can run side by side
    scheduler : address of a dask scheduler, whose workers do these tasks instead; None: none
    silent : whether this is a task of another run, which shows its own bar
    seconds_file : keeps ``earlier`` and ``chains`` for the next run
    earlier : seconds that earlier runs of the same command took
    chains : seconds of other commands' chains that were found at their checkpoints, by the name of the chain
    """

    cache: Path | None = None
    restart: bool = False
    jobs: int = 1
    scheduler: str | None = None
    silent: bool = False
    seconds_file: Path | None = None
    earlier: float = 0.0
    chains: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun, self._asked = time.monotonic(), set()

    def bar(self, total: int, label: str) -> Bar:
        """Open a bar."""
        return Bar(total, label, None if self.silent else self, self.silent)

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
        return self if self.jobs == 1 and self.scheduler is None else Run(self.cache, silent=True)

    def folder(self, name: str, parameters: Mapping[str, Any], *below: str) -> Path | None:
        """Folder of checkpoints that depend on these parameters, or one below it; it is not made here."""
        if self.cache is None:
            return None
        text = json.dumps([name, dict(parameters)], sort_keys=True, default=list)
        folder = self.cache / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if self.restart and folder not in self._asked and folder.is_dir():
            aside = next(p for n in count(1) if not (p := folder.with_name(f"{folder.name}.aside{n}")).exists())
            folder.rename(aside)
            LOG.log(AND_TERMINAL, "old checkpoints set aside: %s", aside)
        self._asked.add(folder)
        return folder.joinpath(*below)

    def count_seconds(self, path: Path) -> None:
        """Go on counting from what earlier runs have left in this file."""
        self.seconds_file = path
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            self.earlier, self.chains = kept["seconds"], kept["chains"]

    def found(self, chain: str, seconds: float) -> bool:
        """Count what a chain had taken when a run of this command first saw it; return whether one has before."""
        known = chain in self.chains
        self.chains.setdefault(chain, seconds)
        self.save()
        return known

    @property
    def before(self) -> float:
        """Seconds before this run."""
        return self.earlier + sum(self.chains.values())

    @property
    def seconds(self) -> float:
        """Seconds of all runs, and of the chains found."""
        return self.before + time.monotonic() - self._begun

    def save(self) -> None:
        """Keep the seconds so far; a disk that is full costs no run."""
        if self.seconds_file is not None:
            spent = self.earlier + time.monotonic() - self._begun
            with _SAVING, suppress(OSError), written_whole(self.seconds_file) as part:
                part.write_text(json.dumps({"seconds": spent, "chains": self.chains}), encoding="utf-8")


def checkpoints() -> Path:
    """Folder of all folders of checkpoints: in ``GDD_CACHE``, else in the user's cache."""
    chosen = os.environ.get("GDD_CACHE")
    return (user_path("GDD_CACHE", chosen, folder=True) if chosen else cache_folder()) / "checkpoints"


def peak_memory() -> int:
    """Bytes that this process has held at most so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kibibytes everywhere else


def memory_in_words() -> str:
    """Peak memory for a person to read."""
    peak = peak_memory()
    return f"{peak / 1e9:.1f} GB" if peak >= 1e9 else f"{peak / 1e6:.0f} MB"


def in_words(seconds: float) -> str:
    """Time for a person to read."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
