"""Pictures that change by hand: every frame is inside the page with its words, and keys and fingers reach each."""

import base64
import html
import io
import json
import re

import numpy as np
import pytest
from bs4 import BeautifulSoup
from PIL import Image
from scipy import integrate, stats

from gdd_book.experiments.studies.printed import left_over
from gdd_book.figures import moving
from gdd_book.figures.slider import slider
from gdd_book.figures.style import finish, new_figure
from gdd_book.training import digits


def parts(shown):
    """Frames and their words, and the page's own elements."""
    page = BeautifulSoup(shown.data, "html.parser").find("div", class_="slider")
    pairs = json.loads(page.find("script", type="application/json").string)
    frames = [Image.open(io.BytesIO(base64.b64decode(frame))) for frame, *_ in pairs]
    assert len({frame.size for frame in frames}) == 1, "a page must not jump"
    assert not re.search(r"https?:|//\w", re.sub(r"[A-Za-z0-9+/=]{200,}", "", shown.data)), "nothing is loaded"
    assert page.img["alt"] and page.find("div", class_="controls").has_attr("hidden"), "without JavaScript: the picture"
    shown_first = [page.img["src"].endswith(f",{frame}") for frame, *_ in pairs].index(True)
    assert page.output.string == pairs[shown_first][1]
    return frames, [words for _, words, *_ in pairs], shown_first, page


def drawn(count):
    """Figures that are darker and darker."""
    for level in range(count):
        figure, axes = new_figure(height=1)
        axes.axvspan(0, 1, color=str(1 - level / count))
        yield f"level < {level}", finish(figure)


def test_a_slider_has_all_frames_and_answers_to_keys():
    frames, words, first, page = parts(slider(drawn(3), 'says "what"', first=1))
    assert words == ["level < 0", "level < 1", "level < 2"] and first == 1
    light = [np.asarray(frame.convert("L")).mean() for frame in frames]
    assert light == sorted(light, reverse=True)
    hand = page.find("input", type="range")  # the browser gives it arrow keys
    assert (hand["min"], hand["max"], hand["value"]) == ("0", "2", "1")
    assert hand["aria-label"] == 'says "what"' and html.unescape(hand["aria-valuetext"]) == "level < 1"
    assert page.button["type"] == "button" and page.button.string == "Play"


def test_the_published_chain_explodes_beside_the_corrected_one():
    images = digits({"data": "digits", "n_train": 4, "seed": 0})
    found = left_over(images, (0, 1, 2, 3), 0)
    residual = found.residual
    assert (residual.sel(sweep=0) == 1).all()
    assert (residual.sel(reading="as published").diff("sweep") > 0).all() and residual[0, -1] > 1e3
    assert residual.sel(reading="corrected", sweep=3) < 0.5
    squares = (found.left.sel(sweep=2) ** 2).sum(("image", "row", "col"))  # of four images all are shown
    np.testing.assert_allclose(np.sqrt(squares), residual.sel(sweep=2) * np.linalg.norm(images))
    _, words, first, _ = parts(moving.diverging(images.values[:, 0], found))
    assert first == 3 and words[0].endswith("as published 1, half corrected 1, corrected 1")


@pytest.mark.parametrize("on", [[], [2], [1, 4], [0, 2, 5]])
def test_probabilities_by_hand_are_those_of_the_model(on):
    """Against odds whose weight is integrated out numerically."""
    placed = np.stack([moving._placed(*one) for one in moving.PLACED.values()])
    lit = np.isin(np.arange(len(placed)), on)
    weights, probability = moving.given_the_others(moving.SEVEN, placed, lit)
    assert (weights[~lit] == 0).all() and (weights[lit] != 0).all()
    for atom, weight, chance in zip(placed, weights, probability, strict=True):
        left = moving.SEVEN - np.tensordot(weights, placed, 1) + weight * atom

        def likelihood(w, left=left, atom=atom):
            noise, slab = stats.norm(0, moving.DEVIATION), stats.norm(0, moving.GAMMA_W**-0.5)
            return np.exp((noise.logpdf(left - w * atom) - noise.logpdf(left)).sum()) * slab.pdf(w)

        odds = integrate.quad(likelihood, -8, 8, points=[float((left * atom).sum())])[0] / (moving.ATOMS - 1)
        assert chance == pytest.approx(odds / (1 + odds), rel=1e-6)
