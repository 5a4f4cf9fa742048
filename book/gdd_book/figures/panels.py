"""Small pictures side by side, each with its title."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.figure import Figure

from gdd.base.axes import COL, ROW
from gdd.base.checks import GddError, as_finite, check_sequence, check_whole
from gdd_book.figures.style import COLOURS, FONT, FULL, bare, finish, new_figure


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
    for argument, given in (("titles", titles), ("pictures", pictures)):
        check_sequence(argument, given)
    columns = check_whole("columns", columns, 1)
    if not len(titles) == len(pictures) > 0:
        raise GddError(f"titles: {len(titles)} given for {len(pictures)} pictures; one for each is needed")
    pictures = [as_finite(one, (ROW, COL), f"pictures: number {number}") for number, one in enumerate(pictures)]
    rows = ceil(len(pictures) / columns)
    tall = max(picture.shape[0] / picture.shape[1] for picture in pictures)
    figure, axes = new_figure(rows, columns, height=rows * (FULL / columns * tall + 0.25), squeeze=False)
    for panel in axes.flat:
        bare(panel)
    for title, picture, panel in zip(titles, pictures, axes.flat, strict=False):
        largest = np.abs(picture).max() or 1
        panel.imshow(picture, cmap="gray", vmin=-largest, vmax=largest)
        panel.set_title(title, fontsize=FONT - 1)
        for spine in panel.spines.values():
            spine.set(visible=True, color=COLOURS["grey"], linewidth=0.5)
    return finish(figure)
