"""What refinement learns, by the noise precision at which it is held: its atoms, their parts, what they predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdd.base.axes import ATOM, PLANE
from gdd_book.evaluate.statistics import mean_and_interval
from gdd_book.figures import style
from gdd_book.figures.mnist import reading_words
from gdd_book.figures.model import draw_atoms, show_grids
from gdd_book.records import settings

PRECISION, HALF, SCATTERED = "noise precision", "half as a block", "at random"
READ = (("sample", "the paper's sample", "red"), ("normalised detectors", "normalised detectors", "blue"))


def used(record: xr.Dataset) -> xr.DataArray:
    """Whether an atom is used at least as often as the average one: (subset, noise, atom)."""
    return record.uses >= record.uses.mean(ATOM)


def at_its_own(filled: xr.DataArray) -> xr.DataArray:
    """Filled in at the noise precision of the refinement, the only one; older records have an axis for it."""
    return filled.isel(filled_at=0, missing_dims="ignore")


def show_depth(record: xr.Dataset) -> Figure:
    """Top atoms used most, a panel for each noise precision; the first subset."""
    first = record.most_used.isel(subset=0, shown=slice(24)).transpose("noise", "shown", PLANE, ...)
    return show_grids([(f"{atoms.noise:g}", atoms, 4) for atoms in first], 4, 0.4)


def show_curves(record: xr.Dataset) -> Figure:
    """Error on hidden pixels, what atoms are made of, error of the classifier: over the noise precision."""
    figure, axes = style.new_figure(3, 1, height=6.6, sharex=True)
    noise, own = record.noise.values, at_its_own(record.hidden_error).mean("hidden_image")
    for hiding, words, colour in ((HALF, "a half hidden", "blue"), (SCATTERED, "pixels at random", "orange")):
        style.draw_mean_and_dots(axes[0], noise, own.sel(hiding=hiding), words, colour)
    plain = record.plain_error.mean(("subset", "hidden_image"))
    for way, hiding, words, colour in (("one layer", HALF, "one layer", "blue"),
                                       ("mean training digit", HALF, "mean digit", "grey"),
                                       ("one layer", SCATTERED, "one layer", "orange")):
        draw_level(axes[0], noise, plain.sel(way=way, hiding=hiding), words, colour)
    axes[0].set(ylabel="squared error,\nhidden pixels", ylim=(0, None))
    explained = record.explained.where(used(record)).median(ATOM)
    for parts, words, colour in ((1, "by one", "green"), (2, "by two", "sky"), (3, "by three", "purple")):
        style.draw_mean_and_dots(axes[1], noise, 100 * explained.sel(parts=parts), words, colour)
    axes[1].set(ylabel="energy of an atom in\natoms of layer 1, %", ylim=(0, 100))
    for reading, words, colour in READ:
        style.draw_mean_and_dots(axes[2], noise, record.error.sel(reading=reading), words, colour)
    draw_level(axes[2], noise, record.error_of_pixels.mean(), "raw pixels", "grey")
    axes[2].set(ylabel="error, %", xlabel="noise precision of refinement", xscale="log", ylim=(0, None))
    for panel in axes:
        panel.legend(fontsize=style.FONT - 3, loc="best", ncols=3 if panel is axes[1] else 1)
    style.write_ticks(axes[2].xaxis, noise)
    return style.finish(figure)


def draw_level(axes: Axes, noise: np.ndarray, level: xr.DataArray, words: str, colour: str) -> None:
    """What does not depend on the noise precision: a dotted line, with words at its end."""
    axes.axhline(level, color=style.COLOURS[colour], linestyle=":", linewidth=1)
    axes.text(noise[-1], level, words, color=style.INK[colour], fontsize=style.FONT - 3, va="bottom", ha="right")


def depth_table(record: xr.Dataset) -> pd.DataFrame:
    """What each noise precision teaches, means over subsets: fit, composition, and cost of the refinement."""
    of_atoms = record[["explained", "effective_entries"]].where(used(record)).median(ATOM)
    found = record[["active", "residual", "cpu_seconds"]].merge(of_atoms).mean("subset")
    return style.table("noise", {
        "active in a digit": (found.active, 1), "residual": (found.residual, 3),
        "energy in one atom of layer 1, %": (100 * found.explained.sel(parts=1), 0),
        "effective entries": (found.effective_entries, 0), "CPU seconds": (found.cpu_seconds, 0),
    }, PRECISION)


def worth_table(record: xr.Dataset) -> pd.DataFrame:
    """What it is worth: error on hidden halves, beside the chosen precision's too; on hidden pixels; of classifiers.

    *Real or generated* is the accuracy of a classifier that separates drawn from real digits; a guess is right in half.
    """
    errors = at_its_own(record.hidden_error).astype(float).stack(digit=("subset", "hidden_image"))
    half, pixels = (errors.sel(hiding=one) for one in (HALF, SCATTERED))
    return style.table("noise", {
        "hidden half": (half.mean("digit"), 4),
        "more than the chosen": (half - half.sel(noise=chosen(record)), 4, "digit", "+"),
        "hidden pixels": (pixels.mean("digit"), 4),
        "the paper's sample, error, %": (record.error.sel(reading="sample").mean("subset"), 1),
        "real or generated, %": (record.told_apart.isel(source=0).mean("subset"), 1),
    }, PRECISION)


#: classes of Caltech 101 in words
CLASS_WORDS = {"Faces_easy": "faces"}
#: of a run, what differs from the scan, in words; runs from before a setting was there have the scan's
VARIANTS = {
    ("learned_planes", False): "one precision for all planes", ("two_steps", True): "blocks in two steps",
    ("empty_blocks", True): "blocks may be empty", ("random_start", True): "pretraining from random atoms",
    ("first_noise", 0.5): "noise precision 0.5, 1, 2", ("first_noise", 44.0): "noise precision 44, 9.4, 2",
}


def variants(scan: xr.Dataset, others: Sequence[xr.Dataset]) -> xr.Dataset:
    """The scan and runs that differ from it in one setting, by name along ``run``, at the chosen precision.

    Where a run has fewer subsets than the scan the others are NaN.

    ``others`` : records of `mnist-depth`; those of other scales and precisions are left out
    """
    noise, runs = chosen(scan), {}
    for record in (*others, scan):
        if record.attrs["scale"] == "paper" and noise in record.noise:
            own = settings(record)
            words = [VARIANTS[pair] for pair in VARIANTS if pair in own.items()]
            kind = (len(words), own["top_atoms"], ", ".join(words) or f"{own['top_atoms']} top atoms")
            runs.setdefault(kind, {}).update(record.sel(noise=noise).groupby("subset", squeeze=False))
    parts = [xr.concat([_described(one) for _, one in sorted(runs[kind].items())], "subset") for kind in sorted(runs)]
    found = xr.concat(parts, "run", join="outer").assign_coords(run=[name for *_, name in sorted(runs)])
    return found.assign_attrs(scan=f"{settings(scan)['top_atoms']} top atoms")


def variants_table(found: xr.Dataset) -> pd.DataFrame:
    """What `variants` differ in, a row each: of the first subset, then differences from the scan, of all subsets."""
    more, first = found - found.sel(run=found.attrs["scan"]), found.isel(subset=0)
    sample = {"reading": "sample"}
    return style.table("run", {
        "active in a digit": (first.active, 1), "energy in one atom of layer 1, %": (100 * first.explained, 0),
        "projection loses, %": (100 * first.lost, 0), "hidden half": (first.half.mean("hidden_image"), 4),
        "the paper's sample, error, %": (first.error.sel(sample), 1),
        "normalised detectors, error, %": (first.error.sel(reading="normalised detectors"), 1),
        "subsets": (found.active.count("subset"), 0),
        "hidden half, more than in the scan": (more.half.stack(digit=("subset", "hidden_image")), 4, "digit", "+"),
        "the sample's error, more than in the scan": (more.error.sel(sample), 1, "subset", "+"),
    }, index=found.run.values)


def _described(one: xr.Dataset) -> xr.Dataset:
    """Of refined models, what does not depend on their number of atoms."""
    return xr.Dataset({
        "active": one.active, "explained": one.explained.sel(parts=1).where(used(one)).median(ATOM),
        "half": at_its_own(one.hidden_error).sel(hiding=HALF, drop=True).astype(float), "error": one.error,
        "error_of_pixels": one.error_of_pixels, "lost": one.projection_error,
        "most_used": one.most_used.isel({PLANE: 0, "shown": slice(12)}),
    })


def show_variants(found: xr.Dataset) -> Figure:
    """Top atoms used most, a row for each of `variants`; the first subset."""
    pictures = found.most_used.isel(subset=0)
    figure, axes = style.new_panels(len(pictures), pictures.sizes["shown"], 0.33 * len(pictures) + 0.2)
    for row, atoms, name in zip(axes, pictures.values, found.run.values, strict=True):
        for panel, atom in zip(row, atoms, strict=True):
            style.draw_picture(panel, atom, ends=(-100, 100))
        row[0].set_ylabel(name, fontsize=style.FONT - 3, rotation=0, ha="right", va="center")
    return style.finish(figure)


def show_every_error(found: xr.Dataset, readings: xr.Dataset, printed: float) -> Figure:
    """Error of the classifier: above, other ways to learn; below, other ways to code.

    found : of `variants`
    readings : record of `mnist-readings`, whose refined atoms are shown; ``printed`` : the paper's error
    """
    names = found.run.values
    counts = len(names), readings.sizes["reading"]
    figure, (above, below) = style.new_figure(2, 1, height=0.25 * sum(counts) + 1.7, sharex=True, height_ratios=counts)
    for reading, words, colour in READ:
        first, *more = found.error.sel(reading=reading).transpose("subset", "run").values
        above.plot(first, len(names) - 1 - np.arange(len(first)), "o", color=style.COLOURS[colour], label=words)
        for error in more:
            above.plot(error, len(names) - 1 - np.arange(len(error)), "o", color=style.COLOURS[colour], markersize=3)
    mean, half = mean_and_interval(readings.error.sel(stage="refined"), "subset")
    below.errorbar(mean, np.arange(counts[1])[::-1], xerr=half.fillna(0), fmt="s", markersize=4, capsize=2,
                   color=style.COLOURS["black"], label="as the row says")
    for axes, one, words in ((above, found.isel(subset=0), names), (below, readings, reading_words(readings))):
        style.name_rows(axes, words[::-1], "error, %", smaller=4)
        style.show_value(axes, float(one.error_of_pixels.mean()), "raw pixels", len(words) - 0.5)
        style.show_value(axes, printed, "the paper" if axes is below else "", len(words) - 1.7)
        axes.label_outer()
    style.legend_outside(figure)
    return style.finish(figure)


def plain_table(record: xr.Dataset) -> pd.DataFrame:
    """Squared error on the same hidden pixels by one layer and by methods that know no layers."""
    errors = record.plain_error.mean(("subset", "hidden_image"))
    words = {HALF: "hidden half", SCATTERED: "hidden pixels"}
    return style.table("way", {name: (errors.sel(hiding=hiding), 4) for hiding, name in words.items()})


def chosen(record: xr.Dataset) -> float:
    """The noise precision that the rule of `gdd_book.experiments.studies.depth` chooses from a record."""
    half = at_its_own(record.hidden_error).sel(hiding=HALF).mean(("subset", "hidden_image"))
    return float(record.noise[int(half.argmin("noise"))])


def show_filled(record: xr.Dataset, hiding: str = HALF, digits: int = 6) -> Figure:
    """Hidden pixels of digits filled in at each noise precision, and the truth; the first subset."""
    first = record.isel(subset=0).sel(hiding=hiding)
    rows = {f"{noise:g}": at_its_own(first.filled).sel(noise=noise) for noise in record.noise.values}
    rows["truth"] = first.truth
    figure, axes = style.new_panels(len(rows), digits, len(rows) * style.FULL / (digits + 1.2) * 1.02)
    for row, (words, pictures) in zip(axes, rows.items(), strict=True):
        for panel, picture in zip(row, pictures, strict=False):
            style.draw_picture(panel, picture, ends=(0, 1))
        row[0].set_ylabel(words, rotation=0, ha="right", va="center")
    return style.finish(figure)


def over_precisions(records: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
    """Records of pictures at several noise precisions: by class, its precisions as one, the lowest first."""
    found: dict[str, list] = {}
    for record in records:
        for name in record["class"].values:
            found.setdefault(CLASS_WORDS.get(name, name), []).append(record.sel({"class": [name]}))
    return {name: xr.concat(parts, "noise", data_vars="minimal", coords="minimal", compat="override").sortby("noise")
            for name, parts in found.items()}


def show_depth_of_pictures(record: xr.Dataset) -> Figure:
    """Atoms of layers 1 and 3 and a half-hidden picture filled in, a column for each precision; the first class."""
    first, ends, example = record.isel({"class": 0}), (-200, 200), 1
    figure, axes = style.new_panels(3, record.sizes["noise"] + 1, style.FULL * 0.8)
    for column, noise in zip(axes.T, record.noise.values, strict=False):
        one = first.sel(noise=noise)
        often = np.argsort(-one.uses.values, kind="stable")[:9]
        draw_atoms(column[0], one.atoms_1.values[:9, None], 3, f"{noise:g}")
        draw_atoms(column[1], one.atoms_3.values[often, None], 3)
        style.draw_picture(column[2], one.filled[example], ends=ends)
    for row, words in zip(axes, ("layer 1", "layer 3", "filled in"), strict=True):
        row[0].set_ylabel(words, fontsize=style.FONT - 2)
    style.draw_picture(axes[2, -1], first.truth[example], "truth", ends)
    return style.finish(figure)


def pictures_table(found: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Fit, projection and squared error on hidden halves of pictures, by class and noise precision."""
    parts = {}
    for name, record in found.items():
        first = record.isel({"class": 0})
        blank = first.plain_error.sel(way="left blank")
        parts[name] = style.table("noise", {
            "active in a picture": (first.active, 1), "residual": (first.residual, 3),
            "winning share, %": (100 * first.winning_share, 1), "hidden half": (first.hidden_error, 3, "hidden_image"),
            "left blank": (blank.mean("hidden_image"), 3),
            "more than blank": (first.hidden_error - blank, 3, "hidden_image", "+"),
        }, PRECISION)
    return pd.concat(parts)


def control_table(record: xr.Dataset) -> pd.DataFrame:
    """Of the positive control: error of the classifier by reading, and how well planted atoms came back, by stage."""
    columns = {f"{reading}, error, %": (record.error.sel(reading=reading), 1) for reading in record.reading.values}
    columns |= {"correlation of atoms": (record.correlation.mean(ATOM), 2)}
    return style.table("stage", style.at_each("positions", columns)).rename_axis(["positions in a block", ""], axis=1)
