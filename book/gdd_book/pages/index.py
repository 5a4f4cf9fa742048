"""The index of the book: every symbol and equation with its function, its test and its page (``book/index.yml``)."""

import html
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from docutils import nodes
from IPython.display import HTML
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from gdd_book import checkout

PATH = checkout.BOOK / "index.yml"
ROOT = checkout.BOOK.parent


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


def link(page: str) -> str:
    """Address, in the built book, of a place named page#label: an equation, a target, a figure or a heading."""
    name, _, label = page.partition("#")
    text = checkout.text(checkout.BOOK / f"{name}.md")
    equation = re.search(rf"^\$\$ \({re.escape(label)}\)$", text, re.MULTILINE)
    return f"{name}.html#{'equation-' if equation else ''}{label}"


def table() -> HTML:
    """Every row under the heading of its section; function and test lead to the block that shows them."""
    lines = []
    for section, rows in sections().items():
        lines.append(f'<tr><th colspan="3">{html.escape(section)}</th></tr>')
        lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row))}</tr>" for row in rows]
    head = "<tr><th>equation, and where it is printed</th><th>word in code</th><th>function, test, page</th></tr>"
    return HTML(f'<table class="index"><thead>{head}</thead><tbody>{"".join(lines)}</tbody></table>')


def show_code(app: Sphinx, doctree: nodes.document) -> None:
    """Below each equation, and at the end of each section, that a row names: the row's function and test, folded."""
    page, rows = app.env.docname.removeprefix("book/"), defaultdict(list)
    for row in (row for part in sections().values() for row in part):
        for place in (row.page, *row.also):
            name, _, label = place.partition("#")
            if name == page:
                rows[label].append(row)
    for label, found in rows.items():
        place = next(node for node in doctree.findall(nodes.Element)
                     if label in node.get("ids", ()) or label == node.get("label"))
        block = [node for row in found for node in _folded(app, row, row.page == f"{page}#{label}")]
        if isinstance(place, nodes.section):
            subsection = next((at for at, child in enumerate(place) if isinstance(child, nodes.section)), len(place))
            place[subsection:subsection] = block
        else:
            at = place.parent.index(place) + 1
            place.parent[at:at] = block


def anchor_of(row: Row) -> str:
    """Where on its page the code of a row stands."""
    return f"code-{row.page.partition('#')[2]}-{row.code.rpartition('.')[2]}"


def source(file: Path, name: str) -> str:
    """A function of a file, as it is written."""
    _, first, last = ModuleAnalyzer.for_file(file, file.stem).find_tags()[name]
    return "\n".join(checkout.text(file).splitlines()[first - 1 : last])


def _folded(app: Sphinx, row: Row, main: bool) -> list[nodes.Node]:
    code, test = (word.rpartition(mark)[2] for word, mark in ((row.code, "."), (row.test, ":")))
    anchor = f' id="{anchor_of(row)}"' if main else ""
    summary = f"<summary>In code: <code>{code}</code>, and its test</summary>"
    block = [nodes.raw("", f'<details class="beside"{anchor}>{summary}', format="html")]
    module = sys.modules[pkgutil.resolve_name(row.code).__module__]
    for file, word in ((Path(module.__file__), code), (ROOT / "tests" / row.test.partition("::")[0], test)):
        app.env.note_dependency(str(file))
        text = source(file, word)  # twice, as Sphinx colours only what it finds unchanged
        block += [nodes.paragraph("", file.relative_to(ROOT).as_posix()),
                  nodes.literal_block(text, text, language="python")]
    return [*block, nodes.raw("", "</details>", format="html")]


def _cells(row: Row) -> list[str]:
    equation = rf'<span class="mathjax_process">\({html.escape(row.equation)}\)</span>'
    block = f"{row.page.partition('#')[0]}.html#{anchor_of(row)}"
    links = {row.code.rpartition(".")[2]: block, row.test.rpartition(":")[2]: block}
    links = [f'<a href="{address}"><code>{word}</code></a>' for word, address in links.items()]
    links.append(f'<a href="{link(row.page)}">{row.page.partition("#")[0]}</a>')
    return [f"{equation}<br><small>{html.escape(row.paper)}</small>", html.escape(row.word), "<br>".join(links)]
