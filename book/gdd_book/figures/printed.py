"""The printed algorithm, run: where each of its readings ends."""

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd_book.figures import style


def show_divergence(record: xr.Dataset) -> Figure:
    """Residual by sweep of every reading of `printed-algorithm`, a line a subset; a cross where one ends too early."""
    figure, axes = style.new_figure(height=4.2)
    sweeps = np.arange(1, record.sizes["sweep"] + 1)
    for name, (colour, dash) in zip(record.reading.values, style.LINES, strict=False):
        for number, one in enumerate(record.residual.sel(reading=name).transpose("subset", "sweep").values):
            axes.plot(sweeps, one, linestyle=dash, color=colour, linewidth=1.2, label=None if number else name)
            if last := np.isfinite(one).sum():
                axes.plot(last, one[last - 1], "x" if last < len(sweeps) else "", color=colour)
    axes.set(xscale="log", yscale="log", xlabel="sweep", ylabel="norm of residual / of images")
    axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.axhline(1, color="black", linewidth=0.5)
    axes.annotate("nothing explained", (record.sizes["sweep"], 1), fontsize=style.FONT - 3, ha="right", va="bottom")
    style.legend_outside(figure, "lower center", 2, 3)
    return style.finish(figure)


def divergence_table(record: xr.Dataset) -> pd.DataFrame:
    """For every reading the sweeps until it diverges, its least residual, and gamma_e in its last sweep."""
    sweeps, ran = record.sizes["sweep"], np.isfinite(record.residual).sum("sweep")
    last = record.gamma_e.isel(sweep=(ran - 1).clip(0)).where(ran > 0)

    def until(few: int, most: int) -> str:
        return f"not in {sweeps}" if few == sweeps else f"{few + 1}" if few == most else f"{few + 1} to {most + 1}"

    return style.table("reading", {
        "diverges in sweep": (xr.apply_ufunc(np.vectorize(until, [object]), ran.min("subset"), ran.max("subset")),),
        "least residual": (record.residual.min("sweep").mean("subset"), ".3g"),
        "last noise precision": (last.mean("subset"), ".3g"),
    })
