"""What the calibration found: p-values of every sampler, and where the truth ranks among the draws."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

from gdd_book.figures.style import COLOURS, FONT, finish, new_figure

SMALLEST = 1e-20  # anything below is drawn here


def show_p_values(record: xr.Dataset) -> Figure:
    """Every p-value of every sampler, exact start and Geweke, as a dot; right samplers blue, misprints red.

    Parameters
    ----------
    record : of the experiment ``calibration``

    Notes
    -----
    The line is where the smallest p-value of a right sampler would fall once in a thousand times, among as many tests
    as a row has (Bonferroni).

    *Source:* not in the paper. *Departs:* not applicable. *Checked:* tests/test_calibration.py.
    """
    names = list(record.sampler.values)
    figure, axes = new_figure(1, 2, height=0.9 + 0.24 * len(names), sharey=True)
    for ax, test, title in zip(axes, ("exact_start", "geweke"), ("exact start", "alternating chain"), strict=True):
        p = np.maximum(record[test].values.reshape(len(names), -1), SMALLEST)
        for row, right in enumerate(record.correct.values):
            colour = COLOURS["blue" if right else "red"]
            ax.plot(p[row], np.full(p.shape[1], row), "o", markersize=3, color=colour, alpha=0.6, clip_on=False)
        ax.axvline(1e-3 / p.shape[1], color=COLOURS["grey"], linewidth=1, linestyle=":")
        ax.set_xscale("log")
        ax.set_xlim(SMALLEST, 1)
        ax.set_xticks([1e-20, 1e-10, 1], ["$10^{-20}$", "$10^{-10}$", "1"])
        ax.set_title(title, fontsize=FONT)
        ax.set_xlabel("p-value")
    axes[0].set_yticks(range(len(names)), names, fontsize=FONT - 2)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    return finish(figure)


def show_ranks(record: xr.Dataset, right: str = "pooled", wrong: str = "P5") -> Figure:
    """Where the truth ranks among draws: cumulative share minus the uniform one, with the band of chance.

    One line a statistic; the band holds 99.9 % of the paths at each rank if ranks are uniform.

    *Source:* Säilynoja, Bürkner & Vehtari 2022 for the form. *Departs:* not applicable. *Checked:*
    tests/test_calibration.py.
    """
    ranks = int(record.attrs.get("ranks", record["rank"].values.max() + 1))
    share = np.arange(1, ranks + 1) / ranks
    figure, axes = new_figure(1, 2, height=2.6, sharey=True)
    for ax, name in zip(axes, (right, wrong), strict=True):
        rank = record["rank"].sel(ranked=name).values
        rank = rank[rank[:, 0] >= 0]
        number = len(rank)
        low, high = (stats.binom.ppf(q, number, share) / number - share for q in (0.0005, 0.9995))
        ax.fill_between(np.arange(ranks), low, high, color=COLOURS["grey"], alpha=0.3, linewidth=0)
        for column in rank.T:
            found = np.bincount(column, minlength=ranks).cumsum() / number
            ax.plot(np.arange(ranks), found - share, linewidth=1)
        ax.set_title(name, fontsize=FONT)
        ax.set_xlabel("rank of the truth")
    axes[0].set_ylabel("share below − uniform")
    return finish(figure)
