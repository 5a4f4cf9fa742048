"""What longer chains change: records of caltech-readings that differ in nothing but how long their chains are.

The book's page is caltech/accuracy, "Whether longer chains help".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdd_book.experiments.caltech import PAPERS_READING, PIXELS, READINGS, WINDOWS
from gdd_book.figures import readings
from gdd_book.figures.accuracy import LAYERS, paired
from gdd_book.figures.style import COLOURS, FONT, finish, new_figure
from gdd_book.records import settings

LENGTHS = ("burn_in", "collect", "test_burn_in", "test_collect")
#: readings that have a curve, and its colour; the chain as the paper reads it first
CURVES = {
    PAPERS_READING: "orange", "chain, sample without signs": "red", "chain, how probably active": "purple",
    "alone, mean magnitude": "blue",
}  # fmt: skip


def series(found: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Most of the records that are alike but for `LENGTHS`, shortest chains first; none if no two are."""
    groups = {}
    for record in found:
        alike = {name: value for name, value in settings(record).items() if name not in LENGTHS}
        groups.setdefault(json.dumps(alike, sort_keys=True), []).append(record)
    most = max(groups.values(), key=len, default=[])
    return sorted(most, key=_sweeps) if len(most) > 1 else []


def _sweeps(record: xr.Dataset) -> tuple[int, int]:
    p = settings(record)
    return p["burn_in"] + p["collect"], p["test_burn_in"] + p["test_collect"]


def lengths(record: xr.Dataset, words: str = "; test ") -> str:
    """Sweeps of pretraining and of test time with these words between them."""
    p = settings(record)
    return f"{p['burn_in']} + {p['collect']}{words}{p['test_burn_in']} + {p['test_collect']}"


def described(group: Sequence[xr.Dataset]) -> str:
    """What the records of one series have in common."""
    p = settings(group[0])
    model = LAYERS.get(p["model"], p["model"])
    return (
        f"{model}, {group[0].sizes['class']} classes, {p['per_class']} training images of each, "
        f"{group[0].right.sizes['image']} test images; not refined; guessing: {100 / group[0].sizes['class']:.1f} %"
    )


def beside(group: Sequence[xr.Dataset]) -> list[str]:
    """Each reading of the atoms under the longest chains beside the shortest, on the same images; of two and more."""
    first, last = group[0].right, group[-1].right
    names = [name for name in READINGS if name not in WINDOWS + PIXELS]
    return [f"{name}: {paired(last.sel(reading=name).values, first.sel(reading=name).values)}" for name in names]


def beside_pictures(record: xr.Dataset) -> str:
    """The atoms alone, without signs, beside windows in their place and beside pixels, in a paragraph."""
    pairs = [("alone, mean magnitude", name) for name in WINDOWS + PIXELS]
    return "\n  ".join([lengths(record), *readings.beside(record, pairs)])


def show(group: Sequence[xr.Dataset]) -> Figure:
    """Test images right by length, with two standard errors; without marks: windows, pixels, guessing."""
    figure, axes = new_figure(height=4.4)
    places = np.arange(len(group))
    for number, (name, colour) in enumerate(CURVES.items()):
        found = [readings.shares(record).loc[name] for record in group]
        shift = 0.06 * (number - (len(CURVES) - 1) / 2)
        axes.errorbar(
            places + shift, [row.iloc[0] for row in found], yerr=[2 * row.iloc[1] for row in found], fmt="o-",
            color=COLOURS[colour], markersize=4, linewidth=1, label=name,
        )  # fmt: skip
    for number, name in enumerate(WINDOWS):
        found = [readings.shares(record).loc[name].iloc[0] for record in group]
        label = "windows alone, mean magnitude" if number == 0 else None
        axes.plot(places, found, color=COLOURS["green"], linewidth=1, label=label)
    known = readings.shares(group[0])
    for name, dashes in zip(PIXELS, ("-.", "--", ":"), strict=True):
        axes.axhline(known.loc[name].iloc[0], color=COLOURS["grey"], linestyle=dashes, linewidth=1, label=name)
    axes.axhline(100 / group[0].sizes["class"], color=COLOURS["black"], linestyle="--", linewidth=1, label="guessing")
    ticks = [lengths(record, "\ntest\n") for record in group]
    axes.set(xticks=places, xticklabels=ticks, xlabel="sweeps of pretraining, and at test time")
    axes.set(ylabel="test images right (%)", ylim=(0, None))
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=FONT - 2)
    return finish(figure)
