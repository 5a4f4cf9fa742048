"""Functions shown below the equations that they compute: source and test of every row of the index, at its place."""

import ast
from types import SimpleNamespace

import pytest
from docutils import nodes

from gdd_book.pages import beside, index

ROWS = [row for part in index.sections().values() for row in part]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code)
def test_source_is_whole_but_for_its_docstring(row):
    tree = ast.parse(beside.without_docstring(row)).body[0]
    assert tree.name == row.code.rpartition(".")[2]
    assert ast.get_docstring(tree) is None
    file, line = beside.where(row).split(", line ")
    lines = (beside.ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 1 :]
    assert any(f"def {tree.name}(" in text for text in lines[:3])


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
                            nodes.math_block(label="pooled-pixel"), nodes.paragraph())
    document, depends = shown("model/pooling", section)
    kinds = [node.tagname for node in document[0]]
    assert kinds[:6] == ["title", "math_block", "raw", "raw", "literal_block", "raw"]
    assert kinds.count("literal_block") == 3 and kinds[-1] == "paragraph"
    assert beside.without_docstring(row) in [block.astext() for block in document.findall(nodes.literal_block)]
    assert any(path.endswith("gdd/model/pooling.py") for path in depends)


def test_a_section_shows_its_code_before_its_first_subsection():
    inner = nodes.section("", nodes.title("", "B"), ids=["b"])
    outer = nodes.section("", nodes.title("", "A"), nodes.paragraph(), inner, ids=["three-sources-and-a-judge"])
    document, _ = shown("mnist/generated", outer)
    kinds = [node.tagname for node in document[0]]
    assert kinds == ["title", "paragraph", "raw", "raw", "literal_block", "raw", "section"]


def test_a_place_that_is_missing_is_an_error():
    with pytest.raises(StopIteration):
        shown("mnist/generated", nodes.paragraph())
