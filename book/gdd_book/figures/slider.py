"""Pictures that change by hand, with a slider or with switches: all frames and words inside the page."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterable, Sequence

from IPython.display import HTML
from matplotlib.figure import Figure
from PIL import Image

DPI = 110
COLOURS = 64  # of a frame; the pictures are grey but for a few lines
#: shows the frame that slider or switches stand for, and its words; without it the first frame stays, and no controls
SCRIPT = """(box => {
const frames = JSON.parse(box.querySelector('script').textContent), play = box.querySelector('button');
const inputs = [...box.querySelectorAll('input')], [range] = inputs;
let timer;
const show = () => {
  const at = play ? +range.value : inputs.reduce((sum, one, bit) => sum + (one.checked << bit), 0);
  box.querySelector('img').src = 'data:image/png;base64,' + frames[at][0];
  box.querySelector('output').value = frames[at][1];
  if (play) range.setAttribute('aria-valuetext', frames[at][1]);
  else box.querySelectorAll('span').forEach((name, bit) => { name.textContent = frames[at][2][bit]; });
};
const stop = () => { timer = clearInterval(timer); play.textContent = 'Play'; };
box.addEventListener('input', () => { if (timer) stop(); show(); });
if (play) play.onclick = () => {
  if (timer) return stop();
  play.textContent = 'Stop';
  if (range.value == range.max) range.value = 0; else range.stepUp();
  show();
  timer = setInterval(() => { if (range.value == range.max) return stop(); range.stepUp(); show(); }, 800);
};
box.querySelector('.controls').hidden = false;
})(document.currentScript.parentElement)"""


def slider(frames: Iterable[tuple[str, Figure]], says: str, first: int = 0) -> HTML:
    """Frames, each with its words, one shown at a time: by a slider, its arrow keys, or one after the other.

    Parameters
    ----------
    says : what the picture shows, for readers who cannot see it
    first : number of the frame that is shown before anybody moves the slider, and in print
    """
    shown = [(_encoded(figure), words) for words, figure in frames]
    return _page(shown, says, first, (
        f'<input type="range" min="0" max="{len(shown) - 1}" value="{first}" autocomplete="off"'
        f' aria-label="{html.escape(says)}" aria-valuetext="{html.escape(shown[first][1])}">'
        '<button type="button">Play</button>'), live="off")


def switches(frames: Iterable[tuple[str, Image.Image, Sequence[str]]], says: str, first: int = 0) -> HTML:
    """Frames, each with its words and what its switches are called, for every setting of some switches.

    Parameters
    ----------
    frames : 2 ** switches; in the number of a frame the lowest bit is the first switch, 1 for on
    says, first : see `slider`
    """
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


def _encoded(figure: Figure) -> str:
    """A figure as a small picture."""
    figure.savefig(large := io.BytesIO(), dpi=DPI)
    return _small(Image.open(large))


def _small(picture: Image.Image) -> str:
    """A picture with few colours, as text."""
    picture.convert("RGB").quantize(COLOURS).save(small := io.BytesIO(), "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()
