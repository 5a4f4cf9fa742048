"""Pictures that change with a slider: every frame is inside the page, with its words."""

import base64
import html
import io
import json
import re

import numpy as np
from PIL import Image

from gdd_book import records
from gdd_book.figures import model, story
from gdd_book.figures.slider import slider
from gdd_book.figures.style import finish, new_figure


def parts(shown):
    """Frames, words, and what is shown first."""
    pairs = json.loads(re.search(r'<script type="application/json">(.*?)</script>', shown.data, re.S)[1])
    frames = [Image.open(io.BytesIO(base64.b64decode(frame))) for frame, _ in pairs]
    first = html.unescape(re.search(r"<output>(.*?)</output>", shown.data)[1])
    return frames, [words for _, words in pairs], first


def test_frames_words_and_the_first():
    drawn = []
    for level in (0, 1):
        figure, axes = new_figure(height=1)
        axes.axvspan(0, 1, color=str(level))
        drawn.append((f"level < {level}", finish(figure)))
    shown = slider(drawn, 'says "what"', first=1)
    frames, words, first = parts(shown)
    assert words == ["level < 0", "level < 1"] and first == "level < 1"
    assert frames[0].size == frames[1].size
    assert np.asarray(frames[0].convert("L")).mean() < np.asarray(frames[1].convert("L")).mean()
    assert 'max="1" value="1"' in shown.data and 'alt="says &quot;what&quot;"' in shown.data
    assert "http" not in shown.data


def test_a_digit_is_whole_in_the_end():
    frames, words, _ = parts(story.rebuilding(records.fullest("mnist-readings")))
    count = len(frames) - 1
    assert words[0] == f"0 of {count} pieces" and words[-1] == f"{count} of {count} pieces"


def test_a_block_chooses_as_precisions_grow():
    image = np.zeros((12, 12))
    image[4:8, 5] = 1.0
    shown = model.block_choice(image, np.ones((4, 1)) / 2, (2, 2), np.array([0.1, 10.0]))
    assert parts(shown)[1] == ["noise precision 0.1", "noise precision 10"]
