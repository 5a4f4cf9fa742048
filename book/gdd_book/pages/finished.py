"""The built book: its pictures made light, and what must hold of its pages.

A page needs no network, every picture has a text in its place, headings leave no level out, no link is dead, no page is
heavy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
from bs4 import BeautifulSoup, Tag
from PIL import Image

#: what a page may weigh with its own pictures, without the styles and scripts that all pages share
HEAVIEST = 2_000_000
#: bytes from which on a picture keeps so many tones of each colour only
LARGE, TONES = 200_000, 32
#: what a browser loads without being asked, by tag
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
ONLY_NAMED = {"canonical", "next", "prev", "search", "index", "author", "help"}  # links of a head that load nothing
ELSEWHERE = re.compile(r"(https?:)?//")


def lighten(html: Path) -> None:
    """Store opaque pictures without transparency, and grey ones as grey: the same pixels in half the space.

    One that is `LARGE` still is full of speckle, on which nobody misses a tone: it keeps `TONES` of each colour.
    """
    for path in (html / "_images").glob("*.png"):
        with Image.open(path) as picture:
            pixels = np.asarray(picture)
        if pixels.ndim == 3 and pixels.shape[2] == 4 and (pixels[..., 3] == 255).all():
            grey = (pixels[..., :1] == pixels[..., 1:3]).all()
            plain = pixels[..., 0] if grey else pixels[..., :3]
            Image.fromarray(plain).save(path, optimize=True)
            if path.stat().st_size > LARGE:
                step = 255 / (TONES - 1)
                tones = np.rint(np.rint(plain / step) * step).astype(np.uint8)
                Image.fromarray(tones).save(path, optimize=True)


def problems(html: Path, pages: Iterable[str]) -> list[str]:
    """Everything that is wrong with pages (paths below ``html``) and with the styles that they share; a line each."""
    found = [f"{path.name} loads {place}" for path in html.rglob("*.css") for place in _loaded_by_style(path)]
    for page in pages:
        found += [f"{page}: {wrong}" for wrong in _wrong_with(html / page)]
    return found


@cache
def _parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def _places(path: Path) -> set[str]:
    """Anchors of a page."""
    return {tag["id"] for tag in _parsed(path).find_all(id=True)}


def _wrong_with(path: Path) -> Iterator[str]:
    page, weight = _parsed(path), path.stat().st_size
    for tag, address in _loads(page):
        if ELSEWHERE.match(address):
            yield f"loads {address}"
        elif tag.name == "img" and not address.startswith("data:"):
            weight += (path.parent / unquote(urlsplit(address).path)).stat().st_size
    for image in page.find_all("img"):
        if not image.get("alt") or image["alt"] == image.get("src"):
            yield f"no text in place of {image.get('src', 'a picture')[-60:]}"
    yield from _headings(page)
    yield from _dead_links(page, path)
    if weight > HEAVIEST:
        yield f"weighs {weight / 1e6:.1f} MB with its pictures; at most {HEAVIEST / 1e6:g} are allowed"


def _loads(page: BeautifulSoup) -> Iterator[tuple[Tag, str]]:
    """Tags that load something, and from where."""
    for tag in page.find_all(list(LOADED)):
        if tag.get(LOADED[tag.name]) and not ONLY_NAMED & set(tag.get("rel", ())):
            yield tag, tag[LOADED[tag.name]]


def _headings(page: BeautifulSoup) -> Iterator[str]:
    """Of the text, not of what the theme puts around it."""
    above = 0
    for heading in (page.find("article") or page).find_all(re.compile("^h[1-6]$")):
        level, words = int(heading.name[1]), " ".join(heading.get_text().strip("#\n ").split())
        if level > above + 1 or (level == 1 and above):
            yield f"heading {words!r} is of level {level}, " + (f"below one of level {above}" if above else "the first")
        above = level


def _dead_links(page: BeautifulSoup, path: Path) -> Iterator[str]:
    for link in page.find_all("a", href=True):
        parts = urlsplit(link["href"])
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        place = unquote(parts.fragment)
        if not target.is_file() or (place and target.suffix == ".html" and place not in _places(target)):
            yield f"link to {link['href']} leads nowhere"


def _loaded_by_style(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.findall(r"""(?:url\(|@import\s)\s*["']?((?:https?:)?//[^"')]+)""", text)
