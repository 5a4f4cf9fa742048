"""A picture that changes with a slider: frames and words inside the page, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterable

from IPython.display import HTML
from matplotlib.figure import Figure
from PIL import Image

DPI = 110
COLOURS = 64  # of a frame; the pictures are grey but for a few lines
#: shows the frame that the slider points at, and its words
MOVE = ("const f = this.closest('.slider'), n = JSON.parse(f.querySelector('script').textContent)[this.value];"
        "f.querySelector('img').src = 'data:image/png;base64,' + n[0]; f.querySelector('output').value = n[1];"
        "this.setAttribute('aria-valuetext', n[1])")


def slider(frames: Iterable[tuple[str, Figure]], says: str, first: int = 0) -> HTML:
    """Frames, each with its words, one shown at a time; arrow keys move the slider too.

    Parameters
    ----------
    says : what the picture shows, for readers who cannot see it
    first : number of the frame that is shown before anybody moves the slider
    """
    pairs = [(_encoded(figure), words) for words, figure in frames]
    picture, words = pairs[first]
    return HTML(
        f'<div class="slider"><img alt="{html.escape(says)}" src="data:image/png;base64,{picture}">'
        f'<input type="range" min="0" max="{len(pairs) - 1}" value="{first}" aria-label="{html.escape(says)}"'
        f' aria-valuetext="{html.escape(words)}" oninput="{html.escape(MOVE)}"><output>{html.escape(words)}</output>'
        f'<script type="application/json">{json.dumps(pairs)}</script></div>'
    )


def _encoded(figure: Figure) -> str:
    """A figure as a small picture."""
    large, small = io.BytesIO(), io.BytesIO()
    figure.savefig(large, dpi=DPI)
    Image.open(large).convert("RGB").quantize(COLOURS).save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()
