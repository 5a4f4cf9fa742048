"""Pictures that change with a slider: every frame is inside the page, with its words."""

import base64
import html
import io
import json
import re

import numpy as np
from PIL import Image

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
