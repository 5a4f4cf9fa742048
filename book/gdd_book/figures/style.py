"""How every figure of the book looks: widths, font sizes, colours; no global setting is changed.

Widths are chosen so that text stays readable when a page is shown 360 pixels wide.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

FULL = 5.4  # inches: the width of the text column; every figure takes it, so that all text has one size
DPI = 170
FONT = 11  # points
MARGIN = 0.04  # inches around everything

#: Okabe and Ito's colours, told apart by all common kinds of colour vision
COLOURS = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "red": "#D55E00",
    "purple": "#CC79A7",
    "grey": "#767676",
}
CYCLE = [COLOURS[name] for name in ("blue", "orange", "green", "red", "purple", "sky", "black")]

RC = {
    "figure.dpi": DPI,
    "font.size": FONT,
    "axes.titlesize": FONT,
    "axes.labelsize": FONT,
    "legend.fontsize": FONT - 1,
    "xtick.labelsize": FONT - 1,
    "ytick.labelsize": FONT - 1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "image.interpolation": "nearest",
    "axes.prop_cycle": plt.cycler(color=CYCLE),
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": MARGIN,
    "figure.constrained_layout.w_pad": MARGIN,
    "mathtext.fontset": "cm",
    "figure.facecolor": "white",
}


def new_figure(rows: int = 1, cols: int = 1, width: float = FULL, height: float = 3.0, **kwargs) -> tuple[Figure, Axes]:
    """`matplotlib.pyplot.subplots` in the book's style; sizes in inches."""
    with plt.rc_context(RC):
        return plt.subplots(rows, cols, figsize=(width, height), **kwargs)


def finish(figure: Figure) -> Figure:
    """Make a figure ready to be the value of a notebook's cell.

    It leaves pyplot's list, or it would be shown twice. An invisible frame keeps its margins, which notebooks cut off:
    without them a narrow picture would be blown up.
    """
    figure.add_artist(Rectangle((0, 0), 1, 1, transform=figure.transFigure, fill=False, linewidth=0, zorder=-9))
    plt.close(figure)
    return figure


def bare(axes: Axes) -> Axes:
    """No ticks and no frame: for pictures."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes
