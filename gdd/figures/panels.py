"""Small pictures side by side, each with its title."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.figure import Figure

from gdd.axes import GddError
from gdd.figures.style import COLOURS, FONT, FULL, bare, finish, new_figure


def show_pictures(titles: Sequence[str], pictures: Sequence[np.ndarray], columns: int = 4) -> Figure:
    """Pictures on a grey scale of their own, symmetric about zero: 0 is mid grey, the largest magnitude black or white.

    Parameters
    ----------
    titles : one for each picture
    pictures : arrays (row, col)
    columns : pictures in a row

    Raises
    ------
    GddError
        If the numbers of titles and pictures differ, or a picture is not a finite array (row, col).
    """
    if len(titles) != len(pictures):
        raise GddError(f"titles: {len(titles)} given for {len(pictures)} pictures")
    rows = ceil(len(pictures) / columns)
    tall = max((np.shape(picture) or (1,))[0] / (np.shape(picture) or (1,))[-1] for picture in pictures)
    figure, axes = new_figure(rows, columns, height=rows * (FULL / columns * tall + 0.25), squeeze=False)
    for panel in axes.flat:
        bare(panel)
    for number, (title, picture, panel) in enumerate(zip(titles, pictures, axes.flat, strict=False)):
        if np.ndim(picture) != 2 or not np.isfinite(picture).all():
            raise GddError(f"pictures: number {number} of shape {np.shape(picture)}; finite, axes (row, col) needed")
        largest = np.abs(picture).max() or 1
        panel.imshow(picture, cmap="gray", vmin=-largest, vmax=largest)
        panel.set_title(title, fontsize=FONT - 1)
        for spine in panel.spines.values():
            spine.set(visible=True, color=COLOURS["grey"], linewidth=0.5)
    return finish(figure)
