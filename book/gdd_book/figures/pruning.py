"""Figures and tables of mnist-atoms: how many atoms are left when those seldom used are dropped."""

from __future__ import annotations

from itertools import cycle
from math import prod

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import DRAW
from gdd.model.spec import MNIST
from gdd_book.figures.style import CYCLE, FONT, finish, new_figure
from gdd_book.records import settings

STYLES = ("-", "--", ":", "-.")


def left_table(record: xr.Dataset, layer: int) -> pd.DataFrame:
    """Atoms of a layer, from 1, that are left at the end: a row for each start, a column for each share; over seeds."""
    left = record[f"atoms_{layer}"].isel({DRAW: -1})
    words = [
        [_range(left.sel({f"start_{layer}": start, "share": share}).values) for share in left.share.values]
        for start in left[f"start_{layer}"].values
    ]
    columns = pd.Index([f"{share:g} of the mean" for share in left.share.values], name="dropped below")
    return pd.DataFrame(words, pd.Index(left[f"start_{layer}"].values, name=f"atoms at first, layer {layer}"), columns)


def fit_table(record: xr.Dataset, layer: int) -> pd.DataFrame:
    """What is left of a value of the layer's input, as root mean square, and coefficients active on a digit.

    The first in the last sweep, the second in the kept sample, both means over seeds; rows and columns of `left_table`.
    """
    start, blocks = f"start_{layer}", prod(MNIST.shapes()[layer - 1].grid)
    left = record[f"residual_{layer}"].isel({DRAW: -1}).mean("seed").transpose(start, "share").values
    active = blocks * record[f"uses_{layer}"].sum(f"rank_{layer}").mean("seed").transpose(start, "share").values
    table = left_table(record, layer)
    for place in np.ndindex(table.shape):
        table.iloc[place] = f"{left[place]:.3f}, {active[place]:.0f} active"
    return table


def show_left(record: xr.Dataset) -> Figure:
    """Atoms in every sweep, the first seed: a colour for each start, a kind of line for each share; two layers."""
    p = settings(record)
    figure, axes = new_figure(2, 1, height=6.4)
    for layer, panel in enumerate(axes, 1):
        atoms = record[f"atoms_{layer}"].isel(seed=0)
        for start, colour in zip(atoms[f"start_{layer}"].values, cycle(CYCLE), strict=False):
            for share, style in zip(atoms.share.values, cycle(STYLES), strict=False):
                values = atoms.sel({f"start_{layer}": start, "share": share}).values
                label = f"{start} at first, {share:g}"
                panel.plot(np.arange(1, len(values) + 1), values, style, color=colour, linewidth=1.3, label=label)
        panel.axhline(MNIST.layers[layer - 1].atoms, color="grey", linewidth=0.8)
        panel.axvline(p["burn_in"], color="grey", linewidth=0.8, linestyle=":")
        ticks = sorted({MNIST.layers[layer - 1].atoms, *atoms[f"start_{layer}"].values})
        panel.set(ylabel=f"atoms of layer {layer}", yscale="log", ylim=(None, 1.1 * ticks[-1]))
        panel.set_yticks(ticks, [str(tick) for tick in ticks])
        panel.set_yticks([], minor=True)
        columns = atoms.sizes[f"start_{layer}"]
        panel.legend(fontsize=FONT - 3, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        panel.set_xlabel("sweep")
    return finish(figure)


def show_uses(record: xr.Dataset) -> Figure:
    """Share of blocks in which each atom of layer 1 is active, most used first; smallest share, all starts."""
    figure, axes = new_figure(height=2.8)
    uses = record.uses_1.isel(seed=0).sel(share=record.share.min())
    for start in uses.start_1.values:
        values = uses.sel(start_1=start).values
        axes.plot(np.arange(1, len(values) + 1), values, ".-", linewidth=1, markersize=4, label=f"{start} at first")
    axes.set(xlabel="atom, the most used first", ylabel="share of blocks", yscale="log")
    axes.legend()
    return finish(figure)


def _range(values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"
