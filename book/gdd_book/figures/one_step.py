"""Figures and tables of `gdd.OneStepFeatures` beside simple features."""

from collections.abc import Sequence

import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd_book.experiments.studies.one_step import ATOMS, COMPONENTS, DEFAULT, PATCHES, PIXELS, SCATTERING
from gdd_book.figures import style
from gdd_book.figures.mnist import draw_subsets

TITLES = {"digits": "digits, 28 × 28", "textures": "patches of ten pictures"}
TUNED = "preset"  # each set has its own


def show_few_labels(found: Sequence[xr.Dataset]) -> Figure:
    """Test error by labelled images of a class, a panel for each record of `few-labels`, with 95 % intervals."""
    figure, axes = style.new_figure(len(found), 1, height=2.8 * len(found), squeeze=False)
    known = PIXELS, COMPONENTS, PATCHES, ATOMS, SCATTERING, DEFAULT
    for panel, record in zip(axes.flat, found, strict=True):
        ends = {}
        for errors in record.error.rename(count="size").transpose("feature_kind", ...):
            kind = errors.feature_kind.item()
            name = kind if kind in known else TUNED
            colour, dash = style.method_colour(name), "--o" if kind in (COMPONENTS, ATOMS) else "-o"
            last = draw_subsets(panel, errors, fmt=dash, color=style.COLOURS[colour], capsize=2)
            ends[name.partition(" (")[0].replace(", ", ",\n")] = *last, colour
        panel.set(xscale="log", ylabel="test error, %", title=TITLES[record.attrs["data_name"]], ylim=0)
        style.write_ticks(panel.xaxis, record["count"].values.tolist())
        style.label_ends(panel, ends, 3)
    panel.set_xlabel("labelled images of a class")
    return style.finish(figure)


def few_labels_table(record: xr.Dataset) -> pd.DataFrame:
    """Test errors in %, with 95 % intervals over the subsets, of one record of `few-labels`."""
    counts = record["count"].values
    return style.table("feature_kind", {f"{n} a class": (record.error.sel(count=n), 2, "trial") for n in counts} | {
        f"seconds, {counts.max()} a class": (record.seconds.sel(count=counts.max()).mean("trial"), 0),
    }, "features")
