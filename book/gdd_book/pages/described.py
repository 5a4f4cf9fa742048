"""In Sphinx: a picture made by a code cell gets a text in its place, for readers who cannot see it.

The text says what is seen: for a figure that is in ``book/pictures.yml``, for a picture without a caption in its cell.
Where there is none it is the caption's first sentence, or that of the paragraph below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import yaml
from docutils import nodes
from sphinx.application import Sphinx

from gdd_book import checkout

PATH = checkout.BOOK / "pictures.yml"


def describe_images(app: Sphinx, doctree: nodes.document) -> None:
    """Give every image without a text of its own one; an image that was drawn by hand keeps what its page says."""
    for image in doctree.findall(nodes.image):
        if image.get("alt", image["uri"]) == image["uri"]:
            figure = next((node for node in _above(image) if isinstance(node, nodes.figure)), nodes.figure())
            written = next((texts()[name] for name in figure["names"] + figure["ids"] if name in texts()), None)
            image["alt"] = written or first_sentence(_words_of(image))


@cache
def texts() -> dict[str, str]:
    """What is seen in each figure, by its name."""
    return yaml.safe_load(checkout.text(PATH))


def _words_of(image: nodes.image) -> str:
    """Caption of the figure that holds an image; else the next paragraph of its section, or the section's title."""
    above = list(_above(image))
    figure = next((node for node in above if isinstance(node, nodes.figure)), None)
    if figure is not None:
        return " ".join(caption.astext() for caption in figure.findall(nodes.caption))
    section = next((node for node in above if isinstance(node, nodes.section)), None)
    below = image.next_node(nodes.paragraph, ascend=True, siblings=True, descend=False)
    if below is not None and section in _above(below):
        return below.astext()
    return section.next_node(nodes.title).astext() if section is not None else "figure"


def _above(node: nodes.Node) -> Iterator[nodes.Node]:
    """Nodes that hold this one, from the nearest up."""
    while (node := node.parent) is not None:
        yield node


def first_sentence(words: str) -> str:
    """Up to the first full stop that ends a sentence, on one line."""
    return re.split(r"(?<=[.!?])\s", " ".join(words.split()), maxsplit=1)[0]
