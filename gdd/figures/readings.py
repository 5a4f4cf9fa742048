"""Table and figure of a record of caltech-readings: what a classifier reads off the same atoms, in several ways."""

from __future__ import annotations

import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.axes import IMAGE
from gdd.experiments.caltech_readings import PIXELS, PRINTED
from gdd.figures.accuracy import paired
from gdd.figures.style import COLOURS, finish, new_figure

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


def table(record: xr.Dataset) -> pd.DataFrame:
    """`shares` to one digit."""
    return shares(record).map("{:.1f}".format)


def beside(record: xr.Dataset) -> list[str]:
    """Each of `PAIRS` on the same images, in one line."""
    right = {str(name): record.right.sel(reading=name).values for name in record.reading.values}
    return [f"{one}, beside {other}: {paired(right[one], right[other])}" for one, other in PAIRS]


def show_readings(record: xr.Dataset) -> Figure:
    """Accuracy of each reading, with two standard errors; a dashed line for guessing."""
    found = shares(record)
    figure, axes = new_figure(height=0.3 * len(found) + 0.9)
    for place, (name, row) in enumerate(found.iterrows()):
        colour = COLOURS[_COLOUR.get(name.split(",")[0], "grey")]
        axes.errorbar(row.iloc[0], place, xerr=2 * row.iloc[1], fmt="o", color=colour, markersize=5, capsize=3)
    axes.axvline(100 / record.sizes["class"], linestyle="--", color=COLOURS["grey"], linewidth=1)
    axes.set(yticks=range(len(found)), yticklabels=found.index, xlabel="test images right (%)", xlim=(0, None))
    axes.invert_yaxis()
    return finish(figure)
