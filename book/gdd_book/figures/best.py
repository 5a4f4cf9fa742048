"""The chapter on the best honest use: records of `mnist-best` and `mnist-ablation` in, figures and tables out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd_book.experiments.mnist_features import KINDS
from gdd_book.figures.curves import NO_RECORD, curves, draw_subsets, finish_curve, mean_and_error, said, subset_table
from gdd_book.figures.style import COLOURS, CYCLE, FONT, bare, finish, new_figure
from gdd_book.records import settings

ONE_STEP, REDUCED = KINDS[0], KINDS[2]
#: in the name of a feature that was not judged on all test digits
FEWER = "test digits"


def best_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Test error in %: a row for each number of training digits, a column for each feature, ours first; (subsets)."""
    return subset_table(found, KINDS)


def kept_lines(found: Sequence[xr.Dataset]) -> list[str]:
    """Where the classifier saw only leading principal components of a feature: how much of its variance they have."""
    lines = []
    for record in found:
        shares = record.energy_kept.mean("trial").to_series().dropna() if "energy_kept" in record else {}
        for (size, kind), share in shares.items():
            if share < 1 and kind != REDUCED:
                lines.append(f"{size} digits, {kind}: {100 * share:.1f} % of the variance")
    return lines


def choice_table(record: xr.Dataset) -> pd.DataFrame:
    """Cross-validation error in % of every candidate of a `mnist-best` record, and which was taken."""
    mean, spread = mean_and_error(record.choice, "subset")
    chosen = np.arange(record.sizes["candidate"]) == int(record.chosen)
    return pd.DataFrame({
        "margin": record.margin.values,
        "cross-validation error, %": [said(*pair) for pair in zip(mean.values, spread.values, strict=True)],
        "": np.where(chosen, "taken", ""),
    })  # fmt: skip


def show_best_curve(paper: pd.DataFrame, protocol: Sequence[xr.Dataset], found: Sequence[xr.Dataset]) -> Figure:
    """Test error against the number of training digits, with standard errors.

    Parameters
    ----------
    paper : the paper's table of errors
    protocol : records of `mnist-error`, our run of the paper's protocol; drawn are those of paper scale and a healthy
        noise precision
    found : records of `mnist-best`
    """
    figure, axes = new_figure(height=4.4)
    row = paper[paper.ours].sort_values("n_train")
    axes.plot(row.n_train, row.error, "k-s", markersize=4, label="the paper, refined")
    full = [r for r in protocol if r.attrs["scale"] == "paper" and settings(r)["noise_precision"] > 0]
    usual = sorted(full, key=lambda r: settings(r)["n_train"])
    points = [(settings(r)["n_train"], float(r.error.sel(feature_kind="ml_sample"))) for r in usual]
    axes.plot(*np.reshape(points, (-1, 2)).T, "o", color=COLOURS["red"], label="its protocol, ours, pretrained")
    colours = (CYCLE[0], COLOURS["grey"], CYCLE[4], CYCLE[2], CYCLE[1])
    for colour, (kind, sizes) in zip(colours, curves(found, KINDS).items(), strict=False):
        draw_subsets(axes, sizes, color=colour, label=kind)
    return finish_curve(figure, axes)


def show_ablation(record: xr.Dataset | None) -> Figure:
    """Every row of a `mnist-ablation` record as a point with its standard error; the line is the paper's protocol.

    Without a record the figure says so.
    """
    if record is None:
        figure, axes = new_figure(height=0.6)
        bare(axes).text(0.5, 0.5, NO_RECORD, ha="center", va="center")
        return finish(figure)
    mean, spread = mean_and_error(record.error, "subset")
    places = np.arange(record.sizes["row"])[::-1]
    figure, axes = new_figure(height=0.29 * len(places) + 0.7)
    axes.axvline(float(mean[0]), color=COLOURS["grey"], linewidth=0.8, linestyle="--")
    factors = list(dict.fromkeys(record.factor.values))
    for number, factor in enumerate(factors):
        of = record.factor.values == factor
        axes.errorbar(
            mean[of], places[of], xerr=spread[of].fillna(0), fmt="o", markersize=5, capsize=2,
            color=CYCLE[number % len(CYCLE)],
        )  # fmt: skip
    words = [
        setting if factor in ("the paper's protocol", "no model") else f"{factor}: {setting}"
        for factor, setting in zip(record.factor.values, record.setting.values, strict=True)
    ]
    axes.set(yticks=places, xlabel="test error, %", xlim=(0, None))
    axes.set_yticklabels([word.replace(": ", ":\n") if len(word) > 34 else word for word in words], fontsize=FONT - 3)
    axes.grid(axis="x", color=COLOURS["grey"], alpha=0.25)
    return finish(figure)


def ablation_table(record: xr.Dataset) -> pd.DataFrame:
    """Mean test error in % of every row of a `mnist-ablation` record, and its paired difference from the protocol."""
    mean, spread = mean_and_error(record.error, "subset")
    gain, doubt = mean_and_error(record.error - record.error.isel(row=0), "subset")
    index = pd.MultiIndex.from_arrays([record.factor.values, record.setting.values], names=["changed", "into"])
    gains = [said(*pair, sign="+") for pair in zip(gain.values[1:], doubt.values[1:], strict=True)]
    errors = [said(*pair) for pair in zip(mean.values, spread.values, strict=True)]
    return pd.DataFrame({"test error, %": errors, "beside the protocol": ["", *gains]}, index)


def conclusion(paper: pd.DataFrame, found: Sequence[xr.Dataset], ablations: Sequence[xr.Dataset]) -> list[str]:
    """What the records say, in three sentences at most."""
    sentences = []
    if ablations:
        mean, _ = mean_and_error(ablations[-1].error, "subset")
        wheres = [str(words) for words in mean.setting.values]
        first, several, plain, steps, pixels = (
            float(mean[wheres.index(name)])
            for name in (
                "highest-likelihood sample", "mean of their means", "correlations with the same atoms",
                "one-step features", "raw pixels",
            )
        )  # fmt: skip
        sentences.append(
            f"Our short run of the paper's protocol, not refined, gives {first:.1f} %, its mean over several chains "
            f"{several:.1f} %, and the same atoms with nothing explained away {plain:.1f} %, beside {pixels:.1f} % for "
            f"raw pixels and {steps:.1f} % for the one-step features of layer 1."
        )
    if found:
        means = {kind: {n: e.mean() for n, e in sizes.items()} for kind, sizes in curves(found, KINDS).items()}
        ours = means.pop(ONE_STEP)
        shown = ", ".join(f"{error:.2f} % at {size} digits" for size, error in ours.items())
        alike = {kind: known for kind, known in means.items() if FEWER not in kind}
        better = [kind for kind, known in alike.items() if all(ours[n] < e for n, e in known.items() if n in ours)]
        sentences.append(
            f"Used as well as we know how, layer 1 gives {shown}; wherever both were run on the same test digits its "
            f"mean error is lower than with: {_listed(better)}."
        )
        gaps = {(e - ours[n], n, kind) for kind, known in alike.items() for n, e in known.items() if n in ours}
        if gaps:
            _, size, kind = min(gaps)
            sentences[-1] += f" The closest is {kind} at {size} digits: {alike[kind][size]:.2f} %."
        printed = paper[paper.ours].set_index("n_train").error
        reached = [f"{size}" for size, error in ours.items() if size in printed and error <= printed[size]]
        sentences.append(f"Sizes at which the paper's own number is reached: {_listed(reached)}.")
    return sentences


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) or "none"
