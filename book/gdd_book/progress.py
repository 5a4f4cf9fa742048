"""How far a run is: a bar on a terminal, and lines of a run log if there is one; silent elsewhere."""

from __future__ import annotations

import sys
import time

from tqdm import tqdm

from gdd_book.machine import memory_in_words

SECONDS_BETWEEN_LINES = 300.0


class Bar:
    """A bar over one or more stages, used as a context manager.

    Parameters
    ----------
    total : sweeps, images or whatever is counted, of all stages together
    label : what is shown before the bar
    log : `gdd_book.runlog.RunLog`, optional
    """

    def __init__(self, total: int, label: str, log=None):
        silent = not sys.stderr.isatty()
        self._bar = tqdm(total=total, desc=label, disable=silent, unit="", dynamic_ncols=True)
        self._label, self._log, self._started = label, log, time.monotonic()
        self._enter(label, total, 0)

    def begin(self, stage: str, sweeps: int, done: int = 0, seconds: float = 0.0, chain: str = "") -> None:
        """Begin a stage, of which an earlier run may have made ``done`` sweeps; the time left counts only the others.

        ``seconds`` is what those took, ``chain`` names the chain, so that a log counts them once.
        """
        name = f"{self._label}, {stage}"
        self._enter(name, sweeps, done)
        self._bar.set_description(name)
        self._bar.unit = " sweeps"
        if not self._bar.disable and done:
            self._bar.initial += done
            self._bar.n += done
            self._bar.last_print_n += done
            self._bar.refresh()
        if self._log is not None:
            self._log.stage(name, sweeps, done, seconds, chain)

    def step(self, count: int = 1, **shown: float) -> None:
        """Count what is finished and show these numbers after the bar, for instance ``residual`` and ``active``."""
        self._done += count
        numbers = {name: f"{value:.4g}" for name, value in shown.items()}
        place = {"sweep": f"{self._done}/{self._total}"} if self._total != self._bar.total else {}
        self._bar.set_postfix(place | numbers | {"memory": memory_in_words()}, refresh=False)
        self._bar.update(count)
        if self._log is not None and time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            said = "".join(f", {name} {value}" for name, value in numbers.items())
            self._log.write(
                f"{self._name}: {self._done} of {self._total}{said}, {in_words(self.left())} left in this stage, "
                f"peak memory {memory_in_words()}"
            )

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
        if self._log is not None and kind is None:
            self._log.write(f"{self._label}: done in {in_words(time.monotonic() - self._started)}")


def in_words(seconds: float) -> str:
    """Time for a person to read."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
