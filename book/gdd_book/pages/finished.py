"""The built book: its pictures made light, and what must hold of its pages that Sphinx does not look at."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup
from PIL import Image

from gdd_book.pages.expected import UNLIKE

COLOURS = 256  # of a picture: all tones of grey, and of colours more than anybody tells apart
#: what a browser loads without being asked, by tag
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
ELSEWHERE = re.compile(r"(https?:)?//")


def lighten(html: Path) -> None:
    """Store pictures with a table of their colours, in a third of the space."""
    for path in (html / "_images").glob("*.png"):
        with Image.open(path) as picture:
            if picture.mode == "RGBA":
                picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def problems(html: Path, pages: Iterable[str]) -> list[str]:
    """Everything that is wrong with pages (paths below ``html``); a line each."""
    return [f"{page}: {wrong}" for page in pages for wrong in _wrong_with(html / page)]


@cache
def _parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def _places(path: Path) -> set[str]:
    return {tag["id"] for tag in _parsed(path).find_all(id=True)}


def _wrong_with(path: Path) -> Iterator[str]:
    page = _parsed(path)
    loaded = [tag.get(LOADED[tag.name], "") for tag in page.find_all(list(LOADED))]
    loaded += [tag["href"] for tag in page.find_all("link", rel="stylesheet")]
    yield from (f"loads {address}" for address in loaded if ELSEWHERE.match(address))
    for image in page.find_all("img"):
        if not image.get("alt") or image["alt"] == image.get("src"):
            yield f"no text in place of {image.get('src', 'a picture')[-60:]}"
    for link in page.find_all("a", href=True):
        parts = urlsplit(link["href"])
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        place = unquote(parts.fragment) if target.suffix == ".html" else ""
        if not parts.scheme and not (target.is_file() and (not place or place in _places(target))):
            yield f"link to {link['href']} leads nowhere"
    if UNLIKE in page.get_text():
        yield f"says {UNLIKE!r} of itself"
