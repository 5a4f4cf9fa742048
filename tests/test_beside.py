"""Functions shown below the equations that they compute: source and test of every row of the index, at its place."""

import ast
import re
import textwrap
from types import SimpleNamespace

import pytest
from docutils import nodes

from gdd_book.pages import beside, index, notebooks

#: equations of a definition or a step of a proof, which no function computes
WITHOUT = {"model/projection#picture-polynomial", "model/projection#collapse-one"}
ROWS = [row for part in index.sections().values() for row in part]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code)
def test_source_is_whole_but_for_its_docstring(row):
    tree = ast.parse(beside.without_docstring(row)).body[0]
    assert tree.name == row.code.rpartition(".")[2]
    assert ast.get_docstring(tree) is None
    file, lines = beside.where(row).split(", lines ")
    first, last = map(int, lines.split(" to "))
    written = (beside.ROOT / file).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    assert any(f"def {tree.name}(" in text for text in written[:3])
    assert ast.unparse(tree.body[-1]) == ast.unparse(ast.parse(textwrap.dedent("\n".join(written))).body[0].body[-1])


@pytest.mark.parametrize("page", [page for page in notebooks.pages() if page.startswith(("model/", "inference/"))])
def test_every_equation_has_its_code(page):
    text = notebooks.text_path(page).read_text(encoding="utf-8")
    labels = {f"{page}#{label}" for label in re.findall(r"^`+\{math\}\n:label: (\S+)$", text, re.MULTILINE)}
    with_code = {place for row in ROWS for place in (row.page, *row.also)}
    assert labels - with_code == labels & WITHOUT


def shown(page, *parts):
    """What stands on a page of these parts once the code is there: kinds of nodes, in order."""
    document, depends = nodes.document(None, None), []
    document += list(parts)
    env = SimpleNamespace(docname=f"book/{page}", note_dependency=depends.append)
    beside.show_code(SimpleNamespace(env=env), document)
    return document, depends


def test_code_stands_below_its_equation_and_ends_its_section():
    row = next(row for row in ROWS if row.page == "model/pooling#pooled-pixel")
    section = nodes.section("", nodes.title("", "A"), nodes.math_block(label="block-prior"), nodes.paragraph(),
                            nodes.math_block(label="pooled-pixel"), nodes.paragraph(),
                            nodes.math_block(label="next-block-empty"), nodes.math_block(label="block-alone"))
    document, depends = shown("model/pooling", section)
    kinds = [node.tagname for node in document[0]]
    assert kinds[:6] == ["title", "math_block", "raw", "raw", "literal_block", "raw"]
    assert kinds.count("literal_block") == 5
    assert beside.without_docstring(row) in [block.astext() for block in document.findall(nodes.literal_block)]
    assert any(path.endswith("gdd/model/pooling.py") for path in depends)
    leads = "".join(block.astext() for block in document.findall(nodes.raw))
    assert 'href="../sources/gdd/model/pooling.html#unpool"' in leads and "../sources/tests/test_pooling.html#" in leads


def test_a_place_that_is_missing_is_an_error():
    with pytest.raises(StopIteration):
        shown("mnist/coding", nodes.paragraph())
