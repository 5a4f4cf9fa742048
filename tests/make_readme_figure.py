"""Make the README's figure from a trained model that the book ships: ``python tests/make_readme_figure.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from gdd import plot
from gdd_book import models
from gdd_book.figures.style import bare, new_figure

FIGURE = Path(__file__).resolve().parents[1] / "book" / "_static" / "readme-figure.png"
MODEL = "mnist-1000"


def mosaic(pictures: np.ndarray, columns: int, signed: bool) -> np.ndarray:
    """Pictures (number, row, col) in a grid, each over its largest magnitude; 0 is mid grey if signed, else black."""
    largest = np.abs(pictures).max(axis=(1, 2), keepdims=True)
    scaled = np.divide(pictures, largest, out=np.zeros(pictures.shape), where=largest > 0)
    return plot.mosaic(((scaled + 1) / 2 if signed else scaled.clip(0, 1))[:, None], columns)


def draw() -> Figure:
    """Return the strip of four panels: digits, the atoms of both layers that carry most, the digits rebuilt."""
    model, found = models.load(f"{MODEL}-refined"), models.activations(MODEL, ["refined"]).isel(stage=0)
    digits = found.images[::6][:16]
    bottom = model.chain_.state.shared.dictionaries[0][:, 0]
    energy = (found.map_1.astype(float) ** 2).sum(["image", "row_1", "col_1"]).values * (bottom**2).sum(axis=(1, 2))
    panels = {
        "digits": mosaic(digits.values[:, 0], 4, signed=False),
        "atoms of layer 1": mosaic(bottom[np.argsort(-energy)[:9]], 3, signed=True),
        "atoms of layer 2": mosaic(model.atoms_.values[np.argsort(-found.energy.values)[:36], 0], 6, signed=True),
        "rebuilt": mosaic(model.inverse_transform(model.transform(digits))[:, 0], 4, signed=False),
    }
    figure, axes = new_figure(1, len(panels), width=11, height=3)
    for panel, (title, picture) in zip(axes, panels.items(), strict=True):
        bare(panel).imshow(picture, cmap="gray", vmin=0, vmax=1)
        panel.set_title(title)
    plt.close(figure)
    return figure


if __name__ == "__main__":
    draw().savefig(FIGURE, dpi=110, metadata={"Software": None})
    print(f"{FIGURE.stat().st_size / 1000:.0f} kB")
