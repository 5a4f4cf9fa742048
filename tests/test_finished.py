"""What is asked of the built book, and of the list of what the paper does not print."""

import pytest

from gdd_book.pages import finished, held
from gdd_book.pages.expected import UNLIKE

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
