"""Figures and tables of `gdd.OneStepFeatures` beside simple features."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd_book.experiments.studies.one_step import ATOMS, COMPONENTS, DEFAULT, PATCHES, PIXELS, SCATTERING
from gdd_book.figures.mnist import draw_subsets
from gdd_book.figures.style import COLOURS, CYCLE, finish, legend_outside, new_figure, table, with_interval, write_ticks

TITLES = {"digits": "digits, 28 × 28", "textures": "patches of ten pictures"}
TUNED = "preset"  # each set has its own


def show_few_labels(found: Sequence[xr.Dataset]) -> Figure:
    """Test error by labelled images of a class, a panel for each record of `few-labels`, with 95 % intervals."""
    figure, axes = new_figure(1, len(found), height=3.4, squeeze=False)
    colours = {
        PIXELS: COLOURS["grey"], COMPONENTS: CYCLE[4], PATCHES: CYCLE[2], ATOMS: CYCLE[1], SCATTERING: CYCLE[3],
        DEFAULT: CYCLE[0], TUNED: CYCLE[5],
    }
    for panel, record in zip(axes.flat, found, strict=True):
        for errors in record.error.rename(count="size").transpose("feature_kind", ...):
            kind = errors.feature_kind.item()
            name = kind if kind in colours else TUNED
            draw_subsets(panel, errors, capsize=2, color=colours[name], label=name)
        panel.set(xscale="log", xlabel="labelled images of a class", title=TITLES[record.attrs["data_name"]], ylim=0)
        write_ticks(panel.xaxis, record["count"].values.tolist())
    axes.flat[0].set_ylabel("test error, %")
    legend_outside(figure, "lower center", handles=axes.flat[0].get_legend_handles_labels()[0])
    return finish(figure)


def few_labels_table(record: xr.Dataset) -> pd.DataFrame:
    """Test errors in %, with 95 % intervals over the subsets, of one record of `few-labels`."""
    counts = record["count"].values
    return table("feature_kind", {f"{n} a class": (record.error.sel(count=n), 2, "trial") for n in counts} | {
        f"seconds, {counts.max()} a class": (record.seconds.sel(count=counts.max()).mean("trial"), 0),
    }, "features")


def settings_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Errors in % on held-out training images, with 95 % intervals; a column for each `few-labels-settings` record."""
    columns = {
        TITLES[record.attrs["data_name"]]: with_interval(record.error, "trial", 1).to_series() for record in found
    }
    table = pd.DataFrame(columns).reset_index()
    for axis in ("local_contrast", "whitening"):
        table[axis] = table[axis].map({0: "no", 1: "yes"})
    names = {"local_contrast": "contrast normalised", "whitening": "whitened"}
    return table.rename(columns=names).set_index(["regions", "whitened", "contrast normalised"]).sort_index()


def cost_table(record: xr.Dataset) -> pd.DataFrame:
    """What a `one-step-cost` record says."""
    return table("feature_kind", {
        "test error, %": (record.error,), "ms an image": (record.milliseconds,), "learning, s": (record.learning, 0),
        "numbers": (record.numbers, ","),
    }, "features")


def seeds_table(record: xr.Dataset) -> pd.DataFrame:
    """Correlation of features at two seeds, by sweeps (rows) and averaged chains, from a `chain-seeds` record."""
    return table("sweeps", {
        f"{count} chain{'s' if count > 1 else ''}": (record.correlation.sel(chains=count),)
        for count in record.chains.values
    } | {"ms an image and chain": (record.milliseconds, 0)}, "sweeps")
