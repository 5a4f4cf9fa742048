"""The line of progress: on a terminal one line that changes, elsewhere a line now and then, without a run nothing."""

import io
import sys

import pytest

from gdd_book import progress
from gdd_book.progress import Run


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_it_shows_stage_sweep_time_left_and_numbers(monkeypatch, clock, terminal):
    monkeypatch.setattr(sys, "stderr", Stream(terminal))
    run = Run(shown=True)
    with run.bar(40, "pretraining") as bar:
        bar.begin("layer 2", 20, 8, 50.0, "name")
        for _ in range(6):
            clock[0] += 0.51 * progress.SECONDS_BETWEEN_LINES[terminal]
            bar.step(residual=0.123456, active=1500.0)
    lines = [line for line in sys.stderr.getvalue().replace("\r", "\n").split("\n") if line]
    assert "layer 2: 8 of 20 found" in lines[0] and len(lines) == 4
    minutes = {True: "0:00:01", False: "0:25:30"}[terminal]  # of 10 sweeps: those that were found count nothing
    assert lines[1].startswith(f"pretraining, layer 2: 10 of 20, {minutes} left, residual 0.1235, active 1500")
