"""The bar: on a terminal it shows time left, rate and numbers; elsewhere nothing."""

import io
import sys

from gdd.progress import Bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_it_shows_rate_time_left_and_numbers(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Bar(10, "layer 1", done=4) as bar:
        bar.step(5, residual=0.123456, active=1500.0)
        bar._bar.refresh()
        shown = sys.stderr.getvalue().replace("\r", "\n")
    for part in ("layer 1", "9/10", "sweeps/s", "residual=0.1235", "active=1500"):
        assert part in shown
    assert "4/10" in shown  # a resumed chain does not start at nothing


def test_elsewhere_it_is_silent(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Bar(10, "layer 1") as bar:
        bar.step(10, residual=0.1)
    assert sys.stderr.getvalue() == ""
