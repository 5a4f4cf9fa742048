"""What is asked of the built book: each fault is found, a page without any passes, lighter pictures are the same."""

import re

import jupytext
import numpy as np
import pytest
from docutils import nodes
from PIL import Image

from gdd_book.pages import described, finished, notebooks

GOOD = '<html><body><h1 id="top">A</h1><img src="a.png" alt="a picture"><a href="#top">up</a></body></html>'


@pytest.fixture
def page(tmp_path):
    """Write a page with a picture beside it; return what is found wrong with it."""
    Image.fromarray(np.full((4, 4, 4), 255, np.uint8)).save(tmp_path / "a.png")

    def write(text):
        path = tmp_path / f"{abs(hash(text))}.html"
        path.write_text(text, encoding="utf-8")
        return [line.removeprefix(f"{path.name}: ") for line in finished.problems(tmp_path, [path.name])]

    return write


def test_a_good_page_passes(page):
    assert page(GOOD) == []


@pytest.mark.parametrize(("change", "said"), [
    ((' alt="a picture"', ""), "no text in place of a.png"),
    (('alt="a picture"', 'alt="a.png"'), "no text in place of a.png"),
    (("#top", "#bottom"), "link to #bottom leads nowhere"),
    (("#top", "b.html"), "link to b.html leads nowhere"),
    (("</body>", '<script src="https://cdn.example/x.js"></script></body>'), "loads https://cdn.example/x.js"),
    (("<body>", '<link rel="stylesheet" href="//fonts.example/f.css"><body>'), "loads //fonts.example/f.css"),
    (("</body>", "x" * finished.HEAVIEST + "</body>"), "weighs 2.0 MB with its pictures; at most 2 are allowed"),
])
def test_faults_are_found(page, change, said):
    assert page(GOOD.replace(*change)) == [said]


def test_links_that_load_nothing_may_lead_outside(page):
    assert page(GOOD.replace("<body>", '<link rel="canonical" href="https://a.example/"><body>')) == []


def test_styles_load_nothing_from_the_network(tmp_path):
    (tmp_path / "a.css").write_text("a {background: url('https://a.example/b.png')} @import \"//c.example/d.css\";")
    assert finished.problems(tmp_path, []) == ["a.css loads https://a.example/b.png", "a.css loads //c.example/d.css"]


@pytest.mark.parametrize("colours", [1, 3])
def test_lighter_pictures_have_the_same_pixels(tmp_path, colours):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 50, colours), dtype=np.uint8)
    whole = np.concatenate([np.broadcast_to(pixels, (60, 50, 3)), np.full((60, 50, 1), 255, np.uint8)], axis=2)
    path = tmp_path / "_images" / "a.png"
    path.parent.mkdir()
    Image.fromarray(whole).save(path)
    before = path.stat().st_size
    finished.lighten(tmp_path)
    assert path.stat().st_size < before
    np.testing.assert_array_equal(np.asarray(Image.open(path).convert("RGBA")), whole)


def test_a_large_picture_keeps_some_tones(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (600, 500), dtype=np.uint8)
    whole = np.stack([pixels] * 3 + [np.full_like(pixels, 255)], axis=2)
    (path := tmp_path / "_images" / "a.png").parent.mkdir()
    Image.fromarray(whole).save(path)
    finished.lighten(tmp_path)
    kept = np.asarray(Image.open(path)).astype(int)
    assert {0, 255} <= {*np.unique(kept)} and len(np.unique(kept)) == finished.TONES
    assert np.abs(kept - pixels).max() <= 4 and path.stat().st_size < 0.85 * pixels.size


def pictures(page):
    """Cells of a page that draw a picture, with what stands beside their code."""
    for cell in jupytext.read(notebooks.text_path(page)).cells:
        settings = cell.metadata.get("mystnb", {})
        if cell.cell_type == "code" and ("figure" in settings or re.search(r"\bdisplay\(.*\bshow_\w+\(", cell.source)):
            yield cell, settings


def test_every_picture_has_a_text_that_says_more_than_its_caption():
    named = set()
    for page in notebooks.chapters():
        for cell, settings in pictures(page):
            if "figure" not in settings:
                assert settings.get("image", {}).get("alt"), f"{page}: no alt below mystnb, image: {cell.source}"
                continue
            name, caption = settings["figure"]["name"], settings["figure"]["caption"]
            named.add(name)
            assert name in described.texts(), f"{page}: say in {described.PATH.name} what is seen in {name}"
            assert described.texts()[name][:40] not in " ".join(caption.split())
    assert set(described.texts()) == named
    assert all(len(text.split()) >= 12 for text in described.texts().values())


def test_texts_of_pictures():
    image, drawn, alone = (nodes.image(uri=f"{name}.png") for name in "abc")
    drawn["alt"] = "by hand"
    figure = nodes.figure("", image, nodes.caption("", "Strokes, not\nspeckle. MNIST."))
    section = nodes.section("", nodes.title("", "Atoms"), figure, drawn, nodes.container("", alone),
                            nodes.paragraph("", "Two codes. One digit."))
    last = nodes.section("", nodes.title("", "Last"), nodes.image(uri="d.png"))
    after = nodes.section("", nodes.title("", "After"), nodes.paragraph("", "Another matter."))
    document = nodes.document(None, None)
    document += [section, last, after]
    described.describe_images(None, document)
    said = [found["alt"] for found in document.findall(nodes.image)]
    assert said == ["Strokes, not speckle.", "by hand", "Two codes.", "Last"]
