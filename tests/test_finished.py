"""What is asked of the built book, of the lists of what the paper does not print, and of the line of progress."""

import io
import sys

import pytest
from IPython.display import HTML

from gdd_book import progress
from gdd_book.pages import finished, held
from gdd_book.pages.expected import UNLIKE
from gdd_book.progress import Run

GOOD = '<html><body><h1 id="top">A</h1><img src="a.png" alt="a picture"><a href="#top">up</a></body></html>'


@pytest.mark.parametrize(("change", "said"), [
    (("", ""), None), (("<body>", '<link rel="canonical" href="https://a.example/"><body>'), None),
    ((' alt="a picture"', ""), "no text in place of a.png"),
    (('alt="a picture"', 'alt="a.png"'), "no text in place of a.png"),
    (("#top", "#bottom"), "link to #bottom leads nowhere"),
    (("#top", "b.html"), "link to b.html leads nowhere"),
    (("</body>", '<script src="https://cdn.example/x.js"></script></body>'), "loads https://cdn.example/x.js"),
    (("<body>", '<link rel="stylesheet" href="//fonts.example/f.css"><body>'), "loads //fonts.example/f.css"),
    (("</h1>", f"</h1>{UNLIKE}1 is 2."), f"says {UNLIKE!r} of itself"),
])
def test_faults_are_found(change, said, tmp_path):
    (tmp_path / "one.html").write_text(GOOD.replace(*change), encoding="utf-8")
    assert finished.problems(tmp_path, ["one.html"]) == ([] if said is None else [f"one.html: {said}"])


def test_every_parameter_of_an_experiment_is_listed_and_no_other():
    assert held.parameters() == held.listed(), held.parameters() ^ held.listed()


@pytest.mark.parametrize("one", held.load()["held"], ids=lambda one: one["name"])
def test_values_are_in_the_code(one):
    for place in one["value"].values():
        assert not (place.startswith("gdd") and held.value_of(place) == place)


def test_the_table_has_a_row_for_each():
    table = held.table()
    assert isinstance(table, HTML) and table.data.count("<tr><td>") == len(held.load()["held"])
    assert 0 < held.table(not_varied_only=True).data.count("<tr><td>") < len(held.load()["held"])


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
