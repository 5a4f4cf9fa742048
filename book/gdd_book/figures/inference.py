"""Figures of the chapters on inference: chains under several priors, calibration, planted atoms."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
import xarray as xr
from IPython.display import HTML
from matplotlib.figure import Figure
from scipy import stats

from gdd.base.axes import ATOM, CHAIN
from gdd.plot import mosaic, over_largest
from gdd_book.checks.enumeration import frequencies, total_variation
from gdd_book.figures import style
from gdd_book.figures.model import show_outcomes
from gdd_book.figures.slider import slider

TRACES = {
    "active": "active blocks\nper image",
    "residual": "residual,\nroot mean square",
    "log_joint": "log joint",
}
SMALLEST = 1e-20  # p-values below are drawn here


def show_regimes(runs: Mapping[str, xr.Dataset]) -> Figure:
    """Traces (chain, draw) of several runs, by name: active blocks, residual, log joint against the sweep."""
    figure, axes = style.new_figure(len(TRACES), 1, height=6.2, sharex=True)
    for (name, label), panel in zip(TRACES.items(), axes, strict=True):
        for (colour, dash), (run, traces) in zip(style.LINES, runs.items(), strict=False):
            style.draw_chain(panel, traces[name].isel({CHAIN: 0}), colour, dash, run, 1.8)
        panel.set_ylabel(label)
    axes[0].set_ylim(bottom=0)
    axes[1].set_yscale("log")
    axes[-1].set_xlabel("sweep")
    axes[-1].ticklabel_format(axis="y", scilimits=(0, 0), useMathText=True)
    style.label_lines(axes[0])
    return style.finish(figure)


def show_p_values(record: xr.Dataset) -> Figure:
    """Every p-value of `calibration`, as a dot; right samplers blue, misprints red; a line at 0.001 (Bonferroni)."""
    names = list(record.sampler.values)
    figure, axes = style.new_figure(1, 2, height=0.9 + 0.24 * len(names), sharey=True)
    for panel, test, title in zip(axes, ("exact_start", "geweke"), ("exact start", "alternating chain"), strict=True):
        p = np.maximum(record[test].values.reshape(len(names), -1), SMALLEST)
        for row, right in enumerate(record.correct.values):
            colour = style.COLOURS["blue" if right else "red"]
            panel.plot(p[row], np.full(p.shape[1], row), "o", markersize=3, color=colour, alpha=0.6, clip_on=False)
        panel.axvline(1e-3 / p.shape[1], color=style.COLOURS["grey"], linewidth=1, linestyle=":")
        panel.set(xscale="log", xlim=(SMALLEST, 1), xlabel="p-value")
        panel.set_xticks([1e-20, 1e-10, 1], ["$10^{-20}$", "$10^{-10}$", "1"])
        panel.set_title(title, fontsize=style.FONT)
    axes[0].set_yticks(range(len(names)), names, fontsize=style.FONT - 2)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    return style.finish(figure)


def show_ranks(record: xr.Dataset) -> Figure:
    """Where the truth ranks among draws: cumulative share minus the uniform one, a line for each statistic.

    The band holds 99.9 % of the paths at each rank if ranks are uniform; lines that leave it have a colour and a name.
    Source: Säilynoja, Bürkner & Vehtari 2022 for the form. Checked: tests/test_calibration.py.
    """
    ranks = int(record.attrs["ranks"])
    share = np.arange(1, ranks + 1) / ranks
    figure, axes = style.new_figure(1, 2, height=3.4, sharey=True)
    for panel, name, title in zip(axes, ("pooled", "P5"), ("correct sampler", "misprint P5"), strict=True):
        rank = record["rank"].sel(ranked=name).values
        rank = rank[rank[:, 0] >= 0]
        low, high = (stats.binom.ppf(q, len(rank), share) / len(rank) - share for q in (0.0005, 0.9995))
        panel.fill_between(np.arange(ranks), low, high, color=style.COLOURS["grey"], alpha=0.3, linewidth=0)
        outside = cycle(style.LINES)
        for column, statistic in zip(rank.T, record.statistic.values, strict=True):
            path = np.bincount(column, minlength=ranks).cumsum() / len(rank) - share
            leaves = ((path < low) | (path > high)).any()
            colour, dash = next(outside) if leaves else (style.COLOURS["grey"], "-")
            label = str(statistic) if leaves else None
            panel.plot(np.arange(ranks), path, dash, color=colour, linewidth=1.5 if leaves else 0.8, label=label)
        panel.set_title(title, fontsize=style.FONT)
        panel.set_xlabel("rank of the truth")
    axes[0].set_ylabel("share below − uniform")
    named = [line for panel in axes for line in panel.get_legend_handles_labels()[0]]
    style.legend_outside(figure, "lower center", columns=3, smaller=2, handles=named)
    return style.finish(figure)


def show_planted(record: xr.Dataset) -> Figure:
    """Learned atoms of two settings below the true ones; atoms recovered; fit and log joint beside the truth's."""
    rows, few = record.sizes["setting"], record.isel(setting=slice(2), chain=0)
    heights = [1.05 + 0.75 * few.sizes["setting"], 0.7 + 0.27 * rows, 1.2 + 0.27 * rows]
    figure, axes = style.new_figure(3, 1, height=sum(heights), height_ratios=heights)
    _draw_planted(axes[0], few)
    _draw_recovered(axes[1], record)
    _draw_gaps(axes[2], record)
    return style.finish(figure)


def _draw_planted(axes, runs: xr.Dataset) -> None:
    """True atoms, and under each that of every run, moved back where it belongs; blank where it has no pixel."""
    true, moved = runs.true_atoms.values, runs.learned.transpose("setting", ...).values.copy()
    places = runs.offset.transpose("setting", ...).values.astype(int)
    for atom, shift in zip(moved.reshape(-1, *true.shape[1:]), places.reshape(-1, 2), strict=True):
        atom[:] = np.roll(atom, -shift, axis=(1, 2))
        rows, cols = (np.arange(n) + s for n, s in zip(true.shape[2:], shift, strict=True))
        atom[:, (rows < 0) | (rows >= len(rows))] = np.nan
        atom[:, :, (cols < 0) | (cols >= len(cols))] = np.nan
    both = np.concatenate([true, *moved])
    axes.imshow(mosaic(over_largest(both), len(true)), cmap="gray", vmin=-1, vmax=1)
    style.bare(axes).set_title(f"atoms of data set {int(runs.chain)}", fontsize=style.FONT - 1)
    high, names = true.shape[2] + 1, ["true", *runs.setting.values]
    axes.set_yticks([high * (i + 0.5) - 1 for i in range(len(names))], names, fontsize=style.FONT - 2)
    axes.tick_params(length=0)


def _draw_recovered(axes, record: xr.Dataset) -> None:
    counts, whole = record.recovered.transpose("setting", CHAIN).values.astype(int), record.sizes[ATOM]
    axes.imshow(counts, cmap="RdYlGn", vmin=whole - 4, vmax=whole + 1.5, aspect="auto")  # green: all of them
    for (i, j), value in np.ndenumerate(counts):
        colour = "white" if value < whole - 2 else "black"
        axes.text(j, i, str(value), ha="center", va="center", fontsize=style.FONT - 2, color=colour)
    complete = (counts == whole).sum(axis=1)
    names = [f"{name}: {n} of {counts.shape[1]}" for name, n in zip(record.setting.values, complete, strict=True)]
    axes.set_yticks(range(len(names)), names, fontsize=style.FONT - 2)
    axes.set_xticks(range(counts.shape[1]), record.chain.values)
    axes.set_xlabel("data set")
    axes.set_title(f"atoms recovered, of {whole}", fontsize=style.FONT - 1)


def _draw_gaps(axes, record: xr.Dataset) -> None:
    whole = record.sizes[ATOM]
    kinds = (("log_likelihood", "blue", -0.16, 0.0), ("log_joint", "orange", 0.16, 0.5))
    for kind, colour, offset, place in kinds:
        for i, name in enumerate(record.setting.values):
            row = record.sel(setting=name)
            gap = ((row[kind] - record[f"truth_{kind}"]) / 1000).values
            for hit, marker in ((row.recovered == whole, "o"), (row.recovered < whole, "X")):
                shown = gap[hit.values]
                axes.plot(shown, np.full(len(shown), i + offset), marker, color=style.COLOURS[colour], ms=4, alpha=0.75)
        axes.text(place, 1.02, f"\N{BLACK CIRCLE} {kind.replace('_', ' ')}", color=style.INK[colour],
                  transform=axes.transAxes, fontsize=style.FONT - 1, va="bottom")
    axes.axvline(0, color=style.COLOURS["black"], lw=0.8)
    axes.set_yticks(range(record.sizes["setting"]), record.setting.values, fontsize=style.FONT - 2)
    axes.set_ylim(record.sizes["setting"] - 0.5, -0.5)
    words = "difference to a chain started at the truth,\nthousands of nats (crosses: some atoms missed)"
    axes.set_xlabel(words, x=0.35)


def visiting(space: np.ndarray, exact: np.ndarray, visits: Mapping[str, np.ndarray], sweeps: Sequence[int]) -> HTML:
    """Slider over the sweeps of a chain: how often each sampler has been at each outcome, beside the exact posterior.

    ``space``, ``exact`` : of `gdd_book.checks.enumeration.enumerated`, a one-row map of blocks of two positions;
    ``visits`` : name -> (draw, block), positions after every sweep
    """
    shares = {name: [frequencies(z[:count], space) for count in sweeps] for name, z in visits.items()}
    frames = []
    for number, count in enumerate(sweeps):
        here = {name: found[number] for name, found in shares.items()}
        figure = show_outcomes(space, {"exact posterior": exact} | here, positions=2)
        figure.axes[0].set_ylim(0, 1)
        distances = ", ".join(f"{name} {total_variation(exact, found):.2f}" for name, found in here.items())
        frames.append((f"{count:,} sweeps; distance to the exact posterior: {distances}", figure))
    return slider(frames, "share of nine outcomes among the sweeps of two samplers, beside their exact probabilities")
