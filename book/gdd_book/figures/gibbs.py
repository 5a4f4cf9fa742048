"""The sampler: how images, sums and shared draws go round in a sweep, and how chains under several priors run."""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from gdd.base.axes import CHAIN, DRAW
from gdd.base.checks import GddError
from gdd_book.figures.style import COLOURS, bare, finish, new_figure

WIDTH, TOP = 12.8, 13.2
CHUNKS = ("images 1 to 64", "images 65 to 128", "images 129 to ...")
TRACES = {
    "active": "active blocks\nper image",
    "residual": "residual,\nroot mean square",
    "log_joint": "log joint",
}
_STYLES = (("red", "-"), ("orange", "--"), ("blue", "-."), ("black", ":"))
LINES = tuple((COLOURS[name], style) for name, style in _STYLES)


def draw_image_pass() -> Figure:
    """One sweep: chunks of images, each its own sums; the sums added in order; the shared draws; and back.

    Notes
    -----
    *Source:* not in the paper. *Departs:* not applicable. *Checked:* tests/test_gibbs_figures.py.
    """
    figure, axes = new_figure(height=5.5)
    axes.set(xlim=(0, WIDTH), ylim=(0, TOP), aspect="equal")
    for number, chunk in enumerate(CHUNKS):
        x = 2.2 + 4.2 * number
        _box(axes, x, 11.0, 3.7, 2.9, f"{chunk}\n\n$\\gamma_e$, then every\nblock $(z, w)$", "#E4F0F8")
        _arrow(axes, (x, 9.5), (x, 8.35))
        _box(axes, x, 7.8, 2.6, 1.0, "its sums", "#FFF3DA")
        _arrow(axes, (x, 7.25), (x, 6.35))
    _box(axes, 6.4, 5.75, 12.2, 1.1, "added in the order of the chunks: sums of fixed size", "#FFE3AE")
    _arrow(axes, (6.4, 5.15), (6.4, 4.1))
    _box(axes, 6.4, 3.0, 8.6, 2.1, "atoms $D$, their scales,\nthen $\\gamma_d$ and $\\gamma_w$", "#D9F0E6")
    axes.text(1.05, 3.05, "shared\ndraws", ha="center", va="center", fontsize=10, weight="bold", color="#444444")
    axes.text(0.35, 12.85, "image pass: images do not see each other", va="center", fontsize=10, weight="bold",
              color="#444444")  # fmt: skip
    _arrow(axes, (6.4, 1.9), (6.4, 1.05), COLOURS["blue"])
    axes.text(6.4, 0.55, "to every chunk, for the next sweep: $D$, $\\gamma_w$", ha="center", va="center", fontsize=10,
              color=COLOURS["blue"])  # fmt: skip
    bare(axes)
    return finish(figure)


def show_regimes(runs: Mapping[str, xr.Dataset]) -> Figure:
    """Traces of several chains under one another: active blocks, residual, log joint, against the sweep.

    Parameters
    ----------
    runs : name of each chain -> its traces, dims (chain, draw), of which the first chain is shown

    Raises
    ------
    GddError
        If there is no chain, or one lacks a trace.

    Notes
    -----
    *Source:* not in the paper, which shows no trace. *Departs:* not applicable.
    *Checked:* tests/test_gibbs_figures.py.
    """
    if not runs:
        raise GddError("runs: none given, at least one chain is needed")
    figure, axes = new_figure(len(TRACES), 1, height=6.2, sharex=True)
    for (name, label), panel in zip(TRACES.items(), axes, strict=True):
        for (colour, style), (run, traces) in zip(LINES * len(runs), runs.items(), strict=False):
            if name not in traces:
                raise GddError(f"runs: chain '{run}' has no trace '{name}'")
            values = traces[name].isel({CHAIN: 0})
            panel.plot(range(1, values.sizes[DRAW] + 1), values, style, color=colour, label=run, linewidth=1.8)
        panel.set_ylabel(label)
    axes[0].set_ylim(bottom=0)
    axes[1].set_yscale("log")
    axes[-1].set_xlabel("sweep")
    axes[-1].ticklabel_format(axis="y", scilimits=(0, 0), useMathText=True)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", frameon=False, fontsize=10)
    return finish(figure)


def _box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
    """Draw a box around (x, y)."""
    style = "round,pad=0,rounding_size=0.15"
    axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle=style, facecolor=colour,
                                  edgecolor="black", linewidth=1.2))  # fmt: skip
    axes.text(x, y, text, ha="center", va="center", fontsize=10.5, linespacing=1.25)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = "black") -> None:
    """Draw an arrow."""
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", color=colour, linewidth=1.3, mutation_scale=13,
                                   shrinkA=0, shrinkB=0))  # fmt: skip
