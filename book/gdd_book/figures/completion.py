"""Figures and tables of the chapters on interpolation, generated digits and layer-by-layer inference."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdd.base.axes import IMAGE
from gdd_book.figures.dictionaries import atom_mosaic
from gdd_book.figures.style import COLOURS, FONT, FULL, bare, finish, new_figure

#: differences of two means below this many standard errors are called none
CHANCE = 2.0
GUESSING = 50.0  # % on the right side


def show_filled(
    found: xr.Dataset, hiding: str, methods: Sequence[str], digits: int = 8, word: str = "digit",
    ends: tuple[float, float] = (1, 0),
) -> Figure:  # fmt: skip
    """Test images side by side: as seen, as each method fills them in, and whole. Seen pixels are put back.

    Hidden pixels of the first row are light blue. ``ends``: pixels that are shown black and white; ``word``: what the
    images show.
    """
    one = found.sel(hiding=hiding)
    mask, truth = one.mask.values[:digits].astype(bool), found.truth.values[:digits]
    rows = {name: np.where(mask, truth, one.filled.sel(way=name).values[:digits]) for name in methods}
    rows = {"what is seen": np.where(mask, truth, np.nan)} | rows | {f"the whole {word}": truth}
    label = 1.35  # inches on the left
    figure, axes = new_figure(len(rows), 1, height=len(rows) * ((FULL - label) / len(truth) + 0.03) + 0.05)
    for panel, (name, pictures) in zip(axes, rows.items(), strict=True):
        _strip(panel, pictures, name, ends)
    return finish(figure)


def _strip(panel: Axes, pictures: np.ndarray, name: str, ends: tuple[float, float]) -> None:
    """Pictures (image, row, col) in one row; NaN is light blue."""
    bare(panel).set_facecolor("#CFE3F2")
    scale = {"cmap": "gray" if ends[0] < ends[1] else "gray_r", "vmin": min(ends), "vmax": max(ends)}
    panel.imshow(np.concatenate(list(pictures), axis=1), **scale)
    panel.set_ylabel(fill(name, 12), rotation=0, ha="right", va="center", fontsize=FONT - 1)
    for border in range(1, len(pictures)):
        panel.axvline(border * pictures.shape[2] - 0.5, color=COLOURS["grey"], linewidth=0.5)


def filled_table(found: xr.Dataset) -> pd.DataFrame:
    """Mean squared error on hidden pixels, with its standard error, by method and by what was hidden.

    Beside it, where the experiment has a classifier, the share in % of filled-in images that it gets wrong.
    """
    mean = found.hidden_error.mean(IMAGE)
    spread = found.hidden_error.std(IMAGE, ddof=1) / found.sizes[IMAGE] ** 0.5
    columns = {}
    for hiding in found.hiding.values:
        pairs = zip(mean.sel(hiding=hiding).values, spread.sel(hiding=hiding).values, strict=True)
        columns[hiding, "squared error"] = [f"{m:.4f} ± {s:.4f}" for m, s in pairs]
        if "wrong" in found:
            columns[hiding, "classified wrongly, %"] = found.wrong.sel(hiding=hiding).values.round(1)
    table = pd.DataFrame(columns, found.way.values)
    table.columns.names = ["hidden", ""]
    return table


def better_filled(found: xr.Dataset, hiding: str, one: str, other: str) -> str:
    """Say whether one method fills in better than another, from the differences in squared error digit by digit."""
    errors = found.hidden_error.sel(hiding=hiding)
    difference = (errors.sel(way=one) - errors.sel(way=other)).values.astype(float)
    distance = difference.mean() / (difference.std(ddof=1) / np.sqrt(len(difference)))
    ratio = float(errors.sel(way=one).mean() / errors.sel(way=other).mean())
    says = "as good as" if abs(distance) < CHANCE else "better than" if distance < 0 else "worse than"
    return f"{hiding}: '{one}' is {says} '{other}' ({ratio:.2f} of its error, {abs(distance):.1f} standard errors)"


def show_generated(found: xr.Dataset, model: str, count: int = 20, across: int = 10) -> Figure:
    """Pictures of every source of one model of `gdd_book.experiments.images.mnist_generated`, real digits below.

    All on one grey scale: 0 or less is white, 1 or more is black.
    """
    chosen = [kind for kind in range(found.sizes["kind"]) if found.model.values[kind] in (model, "real digits")]
    rows = count // across
    each = FULL * rows / across + 0.3
    figure, axes = new_figure(len(chosen), 1, height=len(chosen) * each)
    for panel, kind in zip(axes, chosen, strict=True):
        mosaic = atom_mosaic(found.pictures.values[kind, :count, None], across)
        bare(panel).imshow(mosaic, cmap="gray_r", vmin=0, vmax=1)
        panel.set_title(str(found.source.values[kind]), fontsize=FONT - 1)
    return finish(figure)


def generated_table(found: xr.Dataset) -> pd.DataFrame:
    """Results of `gdd_book.experiments.images.mnist_generated`, a row for each model and source."""
    rows = pd.MultiIndex.from_arrays([found.model.values, found.source.values], names=["model", "drawn from"])
    spread = found.nearest.std(IMAGE, ddof=1) / found.sizes[IMAGE] ** 0.5
    pairs = zip(found.nearest.mean(IMAGE).values, spread.values, strict=True)
    return pd.DataFrame({
        "told from real digits, %": found.told_apart.values.round(1),
        "distance to nearest training digit": [f"{m:.3f} ± {s:.3f}" for m, s in pairs],
        "rms of a pixel": found.rms.values.round(3),
        "energy below zero": found.negative.values.round(3),
    }, rows)  # fmt: skip


def told_apart(found: xr.Dataset) -> list[str]:
    """One sentence for each model and source: whether a classifier tells its pictures from real digits."""
    held = found.sizes[IMAGE]  # half of the pictures and as many real digits
    chance, said = CHANCE * 100 * np.sqrt(0.25 / held), []
    rows = zip(found.model.values, found.source.values, found.told_apart.values, strict=True)
    for model, source, right in rows:
        says = "cannot be told from real digits" if right < GUESSING + chance else "are told from real digits"
        if model != "real digits":
            said.append(f"{model}, {source}: {says} ({right:.0f} % right)")
    return said


def layerwise_table(found: xr.Dataset) -> pd.DataFrame:
    """Test error in % of every way of `gdd_book.experiments.mnist.mnist_layerwise`, by model and kind of feature."""
    table = found.error.stack(column=("model", "feature_kind")).to_pandas().round(2)
    words = {"ml_sample": "best sample", "mean": "posterior mean"}
    pairs = [(model, words[kind]) for model, kind in table.columns]
    table.columns = pd.MultiIndex.from_tuples(pairs, names=["dictionaries", "feature"])
    return table


def as_well(found: xr.Dataset, tested: int, one: str, other: str) -> list[str]:
    """Say for each model and feature whether one way classifies as well as another.

    As well: less than `CHANCE` standard errors apart, the two error rates over ``tested`` digits taken as independent.
    """
    said = []
    for model in found.model.values:
        for kind in found.feature_kind.values:
            a, b = (float(found.error.sel(model=model, feature_kind=kind, way=way)) for way in (one, other))
            chance = CHANCE * np.sqrt((a * (100 - a) + b * (100 - b)) / tested)
            says = "as well as" if abs(a - b) < chance else "better than" if a < b else "worse than"
            said.append(f"{model}, {kind}: '{one}' does {says} '{other}' ({a:.2f} % and {b:.2f} %)")
    return said
