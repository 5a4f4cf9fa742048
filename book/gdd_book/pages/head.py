"""In Sphinx: what a page says of itself to search engines and to those who share it, its version, its source.

The description is the page's first paragraph. Two environment variables switch on what needs an address: with that of
the published book, ``GDD_BOOK_URL``, cards have a picture; with that of the repository, ``GDD_BOOK_REPOSITORY``, pages
have buttons that lead to it, to their source, and to a notebook that runs on Binder.
"""

from __future__ import annotations

import html
import os
import textwrap

from docutils import nodes
from sphinx.application import Sphinx

import gdd

#: characters of a description; search engines show no more
LONGEST = 200
#: buttons of a page where the address of the repository is known: its source, and itself as a running notebook
BUTTONS = {
    "repository_branch": "main", "path_to_docs": "", "use_repository_button": True, "use_source_button": True,
    "launch_buttons": {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"},
}
#: a picture of the book, on a card of wherever it is shared
CARD = "_static/readme-figure.png"


def configure(app: Sphinx, config) -> None:
    """Set the version, which stands at the foot of every page, and the addresses of book and repository."""
    config.version = config.release = gdd.__version__
    config.html_theme_options = config.html_theme_options | {"extra_footer": f"Version {gdd.__version__}"}
    if url := os.environ.get("GDD_BOOK_URL"):
        config.html_baseurl = f"{url.rstrip('/')}/"
    if repository := os.environ.get("GDD_BOOK_REPOSITORY"):
        config.html_theme_options |= BUTTONS | {"repository_url": repository.rstrip("/")}


def describe(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Add a description to the head of a page that has a text."""
    words = description(doctree) if doctree is not None else ""
    if words:
        found = {"og:type": "article", "og:title": context["title"], "og:site_name": app.config.html_title,
                 "og:description": words}
        if app.config.html_baseurl:
            found |= {"og:url": f"{app.config.html_baseurl}{page}.html", "og:image": app.config.html_baseurl + CARD}
        tags = [f'<meta property="{name}" content="{html.escape(text)}" />' for name, text in found.items()]
        lines = [f'<meta name="description" content="{html.escape(words)}" />', *tags]
        context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def description(doctree: nodes.document) -> str:
    """Words of a page's first paragraph, cut between two of them."""
    first = next((node for node in doctree.findall(nodes.paragraph) if node.astext().strip()), None)
    return "" if first is None else textwrap.shorten(first.astext(), LONGEST, placeholder=" …")
