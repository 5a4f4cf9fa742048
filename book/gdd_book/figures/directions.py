"""Pretraining and refinement as two ways through the same layers: what is drawn together, and where noise is left."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gdd_book.figures.flowchart import box, path
from gdd_book.figures.style import COLOURS, bare, finish, new_figure

WIDTH, TOP = 12.8, 14.6
CENTRES = (3.15, 9.65)  # of the two columns
CHAIN = "#FFF3DA"  # ground of what one chain draws


def draw_directions() -> Figure:
    """Two layers. Left: upwards, a chain for each layer. Right: downwards, one chain for all.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.3; the paper has no such figure.
    Departs: not applicable.
    Checked: tests/test_refinement_figures.py.
    """
    figure, axes = new_figure(height=6.2)
    axes.set(xlim=(0, WIDTH), ylim=(0, TOP), aspect="equal")
    _upwards(axes, CENTRES[0])
    _downwards(axes, CENTRES[1])
    axes.plot([WIDTH / 2] * 2, [0.3, TOP - 0.3], color="#CCCCCC", linewidth=1)
    bare(axes)
    return finish(figure)


def _upwards(axes: Axes, x: float) -> None:
    _heading(axes, x, "Pretraining", "upwards, a chain for each layer")
    for bottom, number, outcomes in ((2.5, 1, "one of $B+1$ outcomes"), (8.7, 2, "each element on or off")):
        _ground(axes, x, bottom, 3.5, f"chain {number}")
        box(axes, x, bottom + 2.0, 5.0, 1.3, f"$D^{{({number})}}, W^{{({number})}}, Z^{{({number})}}$:\n{outcomes}")
        axes.text(x, bottom + 0.85, f"noise $E^{{({number})}}$ is left", ha="center", va="center", fontsize=10.5)
    box(axes, x, 1.0, 4.0, 1.0, "images $X^{(1)}$", colour="#E4F0F8")
    _step(axes, x, 1.55, 2.45, "")
    box(axes, x, 7.35, 4.0, 1.0, "$X^{(2)}$, then held", colour="#E4F0F8")
    _step(axes, x, 6.05, 6.8, "pool")
    _step(axes, x, 7.9, 8.65, "")


def _downwards(axes: Axes, x: float) -> None:
    _heading(axes, x, "Refinement", "downwards, one chain for all")
    _ground(axes, x, 2.5, 9.7, "one chain")
    box(axes, x, 11.05, 5.0, 1.3, "$D^{(2)}, W^{(2)}, Z^{(2)}$:\neach element on or off")
    _step(axes, x, 10.35, 8.5, "convolve,\nno noise")
    box(axes, x, 7.95, 4.4, 1.0, "$X^{(2)}$ follows", colour="white")
    _step(axes, x, 7.4, 5.7, "unpool,\nconvolve")
    box(axes, x, 5.0, 5.0, 1.3, "$D^{(1)}, Z^{(1)}$:\none of $B$ positions")
    axes.text(x, 3.35, "noise $E$ is left at the data only", ha="center", va="center", fontsize=10.5)
    _step(axes, x, 2.45, 1.55, "")
    box(axes, x, 1.0, 4.0, 1.0, "images $X^{(1)}$", colour="#E4F0F8")


def _heading(axes: Axes, x: float, name: str, subtitle: str) -> None:
    axes.text(x, 14.1, name, ha="center", va="center", fontsize=14, weight="bold")
    axes.text(x, 13.3, subtitle, ha="center", va="center", fontsize=9.5, color=COLOURS["grey"])


def _ground(axes: Axes, x: float, bottom: float, height: float, text: str) -> None:
    axes.add_patch(Rectangle((x - 2.95, bottom), 5.9, height, facecolor=CHAIN, linewidth=0))
    axes.text(x - 2.75, bottom + height - 0.1, text, va="top", fontsize=10, weight="bold", color="#444444")


def _step(axes: Axes, x: float, start: float, end: float, text: str) -> None:
    """Arrow with its word at the right."""
    path(axes, [(x, start), (x, end)])
    if text:
        axes.text(x + 0.25, (start + end) / 2, text, va="center", fontsize=9.5, color=COLOURS["blue"])
