"""The log of a run: plain text beside its record, to which every run of the same name adds its lines."""

from __future__ import annotations

import datetime
import re
import sys
import time
from functools import partial
from pathlib import Path

from tqdm import tqdm

from gdd.base.checks import GddError
from gdd_book.machine import memory_in_words
from gdd_book.progress import Bar, in_words

#: folders at the beginning of a path: they tell about the machine's owner and help nobody else
FOLDERS = re.compile(r"(?<![\w./])/(?:[^/\s'\"]+/)+")


class RunLog:
    """Lines with a time, and the seconds of a run over all its stretches; a context manager.

    Parameters
    ----------
    path : of the log
    settings : lines that say what is run, on what

    Raises
    ------
    GddError
        The folder cannot be written. A line that cannot be written later is told once, and the run goes on.

    Notes
    -----
    *Source:* none. *Departs:* none. *Checked:* tests/test_runlog.py.
    """

    def __init__(self, path: Path, settings: list[str]):
        self.path, self._begun, self._lost = path, time.monotonic(), False
        self._earlier: dict[str, float] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for line in settings:
                self._add(line)
        except OSError as error:
            raise GddError(f"run log {path}: cannot be written ({error}); free space or set GDD_RESULTS") from error

    @property
    def bar(self):
        """What opens a `gdd_book.progress.Bar` that writes to this log."""
        return partial(Bar, log=self)

    def stage(self, name: str, sweeps: int, done: int, seconds: float, chain: str) -> None:
        """Say that a stage begins; where an earlier run made a part of it, on the terminal too."""
        known = chain in self._earlier
        self._earlier.setdefault(chain, seconds)
        if not done:
            self.write(f"{name}: {sweeps} sweeps")
        elif done < sweeps:
            self.say(f"{name}: resumed after sweep {done} of {sweeps} ({in_words(seconds)} in earlier runs)")
        elif not known:
            self.say(f"{name}: {sweeps} sweeps found finished ({in_words(seconds)} in earlier runs)")

    @property
    def earlier(self) -> float:
        """Seconds that earlier runs spent on what this one took over from checkpoints."""
        return sum(self._earlier.values())

    @property
    def seconds(self) -> float:
        """Seconds of this run and of `earlier`."""
        return self.earlier + time.monotonic() - self._begun

    def say(self, text: str) -> None:
        """Write a line, here and on the terminal."""
        tqdm.write(f"gdd: {text}", file=sys.stderr)
        self.write(text)

    def write(self, text: str) -> None:
        """Add a line; if that fails, say so once."""
        try:
            self._add(text)
        except OSError as error:
            if not self._lost:
                tqdm.write(f"gdd: run log {self.path}: cannot be written ({error}); lines are lost", file=sys.stderr)
            self._lost = True

    def _add(self, text: str) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{now}  {FOLDERS.sub('', text)}\n")

    def end(self, record: Path) -> None:
        """Write the last line of a run that made its record."""
        before = f", {in_words(self.earlier)} of them in earlier runs" if self.earlier else ""
        self.write(f"end: {record.name}, {in_words(self.seconds)}{before}, peak memory {memory_in_words()}")

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, kind, error, _) -> None:
        if kind is not None:
            self.write(f"stopped: {error or kind.__name__}, peak memory {memory_in_words()}")
