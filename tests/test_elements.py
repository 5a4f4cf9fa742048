"""What is done of the paper: statuses from the list, pages and records that exist."""

import re

import pytest

from gdd_book import checkout
from gdd_book.pages import elements, index

FOUND = elements.load()


@pytest.mark.parametrize("one", FOUND, ids=lambda one: one.element[:40])
def test_page_and_records_are_there(one):
    assert one.status in elements.STATUSES
    assert one.page or one.status == elements.NONE
    if one.page:
        assert re.fullmatch(r"[\w/-]+\.html#[\w-]+", index.link(one.page))
    for name in one.records:
        assert [*checkout.results().glob(f"{name}.nc")], name


def test_a_difference_is_one_sentence_and_says_so_where_there_must_be_one():
    for one in FOUND:
        assert one.differs.count(". ") <= one.differs.count("Sec. ") + one.differs.count("Fig. "), one.differs
        assert one.differs or one.status in ("at the paper's scale", elements.NONE), one.element
