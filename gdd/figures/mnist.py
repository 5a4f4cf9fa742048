"""Figures and tables of the MNIST chapters: records in, a figure or a table out."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter

from gdd.axes import ATOM, GddError
from gdd.figures.dictionaries import atom_mosaic
from gdd.figures.style import COLOURS, CYCLE, FONT, FULL, bare, finish, new_figure

#: words for the features of `gdd.experiments.mnist_error`, in the order of the tables
FEATURES = {
    "ml_sample": "highest-likelihood sample (the paper's)",
    "mean": "posterior mean",
    "magnitude": "mean magnitude",
    "inclusion": "inclusion probability",
    "raw pixels": "raw pixels",
    "one-step, layer 1": "one-step, layer 1",
}
NO_RECORD = "no paper-scale record yet"


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
    """Results of `gdd.experiments.mnist_dictionary`, a row for each kind: sharpness, then the two judges.

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
    """Verdict on two kinds of `gdd.experiments.mnist_dictionary`: sharper only if no judge says worse, else noisier.

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


def settings(record: xr.Dataset) -> dict:
    """Parameters of the run of a record."""
    return json.loads(record.attrs["parameters"])


def error_table(paper: pd.DataFrame, found: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Test error in % by number of training digits: the paper's row beside ours of paper scale, or words for its lack.

    Of ours the paper's own feature and our best one are shown, from records of the healthy noise precision.
    """
    full = [record for record in found if record.attrs["scale"] == "paper" and settings(record)["noise_precision"] > 0]
    ours = {settings(record)["n_train"]: record for record in full}
    rows = []
    for n, printed in paper[paper.ours][["n_train", "error"]].itertuples(index=False):
        record = ours.get(int(n))
        row = {"training digits": int(n), "paper, refined": f"{printed:.2f}"}
        if record is None:
            rows.append(row | {"ours, pretrained": NO_RECORD, "ours, best of any feature": ""})
            continue
        best = str(record.feature_kind.values[record.error.values.argmin()])
        same, least = float(record.error.sel(feature_kind="ml_sample")), float(record.error.min())
        rows.append(row | {
            "ours, pretrained": f"{same:.2f}", "ours, best of any feature": f"{least:.2f} ({FEATURES[best]})"
        })  # fmt: skip
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


def show_learning_curve(paper: pd.DataFrame, found: Sequence[xr.Dataset]) -> Figure:
    """Test error against the number of training digits: the paper's, and one curve for each feature of ours.

    Filled: paper scale; hollow: demo scale. Records whose noise precision was learned are left to the table.
    """
    figure, axes = new_figure(height=4.4)
    row = paper[paper.ours].sort_values("n_train")
    axes.plot(row.n_train, row.error, "k-s", markersize=4, label="the paper, refined")
    usual = sorted((r for r in found if settings(r)["noise_precision"] > 0), key=lambda r: settings(r)["n_train"])
    for colour, (kind, words) in zip([*CYCLE[:5], COLOURS["sky"]], FEATURES.items(), strict=True):
        have = [record for record in usual if kind in record.feature_kind]
        full = [(settings(r)["n_train"], float(r.error.sel(feature_kind=kind)), r.attrs["scale"]) for r in have]
        line = [pair[:2] for pair in full if pair[2] == "paper"]
        axes.plot(*np.reshape(line, (-1, 2)).T, "-o", color=colour, markersize=5, label=words)
        rest = [pair[:2] for pair in full if pair[2] != "paper"]
        axes.plot(*np.reshape(rest, (-1, 2)).T, "o", color=colour, markersize=5, markerfacecolor="white")
    return finish_curve(figure, axes)


def finish_curve(figure: Figure, axes: Axes) -> Figure:
    """Axes and legend of a figure of test errors against the number of training digits."""
    axes.set(xscale="log", yscale="log", xlabel="training digits", ylabel="test error, %")
    for axis, ticks in ((axes.xaxis, (1000, 2000, 5000, 10000, 60000)), (axes.yaxis, (0.5, 1, 2, 5, 10, 20, 50))):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=FONT - 2)
    return finish(figure)
