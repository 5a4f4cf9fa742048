"""The index of the book: every symbol and equation with its code, its test and its page (book/index.yml)."""

from __future__ import annotations

import html
import inspect
import pkgutil
import re
from collections.abc import Sequence
from typing import NamedTuple

import yaml
from IPython.display import HTML

import gdd
from gdd_book import checkout
from gdd_book.pages import sources

BOOK = checkout.BOOK
PATH = BOOK / "index.yml"
PAGE = "book/notation"


class Row(NamedTuple):
    """One line of the index."""

    equation: str  # LaTeX
    word: str  # its name in the code
    paper: str  # where it is printed
    code: str  # dotted name of a function
    test: str  # file::function
    page: str  # page#label of an equation or page#heading
    also: Sequence[str] = ()  # other equations, as page#label, that the function computes


def sections() -> dict[str, list[Row]]:
    """Rows of every part of the paper, in its order."""
    parts = yaml.safe_load(checkout.text(PATH))
    return {part["section"]: [Row(**row) for row in part["rows"]] for part in parts}


def function(row: Row) -> object:
    """The function that a row names; of a compiled one, what was compiled."""
    return inspect.unwrap(pkgutil.resolve_name(row.code))


def code_link(row: Row, page: str) -> str:
    """Address of a row's function from a page such as ``book/notation``: its entry in the reference, or its source."""
    found = function(row)
    if getattr(gdd, found.__name__, None) is found:
        return sources.relative("book/api", page) + f"#gdd.{found.__name__}"
    return sources.address(page, *sources.place(found))


def test_link(row: Row, page: str) -> str:
    """Address of a row's test from a page."""
    file, _, name = row.test.partition("::")
    return sources.address(page, sources.TESTS / file, name)


def link(page: str) -> str:
    """Address, in the built book, of an equation's label, a target, a figure or a heading of a page."""
    name, _, label = page.partition("#")
    text = checkout.text(BOOK / f"{name}.md")
    labelled = re.search(rf"^`+\{{([\w:]+)\}}[^\n]*\n:label: {re.escape(label)}$", text, re.MULTILINE)
    if labelled:  # an equation, or a lemma or theorem
        return f"{name}.html#{'equation-' if labelled[1] == 'math' else ''}{label}"
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = re.search(rf"^\({re.escape(label)}\)=$|^ *:?name: {re.escape(label)}$", text, re.MULTILINE)
    if not named and label not in {_slug(heading) for heading in headings}:
        raise KeyError(f"{page}: no equation, target, figure or heading of this name")
    return f"{name}.html#{label}"


def table() -> HTML:
    """Every row under the heading of its section; function and test lead to their code, the page to its place."""
    lines = []
    for section, rows in sections().items():
        lines.append(f'<tr><th colspan="3">{html.escape(section)}</th></tr>')
        lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row))}</tr>" for row in rows]
    head = "<tr><th>equation, and where it is printed</th><th>word in code</th><th>function, test, page</th></tr>"
    return HTML(f'<table class="index"><thead>{head}</thead><tbody>{"".join(lines)}</tbody></table>')


def _cells(row: Row) -> list[str]:
    equation = rf'<span class="mathjax_process">\({html.escape(row.equation)}\)</span>'
    page = f'<a href="{link(row.page)}">{row.page.partition("#")[0]}</a>'
    code = f'<a href="{code_link(row, PAGE)}"><code>{row.code.rpartition(".")[2]}</code></a>'
    test = f'<a href="{test_link(row, PAGE)}"><code>{row.test.rpartition(":")[2]}</code></a>'
    links = "<br>".join((code, test, page))
    return [f"{equation}<br><small>{html.escape(row.paper)}</small>", html.escape(row.word), links]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
