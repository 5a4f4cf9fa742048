"""Pictures that change by hand, with a slider or with switches: all frames and words inside the page."""

import base64
import html
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from IPython.display import HTML
from matplotlib.figure import Figure
from PIL import Image

from gdd_book.figures.style import finish

DPI = 110
COLOURS = 64  # of a frame; the pictures are grey but for a few lines
SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8").partition("\n")[2].strip()


def slider(frames: Iterable[tuple[str, Figure]], says: str, first: int = 0) -> HTML:
    """Frames, figures and words, shown one at a time, by hand or by itself; ``says``: in the picture's place."""
    shown = []
    for words, figure in frames:
        finish(figure).savefig(large := io.BytesIO(), dpi=DPI)
        shown.append((_small(Image.open(large)), words))
    return _page(shown, says, first, (
        f'<input type="range" min="0" max="{len(shown) - 1}" value="{first}" autocomplete="off"'
        f' aria-label="{html.escape(says)}" aria-valuetext="{html.escape(shown[first][1])}">'
        '<button type="button">Play</button>'), live="off")


def switches(frames: Iterable[tuple[str, Image.Image, Sequence[str]]], says: str, first: int = 0) -> HTML:
    """Frames, each with its words and its switches' names, for every setting of switches, the first the lowest bit."""
    shown = [(_small(picture), words, list(names)) for words, picture, names in frames]
    boxes = "".join(f'<label><input type="checkbox" autocomplete="off"{" checked" * (first >> bit & 1)}>'
                    f"<span>{html.escape(name)}</span></label>" for bit, name in enumerate(shown[first][2]))
    return _page(shown, says, first, boxes, live="polite")


def _page(shown: Sequence[tuple], says: str, first: int, controls: str, live: str) -> HTML:
    """The picture, its controls, its words and all frames."""
    picture, words, *_ = shown[first]
    return HTML(
        f'<div class="slider"><img alt="{html.escape(says)}" src="data:image/png;base64,{picture}">'
        f'<div class="controls" role="group" aria-label="{html.escape(says)}" hidden>{controls}</div>'
        f'<output aria-live="{live}">{html.escape(words)}</output>'
        f'<script type="application/json">{json.dumps(shown)}</script><script>{SCRIPT}</script></div>'
    )


def _small(picture: Image.Image) -> str:
    """A picture with few colours, as text."""
    picture.convert("RGB").quantize(COLOURS).save(small := io.BytesIO(), "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()
