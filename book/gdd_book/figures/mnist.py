"""Figures and tables of the MNIST chapters: records in, a figure or a table out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import permutations, product
from math import prod
from textwrap import fill

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdd.base.axes import ATOM, DRAW, IMAGE
from gdd.model.spec import MNIST
from gdd.plot import mosaic
from gdd_book import records
from gdd_book.dictionaries import threshold
from gdd_book.evaluate.atoms import high_frequency_share, match_atoms
from gdd_book.evaluate.statistics import compare_paired, mean_and_interval, share_interval, t_statistic
from gdd_book.experiments.studies.mnist_features import COPIED, KINDS, reader
from gdd_book.experiments.studies.whitened import ATOMS
from gdd_book.figures import style
from gdd_book.figures.model import show_grids
from gdd_book.records import settings
from gdd_book.training import STAGES

#: words for the features of `mnist-error`, in the order of the tables
FEATURES = {
    "ml_sample": style.KIND_WORDS["ml_sample"],
    "mean": style.KIND_WORDS["mean"],
    "magnitude": "mean magnitude",
    "inclusion": "inclusion probability",
    "raw pixels": "raw pixels",
    "one-step, layer 1": "single-pass, layer 1",
}
#: words for readings of `mnist-readings` whose names in the records do not stand alone
READINGS = {
    "one sample, the paper's": FEATURES["ml_sample"], "the same, normalised": "largest correlation, normalised",
    "one sample, noise precision 44": "one sample, noise s.d. 0.15",
    "one sample, noise precision 10": "one sample, noise s.d. 0.32", "layer 1 in one step": "single-pass, layer 1",
}
#: readings that stand in the table only, as others much like them are in the figure
TABLE_ONLY = (
    "one sample, noise precision 10", "one sample, summed over its places",
    "one sample at every pixel, summed over places", "lasso, not negative", "lasso at every pixel, summed over places",
)
#: words for the features of `mnist-labels`
LABELLED = {
    "ml_sample": FEATURES["ml_sample"], "mean": FEATURES["mean"],
    "ridge regression": "ridge regression, the same atoms",
    "normalised detectors": READINGS["the same, normalised"], "raw pixels": FEATURES["raw pixels"],
}
LENGTHS = "sweeps of a layer"


def single_pass(name: str) -> str:
    """Name of a feature as the pages have it; records call single-pass features one-step features."""
    return name.replace("one-step", "single-pass")


#: what stands beside two layers where digits are filled in: one layer, as many atoms, as large as theirs
LARGE = "one layer, 160 atoms of 25 × 25"
#: of `mnist-readings`, those that are compared between numbers of digits
MAIN_READINGS = (
    "one sample, the paper's", "one sample, noise precision 44", "mean of the chain", "lasso", "correlations",
    "the same, normalised", "layer 1 in one step",
)


def dictionary_table(found: xr.Dataset) -> pd.DataFrame:
    """Results of `mnist-dictionary`, medians over atoms; "used most": the half of them that is used most often."""
    most = found.uses.isel(half=0) >= found.uses.isel(half=0).median(ATOM)
    return style.table("kind", {
        "energy above half Nyquist": (found.high_frequency_share.median(("half", ATOM)), 3),
        "gradient kurtosis": (found.gradient_kurtosis.median(("half", ATOM)), 1),
        "match between halves": (found.correlation.median(ATOM), 3),
        "match, used most": (found.correlation.where(most).median(ATOM), 3),
        "held-out error": (found.rms.mean("half"), 3), "active coefficients": (found.active.mean("half"), 1),
    })


def subset_errors(found: Sequence[xr.Dataset], order: Sequence[str] = tuple(FEATURES)) -> xr.DataArray:
    """Errors (feature_kind, size, trial) of `mnist-curve` or `mnist-best`, of the record with most subsets, or NaN."""
    axes, order = ("feature_kind", "size", "trial"), list(order)
    if not found:
        return xr.DataArray(np.empty((0, 0, 0)), {"feature_kind": [], "size": []}, axes)
    errors = [one.error.transpose(*axes).assign_coords(trial=range(one.sizes["trial"])) for one in found]
    most = reduce(lambda one, other: other.where(other.count("trial") > one.count("trial"), one),
                  xr.align(*errors, join="outer"))
    most = most.dropna("feature_kind", how="all").dropna("size", how="all")
    known = order + [kind for one in found for kind in one.feature_kind.values if kind not in order]
    return most.sel(feature_kind=[kind for kind in dict.fromkeys(known) if kind in most.feature_kind])


def subset_table(errors: xr.DataArray, words: Callable[[str], str] = single_pass) -> pd.DataFrame:
    """Test error in %: a row for each number of training digits, a column for each feature; (subsets)."""
    count = errors.count("trial").astype(str)
    text = (style.with_interval(errors, "trial") + " (" + count + ")").where(count != "0", "not run")
    frame = text.transpose("size", "feature_kind").to_pandas().rename_axis("training digits")
    return frame.rename_axis(None, axis=1).rename(columns=words)


def whitened_table(record: xr.Dataset) -> pd.DataFrame:
    """Test error in % by what makes the features, as they are and whitened, and how far that is above the atoms'."""
    plain, white = (record.error.sel(whitened=one) for one in (False, True))
    above = (white - white.sel(feature_kind=ATOMS)).isel(feature_kind=slice(1, None))
    names = [kind.replace("windows", "windows of digits, draw").replace(" (kymatio, numpy)", "")
             for kind in record.feature_kind.values]
    return style.table("feature_kind", {
        "as they are": (plain, 2, "trial"), "whitened": (white, 2, "trial"),
        "above atoms, whitened": (above, 2, "trial", "+"),
        "features": (record.features, ",.0f"),
    }, "made from").loc[record.feature_kind.values].set_axis(pd.Index(names, name="made from"))


def copies_table(found: Sequence[xr.Dataset], paper: pd.DataFrame) -> pd.DataFrame:
    """Error in % of `mnist-best` with deformed copies, below the paper's and the best without; sizes across."""
    errors = subset_errors(found, KINDS)
    copied = [kind for kind in errors.feature_kind.values if kind.endswith(COPIED.format(""))]
    ours = subset_table(errors.sel(feature_kind=[KINDS[4], *copied])).T
    printed = printed_errors(paper, "{:g}").reindex(ours.columns).to_frame("paper")
    return pd.concat([printed.T, ours]).rename_axis("training digits", axis=1)


def printed_errors(paper: pd.DataFrame, form: str = "{:.2f}") -> pd.Series:
    """Errors that the paper prints of its own, as text, by number of training digits."""
    return paper[paper.ours].astype({"n_train": int}).set_index("n_train").error.map(form.format).sort_index()


def draw_subsets(axes: Axes, errors: xr.DataArray, **looks) -> tuple[float, float]:
    """Mean error (size, trial) against the number of training digits, with 95 % intervals; return its last point."""
    mean, half = mean_and_interval(errors.dropna("size", how="all"), "trial")
    axes.errorbar(mean["size"], mean, half.fillna(0), **({"fmt": "-o", "markersize": 4, "capsize": 3} | looks))
    return float(mean["size"][-1]), float(mean[-1])


def whole_runs(found: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Records of `mnist-error` of paper scale whose noise precision was not learned."""
    return [one for one in found if one.attrs["scale"] == "paper" and settings(one)["noise_precision"] > 0]


def error_table(paper: pd.DataFrame, found: Sequence[xr.Dataset], short: Sequence[xr.Dataset] = ()) -> pd.DataFrame:
    """Test error in % by training digits: the paper's; ours, pretrained, of `mnist-curve` (subsets) or `whole_runs`."""
    rows = {n: {**errors, LENGTHS: style.sweeps(settings(record))}
            for record in short for n, errors in subset_table(subset_errors([record]), str).iterrows()}
    for record in sorted(whole_runs(found), key=lambda one: settings(one)["burn_in"] + settings(one)["collect"]):
        p = settings(record)
        rows[p["n_train"]] = {**style.written(record.error).to_series(), LENGTHS: style.sweeps(p)}
    printed = printed_errors(paper)
    ours = pd.DataFrame.from_dict(rows, "index", dtype=object).reindex(printed.index)
    ours = ours[[name for name in (*FEATURES, LENGTHS) if name in ours]].rename(columns=FEATURES).fillna("not run")
    ours.insert(0, "paper, refined", printed)
    return ours.rename_axis("training digits")


def feature_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Test error in % of every feature, a column for every record of `mnist-error`; above them what was run."""
    columns = {}
    for record in found:
        p = settings(record)
        noise = style.noise_words([p["noise_precision"]])[0] if p["noise_precision"] else "learned"
        name = (f"{p['n_train']} {p['data']}", record.attrs["scale"], style.sweeps(p), noise)
        columns[name] = style.written(record.error).to_series()
    ours = pd.DataFrame(columns, FEATURES).rename(index=FEATURES).fillna("not run")
    names = pd.MultiIndex.from_tuples(columns, names=["training", "scale", "sweeps", style.NOISE])
    return ours.set_axis(names, axis=1)


def draw_curves(
    paper: pd.DataFrame, lines: Iterable[tuple[xr.DataArray, str, dict]], runs: Sequence[xr.Dataset] = (),
    dots: Mapping[str, str] | None = None, height: float = 3.8, ylim: tuple = (None, None),
) -> Figure:
    """Test error against training digits: the paper's and ours, each with its name at its end.

    lines : errors (size, trial), words, looks of the line; one without words is not named
    runs, dots : records of `mnist-error`, drawn as dots by kind of feature, and the words for it
    """
    figure, axes = style.new_figure(height=height)
    row = paper[paper.ours].sort_values("n_train")
    axes.plot(row.n_train, row.error, "k-s", markersize=4)
    ends = {"paper, refined": (row.n_train.iloc[-1], row.error.iloc[-1], "black")}
    for errors, words, looks in lines:
        colour = style.method_colour(errors.feature_kind.item())
        ends[words] = *draw_subsets(axes, errors, color=style.COLOURS[colour], **looks), colour
    for kind, words in (dots or {}).items():
        points, colour = sorted((settings(one)["n_train"], float(one.error.sel(feature_kind=kind)))
                                for one in runs if kind in one.feature_kind), style.method_colour(kind)
        axes.plot(*np.transpose(points), "o", color=style.COLOURS[colour], markersize=5)
        ends[words] = *points[-1], colour
    ends.pop("", None)
    axes.set(xscale="log", yscale="log", xlabel="training digits", ylabel="test error, %", ylim=ylim)
    style.write_ticks(axes.xaxis, (1000, 2000, 5000, 10000, 60000))
    style.write_ticks(axes.yaxis, [tick for tick in (0.5, 1, 2, 5, 10, 20, 50) if tick < (ylim[1] or 100)])
    style.label_ends(axes, ends)
    return style.finish(figure)


def show_learning_curve(
    paper: pd.DataFrame, found: Sequence[xr.Dataset], short: Sequence[xr.Dataset] = ()
) -> Figure:
    """The paper's errors, `whole_runs` of `mnist-error` (``found``), filled, and `mnist-curve` (``short``), hollow."""
    several = subset_errors(short)
    dots = {kind: FEATURES[kind] for kind in several.feature_kind.values}
    return draw_curves(paper, [(one, "", {"markerfacecolor": "white"}) for one in several], whole_runs(found), dots)


def show_best_curve(paper: pd.DataFrame, protocol: Sequence[xr.Dataset], found: Sequence[xr.Dataset]) -> Figure:
    """The paper's errors, `whole_runs` of its protocol, `mnist-best`; dashed: deformed copies are learned from too."""
    lines = []
    for errors in subset_errors(found, KINDS):
        kind = errors.feature_kind.item()
        alone = kind == kind.removesuffix(COPIED.format(""))
        looks = {"fmt": "-o" if alone else "--^", "markerfacecolor": "white" if "components" in kind else None}
        lines.append((errors, single_pass(kind).replace("whitened ", "whitened\n") if alone else "", looks))
    return draw_curves(paper, lines, whole_runs(protocol), {"ml_sample": "paper's protocol,\nour run, pretrained"})


def labelled() -> tuple[xr.Dataset | None, xr.Dataset | None]:
    """Records of `mnist-labels`: at the precisions chosen, and at those that training left; None if missing."""
    of_training = {"test_noise": 2.0, "test_ratio": 0.054}
    return records.find("mnist-labels", "paper"), records.find("mnist-labels", "paper", **of_training)


def show_labels(paper: pd.DataFrame, chosen: xr.Dataset, trained: xr.Dataset | None) -> Figure:
    """The paper's errors and `mnist-labels` at the precisions chosen; the sample alone at those that training left."""
    lines = [(chosen.error.sel(feature_kind=kind), words.replace(", ", ",\n"), {}) for kind, words in LABELLED.items()]
    if trained is not None:
        before = trained.error.sel(feature_kind="ml_sample")
        lines.append((before, "ML sample,\ntraining's precisions", {"fmt": "--o"}))
    return draw_curves(paper, lines)


def labels_table(paper: pd.DataFrame, chosen: xr.Dataset, trained: xr.Dataset | None) -> pd.DataFrame:
    """The numbers of `show_labels`, a row for each number of labels; (subsets)."""
    columns = {words: chosen.error.sel(feature_kind=kind) for kind, words in LABELLED.items()}
    if trained is not None:
        columns |= {f"{words}, precisions of training": trained.error.sel(feature_kind=kind)
                    for kind, words in LABELLED.items() if kind in ("ml_sample", "mean")}
    errors = xr.concat(columns.values(), "feature_kind", coords="minimal", compat="override", join="outer")
    ours = subset_table(errors.assign_coords(feature_kind=list(columns))).rename_axis("labels")
    ours.insert(0, "paper, refined", printed_errors(paper).reindex(ours.index))
    return ours


def against_pixels(record: xr.Dataset) -> pd.DataFrame:
    """The first subset of every number of labels: digits that only the sample, only pixels get right; McNemar's p."""
    right, rows = record.predicted == record.label, {}
    for size in record["size"].values:
        one, pixels = (right.sel(size=size, feature_kind=name).values for name in ("ml_sample", "raw pixels"))
        wins, losses, p = compare_paired(one, pixels)
        rows[f"{size:,}"] = {
            "error, %": f"{100 - 100 * one.mean():.2f}", "of pixels, %": f"{100 - 100 * pixels.mean():.2f}",
            "only this right": wins, "only pixels right": losses, "p": f"{p:.1g}",
        }
    return pd.DataFrame(rows).T.rename_axis("labels")


def show_one_step(best: xr.Dataset, digits: np.ndarray) -> Figure:
    """The fourth digit (digit, row, col) and the same a pixel further right: maps of features for six atoms.

    Above the rows, how alike the two are, over all digits: as pixels, and in all features.
    """
    pairs = np.stack([digits, np.roll(digits, 1, axis=2)], axis=1)
    both = pairs.reshape(-1, 1, *digits.shape[1:])
    found = reader([best.atoms], int(best.margin[int(best.chosen)])).fit(both).maps(both)[0].values
    features = found.reshape(*pairs.shape[:2], *found.shape[1:])
    maps = features[3]
    shown = np.argsort(-maps.var(axis=(0, 2, 3)))[:6]
    figure, panels = style.new_panels(3, 7, 2.9)
    panels[0, 0].text(0.5, 0.5, "atoms:", ha="center", va="center", transform=panels[0, 0].transAxes)
    for panel, atom in zip(panels[0, 1:], best.atoms.values[shown, 0], strict=True):
        style.draw_picture(panel, atom, ends=(-np.abs(atom).max(), np.abs(atom).max()))
    for row, pixels, found in zip(panels[1:], pairs[3], maps[:, shown], strict=True):
        style.draw_picture(row[0], pixels, ends=(-pixels.max(), pixels.max()))
        style.draw_row(row[1:], found, ends=(0, maps[:, shown].max()))
    alike = [np.mean([np.corrcoef(*pair)[0, 1] for pair in both.reshape(len(digits), 2, -1)])
             for both in (pairs, features)]
    words = "correlation after the shift: {:.2f} of pixels, {:.2f} of features"
    figure.suptitle(words.format(*alike), fontsize=style.FONT)
    return style.finish(figure)


def reading_words(record: xr.Dataset) -> list[str]:
    """Names of the readings of a `mnist-readings` record, for a reader."""
    return [READINGS.get(name, name) for name in record.reading.values]


def show_readings(record: xr.Dataset) -> Figure:
    """Error of the readings of `mnist-readings`, pretrained and refined, the largest first; a line for raw pixels."""
    record = record.isel(reading=~record.reading.isin(TABLE_ONLY))
    record = record.sortby(record.error.sel(stage=STAGES[1]).mean("subset"))
    mean, half = mean_and_interval(record.error, "subset")
    names = reading_words(record)
    figure, axes = style.new_figure(height=0.31 * len(names) + 1.1)
    style.show_value(axes, float(record.error_of_pixels.mean()), "raw pixels", len(names) - 0.4)
    for (place, name), (number, stage) in product(enumerate(names), enumerate(STAGES)):
        one, bar = (values.sel(stage=stage).isel(reading=place) for values in (mean, half))
        axes.errorbar(one, place + 0.12 * (1 - 2 * number), xerr=bar.fillna(0), fmt="o", markersize=5, capsize=2,
                      color=style.COLOURS[style.method_colour(name)], markerfacecolor=None if number else "white")
    style.name_rows(axes, names, "test error, %")
    style.explain_faces(figure, *STAGES)
    return style.finish(figure)


def readings_table(record: xr.Dataset) -> pd.DataFrame:
    """Error in % of every reading by stage, the paired change, and how many numbers of a test digit are not zero."""
    before, after = (record.error.sel(stage=stage) for stage in STAGES)
    numbers = record.numbers.mean("subset").assign_coords(stage=[f"numbers, {stage}" for stage in record.stage.values])
    columns = style.at_each("stage", {"": (record.error, 2, "subset")})
    columns |= {"change": (after - before, 2, "subset", "+")} | style.at_each("stage", {"": (numbers, 1)})
    found = style.table("reading", columns, index=reading_words(record))
    found.loc["raw pixels"] = [style.with_interval(record.error_of_pixels, "subset").item()] * 2 + [""] * 3
    return found


def more_digits_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Error in % of the main readings of `mnist-readings`, a column for each number of digits, lengths and stage."""
    columns = {}
    for record in sorted(found, key=lambda one: settings(one)["n_train"]):
        p, errors = settings(record), style.with_interval(record.error.sel(reading=list(MAIN_READINGS)), "subset")
        pixels = style.with_interval(record.error_of_pixels, "subset").item()
        chains = f"sweeps {style.sweeps(p)}, {style.sweeps(p, 'refine_')}"
        for stage in record.stage.values:
            one = errors.sel(stage=stage).to_series()
            columns[f"{p['n_train']:,} digits", chains, stage] = {**one, "raw pixels": pixels}
    return pd.DataFrame(columns).rename(index=READINGS)


def strokes_table(record: xr.Dataset) -> pd.DataFrame:
    """Atoms of `mnist-readings` used as often as the average: strokes, sharpness, whether other digits give them again.

    Medians over the atoms of each subset. Found again: mean correlation of such an atom with its partner among those of
    another subset, after a shift of up to two pixels; an atom without a partner counts as 0.
    """
    columns, often = {}, record.uses >= record.uses.mean(ATOM)
    shares = 100 * record.stroke_share.where(often).median(ATOM)
    for stage in record.stage.values:
        chosen = often.sel(stage=stage).values
        every = record.projected_atoms.sel(stage=stage).values.astype(float)
        atoms = [one[some] for one, some in zip(every, chosen, strict=True)]
        fine = [100 * np.median(high_frequency_share(part)) for part in atoms]
        again = [np.abs(match_atoms(a, b).correlation).mean().item() for a, b in permutations(atoms, 2)]
        columns[stage] = {
            "atoms used at least as often as the average": f"{chosen.sum(axis=1).mean():.0f}",
            "energy in the largest stroke, %": ", ".join(f"{share:.0f}" for share in shares.sel(stage=stage).values),
            "energy above half Nyquist, %": ", ".join(f"{share:.0f}" for share in fine),
            "found again by another subset": f"{np.mean(again):.2f}" if again else "one subset only",
        }
    return pd.DataFrame(columns)


def show_filled(
    found: xr.Dataset, hiding: str, methods: Sequence[str], digits: int = 8, word: str = "digit",
    ends: tuple[float, float] = (1, 0),
) -> Figure:
    """Test images as seen (hidden pixels light blue), as each method fills them in, whole; ``ends``: black, white."""
    one = found.sel(hiding=hiding)
    mask, truth = one.mask.values[:digits].astype(bool), found.truth.values[:digits]
    rows = {name: np.where(mask, truth, one.filled.sel(way=name).values[:digits]) for name in methods}
    rows = {"what is seen": np.where(mask, truth, np.nan)} | rows | {f"the whole {word}": truth}
    label = 1.35  # inches on the left
    figure, axes = style.new_panels(len(rows), 1, len(rows) * ((style.FULL - label) / len(truth) + 0.03) + 0.05)
    for panel, (name, pictures) in zip(axes[:, 0], rows.items(), strict=True):
        panel.set_facecolor("#CFE3F2")
        colours = "gray" if ends[0] < ends[1] else "gray_r"
        style.draw_picture(panel, np.concatenate(list(pictures), axis=1), ends=(min(ends), max(ends)), colours=colours)
        panel.set_ylabel(fill(name, 12), rotation=0, ha="right", va="center", fontsize=style.FONT - 1)
        for border in range(1, len(pictures)):
            panel.axvline(border * pictures.shape[2] - 0.5, color=style.COLOURS["grey"], linewidth=0.5)
    return style.finish(figure)


def filled_table(found: xr.Dataset) -> pd.DataFrame:
    """Squared error on hidden pixels, with its 95 % interval, and where it was measured the classifier's error in %."""
    quantities = {"squared error": (found.hidden_error, 4, IMAGE)}
    quantities |= {"classified wrongly, %": (found.wrong, 1)} if "wrong" in found else {}
    return style.table("way", style.at_each("hiding", quantities)).rename_axis(["hidden", ""], axis=1)


def with_large_atoms(found: xr.Dataset, large: xr.Dataset, ways: Sequence[str]) -> xr.Dataset:
    """Some ways of `mnist-interpolation` and, last, the one layer of `mnist-large-atoms` on the same digits."""
    names = ["hidden_error", "wrong"]
    one = large[names].expand_dims(way=[LARGE])
    return xr.concat([found[names].sel(way=list(ways), hiding=large.hiding.values), one], "way", coords="minimal")


def filled_comparison(found: xr.Dataset, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """One method's squared error over another's, and t of their difference image by image; below 0, the first wins."""
    errors = found.hidden_error.astype(float)
    one, other = (errors.sel(way=list(ways)).drop_vars("way") for ways in zip(*pairs, strict=True))
    ratio, t = one.mean(IMAGE) / other.mean(IMAGE), t_statistic(one - other, IMAGE)
    columns = style.at_each("hiding", {"error over the other's": (ratio, 2), "difference, t": (t, 1, None, "+")})
    return style.table("way", columns, ["method", "beside"], pd.MultiIndex.from_tuples(pairs))


def show_generated(found: xr.Dataset, model: str) -> Figure:
    """Twenty pictures of every source of one model of `mnist-generated`, real digits below, as `show_drawn`."""
    chosen = found.isel(kind=np.isin(found.model, (model, "real digits")))
    figure, axes = style.new_panels(chosen.sizes["kind"], 1, chosen.sizes["kind"] * (style.FULL / 5 + 0.3))
    for panel, pictures, title in zip(axes.flat, chosen.pictures.values, chosen.source.values, strict=True):
        style.draw_picture(panel, mosaic(pictures[:20, None], 10), str(title), (0, 1), "gray_r")
    return style.finish(figure)


def show_drawn(pictures: np.ndarray) -> Figure:
    """Pictures (image, plane, row, col), the first ones in full rows of ten: up to 0 white, from 1 black."""
    rows = len(pictures) // 10
    figure, panel = style.new_figure(height=style.FULL * rows / 10)
    style.draw_picture(panel, mosaic(pictures[: 10 * rows], 10), ends=(0, 1), colours="gray_r")
    return style.finish(figure)


def show_strip(found: xr.Dataset, average: xr.Dataset, count: int = 25) -> Figure:
    """Top atoms as in the paper's Fig. 2a: average pooling; those that draw most, before and after refinement."""
    pooled = average.most_used.sel(kind="average").transpose("shown", "plane", ...).values[:count].astype(float)
    order = np.argsort(-found.energy.values, axis=1, kind="stable")[:, :count]
    before, after = (found.projected_atoms.values[one, most] for one, most in enumerate(order))
    titles = ("average pooling", "before refinement", "after refinement", "thresholded")
    four = zip(titles, (pooled, before, after, threshold(after)), strict=True)
    return show_grids([(title, atoms, round(count**0.5)) for title, atoms in four], 4, 0.3)


def drawing_table(found: xr.Dataset) -> pd.DataFrame:
    """How many top atoms draw most of the energy, and the fine detail of those that draw most, by stage."""
    order = np.argsort(-found.energy.values, axis=1, kind="stable")
    shares = np.take_along_axis(found.energy.values, order, axis=1)
    rows = {
        f"top atoms that draw {100 * part:g} % of the energy": (shares.cumsum(axis=1) < part).sum(axis=1) + 1
        for part in (0.5, 0.9, 0.99)
    }
    most = [atoms[first[:36]] for atoms, first in zip(found.projected_atoms.values, order, strict=True)]
    detail = [f"{float(high_frequency_share(atoms).median()):.3f}" for atoms in most]
    rows["energy above half Nyquist, median of the 36 that draw most"] = detail
    return pd.DataFrame(rows, index=found.stage.values, dtype=object).T


def generated_table(found: xr.Dataset) -> pd.DataFrame:
    """Results of `mnist-generated`, a row for each model and source; a guess is right in half of the cases."""
    halves = share_interval(found.told_apart, found.sizes[IMAGE])  # of all pictures and digits half
    return style.table("kind", {
        "distinguished from real digits, %": (xr.apply_ufunc(style.plus_minus_each, found.told_apart, halves, 1),),
        "distance to nearest training digit": (found.nearest, 3, IMAGE),
        "rms of a pixel": (found.rms, 3), "energy below zero": (found.negative, 3),
    }, ["model", "generated from"], pd.MultiIndex.from_arrays([found.model.values, found.source.values]))


def show_layerwise(found: xr.Dataset) -> Figure:
    """Error of every way of `mnist-layerwise`, by dictionaries, of ML sample and posterior mean."""
    places = np.arange(found.sizes["way"])[::-1]
    figure, axes = style.new_figure(height=2.9)
    style.show_value(axes, float(found.error_of_pixels), "raw pixels", len(places) - 0.55, 2)
    for (number, model), kind in product(enumerate(found.model.values), ("ml_sample", "mean")):
        colour = style.COLOURS[style.method_colour(kind)]
        axes.plot(found.error.sel(model=model, feature_kind=kind), places + 0.14 * (1 - 2 * number), "o", color=colour,
                  markerfacecolor=None if number else "white")
    style.name_rows(axes, [fill(way, 26) for way in found.way.values[::-1]], "test error, %", 2)
    axes.set(ylim=(-0.5, len(places) - 0.2))
    style.explain_faces(figure, *found.model.values)
    return style.finish(figure)


def layerwise_table(found: xr.Dataset) -> pd.DataFrame:
    """Test error in % of every way of `mnist-layerwise`, by model and kind of feature."""
    errors = style.table("way", style.at_each(("model", "feature_kind"), {"": (found.error, 1)}), "way")
    return errors.rename(columns=style.KIND_WORDS).rename_axis(["dictionaries", "feature"], axis=1)


def layerwise_comparison(found: xr.Dataset, tested: int, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Test error in % of one way less another's, a column for each pair; ``tested`` digits are independent."""
    one, other = (found.error.sel(way=list(ways)).drop_vars("way") for ways in zip(*pairs, strict=True))
    half = np.hypot(share_interval(one, tested), share_interval(other, tested))
    text = xr.apply_ufunc(style.plus_minus_each, one - other, half, kwargs={"sign": "+"})
    names = pd.MultiIndex.from_tuples(pairs, names=["way", "minus"])
    return layerwise_table(xr.Dataset({"error": text})).set_axis(names).T


def left_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Atoms that are left at the end of `mnist-atoms`: a row for each number of digits, layer and start."""
    return _by_start(found, "{:.0f}", lambda one, layer: one[f"atoms_{layer}"].isel({DRAW: -1}))


def fit_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Residual of the layer's input in the last sweep, root mean square, and active coefficients of the kept sample."""
    return _by_start(
        found, "{:.3f}, {:.0f} active", lambda one, layer: one[f"residual_{layer}"].isel({DRAW: -1}),
        lambda one, layer: prod(MNIST.shapes()[layer - 1].grid) * one[f"uses_{layer}"].sum(f"rank_{layer}"))


def _by_start(found: Sequence[xr.Dataset], words: str, *values: Callable) -> pd.DataFrame:
    """Values of both layers' chains, the first seed, as text; a column for each share."""
    rows = {}
    for record, layer in product(found, (1, 2)):
        of_layer = [value(record, layer).isel(seed=0) for value in values]
        for start in record[f"start_{layer}"].values:
            cells = zip(*(one.sel({f"start_{layer}": start}).values for one in of_layer), strict=True)
            place = f"{settings(record)['n_train']:,}", layer, start
            rows[place] = dict(zip(record.share.values, (words.format(*cell) for cell in cells), strict=True))
    left = pd.DataFrame.from_dict(rows, "index").sort_index(axis=1).fillna("not run")
    left = left.rename_axis(["digits", "layer", "atoms at first"])
    return left.rename(columns="{:g} of the mean".format).rename_axis("dropped below", axis=1)


def show_left(record: xr.Dataset) -> Figure:
    """Atoms of layer 1 in every sweep, the first seed: a colour for each start, a kind of line for each share."""
    figure, axes = style.new_figure(height=3.4)
    atoms, paper = record.atoms_1.isel(seed=0), MNIST.layers[0].atoms
    starts = atoms.start_1.values
    for (start, colour), (share, dash) in product(
        zip(starts, style.CYCLE, strict=False), zip(atoms.share.values, ("-", "--", ":", "-."), strict=False)
    ):
        values, label = atoms.sel(start_1=start, share=share).values, f"{start} at first, {share:g}"
        style.draw_chain(axes, values, colour, dash, label, 1.3)
    axes.axhline(paper, color="grey", linewidth=0.8)
    axes.axvline(settings(record)["burn_in"], color="grey", linewidth=0.8, linestyle=":")
    ticks = sorted({paper, *starts})
    axes.set(xlabel="sweep", ylabel="atoms of layer 1", yscale="log", ylim=(None, 1.1 * ticks[-1]))
    style.write_ticks(axes.yaxis, ticks)
    style.label_lines(axes)
    return style.finish(figure)


def show_uses(record: xr.Dataset) -> Figure:
    """Share of blocks in which each atom of layer 1 is active, most used first; smallest share, all starts."""
    figure, axes = style.new_figure(height=2.8)
    uses = record.uses_1.isel(seed=0).sel(share=record.share.min())
    for start in uses.start_1.values:
        values = uses.sel(start_1=start).values
        axes.plot(np.arange(1, len(values) + 1), values, ".-", linewidth=1, markersize=4, label=f"{start} at first")
    axes.set(xlabel="atom, the most used first", ylabel="share of blocks", yscale="log")
    axes.legend()
    return style.finish(figure)


def pooling_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Error, in %, of sample and mean, and active coefficients of a digit, by kind of pooling at equal precisions."""
    record = xr.concat([one[["error", "active"]] for one in found], "subset").mean("subset")
    rows = [f"{noise:g}, {ratio:g}" for noise, ratio in product(record.noise.values, record.ratio.values)]
    named = {"sample": record.error.sel(feature_kind="ml_sample"), "mean": record.error.sel(feature_kind="mean"),
             "active": record.active}
    columns = {(name, kind): (values.sel(pooling=kind), 1)
               for name, values in named.items() for kind in record.pooling.values}
    return style.table(("noise", "ratio"), columns, ["", ""]).set_axis(pd.Index(rows, name="γe, ρ"))
