"""The paper's code by the precisions of noise and weights at test: its error, and what kind of a code it is."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import IMAGE
from gdd_book.evaluate.statistics import compare_paired, share_and_interval
from gdd_book.experiments.studies.caltech_precisions import READINGS, SETTINGS
from gdd_book.experiments.studies.precisions import AT_TEST, ATOMS, CHOSEN
from gdd_book.figures import style
from gdd_book.records import settings

SAMPLE = "ml_sample"
#: features of `mnist-labels` that are compared between kinds of atoms
FEATURES = {SAMPLE: "ML sample", "mean": "mean", "ridge regression": "ridge regression",
            "normalised detectors": "largest correlation"}
RATIO = r"ratio of weights' to noise precision, $\rho$"
#: what a code is like, each as a panel: variable, words, times what
PANELS = (
    ("cross_validation", "error, %", 1), ("active", "active\ncoefficients", 1),
    ("taken", "energy of one\ncoefficient, %", 100), ("jaccard", "shared by\ntwo chains, %", 100),
    ("detected", "found by\ndetectors, %", 100),
)
#: noise precisions of the lines
LINES = ((44.0, "purple"), (1000.0, "blue"), (10000.0, "green"))
#: the same for Caltech's, from the lowest, and words for what is read of a code there
CALTECH_COLOURS = ("orange", "purple", "blue", "green", "red", "black")
READING_WORDS = dict(zip(READINGS, ("ML sample", "mean of the chain", "magnitudes of the ML sample"), strict=True))


def together(found: Sequence[xr.Dataset]) -> xr.Dataset:
    """Records of `mnist-precisions` of several subsets as one; NaN where a subset lacks a kind of atoms."""
    return xr.concat(found, "subset", join="outer", combine_attrs="override").sel(atoms=list(ATOMS)).sortby("subset")


def chosen(record: xr.Dataset) -> pd.DataFrame:
    """Cross-validation error in %, mean over subsets: at the chosen precisions, and at nearly training's."""
    errors, rows = record.cross_validation.sel(feature_kind=SAMPLE).mean("subset"), {}
    for atoms, (noise, ratio) in CHOSEN.items():
        own = errors.sel(atoms=atoms)
        as_trained = float(own.sel(noise=44.0).isel(ratio=0))
        rows[atoms] = {
            style.NOISE: style.noise_words([noise])[0], "ratio": f"{ratio:g}",
            "error, %": f"{float(own.sel(noise=noise, ratio=ratio)):.1f}",
            "as trained, nearly, %": "not coded" if atoms == ATOMS[2] else f"{as_trained:.1f}",
            "subsets": int(record.cross_validation.sel(atoms=atoms).isel(noise=0, ratio=0, feature_kind=0).count()),
        }
    return pd.DataFrame(rows).T.rename(atom_words).rename_axis("atoms")


def oracle_table(record: xr.Dataset) -> pd.DataFrame:
    """Test error in % of the sample in `mnist-oracle`, by noise and ratio."""
    errors = record.error.sel(feature_kind=SAMPLE)
    columns = {f"{ratio:g}": (errors.sel(ratio=ratio),) for ratio in record.ratio.values}
    return style.table("noise", columns, style.NOISE, style.noise_words(record.noise.values))


def atom_words(kind: str) -> str:
    """Name of a kind of atoms, such as ``refined at 44``, the noise as its standard deviation."""
    stage, at, precision = kind.partition(" at ")
    return f"{stage}, noise s.d. {style.noise_words([float(precision)])[0]}" if at else kind


def show_surface(record: xr.Dataset) -> Figure:
    """Cross-validation error in % by noise and rho, mean over subsets, a panel for each kind of atoms."""
    errors = record.cross_validation.sel(feature_kind=SAMPLE).mean("subset")
    kinds = list(record.atoms.values)
    figure, axes = style.new_panels(len(kinds), 1, 2.1 * len(kinds))
    for panel, atoms in zip(axes[:, 0], kinds, strict=True):
        values = errors.sel(atoms=atoms).transpose("noise", "ratio")
        panel.imshow(np.log(values), cmap="viridis_r", aspect="auto", vmin=np.log(5), vmax=np.log(60))
        for (row, col), value in np.ndenumerate(values.values):
            best = value == values.values.min()
            panel.text(col, row, f"{value:.1f}", ha="center", va="center", fontsize=style.FONT - 3,
                       color="white" if value > 12 else "black", fontweight="bold" if best else "normal")
        panel.set_title(atom_words(atoms), fontsize=style.FONT - 1)
        for axis, numbers, form in ((panel.xaxis, values.ratio, "g"), (panel.yaxis, values.noise**-0.5, ".2g")):
            axis.set_ticks(range(len(numbers)), [f"{one:{form}}" for one in numbers.values], fontsize=style.FONT - 3)
        panel.set_ylabel("noise s.d.", fontsize=style.FONT - 2)
    axes[-1, 0].set_xlabel(RATIO, fontsize=style.FONT - 2)
    return style.finish(figure)


def show_why(record: xr.Dataset, atoms: str) -> Figure:
    """Along rho: the error, how many coefficients are active, how strong and how stable they are, what finds them."""
    figure, axes = style.new_figure(len(PANELS), 1, height=1.25 * len(PANELS) + 0.6, sharex=True)
    own, ratio = record.sel(atoms=atoms).dropna("subset", how="all", subset=["active"]), record.ratio.values
    for panel, (name, words, times) in zip(axes, PANELS, strict=True):
        values = own[name].sel(feature_kind=SAMPLE) if name == "cross_validation" else own[name]
        for noise, colour in LINES:
            style.draw_mean_and_dots(panel, ratio, times * values.sel(noise=noise), colour)
        panel.set(ylabel=words, xscale="log", ylim=(0, None))
        panel.yaxis.label.set_fontsize(style.FONT - 2)
    axes[2].set(yscale="log", ylim=(1e-3, 10))
    axes[-1].set_xlabel(RATIO)
    style.write_ticks(axes[-1].xaxis, ratio)
    active = own.active.mean("subset").isel(ratio=-1)
    style.label_ends(axes[1], {f"s.d. {noise**-0.5:.2g}": (ratio[-1], float(active.sel(noise=noise)), colour)
                               for noise, colour in LINES})
    return style.finish(figure)


def by_atoms(found: Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
    """The record of `mnist-labels` for each kind of atoms, coded at the precisions chosen for them."""
    return {
        kind: one for kind, chosen in CHOSEN.items() for one in found
        if settings(one)["atoms"] == kind and tuple(settings(one)[name] for name in AT_TEST) == chosen
    }


def atoms_table(found: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Test error in % of the features of `by_atoms`: rows of atoms and features, columns the first one's sizes."""
    sizes = next(iter(found.values()))["size"]
    errors = {atom_words(atoms): style.with_interval(one.error.sel(feature_kind=list(FEATURES)), "trial")
              .reindex(size=sizes, fill_value="") for atoms, one in found.items()}
    every = xr.concat(errors.values(), pd.Index(errors, name="atoms"), coords="minimal", compat="override")
    columns = {f"{size:,} labels": (every.sel(size=size),) for size in sizes.values}
    return style.table(("atoms", "feature_kind"), columns, ["atoms", "feature"]).rename(FEATURES, level=1)


def refinement_table(found: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """What refined atoms change in the error of the sample: mean over equal subsets, ±; digit by digit, McNemar's p."""
    rows, before = {}, found[ATOMS[0]]
    for atoms, after in list(found.items())[1:]:
        for size in sorted({*before["size"].values} & {*after["size"].values}):
            pair = [one.sel(size=size, feature_kind=SAMPLE) for one in (after, before)]
            change = (pair[0].error - pair[1].error).dropna("trial")
            wins, losses, p = compare_paired(*(one.predicted.values == one.label.values for one in pair))
            rows[atom_words(atoms), f"{size:,}"] = {
                "change of error, points": style.with_interval(change, "trial", sign="+").item(),
                "subsets": change.sizes["trial"],
                "only refined right": wins, "only pretrained right": losses, "p": f"{p:.1g}",
            }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["atoms", "labels"])


def classes_table(record: xr.Dataset) -> pd.DataFrame:
    """Test error in % of `mnist-classes`: a row for what is classified, columns of stage and precisions of coding."""
    words = ("code, classifier", "class of the smallest residual", "residual under each class's atoms, classifier",
             "code by the digit's own class alone: a leak")
    columns = pd.MultiIndex.from_product([record.stage.values, record.setting.values], names=["atoms", "precisions"])
    errors = record.error.mean("subset").transpose("row", "stage", "setting").values.reshape(len(words), -1)
    return pd.DataFrame(errors, words, columns).map("{:.1f}".format)


# ---- Caltech
def show_readings(record: xr.Dataset, atoms: str) -> Figure:
    """Cross-validated accuracy of `caltech-precisions` along rho, with signs above, without below; dashed: chance."""
    readings = [READINGS[0], READINGS[2]]
    figure, axes = style.new_figure(len(readings), 1, height=2.3 * len(readings), sharex=True)
    right, ratio = 100 - record.cross_validation.sel(atoms=atoms), record.ratio.values
    for panel, reading in zip(axes, readings, strict=True):
        for noise, colour in zip(record.noise.values, CALTECH_COLOURS[: record.sizes["noise"]], strict=True):
            panel.plot(ratio, right.sel(noise=noise, reading=reading), "o-", color=style.COLOURS[colour], markersize=3,
                       label=f"s.d. {noise**-0.5:.2g}")
        panel.axhline(100 / len(settings(record)["classes"]), color=style.COLOURS["grey"], linestyle="--")
        panel.set(ylabel="accuracy, %", xscale="log", ylim=(0, 100))
        panel.set_title(READING_WORDS[reading], fontsize=style.FONT - 1)
    axes[-1].set_xlabel(RATIO)
    style.write_ticks(axes[-1].xaxis, ratio)
    style.label_lines(axes[0])
    return style.finish(figure)


def readings_table(record: xr.Dataset) -> pd.DataFrame:
    """Accuracy on test images in %, by atoms and reading, at the precisions of training and at those chosen."""
    rows, labels = {}, record.label

    def accuracy(right: xr.DataArray) -> str:
        share, half = share_and_interval(right, IMAGE)
        return f"{style.plus_minus(float(share), float(half), 1)} ({100 * right.groupby(labels).mean().mean():.0f})"

    pixels = record.baseline_right.sel(baseline="raw pixels").values
    for atoms in record.atoms.values:
        for reading in record.reading.values:
            own = record.sel(atoms=atoms, reading=reading)
            trained, chosen = (own.right.sel(setting=name) for name in SETTINGS)
            noise = float(own.coded_at.sel(setting=SETTINGS[1], precision="gamma_e"))
            ratio = float(own.cross_validation.sel(noise=noise).idxmin("ratio"))
            wins, losses, p = compare_paired(chosen.values, trained.values)
            rows[atoms, READING_WORDS[reading]] = {
                "at training's precisions": accuracy(trained), "at those chosen": accuracy(chosen),
                style.NOISE: style.noise_words([noise])[0], "ratio": f"{ratio:g}",
                "active": f"{float(own.active.sel(noise=noise, ratio=ratio)):,.0f}",
                "gained, lost": f"{wins}, {losses}", "p": f"{p:.1g}",
                "p, chosen against raw pixels": f"{compare_paired(chosen.values, pixels).p:.1g}",
            }
    for name in record.baseline.values:
        rows["none", name] = {"at those chosen": accuracy(record.baseline_right.sel(baseline=name))}
    return pd.DataFrame.from_dict(rows, orient="index").fillna("").rename_axis(["atoms", "feature"])


def signs_table(record: xr.Dataset) -> pd.DataFrame:
    """Signs of codes in `code-signs`: how many are negative, how often two codes agree, accuracy with and without."""
    columns = {"noise s.d.": (record.noise**-0.5, 2), "negative, %": (100 * record.negative, 0)}
    columns |= {f"equal signs, %: {pair}": (100 * record.agreement.sel(pair=pair), 0) for pair in record.pair.values}
    columns |= {f"right, % {reading}": (record.right.sel(reading=reading), 1) for reading in record.reading.values}
    return style.table(("images", "setting"), columns, ["images", "precisions"])
