"""The printed algorithm, run: where each of its readings ends."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdd_book.figures.model import draw_atoms
from gdd_book.figures.style import FONT, FULL, KIND_WORDS, LINES, finish, legend_outside, new_figure, new_panels, table
from gdd_book.records import settings


def show_divergence(record: xr.Dataset) -> Figure:
    """Residual after each sweep of every reading of `printed-algorithm`, a line for each subset."""
    figure, axes = new_figure(height=4.2)
    _draw_until_lost(axes, record.residual, "reading")
    axes.set(xscale="log", yscale="log", xlabel="sweep", ylabel="norm of residual / of images")
    axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.axhline(1, color="black", linewidth=0.5)
    axes.annotate("nothing explained", (record.sizes["sweep"], 1), fontsize=FONT - 3, ha="right", va="bottom")
    legend_outside(figure, "lower center", 2, 3)
    return finish(figure)


def divergence_table(record: xr.Dataset) -> pd.DataFrame:
    """For every reading the sweeps until it diverges, its least residual, and gamma_e in its last sweep."""
    sweeps, ran = record.sizes["sweep"], np.isfinite(record.residual).sum("sweep")
    last = record.gamma_e.isel(sweep=(ran - 1).clip(0)).where(ran > 0)

    def until(few: int, most: int) -> str:
        return f"not in {sweeps}" if few == sweeps else f"{few + 1}" if few == most else f"{few + 1} to {most + 1}"

    return table("reading", {
        "diverges in sweep": (xr.apply_ufunc(np.vectorize(until, [object]), ran.min("subset"), ran.max("subset")),),
        "least residual": (record.residual.min("sweep").mean("subset"), ".3g"),
        "last noise precision": (last.mean("subset"), ".3g"),
    })


def show_neighbour(record: xr.Dataset) -> Figure:
    """Noise precision after each sweep of every sampler of `printed-neighbour`, a line for each subset."""
    figure, axes = new_figure(height=3.9)
    _draw_until_lost(axes, record.gamma_e, "sampler")
    axes.set(yscale="log", xlabel="sweep", ylabel="noise precision")
    legend_outside(figure, "lower center", 2, 2)
    return finish(figure)


def _draw_until_lost(axes: Axes, values: xr.DataArray, by: str) -> None:
    """A line over the sweeps for each entry and subset; a cross where one ends too early."""
    sweeps = np.arange(1, values.sizes["sweep"] + 1)
    for name, (colour, style) in zip(values[by].values, LINES, strict=False):
        for number, one in enumerate(values.sel({by: name}).transpose("subset", "sweep").values):
            axes.plot(sweeps, one, linestyle=style, color=colour, linewidth=1.2, label=None if number else name)
            if last := np.isfinite(one).sum():
                axes.plot(last, one[last - 1], "x" if last < len(sweeps) else "", color=colour)


def neighbour_table(record: xr.Dataset) -> pd.DataFrame:
    """Error by whose switch learned the atoms and who codes, mean over the subsets with its error."""
    return table(("switch", "coder"), {
        KIND_WORDS[kind]: (record.error.sel(feature_kind=kind), 1, "subset") for kind in record.feature_kind.values
    }, ("atoms by the", "code by"))


def show_whole(record: xr.Dataset) -> Figure:
    """Sixteen atoms of each layer of `printed-whole`, the top ones by use, of every sampler that ran; first subset."""
    ran = record.isel(subset=0).sel(sampler=record.diverged.isel(subset=0).values == 0)
    figure, axes = new_panels(2, ran.sizes["sampler"], 2 * FULL / ran.sizes["sampler"] + 0.7)
    for panels, sampler in zip(axes.T, ran.sampler.values, strict=True):
        one = ran.sel(sampler=sampler)
        most = np.argsort(-one.uses.values, kind="stable")[:16]
        draw_atoms(panels[0], one.atoms_1.values[:16, None], 4, f"{sampler}\nlayer 1")
        draw_atoms(panels[1], one.atoms_2.values[most, None], 4, "layer 2")
    return finish(figure)


def whole_table(record: xr.Dataset) -> pd.DataFrame:
    """What became of each sampler of `printed-whole`, and the errors of its codes and of exact ones with its atoms."""
    ended = record.diverged.isel(subset=0)
    sweeps = settings(record)["burn_in"] + settings(record)["collect"]
    columns = {"diverges in sweep": (xr.where(ended == 0, f"not in {sweeps}", ended.astype(str)).astype(object),)}
    near = record.nearest.where(record.uses > 0).median("atom_2").mean("subset")
    columns |= {"left of a digit": (record.left.mean("subset"), 2), "active": (record.active.mean("subset"), 0),
                "cosine of a top atom and its nearest digit": (near, 2)}
    for coder in record.coder.values:
        for kind in record.feature_kind.values:
            errors = record.error.sel(coder=coder, feature_kind=kind).mean("subset")
            columns[f"{KIND_WORDS[kind]}, coded by {'' if coder == 'itself' else 'the '}{coder}"] = errors, 1
    return table("sampler", columns)
