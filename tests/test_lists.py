"""The lists of the book: an entry that is wrong is refused by what is wrong with it."""

import pytest
import yaml

from gdd.base.checks import GddError
from gdd_book.pages import claims, elements, errata

#: what an entry of each list needs beside what is tried
REST = {
    claims: {"claim": "a < b", "place": "Sec. 1", "found": "Seen."}, elements: {"element": "a < b", "place": "Sec. 1"},
    errata: {"what": "a", "place": "b", "matters": "typo"},
}


@pytest.mark.parametrize(
    ("which", "entries", "message"),
    [
        (claims, [{"verdict": "surely"}], "verdict 'surely'; one of reproduced, partly"),
        (claims, [{"verdict": "reproduced"}], "without evidence"),
        (claims, [{"verdict": "partly", "evidence": "model/pooling"}], "extent"),
        (claims, [{"verdict": "reproduced", "evidence": "model/pooling", "extent": "half"}], "extent"),
        (claims, [{"verdict": "not reproduced", "evidence": ""}], "without evidence"),
        (claims, [{"verdict": "open", "number": {"fact": "nothing"}}], "'nothing' is not known"),
        (claims, [{"verdict": "open", "number": {"table": "mnist_error", "row": {"ours": True}, "column": "error"}}],
         "5 rows"),
        (elements, [{"status": "nearly"}], "status 'nearly'; one of at the paper's scale, shorter"),
        (elements, [{"status": "in words"}], "'in words' without a page"),
        (elements, [{"status": "in words", "page": ""}], "'in words' without a page"),
        (errata, [{"number": "7"}], "a number is P and digits"),
        (errata, [{"number": "P1", "matters": "surely"}], "matters 'surely'"),
        (errata, [{"number": "P1"}, {"number": "P1"}], "erratum P1: 2 entries"),
    ],
)
def test_bad_entry_is_refused(which, entries, message, tmp_path, monkeypatch):
    (path := tmp_path / "list.yml").write_text(yaml.safe_dump({"Part": [REST[which] | entry for entry in entries]}))
    monkeypatch.setattr(which, "PATH", path)
    with pytest.raises(GddError, match=message):
        which.load()
