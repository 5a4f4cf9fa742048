"""The lists of the book: what they name exists, our numbers come from records."""

import re

from gdd_book import checkout
from gdd_book.pages import lists, notebooks

CLAIMS, ELEMENTS = lists.claims(), lists.elements()


def test_every_answer_is_known_and_stands_on_a_page():
    for claim in CLAIMS:
        assert claim.verdict in lists.VERDICTS and ("mostly" in claim.verdict) == bool(claim.extent), claim.claim
        assert claim.evidence or claim.verdict in ("open", "cannot be judged"), claim.claim
        assert set(filter(None, claim.scale.split(", "))) <= {"full", "shorter", "smaller"}, claim.claim
    for element in ELEMENTS:
        assert element.status in lists.STATUSES and (element.page or element.status == "not attempted"), element
    assert {entry.matters for entry in lists.errata()} <= set(lists.MATTERS)


def test_what_claims_and_elements_name_is_there():
    for claim in CLAIMS:
        assert not claim.evidence or claim.evidence in notebooks.pages()
        assert not claim.ours or re.fullmatch(r"[0-9.]+\u00a0%", lists.our_number(**claim.ours)), claim.claim
    for name in (name for one in ELEMENTS for name in one.records):
        assert [*checkout.results().glob(f"{name}.nc")], name
