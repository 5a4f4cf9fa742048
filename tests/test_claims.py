"""The claims of the paper: verdicts from the list, evidence that exists, the paper's numbers from their one place."""

import re

import pytest
import yaml

from gdd.base.checks import GddError
from gdd_book.pages import claims, notebooks

FOUND = claims.load()


@pytest.mark.parametrize("claim", FOUND, ids=lambda claim: claim.claim[:40])
def test_evidence_is_a_page_of_the_book(claim):
    assert claim.verdict in claims.VERDICTS
    assert (claim.evidence is not None) or claim.verdict not in claims.PROVEN
    if claim.evidence is not None:
        assert claim.evidence in notebooks.pages()
        assert notebooks.text_path(claim.evidence).is_file()


def test_our_own_numbers_are_not_typed_by_hand():
    """What was measured is in records; a sentence with a number in it would go stale unseen."""
    for claim in FOUND:
        assert not re.search(r"\d+[.,]\d|\d\s*%", claim.found), claim.found


@pytest.fixture
def written(tmp_path, monkeypatch):
    def write(**entry):
        path = tmp_path / "claims.yml"
        path.write_text(yaml.safe_dump({"Part": [{"claim": "a < b", "place": "Sec. 1", "found": "Seen."} | entry]}))
        monkeypatch.setattr(claims, "PATH", path)
        return claims.load()

    return write


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"verdict": "surely"}, "verdict 'surely'; one of reproduced, partly"),
        ({"verdict": "reproduced"}, "without evidence"),
        ({"verdict": "not reproduced", "evidence": ""}, "without evidence"),
        ({"verdict": "open", "number": {"fact": "nothing"}}, "'nothing' is not known"),
        ({"verdict": "open", "number": {"table": "mnist_error", "row": {"ours": True}, "column": "error"}}, "5 rows"),
    ],
)
def test_bad_entry_is_refused(written, entry, message):
    with pytest.raises(GddError, match=message):
        written(**entry)


def test_table_as_shown(written):
    where = {"table": "mnist_error", "row": {"ours": True, "n_train": 60000}, "column": "error"}
    shown = written(verdict="not reproduced", evidence="mnist/parameters", number=where)
    assert str(shown) == repr(shown) == "1 claims: 1 not reproduced"
    page = shown._repr_html_()
    assert "a &lt; b<small>Sec. 1: 0.42 (test error, %)</small>" in page
    assert '<span class="verdict not-reproduced">not reproduced</span>' in page
    assert 'Seen. <a href="mnist/parameters.html">mnist/parameters</a>' in page
    assert page.count("<tr") == 3


def test_number_from_the_text_of_the_paper():
    assert claims.printed_number(fact="burn_in").startswith("1500 (")
