"""The claims of the paper: verdicts from the list, evidence that exists, the paper's numbers from their one place."""

import re

import pytest
import xarray as xr
import yaml

from gdd_book import records
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


def test_our_number_is_the_mean_of_what_a_record_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path))
    asked = {"record": "a--b", "variable": "right", "select": {"way": "one"}}
    assert claims.our_number(**asked) == ""
    held = xr.Dataset({"right": (("way", "image"), [[0, 0, 0], [100, 0, 100]])}, {"way": ["all", "one"]})
    held.to_netcdf(tmp_path / "a--b.nc")
    monkeypatch.setattr(records, "read", xr.load_dataset)
    assert claims.our_number(**asked) == "66.7\u00a0%"


def test_first_page_counts_the_verdicts():
    """`intro` says "32 claims: 4 reproduced, 13 partly, ..." in words, and shows it as a bar."""
    text = " ".join(notebooks.text_path("intro").read_text(encoding="utf-8").split())
    counts = [sum(claim.verdict == verdict for claim in FOUND) for verdict in claims.VERDICTS]
    words = "its {} claims: {} reproduced, {} partly, {} not, {} open, {} that cannot be judged"
    assert words.format(len(FOUND), *counts) in text
    shown = claims.bar(FOUND).data
    assert [int(count) for count in re.findall(r'flex-grow: (\d+)">\1<', shown)] == [count for count in counts if count]
    assert 'href="claims.html"' in shown and f">{counts[1]} partly<" in shown


def test_records_of_our_numbers_are_there():
    for entry in (entry for part in yaml.safe_load(claims.PATH.read_text()).values() for entry in part):
        if "ours" in entry:
            assert re.fullmatch(r"[0-9.]+\u00a0%", claims.our_number(**entry["ours"])), entry["claim"]
