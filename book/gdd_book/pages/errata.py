"""Misprints, gaps and contradictions of the paper: ``book/errata.yml``, read and shown only here.

The list names them, says where they are and whether they matter; what is printed, what is right and the evidence stand
on the page of the book, under a label for each (``(p1)=``), and tests/test_errata.py holds the two together.
"""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import NamedTuple

from gdd.base.checks import GddError
from gdd_book import checkout
from gdd_book.pages.claims import entries, html_table

PATH = checkout.BOOK / "errata.yml"
PAGE = "model/errata"

#: does it matter, and what the answer means
MATTERS = {
    "posterior": "changes the posterior",
    "typo": "only a typo",
    "finding": "a finding",
    "open": "not printed, or contradictory",
}
MEANS = {
    "posterior": "a program that follows the print draws from something else than one that follows the model",
    "typo": "what is meant is plain from its surroundings",
    "finding": "the print can be followed as it stands, and leads to something that the paper does not tell",
    "open": "something needed is not printed, or two places exclude each other, and nothing says which holds",
}


class Erratum(NamedTuple):
    """One entry."""

    number: str  # P1, P2, ...
    group: str
    what: str  # one line, no formula
    place: str  # in the paper
    matters: str  # a key of MATTERS
    pages: tuple[str, ...] = ()  # other pages of the book that show it
    tests: tuple[str, ...] = ()  # "file" or "file::test", below tests/


class Errata(tuple):
    """Entries in the order of the page; in a notebook, how many there are, and folded below it a table with links."""

    def __str__(self) -> str:
        counts = Counter(entry.matters for entry in self)
        return f"{len(self)} entries (" + "; ".join(f"{words}: {counts[key]}" for key, words in MATTERS.items()) + ")"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        meanings = "".join(f"<li><b>{MATTERS[key]}</b>: {escape(text)}</li>" for key, text in MEANS.items())
        rows = [(entry.group, _row(entry)) for entry in self]
        table = html_table(("", "What", "Does it matter", "Shown"), rows, "claims errata")
        return f"<details><summary>{escape(str(self))}</summary><ul>{meanings}</ul>{table}</details>"


def load() -> Errata:
    """Every entry of ``book/errata.yml``; GddError for a bad or repeated number, or an answer not in `MATTERS`."""
    found = [_checked(group, entry) for group, entry in entries(PATH)]
    for number, times in Counter(entry.number for entry in found).items():
        if times > 1:
            raise GddError(f"erratum {number}: {times} entries; each number has one")
    return Errata(found)


def _checked(group: str, entry: dict) -> Erratum:
    several = {key: tuple(entry[key]) for key in ("pages", "tests") if key in entry}
    made = Erratum(group=group, **(entry | several))
    if made.number[:1] != "P" or not made.number[1:].isdigit():
        raise GddError(f"erratum {made.number!r}: a number is P and digits")
    if made.matters not in MATTERS:
        raise GddError(f"erratum {made.number}: matters {made.matters!r}; one of {', '.join(MATTERS)} is needed")
    return made


def _row(entry: Erratum) -> str:
    anchor, up = f'<a href="#{entry.number.lower()}">', "../" * PAGE.count("/")
    files = dict.fromkeys(test.partition("::")[0] for test in entry.tests)
    shown = [f"{anchor}below</a>", *(f'<a href="{up}{page}.html">{page}</a>' for page in entry.pages)]
    shown = "<br/>".join([*shown, *(f"<small>{name}</small>" for name in files)])
    return (
        f"<tr><td>{anchor}{entry.number}</a></td><td>{escape(entry.what)}<small>{escape(entry.place)}</small></td>"
        f'<td><span class="matters {entry.matters}">{MATTERS[entry.matters]}</span></td><td>{shown}</td></tr>'
    )
