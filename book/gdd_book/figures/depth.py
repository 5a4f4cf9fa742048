"""What refinement learns, by the noise precision at which it is held: its atoms, their parts, what they predict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import ATOM, PLANE
from gdd_book.figures.model import draw_atoms, most_used
from gdd_book.figures.style import COLOURS, FONT, FULL, bare, finish, new_figure, with_error, write_ticks
from gdd_book.records import settings

HALF, SCATTERED = "half as a block", "at random"
#: lines of the second figure: error on hidden pixels, by way of hiding
HIDDEN = ((HALF, "a half hidden", "blue"), (SCATTERED, "pixels at random", "orange"))
PARTS = ((1, "one", "green"), (2, "two", "sky"), (3, "three", "purple"))
READ = (("sample", "the paper's sample", "red"), ("mean field", "mean field, largest over places", "orange"),
        ("normalised detectors", "normalised detectors", "blue"))


def used(record: xr.Dataset) -> xr.DataArray:
    """Whether an atom is used at least as often as the average one: (subset, noise, atom)."""
    return record.uses >= record.uses.mean(ATOM)


def show_depth(record: xr.Dataset, rows: int = 6) -> Figure:
    """Top atoms used most, a panel for each noise precision; the first subset."""
    first, across = most_used(record.isel(subset=0), 4 * rows), 4
    deep = -(-record.sizes["noise"] // across)
    figure, axes = new_figure(deep, across, height=deep * (FULL / across * rows / 4 + 0.4), squeeze=False)
    for panel in axes.flat:
        bare(panel)
    for panel, noise in zip(axes.flat, record.noise.values, strict=False):
        draw_atoms(panel, first.sel(noise=noise).transpose(ATOM, PLANE, ...), 4, f"{noise:g}")
    return finish(figure)


def show_curves(record: xr.Dataset) -> Figure:
    """Error on hidden pixels, what atoms are made of, error of the classifier: over the noise precision."""
    figure, axes = new_figure(3, 1, height=6.6, sharex=True)
    noise, own = record.noise.values, record.hidden_error.isel(filled_at=0).mean("hidden_image")
    for hiding, words, colour in HIDDEN:
        draw_line(axes[0], noise, own.sel(hiding=hiding), words, colour)
    plain = record.plain_error.mean(("subset", "hidden_image"))
    for way, hiding, words, colour in (("one layer", HALF, "one layer", "blue"),
                                       ("mean training digit", HALF, "mean digit", "grey"),
                                       ("one layer", SCATTERED, "one layer", "orange")):
        level = float(plain.sel(way=way, hiding=hiding))
        axes[0].axhline(level, color=COLOURS[colour], linestyle=":", linewidth=1)
        axes[0].text(noise[-1], level, words, color=COLOURS[colour], fontsize=FONT - 3, va="bottom", ha="right")
    axes[0].set(ylabel="squared error,\nhidden pixels", ylim=(0, None))
    explained = record.explained.where(used(record)).median(ATOM)
    for parts, words, colour in PARTS:
        draw_line(axes[1], noise, 100 * explained.sel(parts=parts), f"by {words}", colour)
    axes[1].set(ylabel="energy of an atom in\natoms of layer 1, %", ylim=(0, 100))
    for reading, words, colour in READ:
        draw_line(axes[2], noise, record.error.sel(reading=reading), words, colour)
    pixels = float(record.error_of_pixels.mean())
    axes[2].axhline(pixels, color=COLOURS["grey"], linestyle=":", linewidth=1)
    axes[2].text(noise[-1], pixels, "raw pixels", color=COLOURS["grey"], fontsize=FONT - 3, va="bottom", ha="right")
    axes[2].set(ylabel="error, %", xlabel="noise precision of refinement", xscale="log", ylim=(0, None))
    for panel in axes:
        panel.legend(fontsize=FONT - 3, loc="best", ncols=3 if panel is axes[1] else 1)
    write_ticks(axes[2].xaxis, noise)
    return finish(figure)


def draw_line(axes, noise: np.ndarray, values: xr.DataArray, words: str, colour: str) -> None:
    """Mean over subsets as a line, each subset as a dot."""
    axes.plot(noise, values.mean("subset"), "-", color=COLOURS[colour], label=words)
    for subset in values.subset:
        axes.plot(noise, values.sel(subset=subset), "o", markersize=3, color=COLOURS[colour])


def depth_table(record: xr.Dataset) -> pd.DataFrame:
    """What each noise precision teaches, means over subsets: fit, composition, and cost of the refinement."""
    often = used(record)
    columns = {
        "active in a digit": (record.active, 1), "residual": (record.residual, 3),
        "energy in one atom of layer 1, %": (100 * record.explained.sel(parts=1).where(often).median(ATOM), 0),
        "effective entries": (record.effective_entries.where(often).median(ATOM), 0),
        "CPU seconds": (record.cpu_seconds, 0),
    }
    means = {name: (values.mean("subset").values.round(d), d) for name, (values, d) in columns.items()}
    return _by_noise(record, {name: values if d else values.astype(int) for name, (values, d) in means.items()})


def worth_table(record: xr.Dataset) -> pd.DataFrame:
    """What it is worth: error on hidden halves, beside the chosen precision's too; on hidden pixels; of classifiers.

    Drawn digits are *told apart* from real ones in so many cases; a guess is right in half of them.
    """
    half, pixels = (record.hidden_error.isel(filled_at=0).sel(hiding=one).astype(float) for one in (HALF, SCATTERED))
    each = (half - half.sel(noise=chosen(record))).stack(digit=("subset", "hidden_image"))
    error = record.error.sel(reading="sample").mean("subset")
    return _by_noise(record, {
        "hidden half": half.mean(("subset", "hidden_image")).values.round(4),
        "more than the chosen": with_error(each, "digit", 4, "+").values,
        "hidden pixels": pixels.mean(("subset", "hidden_image")).values.round(4),
        "the paper's sample, error, %": error.values.round(1),
        "told apart, %": record.told_apart.isel(source=0).mean("subset").values.round(1),
    })


#: settings of the scan besides its noise precision, in words
VARIANTS = {
    "top_atoms": "{} top atoms", "learned_planes": "one precision for all planes",
    "empty_blocks": "blocks may be empty",
    "ladder": "reached from lower precisions",
}


def variants_table(scan: xr.Dataset, others: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Runs that differ from the scan in one setting, at its chosen precision and on the first subset of each.

    ``others`` : records of `mnist-depth`; those of the scan itself or of another scale are left out
    """
    noise, usual = chosen(scan), settings(scan)
    rows = {f"as in the scan, {usual['top_atoms']} top atoms": scan}
    for record in others:
        own = settings(record)
        changed = [name for name in VARIANTS if own[name] != usual[name]]
        if record.attrs["scale"] == "paper" and changed and noise in record.noise:
            rows[" and ".join(VARIANTS[name].format(own[name]) for name in changed)] = record
    rows = {name: record.isel(subset=0).sel(noise=noise) for name, record in rows.items()}
    half = {name: one.hidden_error.isel(filled_at=0).sel(hiding=HALF).astype(float) for name, one in rows.items()}
    base = next(iter(half.values()))
    return pd.DataFrame({name: {
        "active in a digit": f"{float(one.active):.1f}",
        "energy in one atom of layer 1, %": f"{100 * float(one.explained.sel(parts=1).where(used(one)).median()):.0f}",
        "projection error, %": f"{100 * float(one.projection_error):.0f}",
        "hidden half": f"{float(half[name].mean()):.4f}",
        "more than in the scan": with_error(half[name] - base, "hidden_image", 4, "+").item(),
        "the paper's sample, error, %": f"{float(one.error.sel(reading='sample')):.1f}",
        "normalised detectors, error, %": f"{float(one.error.sel(reading='normalised detectors')):.1f}",
        "told apart, %": f"{float(one.told_apart[0]):.0f}",
    } for name, one in rows.items()}).T


def plain_table(record: xr.Dataset) -> pd.DataFrame:
    """Squared error on the same hidden pixels by one layer and by methods that know no layers."""
    errors = record.plain_error.sel(hiding=[HALF, SCATTERED]).mean(("subset", "hidden_image")).transpose("way", ...)
    return pd.DataFrame(errors.values.round(4), index=errors.way.values, columns=["hidden half", "hidden pixels"])


def _by_noise(record: xr.Dataset, columns: dict) -> pd.DataFrame:
    return pd.DataFrame(columns, index=pd.Index(record.noise.values, name="noise precision"))


def chosen(record: xr.Dataset) -> float:
    """The noise precision that the rule of `gdd_book.experiments.studies.depth` chooses from a record."""
    half = record.hidden_error.isel(filled_at=0).sel(hiding=HALF).mean(("subset", "hidden_image"))
    return float(record.noise[int(half.argmin("noise"))])


def show_filled(record: xr.Dataset, hiding: str = HALF, digits: int = 6) -> Figure:
    """Hidden pixels of digits filled in at each noise precision, and the truth; the first subset."""
    first = record.isel(subset=0, filled_at=0).sel(hiding=hiding)
    noises = list(record.noise.values)
    figure, axes = new_figure(len(noises) + 1, digits, height=(len(noises) + 1) * FULL / (digits + 1.2) * 1.02)
    for row, noise in zip(axes, [*noises, None], strict=True):
        for number, panel in enumerate(row):
            picture = first.truth[number] if noise is None else first.filled.sel(noise=noise)[number]
            bare(panel).imshow(picture, cmap="gray", vmin=0, vmax=1)
        row[0].set_ylabel("truth" if noise is None else f"{noise:g}", rotation=0, ha="right", va="center")
    return finish(figure)


def show_depth_of_pictures(record: xr.Dataset, example: int = 1) -> Figure:
    """Atoms of layers 1 and 3 and a half-hidden picture filled in, a column for each precision; the first class."""
    first = record.isel({"class": 0})
    figure, axes = new_figure(3, record.sizes["noise"] + 1, height=FULL * 0.8)
    for panel in axes.flat:
        bare(panel)
    for column, noise in zip(axes.T, record.noise.values, strict=False):
        one = first.sel(noise=noise)
        often = np.argsort(-one.uses.values, kind="stable")[:9]
        draw_atoms(column[0], one.atoms_1.values[:9, None], 3, f"{noise:g}")
        draw_atoms(column[1], one.atoms_3.values[often, None], 3)
        column[2].imshow(one.filled[example], cmap="gray", vmin=-200, vmax=200)
    for row, words in zip(axes, ("layer 1", "layer 3", "filled in"), strict=True):
        row[0].set_ylabel(words, fontsize=FONT - 2)
    axes[2, -1].imshow(first.truth[example], cmap="gray", vmin=-200, vmax=200)
    axes[2, -1].set_title("truth", fontsize=FONT - 1)
    return finish(figure)


def pictures_table(record: xr.Dataset) -> pd.DataFrame:
    """Fit, projection and squared error on hidden halves of pictures, by noise precision; the first class."""
    first = record.isel({"class": 0})
    return _by_noise(record, {
        "active in a picture": first.active.values.round(1), "residual": first.residual.values.round(3),
        "winning share, %": (100 * first.winning_share.values).round(1),
        "hidden half": with_error(first.hidden_error, "hidden_image", 3).values,
    })


def control_table(record: xr.Dataset) -> pd.DataFrame:
    """Of the positive control: error of the classifier by reading, and how well planted atoms came back, by stage."""
    columns = {}
    for where in record.positions.values:
        one = record.sel(positions=where)
        for reading in record.reading.values:
            columns[where, f"{reading}, error, %"] = one.error.sel(reading=reading).values.round(1)
        columns[where, "correlation of atoms"] = one.correlation.mean(ATOM).values.round(2)
    table = pd.DataFrame(columns, index=record.stage.values)
    table.columns.names = ["positions in a block", ""]
    return table
