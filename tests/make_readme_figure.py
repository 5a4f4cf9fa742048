"""Make the README's figure from the README's own lines of Python: ``python tests/make_readme_figure.py``."""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

from gdd import plot
from gdd_book.figures.style import bare, new_figure

ROOT = Path(__file__).resolve().parents[1]
FIGURE = ROOT / "book" / "_static" / "readme-figure.png"


def code() -> str:
    """Return the README's five lines of Python that learn atoms."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    return next(block for block in blocks if "DeepDeconvolution" in block)


def mosaic(pictures: np.ndarray, columns: int, signed: bool) -> np.ndarray:
    """Pictures (number, row, col) in a grid, each over its largest magnitude; 0 is mid grey if signed, else black."""
    largest = np.abs(pictures).max(axis=(1, 2), keepdims=True)
    scaled = np.divide(pictures, largest, out=np.zeros(pictures.shape), where=largest > 0)
    return plot.mosaic(((scaled + 1) / 2 if signed else scaled.clip(0, 1))[:, None], columns)


def by_energy(state) -> np.ndarray:
    """Atoms of a layer, those that carry most first; how often one is active says little: its weights may be tiny."""
    weights = (state.local.w.astype(float) ** 2).sum(axis=(0, 2, 3))
    return np.argsort(-weights * (state.shared.dictionary**2).sum(axis=(1, 2, 3)))


def draw(made: dict):
    """Return the strip of five panels: digits, atoms of both layers, new digits, new digits rebuilt."""
    model = made["model"]
    bottom, top = (layer.state for layer in model.chains_[0].layers)
    rebuilt = model.inverse_transform(made["features"])
    panels = {
        "digits": mosaic(made["images"].values[:16, 0], 4, signed=False),
        "layer 1": mosaic(bottom.shared.dictionary[by_energy(bottom)[:25], 0], 5, signed=True),
        "layer 2, in pixels": mosaic(model.atoms_.values[by_energy(top)[:16], 0], 4, signed=True),
        "new digits": mosaic(made["new"].values[:16, 0], 4, signed=False),
        "rebuilt": mosaic(rebuilt[:16, 0], 4, signed=False),
    }
    figure, axes = new_figure(1, len(panels), width=11, height=2.5)
    for panel, (title, picture) in zip(axes, panels.items(), strict=True):
        bare(panel).imshow(picture, cmap="gray", vmin=0, vmax=1)
        panel.set_title(title)
    plt.close(figure)
    return figure


if __name__ == "__main__":
    made: dict = {}
    with TemporaryDirectory() as folder, chdir(folder):  # the lines write files of their own
        exec(code(), made)
    draw(made).savefig(FIGURE, dpi=110, metadata={"Software": None})
    print(f"{FIGURE.stat().st_size / 1000:.0f} kB")
