"""Make the README's figure from the README's own lines of Python: ``python tests/make_readme_figure.py``."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gdd import figures
from gdd.figures.dictionaries import atom_mosaic
from gdd.projection import render_projected

ROOT = Path(__file__).resolve().parents[1]
FIGURE = ROOT / "book" / "_static" / "readme-figure.png"


def code() -> str:
    """Return the README's Python."""
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    return block


def mosaic(pictures: np.ndarray, columns: int, signed: bool) -> np.ndarray:
    """Pictures (number, row, col) in a grid, each over its largest magnitude; 0 is mid grey if signed, else black."""
    largest = np.abs(pictures).max(axis=(1, 2), keepdims=True)
    scaled = np.divide(pictures, largest, out=np.zeros(pictures.shape), where=largest > 0)
    return atom_mosaic(((scaled + 1) / 2 if signed else scaled.clip(0, 1))[:, None], columns)


def draw(made: dict):
    """Return the strip of five panels: digits, atoms of both layers, new digits, new digits rebuilt."""
    top = made["fitted"].layers[-1]
    uses = (top.state.local.z >= 0).sum(axis=(0, 2, 3))
    often = np.argsort(-uses)[:16]
    rebuilt = render_projected(
        made["atoms"], made["features"].ml_sample, made["fitted"].model.stride, made["new"].shape[2:]
    )
    bottom = made["fitted"].layers[0].state
    first = np.argsort(-(bottom.local.z >= 0).sum(axis=(0, 2, 3)))[:25]
    panels = {
        "digits": mosaic(made["images"].values[:16, 0], 4, signed=False),
        "layer 1": mosaic(bottom.shared.dictionary[first, 0], 5, signed=True),
        "layer 2, in pixels": mosaic(made["atoms"].values[often, 0], 4, signed=True),
        "new digits": mosaic(made["new"].values[:16, 0], 4, signed=False),
        "rebuilt": mosaic(rebuilt[:16, 0], 4, signed=False),
    }
    figure, axes = figures.new_figure(1, len(panels), width=11, height=2.5)
    for panel, (title, picture) in zip(axes, panels.items(), strict=True):
        figures.bare(panel).imshow(picture, cmap="gray", vmin=0, vmax=1)
        panel.set_title(title)
    plt.close(figure)
    return figure


if __name__ == "__main__":
    made: dict = {}
    exec(code(), made)
    draw(made).savefig(FIGURE, dpi=110, metadata={"Software": None})
    print(f"{FIGURE.stat().st_size / 1000:.0f} kB")
