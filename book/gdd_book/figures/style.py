"""How figures and tables look: widths, fonts, colours, a mean with its interval; no global setting is changed."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from IPython import get_ipython
from IPython.core.pylabtools import print_figure
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullFormatter
from sklearn.isotonic import isotonic_regression

from gdd_book.evaluate.statistics import mean_and_interval

FULL = 5.4  # inches: the width of the text column, of every figure, so that all text has one size
DPI = 170
FONT = 11  # points
NOISE = "noise s.d. (precision)"  # heads what `noise_words` gives
MARGIN = 0.04  # inches around everything
#: words for what is kept of a chain
KIND_WORDS = {"ml_sample": "ML sample", "mean": "posterior mean"}

#: Okabe and Ito's colours, told apart by all common kinds of colour vision, their yellow darkened, and a brown
COLOURS = {
    "black": "#000000", "orange": "#E69F00", "sky": "#56B4E9", "green": "#009E73", "olive": "#7F7822",
    "blue": "#0072B2", "red": "#D55E00", "purple": "#CC79A7", "grey": "#767676", "brown": "#8C4A2F",
}
#: the same for words, dark enough to be read on white (a contrast of 4.5)
INK = COLOURS | {"orange": "#9E6D00", "sky": "#3C7DA3", "green": "#008762", "red": "#C35600", "purple": "#A36085"}
#: colour of a method in every figure, by a word of its name, the first that fits: black, numbers of the paper; red, the
#: paper's way run here; blue, this package's own; grey, pixels as they are; olive, filters that nobody learned
METHODS = {
    "paper": "black", "whitened": "blue", "preset": "blue", "single-pass": "sky", "one-step": "sky", "OneStep": "sky",
    "ridge": "purple", "lasso": "purple", "pursuit": "purple", "detectors": "green", "correlation": "green",
    "scattering": "olive", "gradients": "olive", "patches": "brown", "windows": "brown", "pixels": "grey",
    "components": "grey", "mean": "orange", "": "red",
}
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


def method_colour(name: str) -> str:
    """Name of the colour of a feature or a method."""
    return next(colour for word, colour in METHODS.items() if word in name)


class Drawn(Figure):
    """A figure that a notebook describes by the numbers it draws, so that another picture is another output.

    A line for each panel: its title; of lines, pictures, areas and points their sizes and sums of magnitudes. Charts
    are shown as SVG, pictures as PNG.
    """

    def svg(self) -> str | None:
        """The figure as SVG if it is a chart."""
        with plt.rc_context({"svg.hashsalt": "gdd"}):
            return None if self.has_pictures() else print_figure(self, "svg", metadata={"Date": None, "Creator": None})

    def png(self) -> bytes | None:
        """The figure as PNG if it has pictures."""
        return print_figure(self, "png") if self.has_pictures() else None

    def has_pictures(self) -> bool:
        """Whether any panel shows an image."""
        return any(axes.images for axes in self.axes)

    def __repr__(self) -> str:
        panels = [f"  {axes.get_title()!r}: {'; '.join(drawn_in(axes))}" for axes in self.axes]
        return "\n".join([f"figure of {len(panels)} panels", *panels])


if (shell := get_ipython()) is not None:  # what notebooks show; of Figure itself matplotlib shows PNG
    shell.display_formatter.formatters["image/svg+xml"].for_type(Drawn, Drawn.svg)
    shell.display_formatter.formatters["image/png"].for_type(Drawn, Drawn.png)


def drawn_in(axes: Axes) -> list[str]:
    """What a panel draws, a text for each line, picture, area or set of points: sizes, sums of magnitudes, signs."""
    found = [("line", line.get_xydata().T) for line in axes.lines]
    found += [("picture", image.get_array()[None]) for image in axes.images]
    found += [("bar", np.array([bar.get_bbox().extents])) for bar in axes.patches if isinstance(bar, Rectangle)]
    for one in axes.collections:
        outlines = [path.vertices for path in one.get_paths()]
        points = one.get_offsets() if isinstance(one, PathCollection) else np.concatenate([np.empty((0, 2)), *outlines])
        found.append(("points", np.asarray(points).T))
    texts = []
    for kind, parts in found:
        values = np.ma.filled(np.ma.asarray(parts, float), 0.0).reshape(len(parts), -1)
        sizes, sums = np.nansum(np.abs(values), axis=1), np.nansum(values, axis=1)
        shares = np.round(np.divide(sums, sizes, out=np.zeros_like(sums), where=sizes > 0), 2) + 0.0  # no -0
        numbers = ", ".join(f"{size:.4g} ({share:.2f})" for size, share in zip(sizes, shares, strict=True))
        texts.append(f"{kind} {'x'.join(map(str, parts[0].shape))} {numbers}")
    return texts


def new_figure(rows: int = 1, cols: int = 1, width: float = FULL, height: float = 3.0, **kwargs) -> tuple[Figure, Axes]:
    """`matplotlib.pyplot.subplots` in the book's style; sizes in inches."""
    with plt.rc_context(RC):
        return plt.subplots(rows, cols, figsize=(width, height), FigureClass=Drawn, **kwargs)


def finish(figure: Figure) -> Figure:
    """Make a figure the value of a cell: off pyplot's list, lest it is shown twice; its margins held by a frame."""
    figure.add_artist(Rectangle((0, 0), 1, 1, transform=figure.transFigure, fill=False, linewidth=0, zorder=-9))
    plt.close(figure)
    return figure


def bare(axes: Axes) -> Axes:
    """No ticks and no frame: for pictures."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
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


def draw_row(panels: Sequence[Axes], pictures: Sequence[np.ndarray], name: str = "", titles: Sequence[str] = (),
             ends: tuple[float, float] = (-1, 1), smaller: int = 1) -> None:
    """Pictures (row, col) in a row of panels, each below its title, the row's name on the left."""
    for panel, picture, title in zip(panels, pictures, titles or [""] * len(pictures), strict=False):
        draw_picture(panel, picture, title, ends, smaller=smaller)
    panels[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=FONT - smaller)


def show_rows(rows: Mapping[str, Sequence], height: float, ends: tuple = (-1, 1), smaller: int = 1) -> Figure:
    """A row of pictures (row, col) for each name; sizes in inches."""
    figure, axes = new_panels(len(rows), max(map(len, rows.values())), height)
    for panels, (name, pictures) in zip(axes, rows.items(), strict=True):
        draw_row(panels, pictures, name, ends=ends, smaller=smaller)
    return finish(figure)


def draw_chain(panel: Axes, values, colour: str, dash: str, label: str = "", width: float = 1.4) -> None:
    """Values of a chain against the sweep, from 1."""
    panel.plot(np.arange(1, len(values) + 1), values, dash, color=colour, label=label, linewidth=width)


def draw_mean_and_dots(panel: Axes, places: np.ndarray, values: xr.DataArray, colour: str) -> None:
    """Mean over ``subset`` as a line, each subset as a dot."""
    panel.plot(places, values.mean("subset"), "-", color=COLOURS[colour])
    for subset in values.subset:
        panel.plot(places, values.sel(subset=subset), "o", markersize=3, color=COLOURS[colour])


def legend_outside(figure: Figure, place: str = "upper center", columns: int = 2, smaller: int = 1, **kwargs) -> None:
    """Legend of all axes outside of them, in a font that is so many points smaller than the text."""
    figure.legend(loc=f"outside {place}", ncols=columns, frameon=False, fontsize=FONT - smaller, **kwargs)


def label_ends(axes: Axes, ends: Mapping[str, tuple[float, float, str]], smaller: int = 2) -> None:
    """Names of lines on the right, near their ends (x, y, colour's name), as far apart as they must be."""
    names, points = list(ends), np.array([end[:2] for end in ends.values()], float)
    size, labels = FONT - smaller, []
    for name, (*point, colour) in ends.items():
        line = {"arrowstyle": "-", "color": COLOURS[colour], "linewidth": 0.6, "relpos": (0, 0.5)}
        look = {"color": INK[colour], "fontsize": size, "va": "center", "annotation_clip": False, "arrowprops": line}
        labels.append(axes.annotate(name, point, (1.03, 0.5), textcoords="axes fraction", **look))
    axes.figure.draw_without_rendering()  # lays the figure out, so that heights are known
    heights = axes.transAxes.inverted().transform(axes.transData.transform(points))[:, 1]
    order = np.argsort(heights, kind="stable")
    room = np.array([1.25 * size * (1 + names[one].count("\n")) / 72 * DPI / axes.bbox.height for one in order])
    apart = np.concatenate([[0], np.cumsum((room[1:] + room[:-1]) / 2)])
    for one, height in zip(order, isotonic_regression(heights[order] - apart) + apart, strict=True):
        labels[one].set_position((1.03, height))


def label_lines(axes: Axes, smaller: int = 3) -> None:
    """The labels of all lines of the axes at their ends, in place of a legend."""
    names, ends = {value: name for name, value in COLOURS.items()}, {}
    for line in axes.get_legend_handles_labels()[0]:
        points = np.array([line.get_xdata(), line.get_ydata()], float)
        ends[line.get_label()] = *points[:, np.isfinite(points).all(axis=0)][:, -1], names[line.get_color()]
    label_ends(axes, ends, smaller)


def explain_faces(figure: Figure, hollow: str, filled: str) -> None:
    """Legend above a figure whose colours are those of `METHODS`: what hollow markers are, and filled ones."""
    looks = {"marker": "o", "linestyle": "", "color": COLOURS["black"]}
    legend_outside(figure, handles=[Line2D([], [], markerfacecolor="white", label=hollow, **looks),
                                    Line2D([], [], label=filled, **looks)])


def write_ticks(axis: Axis, places=None) -> None:
    """Write the ticks of an axis in plain numbers, at exactly these places if any are given; no minor ticks."""
    if places is not None:
        axis.set_major_locator(FixedLocator(list(places)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def show_value(axes: Axes, value: float, words: str = "", at: float = 0.0, smaller: int = 3, ha: str = "left") -> None:
    """Mark a value of the horizontal axis by a dashed grey line, with words at this height."""
    axes.axvline(value, color=COLOURS["grey"], linewidth=1, linestyle="--")
    if words:
        axes.text(value, at, f" {words} ", color=INK["grey"], fontsize=FONT - smaller, ha=ha)


def name_rows(axes: Axes, names: Sequence[str], xlabel: str, smaller: int = 3, xlim: tuple = (0, None)) -> None:
    """Names at 0, 1, ... of the vertical axis, from below, and a faint grid behind what stands beside them."""
    axes.set_yticks(range(len(names)), names, fontsize=FONT - smaller)
    axes.set(xlabel=xlabel, xlim=xlim)
    axes.grid(axis="x", color=COLOURS["grey"], alpha=0.25)


# ---- tables
def noise_words(precisions: Sequence[float]) -> list[str]:
    """Noise as its standard deviation, the precision in brackets."""
    return [f"{precision**-0.5:.2g} ({precision:,g})" for precision in np.asarray(precisions).tolist()]


def sweeps(p: Mapping, stage: str = "") -> str:
    """Lengths of a record's chains, of the stage whose parameters begin so: burn-in + collected."""
    return f"{p[f'{stage}burn_in']} + {p[f'{stage}collect']}"


def plus_minus(value: float, half: float, digits: int = 2, sign: str = "") -> str:
    """Value with the half-width of its 95 % interval; ``sign`` "+" writes the sign of positive values."""
    return f"{value:{sign}.{digits}f} ± {half:.{digits}f}"


#: the same for arrays: an array of text
plus_minus_each = np.vectorize(plus_minus, otypes=[object])


def with_interval(values: xr.DataArray, over: str, digits: int = 2, sign: str = "") -> xr.DataArray:
    """Mean over an axis with its 95 % interval, as text; one or two values, which have none of use, as they are."""

    def text(along: np.ndarray, mean: float, half: float) -> str:
        along = along[~np.isnan(along)]
        few = ", ".join(f"{value:{sign}.{digits}f}" for value in along)
        return few if along.size < 3 else plus_minus(mean, half, digits, sign)

    return xr.apply_ufunc(
        text, values, *mean_and_interval(values, over), input_core_dims=[[over], [], []], vectorize=True,
        output_dtypes=[object],
    )


def written(values: xr.DataArray, digits: int | str = 2, over: str | None = None, sign: str = "") -> xr.DataArray:
    """Numbers as text, `with_interval` where an axis is given to take means over; blank for NaN, text as it is.

    ``digits`` : behind the point, or a format such as ",.0f"
    """
    if over is not None:
        return with_interval(values, over, digits, sign)
    form = digits if isinstance(digits, str) else f"{sign}.{digits}f"
    write = np.vectorize(lambda value: "" if np.isnan(value) else format(value, form), otypes=[object])
    return values if values.dtype == object else xr.apply_ufunc(write, values)


def at_each(axes: str | Sequence[str], quantities: Mapping[str, tuple]) -> dict[Hashable, tuple]:
    """Columns of a `table`: every quantity at each entry of an axis, or of several; nameless ones go by the entries."""
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
