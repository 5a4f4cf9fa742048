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
    figure, axes = style.new_figure(1, len(found), height=3.4, squeeze=False)
    known = PIXELS, COMPONENTS, PATCHES, ATOMS, SCATTERING, DEFAULT
    for panel, record in zip(axes.flat, found, strict=True):
        for errors in record.error.rename(count="size").transpose("feature_kind", ...):
            kind = errors.feature_kind.item()
            name = kind if kind in known else TUNED
            look = {"color": style.COLOURS[style.method_colour(name)], "capsize": 2, "label": name}
            draw_subsets(panel, errors, fmt="--o" if kind in (COMPONENTS, ATOMS) else "-o", **look)
        panel.set(xscale="log", xlabel="labelled images of a class", title=TITLES[record.attrs["data_name"]], ylim=0)
        style.write_ticks(panel.xaxis, record["count"].values.tolist())
    axes.flat[0].set_ylabel("test error, %")
    style.legend_outside(figure, "lower center", handles=axes.flat[0].get_legend_handles_labels()[0])
    return style.finish(figure)


def few_labels_table(record: xr.Dataset) -> pd.DataFrame:
    """Test errors in %, with 95 % intervals over the subsets, of one record of `few-labels`."""
    counts = record["count"].values
    return style.table("feature_kind", {f"{n} a class": (record.error.sel(count=n), 2, "trial") for n in counts} | {
        f"seconds, {counts.max()} a class": (record.seconds.sel(count=counts.max()).mean("trial"), 0),
    }, "features")
