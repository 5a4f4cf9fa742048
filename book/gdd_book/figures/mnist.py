"""Figures and tables of the MNIST chapters: records in, a figure or a table out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.axes import ATOM
from gdd.base.checks import GddError
from gdd_book import paper_values
from gdd_book.experiments.mnist_refined_error import ATOMS
from gdd_book.figures.curves import curves, draw_subsets, finish_curve, said, spread_of, subset_table
from gdd_book.figures.dictionaries import atom_mosaic
from gdd_book.figures.refined_error import refined_curve
from gdd_book.figures.style import COLOURS, CYCLE, FONT, FULL, bare, finish, new_figure
from gdd_book.records import settings

#: words for the features of `gdd_book.experiments.mnist_error`, in the order of the tables
FEATURES = {
    "ml_sample": "highest-likelihood sample (the paper's)",
    "mean": "posterior mean",
    "magnitude": "mean magnitude",
    "inclusion": "inclusion probability",
    "raw pixels": "raw pixels",
    "one-step, layer 1": "one-step, layer 1",
}
#: where the table has no single run of `mnist-error`
NO_RUN = "no single run"
#: training digits of the only error that the paper prints of pretrained atoms
ALL_DIGITS = 60000


def show_dictionaries(atoms: xr.DataArray, across: int = 5) -> Figure:
    """Atoms of several dictionaries, one panel each; 0 is mid grey, each atom over its own largest magnitude.

    Parameters
    ----------
    atoms : (kind, atom, plane, atom_row, atom_col)   of one plane; ``kind`` holds the titles
    across : atoms in a row of a panel

    Raises
    ------
    GddError
        More than one plane, or a value that is not finite.
    """
    if atoms.sizes["plane"] != 1 or not np.isfinite(atoms).all():
        raise GddError(f"atoms: axis 'plane' has size {atoms.sizes['plane']}; 1 is needed, and finite values")
    rows, tall = -(-atoms.sizes["kind"] // 2), FULL / 2 * -(-atoms.sizes[ATOM] // across) / across + 0.28
    figure, axes = new_figure(rows, 2, height=rows * tall, squeeze=False)
    for panel in axes.flat:
        bare(panel)
    for title, panel in zip(atoms.kind.values, axes.flat, strict=False):
        panel.set_title(title, fontsize=FONT - 1)
        chosen = atoms.sel(kind=title).transpose(ATOM, "plane", ...).values
        scale = np.abs(chosen).max(axis=(1, 2, 3), keepdims=True)
        mosaic = atom_mosaic(np.divide(chosen, scale, out=np.zeros(chosen.shape), where=scale > 0), across)
        panel.imshow(mosaic, cmap="gray", vmin=-1, vmax=1)
    return finish(figure)


def show_matches(correlation: xr.DataArray) -> Figure:
    """Correlations of matched atoms, (kind, atom), each kind sorted from the best match to the worst."""
    figure, axes = new_figure(height=3.2)
    share = 100 * (np.arange(correlation.sizes[ATOM]) + 0.5) / correlation.sizes[ATOM]
    for kind, values in zip(correlation.kind.values, correlation.transpose("kind", ATOM).values, strict=True):
        axes.plot(share, np.sort(values)[::-1], label=kind)
    axes.set(xlabel="atoms, best match first (%)", ylabel="|correlation| with its match", xlim=(0, 100), ylim=(0, 1))
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=FONT - 1)
    return finish(figure)


def dictionary_table(found: xr.Dataset) -> pd.DataFrame:
    """Results of `gdd_book.experiments.mnist_dictionary`, a row for each kind: sharpness, then the two judges.

    Medians are over atoms; "used most" is the half of the first dictionary's atoms that is used most often.
    """
    most = found.uses.isel(half=0) >= found.uses.isel(half=0).median(ATOM)
    columns = {
        "energy above half Nyquist": found.high_frequency_share.median(("half", ATOM)),
        "gradient kurtosis": found.gradient_kurtosis.median(("half", ATOM)),
        "match between halves": found.correlation.median(ATOM),
        "match, used most": found.correlation.where(most).median(ATOM),
        "held-out error": found.rms.mean("half"),
        "active coefficients": found.active.mean("half"),
    }
    digits = dict.fromkeys(columns, 3) | {"gradient kurtosis": 1, "active coefficients": 1}
    rounded = {name: values.values.round(digits[name]) for name, values in columns.items()}
    return pd.DataFrame(rounded, found.kind.values)


def sharper_or_noisier(found: xr.Dataset, one: str, other: str) -> str:
    """Verdict on two kinds of `gdd_book.experiments.mnist_dictionary`: sharper only if no judge says worse, else
    noisier.

    Worse means by more than chance: two standard errors of the medians for the match, the larger of the two differences
    between halves for the held-out error.
    """
    a, b = found.sel(kind=one), found.sel(kind=other)
    for name in ("high_frequency_share", "gradient_kurtosis"):
        if not a[name].median() > b[name].median():
            return f"'{one}' is not sharper than '{other}' by both measures"
    sizes, spread = a.sizes[ATOM], np.hypot(a.correlation.std(), b.correlation.std())
    chance = 2 * 1.2533 * spread / sizes**0.5  # sqrt(pi / 2): of a median
    match = b.correlation.median() - a.correlation.median() > chance
    error = a.rms.mean() - b.rms.mean() > max(np.ptp(a.rms.values), np.ptp(b.rms.values))
    said = f"match {'worse' if match else 'no worse'}, held-out error {'worse' if error else 'no worse'}"
    return f"'{one}' beside '{other}': sharper by both measures, {said}: {'noisier' if match or error else 'sharper'}"


def most_used(found: xr.Dataset, count: int) -> xr.DataArray:
    """Projected atoms (kind, atom, plane, row, col) that are used most often, in each kind the first ``count``."""
    order = [np.argsort(-uses, kind="stable")[:count] for uses in found.uses.isel(half=0).values]
    chosen = [found.projected_atoms.isel(kind=i, atom=atoms) for i, atoms in enumerate(order)]
    return xr.concat(chosen, "kind")


def error_table(
    paper: pd.DataFrame, found: Sequence[xr.Dataset], short: Sequence[xr.Dataset] = ()
) -> pd.DataFrame:
    """Test error in % by number of training digits: the paper's numbers beside ours, or words for their lack.

    Of ours the paper's own feature and our best one are shown, from records of `mnist-error` of paper scale and the
    healthy noise precision; then the paper's own feature in the shorter chains of `mnist-curve`, over several subsets.
    """
    full = [record for record in found if record.attrs["scale"] == "paper" and settings(record)["noise_precision"] > 0]
    full.sort(key=lambda record: settings(record)["burn_in"] + settings(record)["collect"])
    ours = {settings(record)["n_train"]: record for record in full}  # of one size the longest
    several = curves(short, list(FEATURES)).get("ml_sample", {})
    before = paper_values.fact("mnist_error_pretrained")["value"]
    rows = []
    for n, printed in paper[paper.ours][["n_train", "error"]].itertuples(index=False):
        row = {"training digits": int(n), "paper, refined": f"{printed:.2f}"}
        row["paper, pretrained"] = f"about {before} (P36)" if n == ALL_DIGITS else "not printed"
        row |= {"ours, pretrained": NO_RUN, "sweeps a layer": "", "ours, best of any feature": ""}
        if (record := ours.get(int(n))) is not None:
            best = str(record.feature_kind.values[record.error.values.argmin()])
            same, least = float(record.error.sel(feature_kind="ml_sample")), float(record.error.min())
            row["ours, pretrained"] = f"{same:.2f}"
            row["sweeps a layer"] = "{burn_in} + {collect}".format(**settings(record))
            row["ours, best of any feature"] = f"{least:.2f} ({FEATURES[best]})"
        errors = several.get(int(n))
        short_row = "not run" if errors is None else f"{said(errors.mean(), spread_of(errors))} ({len(errors)})"
        rows.append(row | {"ours, mnist-curve (subsets)": short_row})
    return pd.DataFrame(rows).set_index("training digits")


def feature_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Test error in % of every feature, a column for every record; above them what was run."""
    columns = {}
    for record in found:
        p = settings(record)
        noise = f"{p['noise_precision']:g}" if p["noise_precision"] else "learned"
        name = (f"{p['n_train']} {p['data']}", record.attrs["scale"], f"{p['burn_in']} + {p['collect']}", noise)
        known = record.error.to_series()
        columns[name] = [f"{known[kind]:.2f}" if kind in known else "not run" for kind in FEATURES]
    if not columns:
        return pd.DataFrame({"test error": ["no record yet"] * len(FEATURES)}, index=list(FEATURES.values()))
    table = pd.DataFrame(columns, index=list(FEATURES.values()))
    table.columns = pd.MultiIndex.from_tuples(columns, names=["training", "scale", "sweeps", "noise precision"])
    return table


def curve_table(found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Test error in % of the records of `mnist-curve`: a row for each number of training digits; (subsets)."""
    return subset_table(found, list(FEATURES)).rename(columns=FEATURES)


def show_learning_curve(
    paper: pd.DataFrame,
    found: Sequence[xr.Dataset],
    short: Sequence[xr.Dataset] = (),
    refined: Sequence[xr.Dataset] = (),
) -> Figure:
    """Test error against the number of training digits: the paper's, and one colour for each feature of ours.

    Parameters
    ----------
    paper : the paper's table of errors
    found : records of `mnist-error`; drawn, filled, are those of paper scale whose noise precision was not learned
    short : records of `mnist-curve`, hollow, with standard errors
    refined : records of `mnist-refined-error`, of which the paper's feature is drawn, before and after refinement
    """
    figure, axes = new_figure(height=4.4)
    row = paper[paper.ours].sort_values("n_train")
    axes.plot(row.n_train, row.error, "k-s", markersize=4, label="the paper, refined")
    full = [r for r in found if r.attrs["scale"] == "paper" and settings(r)["noise_precision"] > 0]
    several = curves(short, list(FEATURES))
    for colour, (kind, words) in zip([*CYCLE[:5], COLOURS["sky"]], FEATURES.items(), strict=True):
        have = [r for r in full if kind in r.feature_kind]
        points = [(settings(r)["n_train"], float(r.error.sel(feature_kind=kind))) for r in have]
        if kind in several:
            draw_subsets(axes, several[kind], color=colour, markerfacecolor="white", linewidth=1)
        if points or kind in several:
            axes.plot(*np.reshape(sorted(points), (-1, 2)).T, "o", color=colour, markersize=5, label=words)
    for atoms, marker in zip(ATOMS[:2], "v^", strict=True):
        if curve := refined_curve(refined, atoms):
            style = {"fmt": marker, "markersize": 8, "markerfacecolor": "none", "color": COLOURS["blue"]}
            draw_subsets(axes, curve, **style, label=f"the paper's feature, {atoms}, short")
    return finish_curve(figure, axes)
