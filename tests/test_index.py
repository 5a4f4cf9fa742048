"""The index of the book: what a row names exists and is shown, every public conditional stands in it; the glossary."""

from types import SimpleNamespace

import pytest
from docutils import nodes
from docutils.utils import new_document

from gdd.reference import conditionals, joint_conditionals
from gdd_book.pages import glossary, index

ROWS = [row for part in index.sections().values() for row in part]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.word[:40])
def test_function_and_test_stand_at_the_place_of_the_row(row):
    page, _, label = row.page.partition("#")
    places = [place.partition("#") for other in ROWS for place in (other.page, *other.also)]
    others = {label for name, _, label in places if name == page}
    document = nodes.document(None, None)
    document += [nodes.math_block(label=label) for label in others]
    env = SimpleNamespace(docname=f"book/{page}", note_dependency=lambda file: None)
    index.show_code(SimpleNamespace(env=env), document)
    blocks = [block.astext() for block in document.findall(nodes.literal_block)]
    for word in (row.code.rpartition(".")[2], row.test.rpartition(":")[2]):
        assert any(f"def {word}(" in block for block in blocks)
    assert f'id="{index.anchor_of(row)}"' in "".join(block.astext() for block in document.findall(nodes.raw))


def test_every_conditional_stands_in_it():
    public = {
        f"{module.__name__}.{name}" for module in (conditionals, joint_conditionals) for name in vars(module)
        if "_given_" in name and getattr(vars(module)[name], "__module__", "") == module.__name__
    }
    assert len(public) > 12
    assert public <= {row.code for row in ROWS}


def test_the_first_use_of_a_word_of_the_glossary_shows_its_meaning():
    home, page = (new_document("") for _ in range(2))
    meaning = nodes.definition("", nodes.Text("A run."))
    home += nodes.definition_list_item("", nodes.term("", "chain", ids=["term-chain"]), meaning)
    page += nodes.title("", "Two chains")
    page += nodes.paragraph("", "", nodes.literal("", "chain"), nodes.Text(" of Chains, a chain"))
    env = SimpleNamespace(get_doctree=lambda name: home)
    builder = SimpleNamespace(get_relative_uri=lambda page, to: "../notation.html")
    glossary.explain_words(SimpleNamespace(env=env, builder=builder), page, "book/mnist/coding")
    (link,) = page.findall(nodes.reference)
    assert (link.astext(), link["reftitle"], link["refuri"]) == ("Chains", "A run.", "../notation.html#term-chain")
    assert page.astext().endswith("chain of Chains, a chain")
