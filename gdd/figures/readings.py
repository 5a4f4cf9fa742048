"""Table and figure of records of caltech-readings: what a classifier reads off the same atoms, in several ways."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.axes import IMAGE
from gdd.experiments.caltech_readings import PIXELS, PRINTED
from gdd.figures.accuracy import paired
from gdd.figures.style import COLOURS, finish, new_figure
from gdd.records import settings

#: what is compared on the same images: a reading, and another that differs from it in one thing
PAIRS = (
    ("chain, sample without signs", PRINTED),
    ("chain, mean magnitude", "chain, sample without signs"),
    ("alone, mean magnitude", "chain, mean magnitude"),
    ("alone, mean magnitude", "windows of images alone, mean magnitude"),
    ("alone, mean magnitude", PIXELS),
)
_COLOUR = {"chain": "orange", "alone": "blue"}  # by the first word of a reading; grey for all others


def shares(record: xr.Dataset) -> pd.DataFrame:
    """Share of the test images that each reading gets right, and its standard error, in %; a row for each reading."""
    share = record.right.mean(IMAGE).values
    error = (share * (1 - share) / record.sizes[IMAGE]) ** 0.5
    index = pd.Index(record.reading.values, name="reading")
    return pd.DataFrame({"accuracy (%)": 100 * share, "standard error": 100 * error}, index)


def named(record: xr.Dataset) -> str:
    """Which record it is, in a few words: training images of each class."""
    return f"{settings(record)['per_class']} images a class"


def table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Accuracy in % with its standard error: a row for each reading, a column for each record."""
    known = {named(one): [f"{share:.1f} ± {error:.1f}" for share, error in shares(one).values] for one in found}
    return pd.DataFrame(known, pd.Index(found[0].reading.values, name="reading"))


def beside(record: xr.Dataset) -> list[str]:
    """Each of `PAIRS` on the same images, in one line."""
    right = {str(name): record.right.sel(reading=name).values for name in record.reading.values}
    return [f"{one}, beside {other}: {paired(right[one], right[other])}" for one, other in PAIRS]


def show_readings(found: Sequence[xr.Dataset]) -> Figure:
    """Accuracy of each reading, with two standard errors, a mark for each record; a dashed line for guessing."""
    figure, axes = new_figure(height=0.3 * found[0].sizes["reading"] + 0.9)
    for record, mark, shift in zip(found, "os^", (-0.12, 0.12, 0.0), strict=False):
        for place, (name, row) in enumerate(shares(record).iterrows()):
            colour = COLOURS[_COLOUR.get(name.split(",")[0], "grey")]
            axes.errorbar(row.iloc[0], place + shift, xerr=2 * row.iloc[1], fmt=mark, color=colour, markersize=4)
        axes.plot([], [], mark, color=COLOURS["black"], markersize=4, label=named(record))
    axes.axvline(100 / found[0].sizes["class"], linestyle="--", color=COLOURS["grey"], linewidth=1)
    names = found[0].reading.values
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="test images right (%)", xlim=(0, None))
    axes.invert_yaxis()
    axes.legend()
    return finish(figure)
