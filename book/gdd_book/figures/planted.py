"""Planted atoms: the true ones beside what a chain learned, how many came back, and how well the truth fits."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdd.base.checks import GddError
from gdd_book.figures.dictionaries import atom_mosaic
from gdd_book.figures.style import COLOURS, FONT, bare, finish, new_figure


def show_planted(record: xr.Dataset, setting: str | None = None, chain: int = 0) -> Figure:
    """True atoms over learned ones; atoms recovered by setting and data set; fit and log joint beside the truth's.

    Parameters
    ----------
    record : of the experiment ``planted``
    setting, chain : whose atoms are drawn; by default the first two settings of the first chain

    The last panel has the settings that end with as many atoms as were planted: else the two are not comparable.

    Raises
    ------
    GddError
        A setting or a chain that the record does not have.

    Notes
    -----
    *Source:* not in the paper. *Departs:* not applicable. *Checked:* tests/test_planted.py.
    """
    settings = list(record.setting.values[:2]) if setting is None else [setting]
    for name, value in (("setting", settings[0]), ("chain", chain)):
        if value not in record[name].values:
            raise GddError(f"{name}: {value!r} given; the record has {', '.join(map(str, record[name].values))}")
    like_truth = record.isel(setting=(record.atoms_left == record.sizes["atom"]).any("chain").values)
    rows = record.sizes["setting"], like_truth.sizes["setting"]
    heights = [1.05 + 0.75 * len(settings), 0.7 + 0.27 * rows[0], 1.2 + 0.27 * rows[1]]
    figure, axes = new_figure(3, 1, height=sum(heights), height_ratios=heights)
    _draw_atoms(axes[0], record.sel(setting=settings, chain=chain))
    _draw_counts(axes[1], record)
    _draw_gaps(axes[2], like_truth)
    return finish(figure)


def _draw_atoms(axes, runs: xr.Dataset) -> None:
    """True atoms, and under each that of every run, moved back where it belongs; blank where it has no pixel."""
    true = runs.true_atoms.values
    both = np.concatenate([true] + [_moved_back(runs.sel(setting=name)) for name in runs.setting.values])
    largest = np.nanmax(np.abs(both), axis=(1, 2, 3), keepdims=True)
    picture = atom_mosaic(np.divide(both, largest, out=np.zeros_like(both), where=largest > 0), len(true))
    axes.imshow(picture, cmap="gray", vmin=-1, vmax=1)
    bare(axes).set_title(f"atoms of data set {int(runs.chain)}", fontsize=FONT - 1)
    high = true.shape[2] + 1
    names = ["true", *runs.setting.values]
    axes.set_yticks([high * (i + 0.5) - 1 for i in range(len(names))], names, fontsize=FONT - 2)
    axes.tick_params(length=0)


def _moved_back(one: xr.Dataset) -> np.ndarray:
    learned = one.learned.values.copy()
    height, width = learned.shape[2:]
    for k, (row, col) in enumerate(one.offset.values.astype(int)):
        learned[k] = np.roll(learned[k], (-row, -col), axis=(1, 2))
        learned[k][:, (np.arange(height) + row < 0) | (np.arange(height) + row >= height)] = np.nan
        learned[k][:, :, (np.arange(width) + col < 0) | (np.arange(width) + col >= width)] = np.nan
    return learned


def _draw_counts(axes, record: xr.Dataset) -> None:
    counts = record.recovered.transpose("setting", "chain").values.astype(int)  # green: all of them
    whole = record.sizes["atom"]
    axes.imshow(counts, cmap="RdYlGn", vmin=whole - 4, vmax=whole + 1.5, aspect="auto")
    for (i, j), value in np.ndenumerate(counts):
        axes.text(j, i, str(value), ha="center", va="center", fontsize=FONT - 2,
                  color="white" if value < whole - 2 else "black")  # fmt: skip
    _name_rows(axes, record, [f"{name}: {(row == whole).sum()} of {len(row)}" for name, row in zip(
        record.setting.values, counts, strict=True)])  # fmt: skip
    axes.set_xticks(range(record.sizes["chain"]), record.chain.values)
    axes.set_xlabel("data set")
    axes.set_title(f"atoms recovered, of {whole}", fontsize=FONT - 1)


def _draw_gaps(axes, record: xr.Dataset) -> None:
    whole = record.sizes["atom"]
    for i, name in enumerate(record.setting.values):
        row = record.sel(setting=name)
        same = (row.atoms_left == whole).values
        for value, truth, colour, offset in (
            (row.log_likelihood, record.truth_log_likelihood, COLOURS["blue"], -0.16),
            (row.log_joint, record.truth_log_joint, COLOURS["orange"], 0.16),
        ):
            gap = ((value - truth) / 1000).values
            for hit, marker in (((row.recovered == whole).values, "o"), ((row.recovered < whole).values, "X")):
                shown = hit & same
                axes.plot(gap[shown], np.full(shown.sum(), i + offset), marker, color=colour, ms=4, alpha=0.75)
    axes.axvline(0, color=COLOURS["black"], lw=0.8)
    _name_rows(axes, record, record.setting.values)
    axes.set_ylim(record.sizes["setting"] - 0.5, -0.5)
    words = "difference to a chain started at the truth,\nthousands of nats (crosses: some atoms missed)"
    axes.set_xlabel(words, x=0.35)
    for label, colour, place in (("log likelihood", "blue", 0.0), ("log joint", "orange", 0.5)):
        axes.text(place, 1.02, f"\N{BLACK CIRCLE} {label}", color=COLOURS[colour], transform=axes.transAxes,
                  fontsize=FONT - 1, va="bottom")  # fmt: skip


def _name_rows(axes, record: xr.Dataset, names) -> None:
    axes.set_yticks(range(record.sizes["setting"]), names, fontsize=FONT - 2)
