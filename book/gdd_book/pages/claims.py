"""What the paper claims and what this project found: ``book/claims.yml``, read and shown only here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import yaml
from IPython.display import HTML

from gdd.base.checks import GddError
from gdd_book import checkout, paper_values, records

PATH = checkout.BOOK / "claims.yml"

#: each verdict and what it means; a claim has one of these
VERDICTS = {
    "reproduced": "checked here as claimed, at the scale of the paper where a scale matters",
    "partly": "a part of the claim holds, or holds under conditions that the paper does not state; the text says which",
    "not reproduced": "another outcome, at the paper's size, or so far off that shorter runs do not explain it",
    "open": "no run of the needed size yet; the finding says which command would close it",
    "cannot be judged": "a machine or a choice that was never published decides",
}
#: verdicts that need a page of the book as evidence
PROVEN = ("reproduced", "partly", "not reproduced")


class Claim(NamedTuple):
    """One claim of the paper, in our words."""

    part: str
    claim: str
    place: str
    verdict: str
    found: str  # what stands behind the verdict, or what is missing
    extent: str = ""  # of "partly": what holds and what does not
    evidence: str | None = None  # page of the book, without the ending
    number: str = ""  # what the paper prints, from paper_values.yml
    ours: str = ""  # what a record of ours has in its place


class Claims(tuple):
    """Claims in the order of the book; in a notebook, a table with links."""

    def __str__(self) -> str:
        counts = Counter(claim.verdict for claim in self)
        return f"{len(self)} claims: " + ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(("The paper says", "Verdict", "Printed", "Ours"), [(one.part, _row(one)) for one in self])


def html_table(head: Sequence[str], rows: Iterable[tuple[str, str]], style: str = "claims") -> str:
    """HTML table of (part, row) pairs, with a heading above the first row of every part."""
    body, above = [], None
    for part, row in rows:
        heading = f'<tr class="part"><th colspan="{len(head)}">{escape(part)}</th></tr>' if part != above else ""
        body.append(heading + row)
        above = part
    heads = "".join(f"<th>{name}</th>" for name in head)
    return f'<table class="{style}"><thead><tr>{heads}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def meanings() -> HTML:
    """What each verdict means, in the colours of the table of claims."""
    rows = [f"<tr>{mark(verdict)}<td>{words}</td></tr>" for verdict, words in VERDICTS.items()]
    return HTML(f'<table class="claims"><tbody>{"".join(rows)}</tbody></table>')


def bar(chosen: Iterable[Claim]) -> HTML:
    """A bar of these claims' verdicts, as wide as their numbers, that leads to the page of the claims."""
    counts = Counter(claim.verdict for claim in chosen)
    parts = [(verdict, verdict.replace(" ", "-"), counts[verdict]) for verdict in VERDICTS if counts[verdict]]
    wide = "".join(f'<span class="{style}" style="flex-grow: {count}">{count}</span>' for _, style, count in parts)
    words = "".join(f'<span><span class="{style}"></span>{count} {verdict}</span>' for verdict, style, count in parts)
    return HTML(f'<a class="verdicts" href="claims.html"><span>{wide}</span><span>{words}</span></a>')


def load() -> Claims:
    """Every claim of ``book/claims.yml``; GddError for an unknown verdict, or one that lacks evidence."""
    return Claims(_checked(part, entry) for part, entry in entries(PATH))


def entries(path: Path) -> Iterator[tuple[str, dict]]:
    """Every entry of a list of the book such as ``claims.yml``, behind the part that it stands in."""
    parts = yaml.safe_load(checkout.text(path))
    return ((part, entry) for part, found in parts.items() for entry in found)


def mark(words: str, style: str = "", below: str = "") -> str:
    """Cell of a table with a verdict, in the colour of a style of its name or of another; small words ``below``."""
    small = f"<br><small>{escape(below)}</small>" if below else ""
    return f'<td><span class="verdict {style or words.replace(" ", "-")}">{words}</span>{small}</td>'


def _checked(part: str, entry: dict) -> Claim:
    number = printed_number(**entry["number"]) if "number" in entry else ""
    ours = our_number(**entry["ours"]) if "ours" in entry else ""
    claim = Claim(part, **(entry | {"number": number, "ours": ours}))
    if claim.verdict not in VERDICTS:
        raise GddError(f"claim {claim.claim!r}: verdict {claim.verdict!r}; one of {', '.join(VERDICTS)} is needed")
    if (claim.verdict == "partly") != bool(claim.extent):
        raise GddError(f"claim {claim.claim!r}: extent {claim.extent!r}; it is for the verdict partly, and only for it")
    if claim.verdict in PROVEN and not claim.evidence:
        raise GddError(f"claim {claim.claim!r}: verdict {claim.verdict!r} without evidence; name a page of the book")
    return claim


def printed_number(fact: str | None = None, table: str | None = None, row: dict | None = None, column: str = "") -> str:
    """One number of the paper with its unit: a fact, or the cell of a table in the only row with these entries."""
    if fact:
        known = paper_values.fact(fact)
        return f"{known['value']:g} ({known['unit']})"
    frame = paper_values.table(table)
    chosen = frame[[all(entry[key] == value for key, value in (row or {}).items()) for _, entry in frame.iterrows()]]
    if len(chosen) != 1:
        raise GddError(f"paper table {table!r}: {len(chosen)} rows with {row}, exactly one is needed")
    return f"{chosen[column].item():g} ({frame.attrs['unit']})"


def our_number(record: str, variable: str, select: dict) -> str:
    """Mean of some entries of one of our records, in %; empty where the record is not there.

    record : file name without its ending; or an experiment, for all subsets of its fullest run
    """
    path = checkout.results() / f"{record}.nc"
    found = records.read(path) if path.is_file() else None if "--" in record else records.fullest(record)
    return "" if found is None else f"{float(found[variable].sel(select).mean()):.3g}\u00a0%"


def _row(claim: Claim) -> str:
    page = f' Page: <a href="{claim.evidence}.html">{claim.evidence}</a>.' if claim.evidence else ""
    printed, _, words = claim.number.partition(" (")
    detail = f"{claim.place}: {words[:-1]}" if words else claim.place
    unit = "%" if "%" in words else words.rstrip(")").split(",")[0]
    printed += f"\u00a0{unit}" if unit else ""
    return (
        f"<tr><td><details><summary>{escape(claim.claim)}</summary><small>{escape(detail)}</small>"
        f'<p>{escape(claim.found)}{page}</p></details></td>{mark(claim.verdict, below=claim.extent)}'
        f"<td>{escape(printed)}</td><td>{escape(claim.ours)}</td></tr>"
    )
