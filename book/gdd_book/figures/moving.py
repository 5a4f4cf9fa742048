"""The four pictures that move: noise, refinement, the published algorithm, explaining away."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from IPython.display import HTML
from matplotlib.figure import Figure

from gdd.base.axes import ATOM, PLANE
from gdd.reference.deconvolution import coefficient_given_rest
from gdd_book.figures import style
from gdd_book.figures.depth import HALF, SCATTERED, at_its_own, chosen, used
from gdd_book.figures.model import draw_atoms
from gdd_book.figures.slider import slider, switches


def over_noise(record: xr.Dataset) -> HTML:
    """Slider over the noise of `mnist-depth`: the most-used top atoms, and where the noise is on the error curves."""
    error = at_its_own(record.hidden_error).mean(("subset", "hidden_image"))
    share = 100 * record.explained.sel(parts=1).where(used(record)).median(ATOM).mean("subset")
    frames = []
    for noise in record.noise.values[::-1]:
        atoms = record.most_used.isel(subset=0).sel(noise=noise).transpose("shown", PLANE, ...)
        words = (f"noise standard deviation {noise**-0.5:.2f} (precision {noise:g}); squared error on a hidden half"
                 f" {float(error.sel(hiding=HALF, noise=noise)):.3f}")
        frames.append((words, _draw_noise(atoms, error, share, noise)))
    first = int(np.flatnonzero(record.noise.values[::-1] == chosen(record))[0])
    return slider(frames, "most-used top atoms and three curves over the noise standard deviation, a dot at the atoms'",
                  first)


def _draw_noise(atoms: xr.DataArray, error: xr.DataArray, share: xr.DataArray, noise: float) -> Figure:
    """A frame of `over_noise`."""
    figure, axes = style.new_figure(2, 2, height=2.9, width_ratios=(1.15, 1))
    grid = axes[0, 0].get_gridspec()
    for panel in axes[:, 0]:
        panel.remove()
    draw_atoms(figure.add_subplot(grid[:, 0]), atoms.values, 5)
    above, below = axes[:, 1]
    lines = [(above, error.sel(hiding=HALF), "a hidden half", "blue"),
             (above, error.sel(hiding=SCATTERED), "scattered pixels", "orange"), (below, share, "", "green")]
    for panel, line, words, colour in lines:
        deviation = line.noise.values**-0.5
        panel.plot(deviation, line, color=style.COLOURS[colour])
        panel.plot(noise**-0.5, line.sel(noise=noise), "o", color=style.COLOURS[colour], markersize=8)
        panel.text(deviation[-1], line[-1] + 0.006, words, color=style.INK[colour], fontsize=style.FONT - 3)
        panel.set(xscale="log")
        style.write_ticks(panel.xaxis, (0.1, 0.2, 0.5, 1))
    above.set(ylim=(0, 0.11))
    above.set_title("squared error, hidden pixels", fontsize=style.FONT - 2)
    below.set(ylim=(0, 100), xlabel="noise standard deviation")
    below.set_title("energy in one atom of layer 1, %", fontsize=style.FONT - 2)
    return style.finish(figure)



def emerging(atoms: Mapping[int, xr.DataArray], columns: int = 6) -> HTML:
    """Slider over the sweeps of a refinement: projected top atoms after each of these numbers of sweeps."""
    frames = []
    for sweeps, one in atoms.items():
        rows = -(-one.sizes[ATOM] // columns)
        figure, axes = style.new_figure(height=style.FULL * rows / columns)
        draw_atoms(axes, one.transpose(ATOM, PLANE, ...).values, columns)
        words = f"refinement, sweep {sweeps}" if sweeps else "after pretraining"
        frames.append((words, style.finish(figure)))
    return slider(frames, "top atoms in the image plane after more and more sweeps of refinement", len(frames) - 1)



def diverging(images: np.ndarray, found: xr.Dataset) -> HTML:
    """Slider over the sweeps of chains: what each leaves of some images, and its residual.

    Parameters
    ----------
    images : (image, row, col)
    found : of `gdd_book.experiments.studies.printed.left_over`
    """
    frames, across = [], len(images)
    for sweep in found.sweep.values:
        one = found.sel(sweep=sweep)
        figure, axes = style.new_panels(1 + one.sizes["reading"], across, style.FULL / (across + 1.6) * 4.2)
        rows = [("digits", images), *zip(one.reading.values, one.left.values, strict=True)]
        for row, (name, pictures) in zip(axes, rows, strict=True):
            for panel, picture in zip(row, pictures, strict=True):
                style.draw_picture(panel, picture, ends=(-1, 1))
            row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=style.FONT - 1)
        sizes = [f"{name} {_size(float(norm))}" for name, norm in zip(found.reading.values, one.residual, strict=True)]
        frames.append((f"sweep {sweep}; residual over images: {', '.join(sizes)}", style.finish(figure)))
    return slider(frames, "some digits and what chains leave of them after more and more sweeps", len(frames) - 1)


def _size(norm: float) -> str:
    """A residual in words, as it may be of any size."""
    if not np.isfinite(norm):
        return "beyond all numbers"
    return f"{norm:.2g}" if norm < 100 else f"{norm:,.0f}" if norm < 1e6 else f"10 to the {np.log10(norm):.0f}"


#: a tiny digit, and atoms placed in it
SEVEN = np.pad(np.array([[1, 1, 1, 1], *[[0, 0, 0, 1]] * 4], float), ((1, 0), (1, 1)))
ACROSS, DOWN, HOOK = np.array([[1, 1, 1]]), np.ones((3, 1)), np.array([[1, 1, 1], [0, 0, 1], [0, 0, 1]])
PLACED = {"A": (ACROSS, 1, 1), "B": (ACROSS, 1, 2), "C": (HOOK, 1, 2), "D": (DOWN, 1, 4), "E": (DOWN, 2, 4),
          "F": (DOWN, 3, 4)}
DEVIATION, GAMMA_W, ATOMS = 0.4, 1.0, 32


def explaining_away() -> HTML:
    """Switches of atoms placed in a tiny digit: their sum, what is left, each one's probability given the others."""
    names, placed = list(PLACED), np.stack([_placed(*one) for one in PLACED.values()])
    frames = []
    for state in range(2 ** len(names)):
        on = np.array([bool(state >> bit & 1) for bit in range(len(names))])
        weights, probability = given_the_others(SEVEN, placed, on)
        total = np.tensordot(weights, placed, 1)
        figure, axes = style.new_figure(height=3.1)
        axes.remove()
        above, below = figure.subfigures(2, 1, height_ratios=(1.3, 1))
        named = (("image", SEVEN), ("sum of atoms on", total), ("residual", SEVEN - total))
        for panel, (title, picture) in zip(above.subplots(1, 3), named, strict=True):
            style.draw_picture(panel, picture, title)
        for panel, name, one, lit, chance in zip(below.subplots(1, len(names)), names, placed, on, probability,
                                                 strict=True):
            style.draw_picture(panel, one / one.max() * (1 if lit else 0.45), f"{name} {chance:.0%}")
            for spine in panel.spines.values():
                spine.set(visible=bool(lit), color=style.COLOURS["red"], linewidth=2.5)
        left = ((SEVEN - total) ** 2).sum() / (SEVEN**2).sum()
        chances = ", ".join(f"{name} {chance:.0%}" for name, chance in zip(names, probability, strict=True))
        lit = ", ".join(name for name, one in zip(names, on, strict=True) if one) or "none"
        frames.append((f"on: {lit}; energy left {left:.0%}; probability given the others: {chances}",
                       style.finish(figure)))
    return switches(frames, "a tiny seven, the sum of the atoms that are on, the residual, and each atom's probability",
                    names, first=1 << names.index("C"))


def _placed(atom: np.ndarray, row: int, col: int) -> np.ndarray:
    """An atom of norm 1 in the image plane."""
    picture = np.zeros(SEVEN.shape)
    picture[row : row + atom.shape[0], col : col + atom.shape[1]] = atom
    return picture / np.linalg.norm(picture)


def given_the_others(image: np.ndarray, placed: np.ndarray, on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the placed atoms that are on, at their posterior mean; each one's probability given the others.

    Parameters
    ----------
    image : (row, col)
    placed : (atom, row, col)
    on : (atom,) of bool

    Returns
    -------
    weights, probability : (atom,)
    """
    flat = placed.reshape(len(placed), -1) / DEVIATION  # in units in which the noise has precision 1
    gram, seen, weights = flat @ flat.T, flat @ image.ravel() / DEVIATION, np.zeros(len(placed))
    weights[on] = np.linalg.solve(gram[np.ix_(on, on)] + GAMMA_W * np.eye(on.sum()), seen[on])
    norms = np.diag(gram)
    alone = seen - gram @ weights + norms * weights
    choices = [coefficient_given_rest(*one, GAMMA_W, 1 / (ATOMS - 1)) for one in zip(alone, norms, strict=True)]
    return weights, np.array([np.exp(one.log_probability[0]) for one in choices])
