"""The book's Sphinx extension: what these modules add to its pages, and when."""

from __future__ import annotations

from sphinx.application import Sphinx

from gdd_book.pages import api, beside, described, gallery, head, rerun, sources

#: of Sphinx: what reads docstrings
NEEDED = ("autodoc", "autosummary", "napoleon", "linkcode")


def setup(app: Sphinx) -> dict:
    """Connect to Sphinx; work for one event is done in this order, the lowest priority first (500 by default)."""
    for name in NEEDED:
        app.setup_extension(f"sphinx.ext.{name}")
    app.connect("config-inited", api.configure)
    app.connect("config-inited", head.configure)
    app.connect("autodoc-process-docstring", api.adapt, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", api.keep_property, priority=600)  # after it
    app.connect("autodoc-process-signature", api.shorten)
    app.connect("autodoc-skip-member", api.ours_alone)
    app.connect("missing-reference", api.without_entry)
    app.connect("doctree-read", described.describe_images)  # a text in place of every picture
    app.connect("doctree-read", beside.show_code)  # below an equation, its function and its test
    app.connect("doctree-read", rerun.offer_code)  # a switch for the code that is folded
    app.connect("doctree-read", rerun.show_command, priority=900)  # after what stands below equations
    app.connect("doctree-resolved", api.link_names)  # names in the text lead to the reference
    app.connect("doctree-resolved", gallery.fill)  # all figures on one page
    app.connect("html-collect-pages", sources.pages)
    app.connect("html-page-context", head.describe)  # a description of every page
    app.connect("html-page-context", rerun.offer_notebook, priority=100)  # before the theme makes its buttons
    app.connect("build-finished", gallery.shrink)
    app.connect("build-finished", rerun.write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
