"""Table and figure of records of caltech-readings: what a classifier reads off the same atoms, in several ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import IMAGE
from gdd_book.experiments.caltech import PAPERS_READING, PIXELS, WINDOWS
from gdd_book.figures.accuracy import ALL_CLASSES, paired
from gdd_book.figures.style import COLOURS, finish, new_figure
from gdd_book.records import settings

#: what is compared on the same images: a reading, and one that differs from it in one thing; at last the pixels that
#: the atoms are held against
PAIRS = (
    ("chain, sample without signs", PAPERS_READING),
    ("chain, mean magnitude", "chain, mean"),
    ("alone, mean magnitude", "alone, mean"),
    ("alone, mean", "chain, mean"),
    ("alone, mean magnitude", "chain, mean magnitude"),
    *(("alone, mean magnitude", windows) for windows in WINDOWS),
    (PIXELS[1], PIXELS[0]),
    ("alone, mean magnitude", PIXELS[1]),
)
_COLOUR = {"chain": "orange", "alone": "blue", "windows": "green"}  # by a reading's first word; grey for all others


def shares(record: xr.Dataset) -> pd.DataFrame:
    """Share of the test images that each reading gets right, and its standard error, in %; a row for each reading."""
    share = record.right.mean(IMAGE).values
    error = (share * (1 - share) / record.sizes[IMAGE]) ** 0.5
    index = pd.Index(record.reading.values, name="reading")
    return pd.DataFrame({"accuracy (%)": 100 * share, "standard error": 100 * error}, index)


def side_by_side(found: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Those of all classes and three layers that can stand in one table, fewer training images first.

    Of several with as many training images the one whose chains are longest.
    """
    best = {}
    for record in found:
        p = settings(record)
        lengths = p["test_burn_in"] + p["test_collect"], p["burn_in"] + p["collect"]
        known = best.get(p["per_class"])
        if p["n_classes"] >= ALL_CLASSES and p["model"] == "three layers" and (known is None or lengths > known[0]):
            best[p["per_class"]] = lengths, record
    return [best[count][1] for count in sorted(best)]


def named(record: xr.Dataset) -> str:
    """Which of `side_by_side` it is, in a few words: training images of each class."""
    return f"{settings(record)['per_class']} images a class"


def table(found: Sequence[xr.Dataset], title: Callable[[xr.Dataset], str] = named) -> pd.DataFrame:
    """Accuracy in % with its standard error: a row for each reading, a column for each record, so titled."""
    known = {title(one): [f"{share:.1f} ± {error:.1f}" for share, error in shares(one).values] for one in found}
    return pd.DataFrame(known, pd.Index(found[0].reading.values, name="reading"))


def beside(record: xr.Dataset, pairs: Sequence[tuple[str, str]] = PAIRS) -> list[str]:
    """The two readings of each pair on the same images, in one line."""
    right = {str(name): record.right.sel(reading=name).values for name in record.reading.values}
    return [f"{one}, beside {other}: {paired(right[one], right[other])}" for one, other in pairs]


def active_line(record: xr.Dataset) -> str:
    """How many coefficients the chain's sample of a test image has, in one line."""
    low, middle, high = np.percentile(record.active.values, [5, 50, 95])
    return (
        f"{named(record)}: the sample of a test image has {middle:.0f} active coefficients (median; nine tenths of the "
        f"images {low:.0f} to {high:.0f})"
    )


def show_readings(found: Sequence[xr.Dataset]) -> Figure:
    """Accuracy of each reading, with two standard errors, a mark for each of `side_by_side`; dashed: guessing."""
    names = found[0].reading.values
    figure, axes = new_figure(height=0.3 * len(names) + 0.9)
    for number, (record, mark) in enumerate(zip(found, "os^v"[: len(found)], strict=True)):
        shift = 0.24 * (number - (len(found) - 1) / 2)
        for place, (name, row) in enumerate(shares(record).iterrows()):
            colour = COLOURS[_COLOUR.get(name.split()[0].strip(","), "grey")]
            axes.errorbar(row.iloc[0], place + shift, xerr=2 * row.iloc[1], fmt=mark, color=colour, markersize=4)
        axes.plot([], [], mark, color=COLOURS["black"], markersize=4, label=named(record))
    axes.axvline(100 / found[0].sizes["class"], linestyle="--", color=COLOURS["grey"], linewidth=1)
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="test images right (%)", xlim=(0, None))
    axes.invert_yaxis()
    if len(found) > 1:
        axes.legend()
    return finish(figure)
