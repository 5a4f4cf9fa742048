"""The progress bar: time left, sweeps per second, residual and active count; silent when not on a terminal."""

from __future__ import annotations

import sys

from tqdm import tqdm


class Bar:
    """A bar over the sweeps of one stage, used as a context manager.

    Parameters
    ----------
    total : sweeps of the stage
    label : what is shown before the bar
    done : sweeps that a resumed chain has already made; the time left counts only the others
    """

    def __init__(self, total: int, label: str, done: int = 0):
        silent = not sys.stderr.isatty()
        self._bar = tqdm(total=total, initial=done, desc=label, unit=" sweeps", disable=silent, dynamic_ncols=True)

    def step(self, sweeps: int = 1, **shown: float) -> None:
        """Count finished sweeps and show these numbers after the bar, for instance ``residual`` and ``active``."""
        self._bar.set_postfix({name: f"{value:.4g}" for name, value in shown.items()}, refresh=False)
        self._bar.update(sweeps)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()
