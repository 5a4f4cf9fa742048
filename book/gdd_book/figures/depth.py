"""What refinement learns, by the noise precision at which it is held: its atoms, their parts, what they predict."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import ATOM, PLANE
from gdd_book.figures import style
from gdd_book.figures.model import draw_atoms, show_grids
from gdd_book.records import settings

HALF, SCATTERED = "half as a block", "at random"
READ = (("sample", "ML sample", "red"), ("normalised detectors", "normalised\ndetectors", "green"))


def used(record: xr.Dataset) -> xr.DataArray:
    """Whether an atom is used at least as often as the average one: (subset, noise, atom)."""
    return record.uses >= record.uses.mean(ATOM)


def at_its_own(filled: xr.DataArray) -> xr.DataArray:
    """Filled in at the noise precision of the refinement, the only one; older records have an axis for it."""
    return filled.isel(filled_at=0, missing_dims="ignore")


def show_depth(record: xr.Dataset) -> Figure:
    """Top atoms used most, a panel for each noise precision; the first subset."""
    first = record.most_used.isel(subset=0, shown=slice(24)).transpose("noise", "shown", PLANE, ...)
    titles = style.noise_words(record.noise.values)
    return show_grids([(title, atoms, 4) for title, atoms in zip(titles, first, strict=True)], 4, 0.4)


def show_curves(record: xr.Dataset) -> Figure:
    """Error on hidden pixels, what atoms are made of, error of the classifier, over the noise; dots are subsets."""
    figure, axes = style.new_figure(3, 1, height=6.6, sharex=True)
    hidden = at_its_own(record.hidden_error).mean("hidden_image")
    plain = record.plain_error.mean(("subset", "hidden_image"))
    explained = 100 * record.explained.where(used(record)).median(ATOM)
    lines = [
        [(hidden.sel(hiding=HALF), "half hidden", "blue"), (hidden.sel(hiding=SCATTERED), "scattered pixels", "purple"),
         (plain.sel(way="one layer", hiding=HALF), "half, one layer", "blue"),
         (plain.sel(way="mean training digit", hiding=HALF), "half, mean digit", "grey"),
         (plain.sel(way="one layer", hiding=SCATTERED), "scattered, one layer", "purple")],
        [(explained.sel(parts=n), f"{words} placed", "blue") for n, words in enumerate(("one", "two", "three"), 1)],
        [(record.error.sel(reading=reading), words, colour) for reading, words, colour in READ]
        + [(record.error_of_pixels.mean(), "raw pixels", "grey")],
    ]
    labels = "squared error,\nhidden pixels", "energy of an atom in\natoms of layer 1, %", "error, %"
    axes[2].set(xlabel="noise, standard deviation", xscale="log")
    style.write_ticks(axes[2].xaxis, (0.1, 0.2, 0.5, 1))
    deviation = record.noise.values**-0.5
    for panel, some, label, top in zip(axes, lines, labels, (None, 100, None), strict=True):
        for values, _, colour in some:
            if values.ndim:
                style.draw_mean_and_dots(panel, deviation, values, colour)
            else:
                panel.axhline(values, color=style.COLOURS[colour], linestyle=":", linewidth=1)
        panel.set(ylabel=label, ylim=(0, top))
    last = axes[2].get_xlim()[1]
    for panel, some in zip(axes, lines, strict=True):
        style.label_ends(panel, {
            words: (deviation[0], float(values.mean("subset")[0]), colour) if values.ndim else
            (last, float(values), colour) for values, words, colour in some}, 3)
    return style.finish(figure)


def depth_table(record: xr.Dataset) -> pd.DataFrame:
    """What each noise precision teaches, means over subsets: fit, composition, and cost of the refinement."""
    of_atoms = record[["explained", "effective_entries"]].where(used(record)).median(ATOM)
    found = record[["active", "residual", "cpu_seconds"]].merge(of_atoms).mean("subset")
    return style.table("noise", {
        "active in a digit": (found.active, 1), "residual": (found.residual, 3),
        "energy in one atom of layer 1, %": (100 * found.explained.sel(parts=1), 0),
        "effective entries": (found.effective_entries, 0), "CPU seconds": (found.cpu_seconds, 0),
    }, style.NOISE, style.noise_words(found.noise.values))


def worth_table(record: xr.Dataset) -> pd.DataFrame:
    """Errors on hidden halves, beside the chosen precision's too, on hidden pixels, of classifiers."""
    errors = at_its_own(record.hidden_error).astype(float).stack(digit=("subset", "hidden_image"))
    half, pixels = (errors.sel(hiding=one) for one in (HALF, SCATTERED))
    return style.table("noise", {
        "hidden half": (half.mean("digit"), 4),
        "more than the chosen": (half - half.sel(noise=chosen(record)), 4, "digit", "+"),
        "hidden pixels": (pixels.mean("digit"), 4),
        "ML sample, error, %": (record.error.sel(reading="sample").mean("subset"), 1),
        "real or generated, %": (record.told_apart.isel(source=0).mean("subset"), 1),
    }, style.NOISE, style.noise_words(record.noise.values))


#: classes of Caltech 101 in words
CLASS_WORDS = {"Faces_easy": "faces"}
#: of a run, what differs from the scan, in words; runs from before a setting was there have the scan's
VARIANTS = {
    ("learned_planes", False): "one precision for all planes", ("two_steps", True): "blocks in two steps",
    ("empty_blocks", True): "blocks may be empty", ("random_start", True): "pretraining from random atoms",
    ("first_noise", 0.5): "noise s.d. 1.4, 1, 0.71", ("first_noise", 44.0): "noise s.d. 0.15, 0.33, 0.71",
}


def variants(scan: xr.Dataset, others: Sequence[xr.Dataset]) -> xr.Dataset:
    """Runs of `mnist-depth` that differ from the scan in one setting, along ``run``, at the chosen precision."""
    noise, runs = chosen(scan), {}
    for record in (*others, scan):
        if record.attrs["scale"] == "paper" and noise in record.noise:
            own = settings(record)
            words = [VARIANTS[pair] for pair in VARIANTS if pair in own.items()]
            kind = (len(words), own["top_atoms"], ", ".join(words) or f"{own['top_atoms']} top atoms")
            runs.setdefault(kind, {}).update(record.sel(noise=noise).groupby("subset", squeeze=False))
    parts = [xr.concat([_described(one) for _, one in sorted(runs[kind].items())], "subset") for kind in sorted(runs)]
    found = xr.concat(parts, "run", join="outer").assign_coords(run=[name for *_, name in sorted(runs)])
    found = found.assign(error_of_pixels=scan.error_of_pixels)
    return found.assign_attrs(scan=f"{settings(scan)['top_atoms']} top atoms")


def variants_table(found: xr.Dataset) -> pd.DataFrame:
    """What `variants` differ in, a row each: of the first subset, then differences from the scan, of all subsets."""
    more, first = found - found.sel(run=found.attrs["scan"]), found.isel(subset=0)
    sample = {"reading": "sample"}
    return style.table("run", {
        "active in a digit": (first.active, 1), "energy in one atom of layer 1, %": (100 * first.explained, 0),
        "projection loses, %": (100 * first.lost, 0), "hidden half": (first.half.mean("hidden_image"), 4),
        "ML sample, error, %": (first.error.sel(sample), 1),
        "normalised detectors, error, %": (first.error.sel(reading="normalised detectors"), 1),
        "subsets": (found.active.count("subset"), 0),
        "hidden half, more than in the scan": (more.half.stack(digit=("subset", "hidden_image")), 4, "digit", "+"),
        "ML sample's error, more than in the scan": (more.error.sel(sample), 1, "subset", "+"),
    }, index=found.run.values)


def _described(one: xr.Dataset) -> xr.Dataset:
    """Of refined models, what does not depend on their number of atoms."""
    return xr.Dataset({
        "active": one.active, "explained": one.explained.sel(parts=1).where(used(one)).median(ATOM),
        "half": at_its_own(one.hidden_error).sel(hiding=HALF, drop=True).astype(float), "error": one.error,
        "lost": one.projection_error,
        "most_used": one.most_used.isel({PLANE: 0, "shown": slice(12)}),
    })


def by_ratio(record: xr.Dataset) -> xr.Dataset:
    """Models of `mnist-weights`, by the precision of the weights over that of the noise along ``run``.

    A record of several noise precisions: the lowest, that of the scan.
    """
    one = record.sel(noise=record.noise.min())
    names = ["as elsewhere" if ratio == 0 else f"{ratio:g}" for ratio in one.ratio.values]
    found = xr.merge([_described(one), one[["learned_ratio", "error_at_test"]]])
    return found.rename(ratio="run").assign_coords(run=names).transpose("run", "subset", ...)


def ratio_table(found: xr.Dataset) -> pd.DataFrame:
    """What comes of each ratio of `by_ratio`, means over subsets."""
    mean = found.mean("subset")
    return style.table("run", {
        "ρ learned": (mean.learned_ratio, 3), "active in a digit": (mean.active, 1),
        "energy in one atom of layer 1, %": (100 * mean.explained, 0), "projection loses, %": (100 * mean.lost, 0),
        "hidden half": (mean.half.mean("hidden_image"), 4),
        "ML sample, error, %": (mean.error.sel(reading="sample"), 1),
        "the same at the test precisions chosen": (mean.error_at_test.sel(feature_kind="ml_sample"), 1),
        "normalised detectors": (mean.error.sel(reading="normalised detectors"), 1),
    }, "γw / γe", found.run.values)


def show_variants(found: xr.Dataset) -> Figure:
    """Top atoms used most, a row for each of `variants` or `by_ratio`; the first subset."""
    pictures = found.most_used.isel(subset=0)
    rows = dict(zip(found.run.values, pictures.values, strict=True))
    return style.show_rows(rows, 0.33 * len(pictures) + 0.2, (-100, 100), 3)


def show_every_error(found: xr.Dataset, paper: float) -> Figure:
    """Error of the classifier in each of `variants`, the first subset large, beside the ``paper``'s."""
    names = found.run.values
    figure, axes = style.new_figure(height=0.29 * len(names) + 1.2)
    for reading, words, colour in READ:
        for number, error in enumerate(found.error.sel(reading=reading).transpose("subset", "run").values):
            axes.plot(error, np.arange(len(names))[::-1], "o", color=style.COLOURS[colour],
                      markersize=3 if number else 6, label=None if number else words.replace("\n", " "))
    style.name_rows(axes, names[::-1], "error, %")
    style.show_value(axes, float(found.error_of_pixels.isel(subset=0).mean()), "raw pixels", len(names) - 0.4)
    style.show_value(axes, paper, "paper", len(names) - 0.4)
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
    """Hidden pixels of digits filled in at each standard deviation of the noise, and the truth; the first subset."""
    first = record.isel(subset=0).sel(hiding=hiding)
    rows = {f"{noise**-0.5:.2g}": at_its_own(first.filled).sel(noise=noise)[:digits] for noise in record.noise.values}
    rows["truth"] = first.truth[:digits]
    return style.show_rows(rows, len(rows) * style.FULL / (digits + 1.2) * 1.02, (0, 1))


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
        draw_atoms(column[0], one.atoms_1.values[:9, None], 3, *style.noise_words([noise]))
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
        }, style.NOISE, style.noise_words(record.noise.values))
    return pd.concat(parts)


def control_table(record: xr.Dataset) -> pd.DataFrame:
    """Of the positive control: error of the classifier by reading, and how well planted atoms came back, by stage."""
    columns = {f"{reading}, error, %": (record.error.sel(reading=reading), 1) for reading in record.reading.values}
    columns |= {"correlation of atoms": (record.correlation.mean(ATOM), 2)}
    return style.table("stage", style.at_each("positions", columns)).rename_axis(["positions in a block", ""], axis=1)


# ---- atoms from more digits
def learned_from_errors(record: xr.Dataset) -> pd.DataFrame:
    """Test error in % of `mnist-more-digits` by feature and labels, a row for each number of digits and stage."""
    words = {"ml_sample": "ML sample", "normalised detectors": "largest correlation"}
    columns = {(words[kind], f"{size:,} labels"): (record.error.sel(feature_kind=kind, size=size), 2, "trial")
               for kind in words for size in record["size"].values}
    found = style.table(("learned_from", "stage"), columns, ("digits learned from", "stage"))
    return found.loc[[(n, stage) for stage in record.stage.values for n in record.learned_from.values]]


def learned_from_worth(record: xr.Dataset) -> pd.DataFrame:
    """What refinement made of so many digits: squared error on hidden pixels, the change, what the projection loses."""
    errors = record.hidden_error.astype(float)
    change = (errors - errors.isel(learned_from=0)).isel(learned_from=slice(1, None))
    plain = record.plain_error.sel(hiding=HALF).astype(float)
    mean = plain.sel(way="mean training digit")
    return style.table("learned_from", {
        "hidden half": (errors.sel(hiding=HALF), 4, "hidden_image"),
        "more than with the fewest": (change.sel(hiding=HALF), 4, "hidden_image", "+"),
        "mean training digit": (mean.mean("hidden_image"), 4),
        "more than by the mean": (errors.sel(hiding=HALF) - mean, 4, "hidden_image", "+"),
        "principal components": (plain.sel(way="principal components").mean("hidden_image"), 4),
        "hidden pixels": (errors.sel(hiding=SCATTERED), 4, "hidden_image"),
        "projection loses, %": (100 * record.projection_error, 0), "CPU minutes": (record.cpu_seconds / 60, 0),
    }, "digits learned from")


def show_learned_from(record: xr.Dataset) -> Figure:
    """Refined top atoms used most, a row for each number of digits that they were learned from."""
    rows = {f"{n:,}\ndigits": atoms[:12, 0] for n, atoms in zip(record.learned_from.values, record.most_used.values,
                                                               strict=True)}
    return style.show_rows(rows, 0.45 * len(rows) + 0.2, (-100, 100), 3)
