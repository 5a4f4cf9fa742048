"""Figures and tables of the chapter on Caltech accuracy: records in, a figure or a table out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from scipy.stats import binomtest

from gdd.base.axes import IMAGE
from gdd_book.experiments.caltech import ONE_DECONVOLUTION
from gdd_book.figures.style import COLOURS, finish, new_figure
from gdd_book.records import settings
from gdd_book.training import MODELS, REFINEMENT

#: classes without the background; a record of fewer is no row of the paper's table
ALL_CLASSES = 101
NO_RECORD = "no record of all classes"
WORDS = {"left out": "no background", "counted as wrong": "with background"}
LAYERS = {"two layers": "2 layers", "three layers": "3 layers"}


def table_two(paper: pd.DataFrame, found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Accuracy in % by training images per class: the paper's rows, then ours, or words where there is none.

    Ours are of records with all classes: over images, background left out, the feature of highest likelihood; with a
    standard error where there are several splits.
    """
    rows = [
        {"method": " ".join(filter(None, (row.method, text(row.detail)))), 15: f"{row.train_15:g}",
         30: f"{row.train_30:g}"}
        for row in paper.itertuples()
    ]  # fmt: skip
    for model, words in LAYERS.items():
        for stage in ("pretrained", "refined"):
            row = {"method": f"ours, {words}, {stage}"}
            for per_class in (15, 30):
                kind = f"{stage}, ml_sample"
                cell = cell_of([one for one in found if kind in one.feature_kind], model, per_class)
                row[per_class] = NO_RECORD if cell is None else mean_and_error(cell.sel(feature_kind=kind))
            rows.append(row)
    return pd.DataFrame(rows).set_index("method")


def cell_of(found: Sequence[xr.Dataset], model: str, per_class: int) -> xr.DataArray | None:
    """Accuracy of all classes with this model and so many training images of each, or None if no record has it.

    Of several records the one pretrained longest; of those the one with most features. Others that may stand beside it
    add splits that are not there yet; where they lack a feature it is NaN.
    """

    def key(record: xr.Dataset) -> tuple[int, int]:
        p = settings(record)
        return p["burn_in"] + p["collect"], record.sizes["feature_kind"]

    whole = [one for one in found if settings(one)["n_classes"] >= ALL_CLASSES]
    own = [one for one in whole if (settings(one)["model"], settings(one)["per_class"]) == (model, per_class)]
    if not own:
        return None
    chosen, *others = sorted(own, key=key, reverse=True)
    parts, seeds = [chosen.accuracy], {*settings(chosen)["seeds"]}
    for other in others:
        new = [i for i, seed in enumerate(settings(other)["seeds"]) if seed not in seeds]
        if new and can_join(other, chosen):
            parts.append(other.accuracy.isel(split=new).reindex(feature_kind=chosen.feature_kind))
            seeds.update(settings(other)["seeds"])
    return xr.concat(parts, "split")


def can_join(candidate: xr.Dataset, chosen: xr.Dataset) -> bool:
    """Whether both were made alike, splits apart; one that is not refined may stand beside one that is."""
    free = {"seeds"} if settings(candidate)["refined"] else {"seeds", "refined", *REFINEMENT, "voters"}
    one, other = ({name: p[name] for name in p.keys() - free} for p in map(settings, (candidate, chosen)))
    return one == other


def every_feature(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Accuracy in % over images, background left out: a row for each feature, a column for each cell of the table.

    Columns are those of which there is a record with all classes.
    """
    columns = {}
    for (model, words), per_class in product(LAYERS.items(), (15, 30)):
        if (cell := cell_of(found, model, per_class)) is not None:
            known = {str(kind): mean_and_error(cell.sel(feature_kind=kind)) for kind in cell.feature_kind.values}
            columns[words, f"{per_class} images"] = known
    if not columns:
        return pd.DataFrame({"accuracy": [NO_RECORD]})
    table = pd.DataFrame(columns).rename_axis("feature")
    most = max(columns.values(), key=len)  # its features stand in the order of the experiment
    return table.reindex([*most, *(kind for kind in table.index if kind not in most)]).fillna("not run")


def size_of(record: xr.Dataset) -> tuple[int, int, int, int]:
    """Classes, stages, training images a class and layers of a record; the largest is the one to show."""
    p = settings(record)
    return record.sizes["class"], record.sizes["stage"], p["per_class"], len(MODELS[p["model"]].layers)


def text(value) -> str:
    """Text of a cell, nothing for one that is missing."""
    return value if isinstance(value, str) else ""


def mean_and_error(accuracy: xr.DataArray, count: str = "over images", background: str = "left out") -> str:
    """Mean over the splits that have this feature, its standard error, their number; of one split the value alone."""
    values = accuracy.sel(count=count, background=background).dropna("split").values
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{values.mean():.1f} ± {values.std(ddof=1) / len(values) ** 0.5:.1f} ({len(values)} splits)"


def feature_table(record: xr.Dataset) -> pd.DataFrame:
    """Accuracy in % of every feature of one record, counted in four ways."""
    columns = {
        (str(count), WORDS[str(background)]): [
            mean_and_error(record.accuracy.sel(feature_kind=kind), count, background)
            for kind in record.feature_kind.values
        ]
        for count in record["count"].values
        for background in record.background.values
    }
    return pd.DataFrame(columns, pd.Index(record.feature_kind.values, name="feature"))


def refinement_gains(record: xr.Dataset) -> str:
    """What refinement changes in the mean accuracy over classes, in points, with its standard error.

    The error is that over classes of the change of each, so that only what differs on the same images counts.
    """
    own, said = record.class_accuracy.mean("split"), []
    for kind in (str(name).removeprefix("refined, ") for name in own.feature_kind.values if "refined, " in str(name)):
        change = (own.sel(feature_kind=f"refined, {kind}") - own.sel(feature_kind=f"pretrained, {kind}")).values
        said.append(f"{kind} {change.mean():+.1f} ± {change.std(ddof=1) / len(change) ** 0.5:.1f}")
    return "; ".join(said)


def beside_pixels(record: xr.Dataset) -> str:
    """Verdict on the model's features beside raw pixels on the same images; alike within two standard errors.

    The errors are those of two shares of the test images of all splits, taken as independent.
    """
    share = record.accuracy.sel(count="over images", background="left out").mean("split").to_series()
    pixels, images = share["raw pixels"], float(record.n_test_images.sum())
    said = []
    for kind in share.index[: list(share.index).index("raw pixels")]:
        chance = 2 * ((share[kind] * (100 - share[kind]) + pixels * (100 - pixels)) / images) ** 0.5
        gain = share[kind] - pixels
        words = "like" if abs(gain) < chance else "better than" if gain > 0 else "worse than"
        said.append(f"{kind} {words} raw pixels ({share[kind]:.1f} % and {pixels:.1f} %)")
    return "; ".join(said)


def described(record: xr.Dataset) -> str:
    """What a record was made from, and how long its chains were, in one line."""
    p = settings(record)
    lengths = [f"pretraining {p['burn_in']} + {p['collect']}"]
    if p["refined"]:
        lengths.append(f"refinement {p['refine_burn_in']} + {p['refine_collect']}")
    lengths.append(f"test {p['test_burn_in']} + {p['test_collect']} sweeps")
    tested = ", ".join(str(number) for number in np.unique(record.n_test_images))
    model, classes = LAYERS.get(p["model"], p["model"]), record.sizes["class"]
    return (
        f"{model}, {classes} classes, {p['per_class']} training images of each, {tested} test images, split by seed "
        f"{', '.join(map(str, p['seeds']))}; {', '.join(lengths)}"
    )


def even_shares(record: xr.Dataset) -> str:
    """Part of a block's weight at any one position, were it spread evenly, for each pooled layer."""
    pools = [layer.pool for layer in MODELS[settings(record)["model"]].layers if layer.pool is not None]
    return ", ".join(f"1/{rows * cols}" for rows, cols in pools)


def show_features(record: xr.Dataset) -> Figure:
    """Accuracy of every feature: a dot for each class, a bar for their mean, a dashed line for guessing."""
    kinds = record.feature_kind.values
    figure, axes = new_figure(height=0.36 * len(kinds) + 0.9)
    for place, kind in enumerate(kinds):
        each = record.class_accuracy.sel(feature_kind=kind).mean("split").values
        spread = 0.25 * np.linspace(-1, 1, len(each))
        axes.plot(each, place + spread, ".", color=COLOURS["grey"], markersize=4)
        axes.plot([each.mean()] * 2, [place - 0.35, place + 0.35], color=COLOURS["blue"], linewidth=2.5)
    axes.axvline(100 / record.sizes["class"], linestyle="--", color=COLOURS["grey"], linewidth=1)
    axes.set(yticks=range(len(kinds)), yticklabels=kinds, xlabel="accuracy on a class (%)", xlim=(-2, 102))
    axes.invert_yaxis()
    return finish(figure)


def layerwise_table(record: xr.Dataset) -> pd.DataFrame:
    """Accuracy in % of a record of caltech-layerwise: each way with its two readings; the baselines in a column."""
    columns = {"highest-likelihood sample": "ml_sample", "posterior mean": "mean"}
    share = 100 * record.right.mean(IMAGE)
    table = pd.DataFrame(
        {title: [f"{value:.1f}" for value in share.sel(feature_kind=kind).values] for title, kind in columns.items()},
        record.way.values,
    )
    table.insert(0, "numbers an image", [f"{count:,}" for count in record.n_features.values])
    table["needs no model"] = ""
    for name, value in zip(record.baseline.values, record.baseline_accuracy.values, strict=True):
        table.loc[name] = ["", "", "", f"{value:.1f}"]
    return table


def beside_one_deconvolution(record: xr.Dataset) -> list[str]:
    """Each way of a record of caltech-layerwise beside one deconvolution on the same images, by the paper's feature."""
    right = record.right.sel(feature_kind="ml_sample")
    one = right.sel(way=ONE_DECONVOLUTION).values
    others = right.way.values[right.way.values != ONE_DECONVOLUTION]
    return [f"{way}, beside one deconvolution: {paired(right.sel(way=way).values, one)}" for way in others]


def paired(one: np.ndarray, other: np.ndarray) -> str:
    """How two classifiers that got these images right, (image,) each, differ, in words.

    The probability is that of so uneven a split of the images that only one of the two gets right, were both as good
    (McNemar's exact test); nothing is done about there being several comparisons.
    """
    gained, lost = int((one & ~other).sum()), int((other & ~one).sum())
    chance = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    return (
        f"{gained} images of {len(one)} right that the other has wrong, {lost} the other way round; "
        f"were both as good, so uneven a split would come up with probability {chance:.2g}"
    )


def time_line(record: xr.Dataset) -> str:
    """What a test image costs, of a record of caltech-testing, in one sentence."""
    p, seconds = settings(record), record.cpu_seconds.values
    sweeps = f"{p['test_burn_in']} + {p['test_collect']} sweeps"
    return (
        f"{int(record.n_atoms)} atoms at {int(record.n_positions)} positions, {sweeps}, {len(seconds)} test images: "
        f"median {np.median(seconds):.2f} CPU seconds an image, {seconds.min():.2f} to {seconds.max():.2f}, with "
        f"{record.active.values.mean():.0f} coefficients active on "
        f"average; once for all images {float(record.gram_cpu_seconds):.0f} seconds and "
        f"{float(record.gram_bytes) / 1e6:.0f} MB for the products of atoms"
    )


def show_time(record: xr.Dataset, printed: float) -> Figure:
    """CPU seconds of every test image of a record of caltech-testing against its active coefficients.

    ``printed`` : the paper's seconds, a dashed line
    """
    figure, axes = new_figure(height=2.8)
    axes.plot(record.active.values, record.cpu_seconds.values, "o", color=COLOURS["blue"], markersize=4)
    axes.axhline(printed, linestyle="--", color=COLOURS["grey"], linewidth=1)
    axes.set(xlabel="active coefficients", ylabel="CPU seconds", xlim=(0, None), ylim=(0, None))
    return finish(figure)
