"""The four pictures that move: noise, refinement, the published algorithm, explaining away."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from IPython.display import HTML
from matplotlib.figure import Figure
from PIL import Image

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

    def frame(noise: float) -> tuple[str, Figure]:
        atoms = record.most_used.isel(subset=0).sel(noise=noise).transpose("shown", PLANE, ...)
        words = (f"noise standard deviation {noise**-0.5:.2f} (precision {noise:g}); squared error on a hidden half"
                 f" {float(error.sel(hiding=HALF, noise=noise)):.3f}")
        return words, _draw_noise(atoms, error, share, noise)

    noises = record.noise.values[::-1].tolist()
    says = "most-used top atoms and three curves over the noise standard deviation, a dot at the atoms'"
    return slider(map(frame, noises), says, noises.index(chosen(record)))


def _draw_noise(atoms: xr.DataArray, error: xr.DataArray, share: xr.DataArray, noise: float) -> Figure:
    """A frame of `over_noise`."""
    figure, axes = style.new_figure(2, 2, height=2.9, width_ratios=(1.15, 1))
    grid = axes[0, 0].get_gridspec()
    for panel in axes[:, 0]:
        panel.remove()
    draw_atoms(figure.add_subplot(grid[:, 0]), atoms.values, 5)
    above, below = axes[:, 1]
    lines = [(above, error.sel(hiding=HALF), "a hidden half", "blue"),
             (above, error.sel(hiding=SCATTERED), "scattered pixels", "purple"), (below, share, "", "blue")]
    for panel, line, words, colour in lines:
        deviation = line.noise.values**-0.5
        panel.plot(deviation, line, color=style.COLOURS[colour])
        panel.plot(noise**-0.5, line.sel(noise=noise), "o", color=style.COLOURS[colour], markersize=7)
        panel.text(deviation[-1], line[-1] + 0.011, words, color=style.INK[colour], fontsize=style.FONT - 3)
        panel.set(xscale="log")
        style.write_ticks(panel.xaxis, (0.1, 0.2, 0.5, 1))
    above.set(ylim=(0, 0.12))
    above.set_title("squared error, hidden pixels", fontsize=style.FONT - 2)
    below.set(ylim=(0, 100), xlabel="noise standard deviation")
    below.set_title("energy in one atom of layer 1, %", fontsize=style.FONT - 2)
    return figure


def emerging(atoms: Mapping[int, xr.DataArray], columns: int = 6) -> HTML:
    """Slider over the sweeps of a refinement: projected top atoms after each of these numbers of sweeps."""
    frames = []
    for sweeps, one in atoms.items():
        figure, axes = style.new_figure(height=style.FULL * -(-one.sizes[ATOM] // columns) / columns)
        draw_atoms(axes, one.transpose(ATOM, PLANE, ...).values, columns)
        frames.append((f"refinement, sweep {sweeps}" if sweeps else "after pretraining", figure))
    return slider(frames, "top atoms in the image plane after more and more sweeps of refinement", len(frames) - 1)


def diverging(images: np.ndarray, found: xr.Dataset) -> HTML:
    """Slider over the sweeps of `left_over`: what each chain leaves of images (image, row, col), and its residual."""
    frames, names = [], found.reading.values
    for sweep in found.sweep.values:
        one = found.sel(sweep=sweep)
        rows = {"digits": images} | dict(zip(names, one.left.values, strict=True))
        sizes = []
        for name, norm in zip(names, one.residual.values, strict=True):  # which may be of any size
            large = f"10 to the {np.log10(norm):.0f}" if np.isfinite(norm) else "beyond all numbers"
            sizes.append(f"{name} {f'{norm:.2g}' if norm < 100 else f'{norm:,.0f}' if norm < 1e6 else large}")
        figure = style.show_rows(rows, style.FULL / (len(images) + 1.6) * 4.2)
        frames.append((f"sweep {sweep}; residual over images: {', '.join(sizes)}", figure))
    return slider(frames, "some digits and what chains leave of them after more and more sweeps", len(frames) - 1)


#: a tiny digit, and atoms placed in it
SEVEN = np.pad(np.array([[1, 1, 1, 1], *[[0, 0, 0, 1]] * 4], float), ((1, 0), (1, 1)))
ACROSS, DOWN, HOOK = np.array([[1, 1, 1]]), np.ones((3, 1)), np.array([[1, 1, 1], [0, 0, 1], [0, 0, 1]])
PLACED = {"A": (ACROSS, 1, 1), "B": (ACROSS, 1, 2), "C": (HOOK, 1, 2), "D": (DOWN, 1, 4), "E": (DOWN, 2, 4),
          "F": (DOWN, 3, 4)}
DEVIATION, GAMMA_W, ATOMS = 0.4, 1.0, 32


def explaining_away() -> HTML:
    """Switches of atoms in a tiny digit: sum, residual, each one's probability of being on given the others."""
    placed, frames = np.stack([_placed(*one) for one in PLACED.values()]), []
    for state in range(2 ** len(placed)):
        on = (state >> np.arange(len(placed)) & 1).astype(bool)
        weights, probability = given_the_others(SEVEN, placed, on)
        total = np.tensordot(weights, placed, 1)
        sheet = np.full((272, 600, 3), 255, np.uint8)
        for number, picture in enumerate((SEVEN, total, SEVEN - total)):
            _paste(sheet, picture, (5, 200 * number + 16), 28)
        for number, (atom, lit) in enumerate(zip(placed, on, strict=True)):
            if lit:
                sheet[182:272, 100 * number + 5 : 100 * number + 95] = 213, 94, 0
            _paste(sheet, atom / placed.max() * (1 if lit else 0.5), (188, 100 * number + 11), 13)
        left, lit = ((SEVEN - total) ** 2).sum() / (SEVEN**2).sum(), ", ".join(np.array([*PLACED])[on]) or "none"
        chances = [f"{name} {chance:.0%}" for name, chance in zip(PLACED, probability, strict=True)]
        words = f"on: {lit}; energy left {left:.0%}; probability given the others: {', '.join(chances)}"
        frames.append((words, Image.fromarray(sheet), chances))
    return switches(frames, "a tiny seven, the sum of the atoms that are on, the residual, and six atoms", 4)


def _paste(sheet: np.ndarray, picture: np.ndarray, corner: tuple[int, int], scale: int) -> None:
    """Put a picture (row, col), from -1 to 1, on a sheet (row, col, colour), its pixels enlarged."""
    grey = np.kron(np.rint(127.5 * (1 + picture.clip(-1, 1))), np.ones((scale, scale)))
    sheet[corner[0] : corner[0] + len(grey), corner[1] : corner[1] + len(grey)] = grey[..., None]


def _placed(atom: np.ndarray, row: int, col: int) -> np.ndarray:
    """An atom of norm 1 in the image plane."""
    picture = np.zeros(SEVEN.shape)
    picture[row : row + atom.shape[0], col : col + atom.shape[1]] = atom
    return picture / np.linalg.norm(picture)


def given_the_others(image: np.ndarray, placed: np.ndarray, on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of placed atoms, at their posterior mean if on; each one's probability of being on given the others.

    ``image`` (row, col), ``placed`` (atom, row, col), ``on`` (atom,) of bool; both results (atom,)
    """
    flat = placed.reshape(len(placed), -1) / DEVIATION  # in units in which the noise has precision 1
    gram, seen, weights = flat @ flat.T, flat @ image.ravel() / DEVIATION, np.zeros(len(placed))
    weights[on] = np.linalg.solve(gram[np.ix_(on, on)] + GAMMA_W * np.eye(on.sum()), seen[on])
    norms = np.diag(gram)
    alone = seen - gram @ weights + norms * weights
    choices = [coefficient_given_rest(*one, GAMMA_W, 1 / (ATOMS - 1)) for one in zip(alone, norms, strict=True)]
    return weights, np.array([np.exp(one.log_probability[0]) for one in choices])
