"""Figures and tables of the Caltech chapters: records in, a figure or a table out."""

from collections.abc import Sequence
from itertools import combinations, product
from math import ceil

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import ATOM, DICTIONARY, IMAGE
from gdd_book import experiments, paper_values, records
from gdd_book.dictionaries import LAYER, match_layers, reaches_of, unpack
from gdd_book.evaluate.atoms import gradient_kurtosis, high_frequency_share
from gdd_book.evaluate.statistics import WIDE, compare_paired, median_and_interval
from gdd_book.experiments.caltech import KINDS, ONE_DECONVOLUTION
from gdd_book.figures import style
from gdd_book.figures.mnist import single_pass
from gdd_book.figures.model import show_grids
from gdd_book.records import settings
from gdd_book.training import CALTECH, MODELS, STAGES

ALL_CLASSES = 101  # without the background; a record of fewer is no row of the paper's table
LAYERS = {"two layers": "2 layers", "three layers": "3 layers"}
CLOSE = 0.5  # correlation above which an atom has been found again
DEALS = 200  # of the classes to the images at random
SHOWN = 99.5  # percentile of an atom's magnitudes at which a picture is black or white
LENGTHS = ("burn_in", "collect", "test_burn_in", "test_collect")
#: published methods that stand in the paper's table only
TABLE_ONLY = ("DN", "CDBN")


def largest(name: str, scale: str, stage: str = STAGES[0], learned_planes: bool = False) -> xr.Dataset | None:
    """Record on real images, of this scale, stage and prior, with the most training images times sweeps, or None."""
    prefix = "refine_" if stage == STAGES[1] else ""

    def size(record: xr.Dataset) -> int:
        p = settings(record)
        return p["n_train"] * (p[prefix + "burn_in"] + p[prefix + "collect"])

    known = [r for r in records.every(name) if r.attrs["scale"] == scale and settings(r)["data"] in CALTECH
             and settings(r)["learned_planes"] == learned_planes]
    return max((r for r in known if stage in settings(r).get("stages", STAGES)), key=size, default=None)


def at_length(scale: str, learned_planes: bool = False) -> list[xr.Dataset]:
    """Records of `caltech-class` of one class that have the paper's lengths, and this prior of the upper layers."""
    fixed = experiments.defaults("caltech-class", "paper") | {"learned_planes": learned_planes}
    del fixed["classes"]
    known = [(one, settings(one)) for one in records.every("caltech-class") if one.attrs["scale"] == scale]
    return sorted((one for one, p in known if len(p["classes"]) == 1 and fixed.items() <= p.items()), key=class_of)


def class_of(record: xr.Dataset) -> str:
    """Name of the class, or of the classes taken together, as a person writes it."""
    return ", ".join(settings(record)["classes"]).replace("_", " ")


def chains_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """What records were made from, a row for each, and the sweeps of their chains; the last row has the paper's."""
    rows = []
    for record in found:
        p = settings(record)
        tested = record.get("n_test_images", p.get("n_test", ()) if "test_burn_in" in p else ())
        refined = "refine_burn_in" in p and p.get("refined", STAGES[1] in p.get("stages", STAGES))
        row = {
            "training images of a class": p.get("per_class", p.get("n_train")),
            "test images": ", ".join(f"{count:.0f}" for count in np.unique(tested)),
            "split by seed": ", ".join(map(str, p.get("seeds", ()))), "pretraining": style.sweeps(p),
            "refinement": style.sweeps(p, "refine_") if refined else "none",
            "test": style.sweeps(p, "test_") if np.size(tested) else "",
        }
        if "per_class" in p:
            count = record.sizes["class"]
            row = {"model": LAYERS[p["model"]], "classes": f"{count}", "guessing, %": f"{100 / count:.1f}"} | row
        rows.append(row)
    paper = {name: paper_values.fact(name)["value"] for name in LENGTHS}
    once = style.sweeps(paper)
    rows.append({"pretraining": once, "refinement": once, "test": style.sweeps(paper, "test_")})
    frame = pd.DataFrame(rows, ["ours"] * len(found) + ["the paper"], dtype=object).fillna("")
    return frame.loc[:, (frame[:-1] != "").any()]


def show_contrast(before: np.ndarray | xr.DataArray, after: np.ndarray | xr.DataArray, count: int = 4) -> Figure:
    """Pictures (image, row, col), black to white, above the same ones normalised, zero mid grey."""
    figure, axes = style.new_panels(2, 1, 2 * style.FULL / count + 0.5)
    titles, ends = ("before", "after local contrast normalisation"), ((0, 255), (-2, 2))
    for panel, title, pictures, scale in zip(axes.flat, titles, (before, after), ends, strict=True):
        style.draw_picture(panel, np.concatenate(list(np.asarray(pictures)[:count]), axis=1), title, scale)
    return style.finish(figure)


def stages_of(found: xr.Dataset, layer: int, count: int | None = None) -> xr.DataArray:
    """Atoms of one layer, from 1, of every stage: (kind, atom, plane, atom_row, atom_col), as `show_dictionaries`."""
    parts = [unpack(found, layer, stage=stage).isel(atom=slice(count)) for stage in found.stage.values]
    return xr.concat(parts, "kind").assign_coords(kind=found.stage.values)


def sharpness_table(found: xr.Dataset) -> pd.DataFrame:
    """Results of `caltech-faces` by layer and kind, medians over atoms; of the top layer, error and active too."""
    atoms = found[["high_frequency_share", "gradient_kurtosis", "correlation"]].groupby(found.layer)
    medians = atoms.map(lambda one: one.median([ATOM, "set"]))
    top = found[["rms", "active"]].mean("set").expand_dims(layer=[_layers(found)[-1]])
    return style.table(("layer", "kind"), {
        "energy above half Nyquist": (medians.high_frequency_share, 3),
        "gradient kurtosis": (medians.gradient_kurtosis, 1), "match": (medians.correlation,),
        "held-out error": (top.rms, 3), "active": (top.active, 0),
    }, ["layer", ""])


def show_joint(found: xr.Dataset, stage: str) -> Figure:
    """All classes of `caltech-joint`: an image of each, then the atoms of each layer; 0 is mid grey."""
    layers = [unpack(found, layer, stage=stage).values for layer in _layers(found)]
    grids = [("an image of each class", found["images"].values[:, None] / 100, 3)]
    grids += [(f"layer {n}", atoms, ceil(len(atoms) ** 0.5)) for n, atoms in enumerate(layers, 1)]
    return show_grids(grids, 2, 0.28)


def match_table(found: xr.Dataset) -> pd.DataFrame:
    """Median correlation of matched atoms by layer and stage, within a class and between classes; how many are near."""
    def described(part: xr.Dataset) -> xr.Dataset:
        (values,) = part.values()
        over = [axis for axis in values.dims if axis != "stage"]
        near = 100 * (values > CLOSE).sum(over) / values.count(over)
        return xr.Dataset(median_and_interval(values, over)._asdict() | {"near": near})

    same, other = (found[[name]].groupby(found.layer).map(described) for name in ("same", "different"))
    more, half = other.value - same.value, np.hypot(same.half, other.half)
    return style.table("layer", style.at_each("stage", {
        "same class": (same.value,), "two classes": (other.value,),
        "difference": (xr.apply_ufunc(style.plus_minus_each, more, half, kwargs={"sign": "+"}),),
        f"% above {CLOSE}, same class": (same.near, 0), f"% above {CLOSE}, two classes": (other.near, 0),
    }), "layer")


def share_table(found: xr.Dataset) -> pd.DataFrame:
    """Largest share of a class in an atom's weight, of `caltech-joint`; beside it with classes dealt out at random.

    Median over atoms; atoms of which one class, or one image, has more than half. At random: mean of `DEALS` deals, and
    what holds 95 % of them.
    """
    rows, classes = {}, found["class"].values
    for stage, layer in product(found.stage.values, _layers(found)):
        shares = found.weight_share.isel(atom=found.layer.values == layer).sel(stage=stage).values
        random = np.random.default_rng(0)
        dealt = [np.max([shares[labels == name].sum(axis=0) for name in np.unique(classes)], axis=0)
                 for labels in (classes, *(random.permutation(classes) for _ in range(DEALS)))]
        (median, *medians), (half, *halves) = np.nanmedian(dealt, axis=1), (np.array(dealt) > 0.5).sum(axis=1)
        rows[stage, layer] = {
            "median": f"{median:.2f}",
            "median, at random": style.plus_minus(np.mean(medians), WIDE * np.std(medians)),
            "more than half": f"{half} of {shares.shape[1]}",
            "more than half, at random": style.plus_minus(np.mean(halves), WIDE * np.std(halves), 1),
            "by one image": f"{(shares.max(axis=0) > 0.5).sum()}",
        }
    return pd.DataFrame(rows).T.rename_axis(["stage", "layer"])


def joint_match_table(joint: xr.Dataset, alone: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Median correlation of atoms of single classes with their partners in `caltech-joint`, by layer and stage."""
    reaches, six, rows = reaches_of(MODELS[settings(joint)["model"]]), settings(joint)["classes"], {}
    for record in alone:
        own, medians = {*settings(record)["classes"]}, {}
        row = rows[class_of(record)] = {("", "among the six"): "yes" if own <= {*six} else "no"}
        for stage in joint.stage.values:
            together = [unpack(joint, layer, stage=stage) for layer in _layers(joint)]
            medians[stage] = match_layers(together, atoms_of(record, stage), reaches).groupby(LAYER).median()
        for layer, stage in product(_layers(joint), medians):
            row[f"layer {layer}", stage] = f"{float(medians[stage].sel(layer=layer)):.2f}"
    return pd.DataFrame(rows).T


def _layers(found: xr.Dataset) -> list[int]:
    return list(range(1, int(found.layer.max()) + 1))


def cost_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """CPU minutes of every part of the runs, a row for each class; the last row: milliseconds an image and sweep."""
    minutes = pd.DataFrame({class_of(one): one.cpu_seconds.to_series() / 60 for one in found})
    part = minutes.index.str.partition(",").get_level_values(0)
    minutes = minutes.groupby(part, sort=False).sum().T
    ran = found[0].sweeps.to_series().groupby(part, sort=False).sum()
    milli = 60000 * minutes.mean() / found[0].sizes[IMAGE] / ran.where(ran > 0)
    frame = minutes.assign(**{"in all": minutes.sum(axis=1)}).map("{:.1f}".format)
    each = milli.dropna().map("{:.2f}".format)
    frame.loc["ms per image and sweep"] = each.reindex(frame.columns).fillna("")
    return frame.rename_axis(None, axis=1)


def projection_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Squared distance of a refined class's images from those of its projected atoms, as a share of the energy."""
    errors = xr.concat([record.projection_error for record in found], "class").assign_coords(
        {"class": [class_of(record) for record in found]})
    return style.table("class", {"projection error, share of energy": (errors, 2, IMAGE)})


def atoms_of(record: xr.Dataset, stage: str) -> list[xr.DataArray]:
    """Dictionaries of one stage in the image plane, bottom layer first, each (atom, plane, atom_row, atom_col)."""
    names = sorted(name for name in record.data_vars if str(name).startswith("atoms_"))
    return [xr.DataArray(record[name].sel(stage=stage).values[:, None] / 100, dims=DICTIONARY) for name in names]


def show_examples(found: Sequence[xr.Dataset]) -> Figure:
    """Some training images of every class, normalised, a row for each class; 0 is mid grey."""
    grids = [("", record["images"].values[:, None] / 100, len(record["images"])) for record in found]
    return show_grids(grids, 1, 0.1 / len(found), [*map(class_of, found)], 0.9)


def show_class_stages(record: xr.Dataset) -> Figure:
    """Dictionaries in the image plane: a row for each layer, a column for each stage; zero is mid grey."""
    stages = record.stage.values
    layers = enumerate(zip(*(atoms_of(record, stage) for stage in stages), strict=True), 1)
    grids = [(f"layer {number}, {stage}", atoms, min(4, len(atoms)))
             for number, both in layers for stage, atoms in zip(stages, both, strict=True)]
    return show_grids(grids, len(stages), 0.25, percentile=SHOWN)


def show_layers(found: xr.Dataset) -> Figure:
    """As the paper's Fig. 3: atoms of layers 1 and 2, then of the top layer before and after refinement, in one row."""
    top = _layers(found)[-1]
    columns = [(1, "refined"), (2, "refined"), (top, "pretrained"), (top, "refined")]
    grids = [(f"layer {layer}, {stage}", unpack(found, layer, stage=stage).values[:9], 3) for layer, stage in columns]
    return show_grids(grids, len(grids), 0.3, percentile=SHOWN)


def show_rows(found: Sequence[xr.Dataset]) -> Figure:
    """As the paper's Fig. 5: a row for each class, with images of it, then refined atoms of each layer."""
    titles, grids = ["images", "layer 1", "layer 2", "layer 3"], []
    for record in found:
        parts = [record["images"].values[:, None] / 100, *atoms_of(record, "refined")]
        grids += [(title, part[:4], 2) for title, part in zip(titles, parts, strict=True)]
        titles = [""] * len(parts)
    return show_grids(grids, len(titles), 0.3 / len(found), [*map(class_of, found)], 0.9, SHOWN)


def class_sharpness_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Median sharpness over the atoms of every layer, before and after refinement: two rows for each class."""
    measures = {"energy above half Nyquist": (high_frequency_share, 3), "gradient kurtosis": (gradient_kurtosis, 1)}
    return pd.DataFrame({(class_of(record), stage): {
        (words, f"{LAYER} {number}"): f"{float(measure(atoms).median()):.{digits}f}"
        for words, (measure, digits) in measures.items() for number, atoms in enumerate(atoms_of(record, stage), 1)
    } for record in found for stage in STAGES}).T


def class_match_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Median correlation of matched atoms of two classes, over all pairs of the records; by layer and stage."""
    reaches = reaches_of(MODELS[settings(found[0])["model"]])
    columns = {}
    for stage in STAGES:
        stacks = [atoms_of(record, stage) for record in found]
        pairs = xr.concat([match_layers(b, a, reaches) for a, b in combinations(stacks, 2)], "pair")
        columns[stage] = pairs.groupby(LAYER).median(...).to_series().map("{:.2f}".format)
    return pd.DataFrame(columns)


def table_two(paper: pd.DataFrame, found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Accuracy in % by training images per class: the paper's rows, then ours, by the feature of highest likelihood."""
    method = paper.method + paper.detail.map(lambda text: f" {text}" if isinstance(text, str) else "")
    frame = pd.DataFrame({"method": method, 15: paper.train_15, 30: paper.train_30}).set_index("method")
    frame, every = frame.map("{:g}".format), every_feature(found)
    for words, stage in product(LAYERS.values(), STAGES):
        frame.loc[f"ours, {words}, {stage}"] = [*every[words].loc[feature_words(f"{stage}, ml_sample")]]
    return frame


def cell_of(found: Sequence[xr.Dataset], model: str, per_class: int) -> xr.DataArray:
    """Accuracy with this model and so many images of each of all classes, (split, feature_kind); the longest chains."""
    def lengths(record: xr.Dataset) -> tuple[int, int]:
        p = settings(record)
        return p["burn_in"] + p["collect"], p["test_burn_in"] + p["test_collect"]

    wanted = {"model": model, "per_class": per_class}.items()
    own = [one for one in found if settings(one)["n_classes"] >= ALL_CLASSES and wanted <= settings(one).items()]
    longest = max(map(lengths, own))
    own = sorted((one for one in own if lengths(one) == longest), key=lambda one: -one.sizes["feature_kind"])
    parts = [record.accuracy.reindex(feature_kind=own[0].feature_kind) for record in own]
    return xr.concat(parts, "split").drop_duplicates("split")


def feature_words(kind: str) -> str:
    """A feature's name in a record, such as ``pretrained, ml_sample``, in words."""
    stage, comma, code = kind.partition(", ")
    return f"{stage}{comma}{style.KIND_WORDS.get(code, code)}"


def every_feature(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Accuracy in % of each feature, a column for each cell of the table; with the interval and number of splits."""
    columns = {}
    for (model, words), n in product(LAYERS.items(), (15, 30)):
        cell = cell_of(found, model, n)
        text, splits = style.with_interval(cell, "split", 1), cell.count("split")
        text = text + xr.where(splits > 1, " (" + splits.astype(str).astype(object) + " splits)", "")
        columns[words, f"{n} images"] = text.to_series().rename(feature_words)
    return pd.DataFrame(columns).rename_axis("feature")


def size_of(record: xr.Dataset) -> tuple[int, int, int, int]:
    """Classes, stages, training images a class and layers of a record; the largest is the one to show."""
    p = settings(record)
    return record.sizes["class"], 1 + p["refined"], p["per_class"], len(MODELS[p["model"]].layers)


def refinement_gains(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Change of accuracy by refinement in points, a row a record, with the interval over classes."""
    rows = {}
    for record in (record for record in found if settings(record)["refined"]):
        p, own = settings(record), record.class_accuracy.mean("split")
        row = rows[LAYERS[p["model"]], record.sizes["class"], p["per_class"], ", ".join(map(str, p["seeds"]))] = {}
        for name in (name for name in own.feature_kind.values if name.startswith("refined, ")):
            change = own.sel(feature_kind=name) - own.sel(feature_kind=name.replace("refined", "pretrained"))
            row[name.removeprefix("refined, ")] = style.with_interval(change, "class", 1, "+").item()
    names = ["model", "classes", "images a class", "seeds"]
    return pd.DataFrame(rows).T.rename_axis(names).rename(columns=style.KIND_WORDS)


def refinement_lengths(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Test images right, in %, by sweeps of refinement, and the change from before it, over the same classes."""
    found = sorted(found, key=lambda one: (settings(one)["learned_planes"], settings(one)["refine_burn_in"]))
    each = xr.concat([one.isel(split=0) for one in found], "run")
    kinds = [name.removeprefix("refined, ") for name in each.feature_kind.values if name.startswith("refined, ")]
    before, after = (each.sel(feature_kind=[f"{stage}, {kind}" for kind in kinds]) for stage in STAGES)
    change = after.class_accuracy - before.class_accuracy.assign_coords(feature_kind=after.feature_kind)
    columns, prior = {}, ("", ", the paper's prior")
    names = [style.sweeps(p := settings(one), "refine_") + prior[p["learned_planes"]] for one in found]
    for kind in kinds:
        at, words = {"feature_kind": f"refined, {kind}"}, style.KIND_WORDS[kind]
        columns |= {
            f"{words}, before": (before.accuracy.sel(feature_kind=f"pretrained, {kind}"), 1),
            f"{words}, after": (after.accuracy.sel(at), 1), f"{words}, change": (change.sel(at), 1, "class", "+"),
        }
    columns["raw pixels"] = each.accuracy.sel(feature_kind="raw pixels"), 1
    return style.table("run", columns, "sweeps of refinement", index=names)


def settings_table(record: xr.Dataset) -> pd.DataFrame:
    """Test images right in %, by what was changed in `caltech-settings`; with McNemar's p for the paper's sample."""
    words = {"": "as everywhere", "width": "window {0:g} × {0:g}", "noise_precision": "noise s.d. {1:.2g}",
             "weight_precision": "weights' precision {0:g}"}
    names = [words[number].format(value, value**-0.5 if value else 0)
             for number, value in zip(record.number.values, record.value.values, strict=True)]
    right = record.right.transpose("setting", "feature_kind", IMAGE)
    sample = right.sel(feature_kind="ml_sample").values
    tested = [f"{compare_paired(own, sample[0]).p:.1g}" for own in sample[1:]]
    columns = {style.KIND_WORDS.get(kind, kind): (100 * right.sel(feature_kind=kind).mean(IMAGE), 1)
               for kind in right.feature_kind.values}
    found = style.table("setting", columns | {"active": (record.active, 0)}, index=names)
    return found.assign(**{"p, sample": ["", *tested]})


def third_layer(two: xr.Dataset, three: xr.Dataset) -> pd.DataFrame:
    """Mean accuracy over the same classes with three layers less that with two, in points, by the model's features."""
    change = three.class_accuracy.mean("split") - two.class_accuracy.mean("split")
    change = change.sel(feature_kind=[kind for kind in change.feature_kind.values if kind.startswith(STAGES)])
    names = [*map(feature_words, change.feature_kind.values)]
    return style.table("feature_kind", {"3 layers less 2": (change, 1, "class", "+")}, index=names)


def show_features(found: Sequence[xr.Dataset]) -> Figure:
    """Accuracy of every feature, a panel a record: a dot for each class, a bar for their mean, dashed: guessing."""
    kinds = found[0].feature_kind.values
    figure, axes = style.new_figure(1, len(found), height=0.36 * len(kinds) + 0.9, sharey=True)
    for panel, record in zip(np.atleast_1d(axes), found, strict=True):
        for place, kind in enumerate(kinds):
            each = record.class_accuracy.sel(feature_kind=kind).mean("split").values
            spread = 0.25 * np.linspace(-1, 1, len(each))
            panel.plot(each, place + spread, ".", color=style.COLOURS["grey"], markersize=3, alpha=0.5)
            colour = style.COLOURS[style.method_colour(kind)]
            panel.plot([each.mean()] * 2, [place - 0.35, place + 0.35], color=colour, linewidth=3)
        style.show_value(panel, 100 / record.sizes["class"])
        panel.set(xlabel="accuracy (%)", xlim=(-2, 102), title=LAYERS[settings(record)["model"]])
    panel.set(yticks=range(len(kinds)), yticklabels=[feature_words(kind) for kind in kinds])
    panel.invert_yaxis()
    return style.finish(figure)


def layerwise_table(record: xr.Dataset) -> pd.DataFrame:
    """Accuracy in % of `caltech-layerwise`: each way with its two features; the baselines in a column."""
    share, plain = 100 * record.right.mean(IMAGE), record.baseline_accuracy.rename(baseline="way")
    columns = {"numbers an image": (record.n_features, ",.0f")}
    columns |= {style.KIND_WORDS[kind]: (share.sel(feature_kind=kind), 1) for kind in KINDS}
    found = style.table("way", columns | {"needs no model": (plain, 1)})
    return found.loc[[*record.way.values, *record.baseline.values]]


def layerwise_comparison(record: xr.Dataset) -> pd.DataFrame:
    """Each way of `caltech-layerwise` beside one deconvolution, by the paper's feature: images that one gets right."""
    right = record.right.sel(feature_kind="ml_sample")
    ways = [way for way in right.way.values if way != ONE_DECONVOLUTION]
    rows = [compare_paired(*(right.sel(way=one).values for one in (way, ONE_DECONVOLUTION))) for way in ways]
    frame = pd.DataFrame(rows, pd.MultiIndex.from_product([ways, [ONE_DECONVOLUTION]], names=["", "beside"]))
    return frame.assign(p=frame.p.map("{:.2g}".format))


def depth_seconds(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """CPU seconds of one test image in records of `caltech-accuracy`, models of two layers and three side by side."""
    rows = {}
    for record in (one for one in found if "test_cpu_seconds" in one and settings(one)["per_class"] == 30):
        p, atoms = settings(record), 16 * record.sizes["class"]
        seconds = record.test_cpu_seconds.mean([axis for axis in record.test_cpu_seconds.dims if axis != "stage"])
        for stage, one in seconds.to_series().items():
            rows[atoms, style.sweeps(p, "test_"), stage, LAYERS[p["model"]]] = f"{one:.2f}"
    return pd.Series(rows).rename_axis(["projected atoms", "sweeps", "stage", "seconds of a core"]).unstack()


def time_table(record: xr.Dataset) -> pd.DataFrame:
    """What a test image costs, of `caltech-testing`."""
    seconds = record.cpu_seconds.values
    rows = {
        "atoms": f"{int(record.n_atoms)}", "positions": f"{int(record.n_positions)}",
        "sweeps": style.sweeps(settings(record), "test_"), "test images": f"{len(seconds)}",
        "CPU seconds an image, median": f"{np.median(seconds):.2f}",
        "CPU seconds an image, least to most": f"{seconds.min():.2f} to {seconds.max():.2f}",
        "active coefficients, mean": f"{record.active.values.mean():.0f}",
        "products of atoms, once: CPU seconds": f"{float(record.gram_cpu_seconds):.0f}",
        "products of atoms, once: MB": f"{float(record.gram_bytes) / 1e6:.0f}",
    }
    return pd.Series(rows, name="ours").to_frame()


def show_best(paper: pd.DataFrame, record: xr.Dataset) -> Figure:
    """Accuracy of `caltech-best` beside the paper's numbers: hollow 15 images, filled 30; bold, its own model."""
    rows = [(f"{row.method}, {row.detail}" if row.ours else row.method, (row.train_15, row.train_30), "black")
            for row in paper.itertuples() if row.method not in TABLE_ONLY]
    shares = record.accuracy.mean("split").transpose("feature_kind", "count").to_series().unstack()
    rows += [(single_pass(name), pair.values, style.method_colour(name)) for name, pair in shares.iterrows()]
    rows.sort(key=lambda row: row[1][1])
    figure, axes = style.new_figure(height=0.3 * len(rows) + 0.9)
    style.name_rows(axes, [name for name, *_ in rows], "test images that are right, %", 2, (0, 100))
    for place, (name, shares, colour) in enumerate(rows):
        axes.plot(shares, [place] * 2, color=style.COLOURS[colour], linewidth=1)
        for share, face in zip(shares, ("white", style.COLOURS[colour]), strict=True):
            axes.plot(share, place, "o", color=style.COLOURS[colour], markerfacecolor=face, markersize=6)
        own = {"weight": "bold"} if name.startswith("this paper") else {}
        axes.get_yticklabels()[place].set(color=style.INK[colour], **own)
    style.explain_faces(figure, "15 training images per class", "30")
    return style.finish(figure)


def best_table(record: xr.Dataset) -> pd.DataFrame:
    """Accuracy in % of every feature of `caltech-best`, with its 95 % interval over splits."""
    return style.table("feature_kind", {
        f"{n} images": (record.accuracy.sel(count=n), 1, "split") for n in record["count"].values
    }).rename(single_pass)


def codes_table(record: xr.Dataset) -> pd.DataFrame:
    """Test images right in % of `caltech-codes`, by what codes them, noise and feature; active coefficients."""
    share = 100 * record.right.mean(IMAGE)
    columns = {"active": (record.active, 0)} | style.at_each("feature_kind", {"": (share, 1)})
    found = style.table(("atoms", "noise"), columns, ("what codes", style.NOISE))
    return found.rename(lambda noise: style.noise_words([noise])[0], level=1)
