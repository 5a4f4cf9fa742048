"""The paper's printed conditionals beside the right ones: positions of a small map, an atom, two precisions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from gdd.base.checks import GddError
from gdd.model.distributions import Gamma, Gaussian
from gdd.model.state import EMPTY
from gdd_book.figures.style import COLOURS, FONT, finish, new_figure

SHARE = 0.95  # of the mass, inside a contour
ACTIVE, NONE = "\N{BLACK CIRCLE}", "\N{MIDDLE DOT}"


def show_outcomes(space: np.ndarray, shares: Mapping[str, np.ndarray], positions: int) -> Figure:
    """Probability of every z of a one-row map: black the exact posterior, a colour for each sampler.

    Parameters
    ----------
    space : (outcome, ..., block) of int, EMPTY for none
    shares : name -> (outcome,); the first is the exact posterior
    positions : of a block

    Raises
    ------
    GddError
        If a share is not one number for each outcome.

    Notes
    -----
    *Source:* not in the paper. *Departs:* not applicable. *Checked:* tests/test_errata.py.
    """
    flat = space.reshape(len(space), -1)
    for name, share in shares.items():
        if np.shape(share) != (len(space),):
            raise GddError(f"shares: '{name}' has shape {np.shape(share)}; {len(space)} outcomes need ({len(space)},)")
    figure, axes = new_figure(height=3.4)
    width = 0.84 / len(shares)
    colours = [COLOURS[name] for name in ("black", "blue", "orange", "red", "purple")]
    for number, ((name, share), colour) in enumerate(zip(shares.items(), colours, strict=False)):
        left = np.arange(len(space)) - 0.42 + (number + 0.5) * width
        axes.bar(left, share, width, color=colour, label=name)
    axes.set_xticks(range(len(space)), [_drawn(z, positions) for z in flat], fontsize=FONT - 2)
    axes.set(ylabel="probability", xlabel="positions of the two blocks, active where the dot is full")
    figure.legend(loc="outside upper left", ncols=2, fontsize=FONT - 2, frameon=False)
    return finish(figure)


def _drawn(z: np.ndarray, positions: int) -> str:
    """One outcome as text, a line for each block: a full dot at its active position, small dots elsewhere."""
    blocks = [[NONE] * positions for _ in z]
    for block, m in zip(blocks, z, strict=True):
        if m != EMPTY:
            block[m] = ACTIVE
    return "\n".join(" ".join(block) for block in blocks)


def show_atom(right: Gaussian, printed: Gaussian, truth: np.ndarray) -> Figure:
    """Contours that hold 95 % of two Gaussians over the two pixels of an atom, and the atom that made the data.

    *Source:* not in the paper. *Departs:* not applicable. *Checked:* tests/test_errata.py.
    """
    if right.mean.shape != (2,) or printed.mean.shape != (2,):
        raise GddError(f"right, printed: {right.mean.shape}, {printed.mean.shape}; two pixels can be drawn")
    figure, axes = new_figure(height=3.4)
    for choice, name, colour in ((right, "right", "blue"), (printed, "as printed", "red")):
        axes.plot(*contour(choice), color=COLOURS[colour], label=name, linewidth=2)
        axes.plot(*choice.mean, "o", color=COLOURS[colour], markersize=4)
    axes.plot(*truth, "x", color=COLOURS["black"], label="the atom of the data", markersize=8, markeredgewidth=2)
    axes.set(xlabel="first pixel", ylabel="second pixel", aspect="equal")
    figure.legend(loc="outside right upper", fontsize=FONT - 1, frameon=False)
    return finish(figure)


def contour(choice: Gaussian) -> np.ndarray:
    """Points of the ellipse that holds `SHARE` of a Gaussian over two numbers: (2, point)."""
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(turn), np.sin(turn)]) * np.sqrt(stats.chi2(2).ppf(SHARE))
    return choice.mean[:, None] + np.linalg.solve(np.linalg.cholesky(choice.precision).T, circle)


def show_precisions(panels: Mapping[str, Mapping[str, Gamma]], truths: Mapping[str, float]) -> Figure:
    """Densities of precisions over their logarithm, each scaled to its own peak; a dotted line at the true value.

    Parameters
    ----------
    panels : title -> (name -> Gamma of one number); the first name of a panel is the right one
    truths : title -> the value that made the data

    Notes
    -----
    *Source:* not in the paper. *Departs:* not applicable. *Checked:* tests/test_errata.py.
    """
    if set(panels) != set(truths):
        raise GddError(f"truths: {sorted(truths)} given for {sorted(panels)}")
    figure, axes = new_figure(len(panels), 1, height=2.1 * len(panels), squeeze=False)
    for ax, (title, choices) in zip(axes[:, 0], panels.items(), strict=True):
        _draw_densities(ax, choices)
        ax.axvline(truths[title], color=COLOURS["black"], linestyle=":", linewidth=1)
        ax.set_xlabel(title)
        ax.legend(fontsize=FONT - 2, loc="upper left", frameon=False)
    return finish(figure)


def _draw_densities(ax: Axes, choices: Mapping[str, Gamma]) -> None:
    made = {name: stats.gamma(np.ravel(c.shape)[0], scale=1 / np.ravel(c.rate)[0]) for name, c in choices.items()}
    low = min(choice.ppf(0.05) for choice in made.values())
    high = max(choice.ppf(0.999) for choice in made.values())
    grid = np.geomspace(low, 2 * high, 4000)
    for (name, choice), colour in zip(made.items(), ("blue", "red", "orange"), strict=False):
        density = choice.pdf(grid) * grid
        ax.fill_between(grid, density / density.max(), color=COLOURS[colour], alpha=0.25, linewidth=0)
        ax.plot(grid, density / density.max(), color=COLOURS[colour], label=name)
    ax.set(xscale="log", xlim=(grid[0], grid[-1]), ylim=(0, 1.05), yticks=[])
    ax.set_ylabel("density / peak", fontsize=FONT - 1)
