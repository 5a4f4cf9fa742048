"""How figures and tables look: widths, fonts, colours, a mean with its interval; no global setting is changed.

Widths are chosen so that text stays readable when a page is shown 360 pixels wide.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullFormatter

from gdd_book.evaluate.statistics import mean_and_interval

FULL = 5.4  # inches: the width of the text column; every figure takes it, so that all text has one size
DPI = 170
FONT = 11  # points
MARGIN = 0.04  # inches around everything
#: words for what is kept of a chain
KIND_WORDS = {"ml_sample": "most likely sample", "mean": "posterior mean"}

#: Okabe and Ito's colours, told apart by all common kinds of colour vision
COLOURS = {
    "black": "#000000", "orange": "#E69F00", "sky": "#56B4E9", "green": "#009E73", "yellow": "#F0E442",
    "blue": "#0072B2", "red": "#D55E00", "purple": "#CC79A7", "grey": "#767676",
}
#: the same for words, dark enough to be read on white (a contrast of 4.5)
INK = COLOURS | {"orange": "#9E6D00", "sky": "#3C7DA3", "green": "#008762", "yellow": "#7F7822", "red": "#C35600",
                 "purple": "#A36085"}
CYCLE = [COLOURS[name] for name in ("blue", "orange", "green", "red", "purple", "sky", "black")]
#: colour and line style, where lines must be told apart in black and white too
LINES = [
    (COLOURS[name], style)
    for name, style in zip(("blue", "red", "green", "purple", "orange", "sky", "grey", "black"),
                           ("-", "--", "-.", ":") * 2, strict=True)
]

RC = {
    "figure.dpi": DPI, "figure.facecolor": "white", "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": MARGIN, "figure.constrained_layout.w_pad": MARGIN,
    "font.size": FONT, "axes.titlesize": FONT, "axes.labelsize": FONT, "legend.fontsize": FONT - 1,
    "xtick.labelsize": FONT - 1, "ytick.labelsize": FONT - 1, "mathtext.fontset": "cm",
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "image.interpolation": "nearest", "axes.prop_cycle": plt.cycler(color=CYCLE),
}


class Drawn(Figure):
    """A figure that a notebook describes by the numbers it draws, so that another picture is another output.

    A line for each panel: its title, and for lines, pictures, areas and points their sizes and sums of magnitudes.
    """

    def __repr__(self) -> str:
        panels = [f"  {axes.get_title()!r}: {'; '.join(drawn_in(axes))}" for axes in self.axes]
        return "\n".join([f"figure of {len(panels)} panels", *panels])


def drawn_in(axes: Axes) -> list[str]:
    """What a panel draws, a text for each line, picture, area or set of points."""
    found = [("line", line.get_xydata().T) for line in axes.lines]
    found += [("picture", image.get_array()[None]) for image in axes.images]
    found += [("bar", np.array([bar.get_bbox().extents])) for bar in axes.patches if isinstance(bar, Rectangle)]
    for one in axes.collections:
        outlines = [path.vertices for path in one.get_paths()]
        points = one.get_offsets() if isinstance(one, PathCollection) else np.concatenate([np.empty((0, 2)), *outlines])
        found.append(("points", np.asarray(points).T))
    return [f"{kind} {'x'.join(map(str, parts[0].shape))} {sums_of(parts)}" for kind, parts in found]


def sums_of(parts: np.ndarray) -> str:
    """Sum of the magnitudes of each part, and the share of it that is left when signs count."""
    values = np.ma.filled(np.ma.asarray(parts, float), 0.0).reshape(len(parts), -1)
    sizes, sums = np.nansum(np.abs(values), axis=1), np.nansum(values, axis=1)
    shares = np.round(np.divide(sums, sizes, out=np.zeros_like(sums), where=sizes > 0), 2) + 0.0  # no -0
    return ", ".join(f"{size:.4g} ({share:.2f})" for size, share in zip(sizes, shares, strict=True))


def new_figure(rows: int = 1, cols: int = 1, width: float = FULL, height: float = 3.0, **kwargs) -> tuple[Figure, Axes]:
    """`matplotlib.pyplot.subplots` in the book's style; sizes in inches."""
    with plt.rc_context(RC):
        return plt.subplots(rows, cols, figsize=(width, height), FigureClass=Drawn, **kwargs)


def finish(figure: Figure) -> Figure:
    """Make a figure ready to be the value of a notebook's cell.

    It leaves pyplot's list, or it would be shown twice. An invisible frame keeps its margins, which notebooks cut off:
    without them a narrow picture would be blown up.
    """
    figure.add_artist(Rectangle((0, 0), 1, 1, transform=figure.transFigure, fill=False, linewidth=0, zorder=-9))
    plt.close(figure)
    return figure


def bare(axes: Axes) -> Axes:
    """No ticks and no frame: for pictures."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def new_panels(rows: int, cols: int, height: float, **kwargs) -> tuple[Figure, np.ndarray]:
    """`new_figure` for pictures: every panel `bare`, always (row, col)."""
    figure, axes = new_figure(rows, cols, height=height, squeeze=False, **kwargs)
    for panel in axes.flat:
        bare(panel)
    return figure, axes


def draw_picture(panel: Axes, picture: np.ndarray, title: str = "", ends: tuple[float, float] = (-1, 1),
                 colours: str = "gray", smaller: int = 1) -> None:
    """One picture (row, col) from black to white between these values."""
    bare(panel).imshow(picture, cmap=colours, vmin=ends[0], vmax=ends[1])
    panel.set_title(title, fontsize=FONT - smaller)


def draw_chain(panel: Axes, values, colour: str, dash: str, label: str = "", width: float = 1.4) -> None:
    """Values of a chain against the sweep, from 1."""
    panel.plot(np.arange(1, len(values) + 1), values, dash, color=colour, label=label, linewidth=width)


def draw_mean_and_dots(panel: Axes, places: np.ndarray, values: xr.DataArray, words: str, colour: str) -> None:
    """Mean over ``subset`` as a line, each subset as a dot."""
    panel.plot(places, values.mean("subset"), "-", color=COLOURS[colour], label=words)
    for subset in values.subset:
        panel.plot(places, values.sel(subset=subset), "o", markersize=3, color=COLOURS[colour])


def legend_outside(figure: Figure, place: str = "upper center", columns: int = 2, smaller: int = 1, **kwargs) -> None:
    """Legend of all axes outside of them, in a font that is so many points smaller than the text."""
    figure.legend(loc=f"outside {place}", ncols=columns, frameon=False, fontsize=FONT - smaller, **kwargs)


def write_ticks(axis: Axis, places=None) -> None:
    """Write the ticks of an axis in plain numbers, at exactly these places if any are given; no minor ticks."""
    if places is not None:
        axis.set_major_locator(FixedLocator(list(places)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def show_value(axes: Axes, value: float, words: str = "", at: float = 0.0, smaller: int = 3) -> None:
    """Mark a value of the horizontal axis by a dashed grey line, with words at this height."""
    axes.axvline(value, color=COLOURS["grey"], linewidth=1, linestyle="--")
    if words:
        axes.text(value, at, f" {words}", color=INK["grey"], fontsize=FONT - smaller)


def name_rows(axes: Axes, names: Sequence[str], xlabel: str, smaller: int = 3, xlim: tuple = (0, None)) -> None:
    """Names at 0, 1, ... of the vertical axis, from below, and a faint grid behind what stands beside them."""
    axes.set_yticks(range(len(names)), names, fontsize=FONT - smaller)
    axes.set(xlabel=xlabel, xlim=xlim)
    axes.grid(axis="x", color=COLOURS["grey"], alpha=0.25)


# ---- tables


def sweeps(p: Mapping, stage: str = "") -> str:
    """Lengths of a record's chains, of the stage whose parameters begin so: burn-in + collected."""
    return f"{p[f'{stage}burn_in']} + {p[f'{stage}collect']}"


def plus_minus(value: float, half: float, digits: int = 2, sign: str = "") -> str:
    """Value with the half-width of its 95 % interval; ``sign`` "+" writes the sign of positive values."""
    return f"{value:{sign}.{digits}f} ± {half:.{digits}f}"


#: the same for arrays: an array of text
plus_minus_each = np.vectorize(plus_minus, otypes=[object])


def with_interval(values: xr.DataArray, over: str, digits: int = 2, sign: str = "") -> xr.DataArray:
    """Mean over an axis with its 95 % interval, as text, for every entry of the other axes.

    One or two values, which have no interval that says anything, stand as they are.
    """

    def text(along: np.ndarray, mean: float, half: float) -> str:
        along = along[~np.isnan(along)]
        few = ", ".join(f"{value:{sign}.{digits}f}" for value in along)
        return few if along.size < 3 else plus_minus(mean, half, digits, sign)

    return xr.apply_ufunc(
        text, values, *mean_and_interval(values, over), input_core_dims=[[over], [], []], vectorize=True,
        output_dtypes=[object],
    )


def written(values: xr.DataArray, digits: int | str = 2, over: str | None = None, sign: str = "") -> xr.DataArray:
    """Numbers as text: their means `with_interval` where an axis is given to take them over; blank where there is none.

    ``digits`` : behind the point, or a format such as ",.0f"; text is left as it is
    """
    if over is not None:
        return with_interval(values, over, digits, sign)
    form = digits if isinstance(digits, str) else f"{sign}.{digits}f"
    write = np.vectorize(lambda value: "" if np.isnan(value) else format(value, form), otypes=[object])
    return values if values.dtype == object else xr.apply_ufunc(write, values)


def at_each(axes: str | Sequence[str], quantities: Mapping[str, tuple]) -> dict[Hashable, tuple]:
    """Columns of a `table`: every quantity at each entry of an axis, or of several, named (entry, ..., quantity).

    A quantity without a name is called by the entries alone.
    """
    axes, columns = [axes] if isinstance(axes, str) else list(axes), {}
    first, *_ = next(iter(quantities.values()))
    for entries in product(*(first[axis].values for axis in axes)):
        for name, (values, *how) in quantities.items():
            key = (*entries, name) if name else entries
            columns[key if len(key) > 1 else key[0]] = values.sel(dict(zip(axes, entries, strict=True))), *how
    return columns


def table(rows: str | Sequence[str], columns: Mapping[Hashable, tuple], names: str | Sequence[str] | None = None,
          index=None) -> pd.DataFrame:
    """Table of text: a row for each entry of an axis, or of several, and a column for each quantity.

    Parameters
    ----------
    rows : axes whose entries are the rows
    columns : name -> arguments of `written`: values along ``rows``, or along some of them, and what becomes of them
    names : of the rows; none by default
    index : what the rows are called, if not as the axes' entries
    """
    axes = [rows] if isinstance(rows, str) else list(rows)
    text = [written(*column).reset_coords(drop=True).rename(number) for number, column in enumerate(columns.values())]
    frame = xr.merge(text, join="outer", fill_value="").to_dataframe(dim_order=axes)[list(range(len(text)))]
    frame.columns = pd.Index(list(columns))
    return (frame if index is None else frame.set_axis(index)).rename_axis(names)
