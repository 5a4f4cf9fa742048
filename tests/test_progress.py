"""The bar: on a terminal it shows stage, time left, rate and numbers; elsewhere nothing but lines of a log."""

import io
import logging
import sys

import pytest

from gdd_book import progress
from gdd_book.progress import Bar, Run, in_words


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_it_shows_stage_sweep_rate_time_left_and_numbers(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Bar(20, "pretraining") as bar:
        bar.begin("layer 2", 10, done=4)
        bar.step(5, residual=0.123456, active=1500.0)
        bar._bar.refresh()
        shown = sys.stderr.getvalue().replace("\r", "\n")
    for part in ("pretraining, layer 2", "9/20", "sweep=9/10", "sweeps/s", "residual=0.1235", "active=1500", "memory="):
        assert part in shown
    assert "4/20" in shown  # a resumed chain does not start at nothing


def test_sweeps_of_an_earlier_run_take_no_part_in_the_time_left(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Bar(1000, "refinement") as bar:
        bar._bar._time = lambda: clock[0]
        bar._bar.start_t = 0.0
        bar.begin("all layers", 1000, done=900)
        for _ in range(10):
            clock[0] += 60.0
            bar.step()
        assert bar.left() == 90 * 60.0
        told = bar._bar.format_dict
        assert (told["n"], told["initial"], told["elapsed"]) == (910, 900, 600.0)
        assert told["rate"] is None or told["rate"] == pytest.approx(1 / 60)


def test_elsewhere_it_is_silent(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Bar(10, "layer 1") as bar:
        bar.step(10, residual=0.1)
    assert sys.stderr.getvalue() == ""


def test_a_log_gets_a_line_every_so_often(clock, caplog):
    caplog.set_level(logging.INFO, "gdd_book.run")
    run = Run()
    with run.bar(40, "pretraining") as bar:
        bar.begin("layer 1", 20, 8, 50.0, "name")
        for _ in range(12):
            clock[0] += 0.4 * progress.SECONDS_BETWEEN_LINES
            bar.step(residual=0.25, active=30.0)
    log = caplog.messages
    assert log[0] == "pretraining, layer 1: resumed after sweep 8 of 20 (50 s in earlier runs)"
    assert len(log) == 1 + 12 // 3 + 1
    assert log[1].startswith("pretraining, layer 1: 11 of 20, residual 0.25, active 30, 18 min left in this stage")
    assert log[-1] == "pretraining: done in 24 min"
    assert run.chains == {"name": 50.0}


@pytest.mark.parametrize(("seconds", "words"), [(3.2, "3 s"), (99, "99 s"), (600, "10 min"), (7200, "2.0 h")])
def test_time_in_words(seconds, words):
    assert in_words(seconds) == words
