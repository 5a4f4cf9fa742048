"""What is done of the paper, element by element: ``book/elements.yml``, read and shown only here."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import NamedTuple

from IPython.display import HTML

from gdd.base.checks import GddError
from gdd_book import checkout
from gdd_book.pages import index
from gdd_book.pages.claims import entries, html_table, mark

PATH = checkout.BOOK / "elements.yml"
NONE = "not attempted"

#: each status, its style, and what it means; an element has one of these
STATUSES = {
    "at the paper's scale": ("whole", "data, numbers of images, sizes and sweeps are the paper's; where there are none,"
                             " as in an equation or a lemma, it is coded and tested"),
    "shorter or smaller": ("shorter", "run with fewer images, sizes, sweeps or repetitions than the paper's"),
    "in words": ("words", "explained, or the paper's numbers shown beside ours; no result of ours of its own"),
    NONE: ("missing", "not run in any form"),
}


class Element(NamedTuple):
    """One element of the paper, in our words."""

    part: str
    element: str
    place: str  # in the paper
    status: str  # a key of STATUSES
    differs: str = ""  # what is not as in the paper, in one sentence
    page: str | None = None  # page#label, see `gdd_book.pages.index.link`
    records: tuple[str, ...] = ()  # files of book/results without the ending, * for any letters


class Elements(tuple):
    """Elements in the order of the paper; in a notebook, a table with links."""

    def __str__(self) -> str:
        counts = Counter(one.status for one in self)
        return f"{len(self)} elements: " + ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = ("The paper has", "Status", "What differs", "Shown on")
        return html_table(head, [(one.part, _row(one)) for one in self], "claims elements")


def load() -> Elements:
    """Every element of ``book/elements.yml``; GddError for an unknown status, or for one that lacks its page."""
    return Elements(_checked(part, entry) for part, entry in entries(PATH))


def meanings(chosen: Elements) -> HTML:
    """How many of these elements have each status, how many of those have records, and what it means."""
    counts, runs = (Counter(one.status for one in some) for some in (chosen, [one for one in chosen if one.records]))
    rows = []
    for status, (style, words) in STATUSES.items():
        ran = f" ({runs[status]} with records of runs)" if runs[status] else ""
        rows.append(f"<tr><td>{counts[status]}</td>{mark(status, style)}<td>{words}{ran}</td></tr>")
    return HTML(f'<table class="claims elements"><tbody>{"".join(rows)}</tbody></table>')


def _checked(part: str, entry: dict) -> Element:
    made = Element(part, **(entry | {"records": tuple(entry.get("records", ()))}))
    if made.status not in STATUSES:
        raise GddError(f"element {made.element!r}: status {made.status!r}; one of {', '.join(STATUSES)} is needed")
    if made.status != NONE and not made.page:
        raise GddError(f"element {made.element!r}: status {made.status!r} without a page; name one of the book")
    return made


def _row(one: Element) -> str:
    shown = f'<a href="{index.link(one.page)}">{one.page.partition("#")[0]}</a>' if one.page else ""
    if one.records:
        names = "<br>".join(map(escape, one.records))
        shown += f"<details><summary>records</summary><small>{names}</small></details>"
    return (
        f"<tr><td>{escape(one.element)}<small>{escape(one.place)}</small></td>"
        f"{mark(one.status, STATUSES[one.status][0])}<td>{escape(one.differs)}</td><td>{shown}</td></tr>"
    )
