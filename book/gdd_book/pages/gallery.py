"""In Sphinx: all figures of the book on one page, small, each with its caption's first sentence and a link."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx

from gdd_book.pages import notebooks
from gdd_book.pages.described import first_sentence

PAGE = "book/gallery"
WIDTH, COLOURS = 260, 64  # of a small picture


class Shown(NamedTuple):
    """A figure of the book."""

    label: str
    words: str
    seen: str  # for those who cannot see it
    source: str  # its picture, relative to the folder of the pages' sources

    @property
    def file(self) -> str:
        """Name of the small picture."""
        return f"small-{self.label}.png" if Path(self.source).suffix == ".png" else Path(self.source).name


def figures_of(doctree: nodes.document) -> Iterator[Shown]:
    """Every figure of a page that has a label, a picture and a caption."""
    for figure in doctree.findall(nodes.figure):
        picture, caption = figure.next_node(nodes.image), figure.next_node(nodes.caption)
        if figure["ids"] and picture is not None and caption is not None:
            source = picture["candidates"].get("*", picture["uri"])
            yield Shown(figure["ids"][0], first_sentence(caption.astext()), picture["alt"], source)


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the figures of all pages on the gallery, page after page."""
    if docname == PAGE:
        section = next(doctree.findall(nodes.section))
        for page in (f"book/{name}" for name in notebooks.pages()):
            found = list(figures_of(app.env.get_doctree(page)))
            if found and page != PAGE:
                address = app.builder.get_relative_uri(PAGE, page)
                title = html.escape(app.env.titles[page].astext())
                cards = "".join(_card(one, address) for one in found)
                section += nodes.raw(
                    "", f'<h2><a href="{address}">{title}</a></h2><div class="gallery">{cards}</div>', format="html")


def _card(one: Shown, address: str) -> str:
    words, seen = html.escape(one.words), html.escape(one.seen)
    return (f'<a href="{address}#{one.label}"><img src="../_images/{one.file}" alt="{seen}" loading="lazy">'
            f"<span>{words}</span></a>")


def shrink(app: Sphinx, exception: Exception | None) -> None:
    """Write the small pictures; drawings are small as they are."""
    if exception is None and app.builder.format == "html":
        for page in notebooks.pages():
            for one in figures_of(app.env.get_doctree(f"book/{page}")):
                if one.file.startswith("small-"):
                    with Image.open(Path(app.srcdir) / one.source) as picture:
                        picture.thumbnail((WIDTH, 2 * WIDTH))
                        small = picture.convert("RGB").quantize(COLOURS)
                    small.save(Path(app.outdir) / "_images" / one.file, optimize=True)
