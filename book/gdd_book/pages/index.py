"""The index of the book: every symbol and equation with its code, its test and its page (book/index.yml)."""

from __future__ import annotations

import ast
import html
import importlib
import inspect
import re
from collections.abc import Sequence
from typing import NamedTuple

import yaml
from IPython.display import HTML
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from gdd_book import checkout

BOOK = checkout.BOOK
TESTS = BOOK.parent / "tests"


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
    parts = yaml.safe_load(checkout.text(BOOK / "index.yml"))
    return {part["section"]: [Row(**row) for row in part["rows"]] for part in parts}


def function(row: Row) -> object:
    """The function that a row names; of a compiled one, what was compiled."""
    module, _, name = row.code.rpartition(".")
    return inspect.unwrap(getattr(importlib.import_module(module), name))


def test_source(test: str) -> str:
    """Source of the test that ``file::function`` names."""
    file, _, name = test.partition("::")
    text = checkout.text(TESTS / file)
    found = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    first = min([found.lineno, *(line.lineno for line in found.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : found.end_lineno])


def link(page: str) -> str:
    """Address, in the built book, of an equation's label, a target or a heading of a page."""
    name, _, label = page.partition("#")
    text = checkout.text(BOOK / f"{name}.md")
    labelled = re.search(rf"^`+\{{([\w:]+)\}}[^\n]*\n:label: {re.escape(label)}$", text, re.MULTILINE)
    if labelled:  # an equation, or a lemma or theorem
        return f"{name}.html#{'equation-' if labelled[1] == 'math' else ''}{label}"
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    if label not in {_slug(heading) for heading in headings} and f"({label})=\n" not in text:
        raise KeyError(f"{page}: no equation, target or heading of this name")
    return f"{name}.html#{label}"


def table() -> HTML:
    """Every row under the heading of its section; function and test lead to their source, the page to its place."""
    lines = []
    for section, rows in sections().items():
        lines.append(f'<tr><th colspan="3">{html.escape(section)}</th></tr>')
        lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row))}</tr>" for row in rows]
    head = "<tr><th>equation, and where it is printed</th><th>word in code</th><th>function, test, page</th></tr>"
    return HTML(f'<table class="index"><thead>{head}</thead><tbody>{"".join(lines)}</tbody></table>')


def listing() -> HTML:
    """Source of every function and every test of the index, each once, in the order of the rows."""
    rows = [row for part in sections().values() for row in part]
    sources = {row.code: inspect.getsource(function(row)) for row in rows}
    sources |= {row.test: test_source(row.test) for row in rows}
    show = HtmlFormatter(cssclass="highlight")
    blocks = [
        f'<div id="code-{_slug(name)}"><h4><code>{name}</code></h4>{highlight(source, PythonLexer(), show)}</div>'
        for name, source in sources.items()
    ]
    return HTML(f'<div class="listing">{"".join(blocks)}</div>')


def _cells(row: Row) -> list[str]:
    equation = rf'<span class="mathjax_process">\({html.escape(row.equation)}\)</span>'
    page = f'<a href="{link(row.page)}">{row.page.partition("#")[0]}</a>'
    links = "<br>".join((_inner(row.code), _inner(row.test), page))
    return [f"{equation}<br><small>{html.escape(row.paper)}</small>", html.escape(row.word), links]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _inner(name: str) -> str:
    """Link to a source in the listing, its last name shown."""
    return f'<a href="#code-{_slug(name)}"><code>{re.split(r"[.:]", name)[-1]}</code></a>'
