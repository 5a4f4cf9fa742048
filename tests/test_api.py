"""The API reference: every public name has its entry, docstrings are read as they are meant, names lead to them."""

import inspect
import re
from types import SimpleNamespace

import pytest
from docutils import nodes

import gdd
from gdd_book.pages import api, notebooks, sources


def test_every_public_name_has_one_entry():
    text = notebooks.text_path("api").read_text(encoding="utf-8")
    entries = re.findall(r"^\.\. (?:auto(?:class|function|exception)|py:data):: (\w+)", text, re.MULTILINE)
    assert sorted(entries) == sorted(gdd.__all__)


def test_closing_lines_are_fields_with_links_to_the_tests():
    api.adapt(None, "function", "", gdd.project, {}, lines := inspect.getdoc(gdd.project).splitlines())
    assert ":Source: Pu, Yuan & Carin 2015, Sec. 2.4." in lines
    checked = next(line for line in lines if line.startswith(":Checked:"))
    assert "`test_projection.py <sources/tests/test_projection.html>`__" in checked


def test_every_test_that_a_docstring_names_has_a_page():
    shown = set(sources.shown())
    for file in sources.shown():
        named = re.findall(r"tests/(test_\w+\.py)", file.read_text(encoding="utf-8")) if "gdd" in file.parts else []
        assert {sources.TESTS / name for name in named} <= shown


@pytest.mark.parametrize(("word", "leads"), [
    ("gdd.project", "api.html#gdd.project"), ("OneStepFeatures.digits()", "api.html#gdd.OneStepFeatures.digits"),
    ("gdd.base.axes", "../sources/gdd/base/axes.html"),
    ("gdd.model.layer.log_joint", "../sources/gdd/model/layer.html#log_joint"),
    ("gdd run", None), ("refine", None), ("gdd.nothing", None),
])
def test_names_in_the_text_lead_to_their_entries(word, leads):
    entries = {name: SimpleNamespace(docname="book/api", node_id=name)
               for name in ("gdd.project", "gdd.OneStepFeatures.digits")}
    builder = SimpleNamespace(get_relative_uri=lambda here, there: "api.html")
    app = SimpleNamespace(env=SimpleNamespace(domaindata={"py": {"objects": entries}}), builder=builder)
    document = nodes.document(None, None)
    document += nodes.paragraph("", "", nodes.literal("", word))
    api.link_names(app, document, "book/model/pooling")
    found = [link.get("refuri") or f"#{link['refid']}" for link in document.findall(nodes.reference)]
    assert found == ([] if leads is None else [leads])


def test_a_name_that_is_none_fails_the_build():
    node = nodes.literal(refdomain="py", reftarget="gdd.nothing", refdoc="book/api")
    words = nodes.literal("", "gdd.nothing")
    assert api.without_entry(None, None, node, words) is None
    node["reftarget"] = "skimage.transform.AffineTransform"
    assert api.without_entry(None, None, node, words) is words
    node["reftarget"] = "gdd.plot.plot_atoms"
    assert api.without_entry(None, None, node, words)["refuri"] == "sources/gdd/plot.html#plot_atoms"


def test_what_a_class_has_from_elsewhere_is_left_out():
    assert api.ours_alone(None, "class", "", gdd.OneStepFeatures.set_output, False, {})
    assert api.ours_alone(None, "class", "", gdd.OneStepFeatures.transform, False, {}) is None
    assert api.ours_alone(None, "class", "", gdd.ModelSpec.stride, False, {}) is None
