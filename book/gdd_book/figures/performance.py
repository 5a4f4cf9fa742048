"""The chapter on cost: records of `gdd bench` in, tables and figures out."""

import re
from itertools import cycle

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from gdd_book.figures import style

MARKS = "osD^vP*X"


#: what this package asks of itself: words, pattern of the row (the last that matches counts), words, least, most
GOALS = (
    ("layer-1 sweep / bound", "layer 1: whole sweep / bound", "at most 3", 0, 3),
    ("two threads: sweep / bounds", "two threads: sweep / bound", "at least 0.9", 0.9, np.inf),
    ("image-sweep, most images / fewest", r"sweep of \d+ images / of", "0.9 to 1.1", 0.9, 1.1),
    ("MNIST test time, ms per image", "MNIST shapes.* sweeps$", "at most 20", 0, 20),
    ("Caltech test time, ms per image", "Caltech shapes.* sweeps$", "at most 1000", 0, 1000),
)


def has(record: xr.Dataset | None, part: str) -> bool:
    """Whether there is a record, and this part of the bench in it."""
    return record is not None and ("peer_task" in record if part == "peers" else part in record.part.values)


def goal_table(*benches: xr.Dataset) -> pd.DataFrame:
    """What is asked, and the medians of these records beside it, of a row that is in several the last one's."""
    medians = pd.concat([one["median"].to_series() for one in benches])
    medians, lines = medians[~medians.index.duplicated(keep="last")], {}
    for what, pattern, asked, least, most in GOALS:
        values = [value for name, value in medians.items() if re.match(pattern, name)]
        value = values[-1] if values else np.nan
        met = "not measured" if np.isnan(value) else "met" if least <= value <= most else "not met"
        lines[what] = {"asked": asked, "measured": _written(value), "": met}
    return pd.DataFrame(lines).T


def part_table(record: xr.Dataset, *parts: str) -> pd.DataFrame:
    """Every row of these parts: median and minimum over the repeats."""
    chosen = record.sel(quantity=np.isin(record.part, parts))
    return chosen[["median", "minimum"]].to_dataframe().map(_written).assign(unit=chosen.unit.values)


def peer_table(record: xr.Dataset) -> pd.DataFrame:
    """Where every method is compared: time per image, time over ours, error, active coefficients."""
    if not has(record, "peers"):
        return pd.DataFrame()
    numbers = {"ms per image": 1e3 * record.peer_seconds, "time / ours": record.peer_ratio,
               "error": record.peer_error, "active": record.peer_active}
    index = pd.MultiIndex.from_arrays([record.peer_task.values, record.peer_method.values], names=["task", "method"])
    return pd.DataFrame({name: one.values for name, one in numbers.items()}, index).map(_written).assign(
        how=record.peer_note.values)


def tables(record: xr.Dataset) -> list[pd.DataFrame]:
    """All that `gdd bench` prints."""
    return [part_table(record, *np.unique(record.part)), peer_table(record), goal_table(record)]


def show_ratios(record: xr.Dataset) -> Figure:
    """Every kernel's time over its bound, medians; the dotted line is the bound."""
    chosen = record.sel(quantity=(record.part == "kernels") & record.quantity.str.endswith("/ bound"))
    figure, axes = style.new_figure(height=0.6 + 0.42 * chosen.sizes["quantity"])
    names = [name.removesuffix(" / bound").replace(": ", ":\n") for name in chosen.quantity.values[::-1]]
    bars = axes.barh(range(len(names)), chosen["median"].values[::-1], color=style.COLOURS["sky"], height=0.7)
    axes.bar_label(bars, [_written(v) for v in chosen["median"].values[::-1]], padding=3, fontsize=style.FONT - 2)
    axes.set_yticks(range(len(names)), names, fontsize=style.FONT - 3)
    axes.axvline(1, color="black", linestyle=":", linewidth=1)
    axes.set(xlabel="time / bound", xlim=(0, 1.15 * float(chosen["median"].max())))
    return style.finish(figure)


def show_contest(record: xr.Dataset) -> Figure:
    """Error against time per image, a panel a task, a line a method, a mark where it is compared with the others."""
    tasks = list(dict.fromkeys(record.peer_task.values))
    figure, axes = style.new_figure(len(tasks), 1, height=4.0 * len(tasks), squeeze=False)
    for panel, task in zip(axes[:, 0], tasks, strict=True):
        chosen = record.sel(entry=(record.peer_task == task) & record.curve_seconds.notnull().any("iteration"))
        looks = zip(cycle(style.LINES), cycle(MARKS), strict=False)
        for number, ((colour, dash), mark) in zip(range(chosen.sizes["entry"]), looks, strict=False):
            one = chosen.isel(entry=number)
            note = str(one.peer_note.item()).split(",")[0] if task == "coding" else ""
            label = f"{one.peer_method.item()}{f', {note}' if note else ''}"
            alone = int(one.curve_seconds.notnull().sum()) == 1
            panel.plot(1e3 * one.curve_seconds, one.curve_error, "" if alone else dash, color=colour, linewidth=1.4)
            panel.plot(1e3 * one.peer_seconds, one.peer_error, mark, color=colour, label=label, markersize=7)
        panel.set(xscale="log", yscale="log", ylabel="error, root mean square", title=task)
        # where methods are compared, and some way above, as first iterations may be far off
        panel.set_ylim(0.7 * float(chosen.peer_error.min()), 6 * float(chosen.peer_error.max()))
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
        panel.set_xlabel("ms per image, one core")
        panel.legend(fontsize=style.FONT - 3, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2, frameon=False)
    return style.finish(figure)


def _written(value: float) -> str:
    """Three digits that count; thousands separated."""
    if np.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
