"""What a code is worth, against the number of labels; how a digit is put together from its pieces."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from IPython.display import HTML
from matplotlib.figure import Figure

from gdd import MNIST
from gdd.base.axes import ATOM, PLANE
from gdd_book import paper_values
from gdd_book.experiments.mnist import KINDS
from gdd_book.experiments.studies.labels import DETECTORS, PIXELS, RIDGE
from gdd_book.experiments.studies.mnist_features import COPIED
from gdd_book.figures import style
from gdd_book.figures.mnist import draw_curves, subset_errors
from gdd_book.figures.model import draw_atoms, pieces_of
from gdd_book.figures.slider import slider

SAMPLE = KINDS[0]
WHITENED = "whitened one-step features"
#: lines of the learning curve from `mnist-labels`: coded at which precisions, kind of feature, name, style of line
SAMPLES = (
    ("trained", SAMPLE, "paper's code at\ntraining's precisions", "--o"), ("chosen", PIXELS, "raw pixels", "-o"),
    ("chosen", SAMPLE, "paper's code at\nchosen precisions", "-o"),
)
#: those from `mnist-best`
LINES = (
    ("scattering", "scattering", "-o"), (WHITENED, "single-pass features,\nwhitened", "-o"),
    (COPIED.format(WHITENED), "the same, from\ndeformed copies too", "--o"),
)


def show_story(labelled: Mapping[str, xr.Dataset], best: Sequence[xr.Dataset]) -> Figure:
    """Test error against training digits: `mnist-labels` at the precisions of training and at chosen ones, the best."""
    best = subset_errors(best)
    lines = [(labelled[name].error.sel(feature_kind=kind), *line) for name, kind, *line in SAMPLES]
    lines += [(best.sel(feature_kind=kind), *line) for kind, *line in LINES]
    lines = [(errors, words, {"fmt": form}) for errors, words, form in lines]
    return draw_curves(paper_values.table("mnist_error"), lines, height=3.4, ylim=(0.25, 40))


def show_two_chains(record: xr.Dataset) -> Figure:
    """The same digit taken apart by two chains that differ in their random numbers only."""
    figure, axes = style.new_panels(2, 7, 2.1)
    for chain, row in enumerate(axes):
        _draw_pieces(row, *_example(record, 3, chain), f"chain {chain + 1}")
    return style.finish(figure)


def shared_coefficients(record: xr.Dataset) -> pd.DataFrame:
    """How far two chains agree on the same digits, ten of every subset: coefficients that are on, by stage."""
    on = record.example_code != 0
    axes = [axis for axis in on.dims if axis not in ("stage", "chain")]
    both, either = on.all("chain").sum(axes), on.any("chain").sum(axes)
    each = on.sum(axes).mean("chain") / (on.sizes["subset"] * on.sizes["digit"])
    return style.table("stage", {
        "active in one digit": (each, 1), "in both chains, % of those in either": (100 * both / either, 0),
    })


def key_numbers(labelled: Mapping[str, xr.Dataset], best: Sequence[xr.Dataset]) -> pd.DataFrame:
    """Test errors after 1,000 labels, of MNIST, as `show_story` draws them."""
    chosen, trained = (labelled[one].error.sel(size=1000).mean("trial") for one in ("chosen", "trained"))
    printed = paper_values.table("mnist_error").query("ours and n_train == 1000").error.item()
    whitened, copied = subset_errors(best).sel(feature_kind=[line[0] for line in LINES[-2:]], size=1000).mean("trial")
    rows = {
        "paper": printed,
        "the paper's code, at the precisions that training leaves": trained.sel(feature_kind=SAMPLE),
        "the same code, at precisions chosen on training digits": chosen.sel(feature_kind=SAMPLE),
        "ridge regression on the same placed atoms": chosen.sel(feature_kind=RIDGE),
        "the same atoms as detectors": chosen.sel(feature_kind=DETECTORS),
        "raw pixels": chosen.sel(feature_kind=PIXELS),
        "single-pass features of four first layers side by side, whitened": whitened,
        "the same, with a classifier trained on deformed copies too": copied,
    }
    words = [f"{one:g}" if one is printed else f"{float(one):.1f}" for one in rows.values()]
    return pd.DataFrame({"test error, %": words}, pd.Index(rows, name="1,000 labels of MNIST"))


def rebuilding(record: xr.Dataset) -> HTML:
    """Slider over the pieces of a digit, strongest first: the digit, the last piece, the sum so far, what is left."""
    whole, found = _example(record, 2)

    def frame(count: int) -> tuple[str, Figure]:
        figure, axes = style.new_panels(1, 4, 1.5)
        total = found[:count].sum(axis=0)
        last = found[count - 1] if count else np.zeros_like(whole)
        titles = ("a digit", "this piece", "sum so far", "what is left")
        style.draw_row(axes[0], (whole, last, total, whole - total), titles=titles)
        return f"{count} of {len(found)} pieces", figure

    says = "a digit put together from its pieces, one after the other"
    return slider(map(frame, range(len(found) + 1)), says, first=min(5, len(found)))


def noises(
    whole: np.ndarray, atoms: np.ndarray, codes: Mapping[float, np.ndarray], stride: tuple[int, int],
    curves: pd.DataFrame,
) -> HTML:
    """Slider over noise levels: a digit's strongest pieces, and curves over the noise with a dot where it is.

    ``whole`` (row, col); ``codes`` : noise precision -> (atom, row, col); ``curves`` : a row for each noise precision,
    coefficients ``active``, what is ``left``, share ``in both`` chains in %
    """
    frames = []
    for number, (gamma_e, code) in enumerate(codes.items()):
        found = pieces_of(atoms, code, stride, whole.shape)
        words = f"noise s.d. {gamma_e**-0.5:.2g} (precision {gamma_e:,g}): {len(found)} pieces"
        frames.append((words, _draw_noise(whole, found, curves, number)))
    return slider(frames, "a digit's strongest pieces and three curves over the noise, a dot where it stands")


def _draw_noise(whole: np.ndarray, found: np.ndarray, curves: pd.DataFrame, number: int) -> Figure:
    """A frame of `noises`; dashed: the noise that the model expects to be left."""
    with plt.rc_context(style.RC):
        figure = plt.figure(figsize=(style.FULL, 3.0), FigureClass=style.Drawn)
        above, below = figure.subfigures(2, 1, height_ratios=(1, 1.9))
        panels = below.subplots(1, 3)
    _draw_pieces(above.subplots(1, 7), whole, found)
    named = {"active": ("active", (10, 100)), "left": ("what is left", (0.03, 0.1, 0.3, 1)),
             "in both": ("in both chains, %", (0, 50, 100))}
    for panel, (name, (title, ticks)) in zip(panels, named.items(), strict=True):
        panel.plot(curves.index**-0.5, curves[name], color=style.COLOURS["blue"])
        panel.plot(curves.index[number] ** -0.5, curves[name].iloc[number], "o", color=style.COLOURS["red"])
        panel.set(xscale="log", yscale="linear" if name == "in both" else "log", xlabel="noise s.d.")
        panel.set_title(title, fontsize=style.FONT - 1)
        style.write_ticks(panel.xaxis, (0.03, 0.2, 1))
        style.write_ticks(panel.yaxis, ticks)
    panels[1].plot(curves.index**-0.5, curves.index**-0.5, "--", color=style.COLOURS["grey"])
    panels[2].set_ylim(0, 100)
    return figure


def forming(record: xr.Dataset) -> HTML:
    """Slider over the frames of `mnist-forming`: the same atoms after more and more sweeps."""
    def frame(one: xr.Dataset) -> tuple[str, Figure]:
        figure, axes = style.new_figure(height=4.2)
        draw_atoms(axes, one.frames.transpose(ATOM, PLANE, ...), 5)
        words = f"{one.stage.item()}, sweep {one.sweep.item()}; share of an atom in one stroke {one.stroke_share:.2f}"
        return words, figure

    frames = [record.isel(frame=number) for number in range(record.sizes["frame"])]
    return slider(map(frame, frames), "top atoms in the image plane after more and more sweeps", len(frames) - 1)


def _example(record: xr.Dataset, digit: int, chain: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A digit of a record, (row, col), and its pieces, (piece, row, col), by refined atoms."""
    one = record.isel(subset=0).sel(stage="refined")
    atoms = one.projected_atoms.transpose(ATOM, PLANE, ...).values / 100 * one.largest.values[:, None, None, None]
    code = one.example_code[chain, digit].values.astype(float)
    return one.example[digit, 0].values / 255, pieces_of(atoms, code, MNIST.stride, MNIST.image_size)


def _draw_pieces(panels, whole: np.ndarray, found: np.ndarray, title: str = "a digit") -> None:
    """The digit, its five strongest pieces, and the sum of all; blank where there are fewer."""
    style.draw_row(panels, [whole, *found[:5]], titles=[title, "≈", "+", "+", "+", "+"])
    for panel in panels[len(found) + 1 : 6]:
        style.bare(panel)
    style.draw_picture(panels[6], found.sum(axis=0), f"all {len(found)}")
