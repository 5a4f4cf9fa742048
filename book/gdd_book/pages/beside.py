"""In Sphinx: below each equation that the index names, its function and its test, folded.

Nothing is written on the pages for it. To show a function below one more equation, name the equation in
``book/index.yml``, as the ``page`` of a row or among its ``also``. The index (`gdd_book.pages.index`) says which
function computes an equation, or what a section derives, and which test checks it; the source is read when the book is
built.
"""

from __future__ import annotations

import ast
import html
import inspect
import textwrap
from collections import defaultdict
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from gdd_book.pages import index

ROOT = index.BOOK.parent


def show_code(app: Sphinx, doctree: nodes.document) -> None:
    """Insert a folded block after every equation, and at the end of every section, that the index leads to."""
    page = app.env.docname.removeprefix("book/")
    rows = defaultdict(list)
    for row in (row for part in index.sections().values() for row in part):
        for place in (row.page, *row.also):
            name, _, label = place.partition("#")
            if name == page:
                rows[label].append(row)
    for label, found in rows.items():
        block = folded(found, app.env.docname)
        for row in found:
            app.env.note_dependency(inspect.getsourcefile(index.function(row)))
        place = _place_of(doctree, label)
        if isinstance(place, nodes.section):
            before = place.next_node(nodes.section, descend=True)
            at = place.index(before) if before is not None and before.parent is place else len(place)
            place[at:at] = block
        else:
            place.parent[place.parent.index(place) + 1 : place.parent.index(place) + 1] = block


def folded(rows: list[index.Row], docname: str) -> list[nodes.Node]:
    """Functions of some rows without their docstrings, each with a link to its test, in a block that opens."""
    rows = list({row.code: row for row in rows}.values())
    names = ", ".join(f"<code>{row.code.rpartition('.')[2]}</code>" for row in rows)
    block = [nodes.raw("", f'<details class="beside"><summary>In code: {names}</summary>', format="html")]
    for row in rows:
        code = f'<a href="{index.code_link(row, docname)}">{where(row)}</a>'
        test = f'<a href="{index.test_link(row, docname)}">tests/{html.escape(row.test.replace("::", ", "))}</a>'
        block += [
            nodes.raw("", f"<p><small>{code}; checked by {test}</small></p>", format="html"),
            nodes.literal_block(source := without_docstring(row), source, language="python"),
        ]
    return [*block, nodes.raw("", "</details>", format="html")]


def where(row: index.Row) -> str:
    """File and lines of a row's function."""
    function = index.function(row)
    file = Path(inspect.getsourcefile(function)).resolve().relative_to(ROOT)
    lines, first = inspect.getsourcelines(function)
    return f"{file.as_posix()}, lines {first} to {first + len(lines) - 1}"


def without_docstring(row: index.Row) -> str:
    """Source of a row's function, without what its page says already."""
    source = textwrap.dedent(inspect.getsource(index.function(row)))
    function, lines = ast.parse(source).body[0], source.splitlines()
    if ast.get_docstring(function) is not None and len(function.body) > 1:
        del lines[function.body[0].lineno - 1 : function.body[0].end_lineno]
    return "\n".join(lines)


def _place_of(doctree: nodes.document, label: str) -> nodes.Node:
    """The equation of this label, or whatever has it as its anchor."""
    for node in doctree.findall(nodes.math_block):
        if node.get("label") == label:
            return node
    return next(node for node in doctree.findall(nodes.Element) if label in node.get("ids", ()))
