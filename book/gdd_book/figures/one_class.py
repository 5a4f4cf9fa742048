"""Figures and tables of runs of caltech-class: what a class costs, and what refinement makes of its dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, cycle
from math import prod

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import DICTIONARY, IMAGE, GddError
from gdd.evaluate.atoms import gradient_kurtosis, high_frequency_share
from gdd_book import records
from gdd_book.experiments.caltech_class import NAME, PARAMETERS
from gdd_book.figures.dictionaries import atom_mosaic
from gdd_book.figures.style import CYCLE, FONT, FULL, bare, finish, new_figure
from gdd_book.records import settings
from gdd_book.training.caltech import MODELS, STAGES
from gdd_book.training.dictionaries import LAYER, match_layers, reaches_of

#: percentile of an atom's magnitudes at which a picture is black or white
SHOWN = 99.5


def at_length(scale: str) -> list[xr.Dataset]:
    """Records of this scale that differ from the paper's settings in the class and the seed alone, by class; one each.

    Of several seeds of a class the lowest counts.
    """
    paper = PARAMETERS["paper"]
    fixed = {name: value for name, value in paper.items() if name not in ("classes", "seed")}
    found = {}
    for record in records.every(NAME):
        p = settings(record)
        same = record.attrs["scale"] == scale and all(p[name] == value for name, value in fixed.items())
        older = found.get(class_of(record))
        if same and len(p["classes"]) == 1 and (older is None or p["seed"] < settings(older)["seed"]):
            found[class_of(record)] = record
    return [found[name] for name in sorted(found)]


def class_of(record: xr.Dataset) -> str:
    """Name of the class, or of the classes taken together, as a person writes it."""
    return ", ".join(settings(record)["classes"]).replace("_", " ")


def cost_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """CPU minutes of every part of the runs, a column for each class; beside them milliseconds for an image and sweep.

    Parameters
    ----------
    found : records of runs with the same parts; the last column is the mean over them
    """
    minutes = pd.DataFrame({class_of(one): one.cpu_seconds.to_series() / 60 for one in found}, found[0].part.values)
    minutes.loc["in all"] = minutes.sum()
    table = minutes.map("{:.1f}".format)
    image_sweeps = np.array([one.sweeps.values * one.sizes[IMAGE] for one in found])
    seconds = np.array([one.cpu_seconds.values for one in found])
    each = np.divide(1000 * seconds, image_sweeps, out=np.zeros(seconds.shape), where=image_sweeps > 0).mean(axis=0)
    table["ms per image and sweep"] = [f"{value:.2f}" if value else "" for value in each] + [""]
    table.insert(0, "sweeps", [str(count or "") for count in found[0].sweeps.values] + [""])
    return table


def projection_line(record: xr.Dataset) -> str:
    """How far the refined class's images are from what its projected atoms make of the same coefficients."""
    error = record.projection_error.values
    return (
        f"{class_of(record)}: its error has {error.mean():.2f} ± {error.std(ddof=1) / len(error) ** 0.5:.2f} of an "
        f"image's energy, {len(error)} training images"
    )


def atoms_of(record: xr.Dataset, stage: str) -> list[xr.DataArray]:
    """Dictionaries of one stage in the image plane, bottom layer first, each (atom, plane, atom_row, atom_col)."""
    names = sorted(name for name in record.data_vars if str(name).startswith("atoms_"))
    if not names:
        raise GddError("record: no atoms_1; a record of caltech-class is needed")
    return [xr.DataArray(record[name].sel(stage=stage).values[:, None] / 100, dims=DICTIONARY) for name in names]


def show_stages(record: xr.Dataset) -> Figure:
    """Dictionaries in the image plane: a row for each layer, a column for each stage; zero is mid grey.

    Black and white begin at the `SHOWN`th percentile of an atom's magnitudes: a few strong pixels would grey the rest.
    """
    columns = [atoms_of(record, stage) for stage in record.stage.values]
    across = [min(4, len(atoms)) for atoms in columns[0]]
    tall = [-(-len(atoms) // wide) / wide for atoms, wide in zip(columns[0], across, strict=True)]
    height = sum(tall) * FULL / len(columns) + 0.25 * len(tall)
    figure, axes = new_figure(len(tall), len(columns), height=height, height_ratios=tall, squeeze=False)
    for panels, stage, layers in zip(axes.T, record.stage.values, columns, strict=True):
        for number, (panel, atoms, wide) in enumerate(zip(panels, layers, across, strict=True), 1):
            white = np.percentile(np.abs(atoms.values), SHOWN, axis=(1, 2, 3), keepdims=True).clip(1e-12)
            bare(panel).imshow(atom_mosaic(atoms.values / white, wide), cmap="gray", vmin=-1, vmax=1)
            panel.set_title(f"layer {number}, {stage}", fontsize=FONT - 1)
    return finish(figure)


def sharpness_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Median sharpness over the atoms of every layer, before and after refinement; a column pair for each class."""
    measures = {"high-frequency share": (high_frequency_share, "{:.3f}"), "kurtosis": (gradient_kurtosis, "{:.1f}")}
    columns = {}
    for record in found:
        for stage in STAGES:
            layers = list(enumerate(atoms_of(record, stage), 1))
            columns[class_of(record), stage] = {
                (words, number): text.format(float(measure(atoms).median()))
                for words, (measure, text) in measures.items() for number, atoms in layers
            }  # fmt: skip
    table = pd.DataFrame(columns)
    table.index.names = ["", LAYER]
    return table


def alike_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Median correlation of matched atoms of two classes, over all pairs of the records; by layer and stage."""
    reaches = reaches_of(MODELS[settings(found[0])["model"]])
    columns = {}
    for stage in STAGES:
        stacks = [atoms_of(record, stage) for record in found]
        pairs = xr.concat([match_layers(b, a, reaches) for a, b in combinations(stacks, 2)], "pair")
        columns[stage] = pairs.groupby(LAYER).median(...).to_series().map("{:.2f}".format)
    return pd.DataFrame(columns)


def show_traces(found: Sequence[xr.Dataset]) -> Figure:
    """Log joint of every sweep of refinement less that of the last, in thousands; a line for each class.

    Left of the grey line is burn-in. The first sweeps, far below the rest, are cut off.
    """
    figure, axes = new_figure(height=2.6)
    lowest = 0.0
    for record, colour in zip(found, cycle(CYCLE), strict=False):
        trace = (record.log_joint.values - record.log_joint.values[-1]) / 1000
        axes.plot(np.arange(1, len(trace) + 1), trace, color=colour, linewidth=1, label=class_of(record))
        lowest = min(lowest, trace[len(trace) // 20])
    axes.axvline(settings(found[0])["refine_burn_in"], color="grey", linewidth=1)
    axes.set(xlabel="sweep of refinement", ylabel="log joint (thousands)", ylim=(lowest, None))
    axes.legend(loc="lower right")
    return finish(figure)


def rise_line(record: xr.Dataset) -> str:
    """How far the log joint rose over the kept sweeps of refinement, beside its spread about a straight line there.

    With it, how many top coefficients are active on an image, before and after.
    """
    p = settings(record)
    kept = record.log_joint.values[p["refine_burn_in"] :]
    sweeps = np.arange(len(kept))
    slope, level = np.polyfit(sweeps, kept, 1)
    spread = (kept - slope * sweeps - level).std()
    return (
        f"{class_of(record)}: over the {len(kept)} kept sweeps the log joint rose by {slope * len(kept):,.0f}, "
        f"{slope * len(kept) / spread:.1f} times its spread about that line; top coefficients active on an image "
        f"{record.pre_active.values[-1, -1]:.0f} in pretraining's last sweep, {record.active.values[0]:.0f} in "
        f"refinement's first, {record.active.values[-1]:.0f} in its last"
    )


def winning_line(record: xr.Dataset) -> str:
    """Share of the weight at the positions that the projection chose, refined, beside chance, by pooled layer."""
    layers = MODELS[settings(record)["model"]].layers
    shares = record.winning_share.sel(stage="refined").values
    said = [f"{100 * share:.0f} % in layer {number} (by chance {100 / prod(layer.pool):.0f} %)"
            for number, (share, layer) in enumerate(zip(shares, layers, strict=False), 1)]  # fmt: skip
    return f"{class_of(record)}: {', '.join(said)}"
