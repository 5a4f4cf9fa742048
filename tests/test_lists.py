"""The lists of the book: what they name exists, our numbers come from records, an entry that is wrong is refused."""

import re

import pytest
import xarray as xr
import yaml

from gdd.base.checks import GddError
from gdd_book import checkout, records
from gdd_book.pages import lists, notebooks

CLAIMS, ELEMENTS = lists.claims(), lists.elements()
#: what an entry of each list needs beside what is tried
REST = {
    "CLAIMS": {"claim": "a < b", "place": "Sec. 1", "found": "Seen."}, "ELEMENTS": {"element": "a", "place": "Sec. 1"},
    "ERRATA": {"what": "a", "place": "b", "matters": "typo"},
}


@pytest.mark.parametrize(
    ("which", "entries", "message"),
    [
        ("CLAIMS", [{"verdict": "surely"}], "'surely' is not known; one of reproduced, partly"),
        ("CLAIMS", [{"verdict": "reproduced"}], "without evidence"),
        ("CLAIMS", [{"verdict": "partly", "evidence": "model/pooling"}], "extent"),
        ("CLAIMS", [{"verdict": "reproduced", "evidence": "model/pooling", "extent": "half"}], "extent"),
        ("CLAIMS", [{"verdict": "not reproduced", "evidence": ""}], "without evidence"),
        ("ELEMENTS", [{"status": "nearly"}], "'nearly' is not known; one of at the paper's scale, shorter"),
        ("ELEMENTS", [{"status": "in words"}], "'in words' without a page"),
        ("ERRATA", [{"number": "P1", "matters": "surely"}], "'surely' is not known"),
        ("ERRATA", [{"number": "P1"}, {"number": "P1"}], "erratum P1: 2 entries"),
    ],
)
def test_bad_entry_is_refused(which, entries, message, tmp_path, monkeypatch):
    (path := tmp_path / "list.yml").write_text(yaml.safe_dump({"Part": [REST[which] | entry for entry in entries]}))
    monkeypatch.setattr(lists, which, path)
    with pytest.raises(GddError, match=message):
        getattr(lists, which.lower())()


@pytest.mark.parametrize(("asked", "message"), [
    ({"fact": "nothing"}, "'nothing' is not known"),
    ({"table": "mnist_error", "row": {"ours": True}, "column": "error"}, "5 rows"),
])
def test_a_number_that_the_paper_does_not_print_is_refused(asked, message):
    with pytest.raises(GddError, match=message):
        lists.printed_number(**asked)


def test_our_number_is_the_mean_of_what_a_record_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path))
    asked = {"record": "a--b", "variable": "right", "select": {"way": "one"}}
    assert lists.our_number(**asked) == ""
    held = xr.Dataset({"right": (("way", "image"), [[0, 0, 0], [100, 0, 100]])}, {"way": ["all", "one"]})
    held.to_netcdf(tmp_path / "a--b.nc")
    monkeypatch.setattr(records, "read", xr.load_dataset)
    assert lists.our_number(**asked) == "66.7\u00a0%"


def test_what_claims_and_elements_name_is_there():
    for claim in CLAIMS:
        assert not claim.evidence or claim.evidence in notebooks.pages()
        assert not claim.ours or re.fullmatch(r"[0-9.]+\u00a0%", lists.our_number(**claim.ours)), claim.claim
    for name in (name for one in ELEMENTS for name in one.records):
        assert [*checkout.results().glob(f"{name}.nc")], name


def test_first_page_counts_the_verdicts():
    """`intro` says "32 claims: 4 reproduced, 13 partly, ..." in words, and shows it as a bar."""
    text = " ".join(notebooks.text_path("intro").read_text(encoding="utf-8").split())
    counts = [sum(claim.verdict == verdict for claim in CLAIMS) for verdict in lists.VERDICTS]
    words = "its {} claims: {} reproduced, {} partly, {} not, {} open, {} that cannot be judged"
    assert words.format(len(CLAIMS), *counts) in text
    shown = lists.bar(CLAIMS).data
    assert [int(count) for count in re.findall(r'flex-grow: (\d+)">\1<', shown)] == [count for count in counts if count]
