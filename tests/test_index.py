"""The index of the book: every link resolves, every public conditional and every equation of the paper stands in it."""

import re
from pathlib import Path

import pytest

import gdd
from gdd.reference import conditionals, joint_conditionals
from gdd_book.pages import index, sources

ROWS = [row for part in index.sections().values() for row in part]
#: every anchor of every page of code, from the page of the index
SHOWN = {
    f"{Path(sources.page_of(file)).relative_to('book')}.html#{name}"
    for file in sources.shown() for name in re.findall(r'<span id="([^"]+)"></span>', sources.body(file))
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.word[:40])
def test_every_link_resolves(row):
    code, test = index.code_link(row, index.PAGE), index.test_link(row, index.PAGE)
    name = row.code.rpartition(".")[2]
    assert code.endswith(f"#{name}") and code in SHOWN or code == f"api.html#gdd.{name}" and name in gdd.__all__
    assert test in SHOWN and re.search(r"#(test|ratio)_", test)
    for place in (row.page, *row.also):
        page, _, anchor = index.link(place).partition("#")
        assert (index.BOOK / page).with_suffix(".md").is_file() and anchor


def test_every_conditional_stands_in_it():
    public = {
        f"{module.__name__}.{name}" for module in (conditionals, joint_conditionals) for name in vars(module)
        if "_given_" in name and getattr(vars(module)[name], "__module__", "") == module.__name__
    }
    assert len(public) > 12
    assert public <= {row.code for row in ROWS}


def test_every_page_that_is_named_leads_back():
    for page in {row.page.partition("#")[0] for row in ROWS} - {"notation"}:
        assert "](index-of-equations)" in (index.BOOK / f"{page}.md").read_text(encoding="utf-8"), page


def test_places_of_a_page_have_the_names_that_sphinx_gives_them():
    places = {
        "inference/gibbs#atom-conditional": "equation-atom-conditional", "model/errata#p2": "p2",
        "inference/gibbs#the-three-precisions": "the-three-precisions", "model/projection#lemma-repeat": "lemma-repeat",
    }
    assert {page: index.link(page).partition("#")[2] for page in places} == places


def test_a_link_that_leads_nowhere_is_an_error():
    with pytest.raises(KeyError, match="no equation, target, figure or heading"):
        index.link("notation#nowhere")
    with pytest.raises(KeyError, match="test_nothing"):
        index.test_link(ROWS[0]._replace(test="test_index.py::test_nothing"), index.PAGE)
