"""Figures and tables of the chapters on the model: atoms and pictures, numbers of parameters, misprints, refinement."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, prod

import numpy as np
import pandas as pd
import xarray as xr
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator
from numpy.lib.stride_tricks import sliding_window_view
from scipy import stats

from gdd.base.axes import ATOM, DICTIONARY, DRAW, IMAGE, LABEL, PLANE
from gdd.base.checks import check_whole
from gdd.model.distributions import Gamma, Gaussian
from gdd.model.spec import LayerShape, LayerSpec, ModelSpec
from gdd.plot import GAP, draw_mosaic, over_largest
from gdd.projection import render_projected
from gdd.reference.conditionals import block_given_rest
from gdd_book.figures import style
from gdd_book.figures.slider import slider

SHARE = 0.95  # of the mass, inside a contour
ACTIVE, NONE = "\N{BLACK CIRCLE}", "\N{MIDDLE DOT}"


def draw_atoms(panel: Axes, atoms: np.ndarray, columns: int, title: str = "", percentile: float = 100):
    """Atoms in a panel, zero mid grey, black and white at the largest magnitude of each."""
    style.bare(panel).set_title(title, fontsize=style.FONT - 1)
    return draw_mosaic(panel, over_largest(np.asarray(atoms, float), percentile), columns)


def block_choice(image: np.ndarray, atom: np.ndarray, pool: tuple[int, int], precisions: np.ndarray) -> HTML:
    """Slider over noise precisions: what the block of an image where an atom responds most chooses, taken alone."""
    windows = sliding_window_view(image, atom.shape)
    response = np.abs((windows * atom).sum(axis=(2, 3)))
    strongest = np.unravel_index(response.argmax(), response.shape)
    row, col = (int(at) // side * side for at, side in zip(strongest, pool, strict=True))
    inside = windows[row : row + pool[0], col : col + pool[1]].reshape(-1, 1, *atom.shape)
    outcomes = [*map(str, range(len(inside))), "none"]
    high, wide = (side + more - 1 for side, more in zip(atom.shape, pool, strict=True))

    def frame(gamma_e: float) -> tuple[str, Figure]:
        choice = block_given_rest(inside, np.full(inside.shape, gamma_e), atom[None], np.zeros(len(outcomes)), 1.0)
        figure, (left, right) = style.new_figure(1, 2, height=2.2, width_ratios=(1, 1.8))
        style.draw_picture(left, image, ends=(image.min(), image.max()), colours="gray_r")
        left.add_patch(Rectangle((col - 0.5, row - 0.5), wide, high, fill=False, edgecolor=style.COLOURS["red"]))
        colours = [style.COLOURS["blue"]] * len(inside) + [style.COLOURS["grey"]]
        right.bar(outcomes, np.exp(choice.log_probability), color=colours)
        right.set(ylim=(0, 1), xlabel="position in the block", ylabel="probability")
        return f"noise s.d. {gamma_e**-0.5:.2g} (precision {gamma_e:.3g})", figure

    says = "probability of each position of a block as the noise gets smaller"
    return slider(map(frame, precisions), says, len(precisions) // 2)


def show_atoms(dictionary: np.ndarray | xr.DataArray, columns: int | None = None) -> Figure:
    """All atoms (atom, plane, atom_row, atom_col) in one grid, each over its own largest magnitude; zero is mid grey.

    ``columns`` : atoms in a row; by default about twice as many as rows. The paper (Fig. 2a, 3, 4 and 5) does not say
    how it scaled them; here the scale is written beside the grid.
    """
    atoms = np.asarray(dictionary, float)
    count, _, height, width = atoms.shape
    columns = min(count, columns or ceil((2 * count) ** 0.5))
    high, wide = ceil(count / columns) * (height + GAP) - GAP, columns * (width + GAP) - GAP
    figure, axes = style.new_figure(height=(style.FULL - 0.9) * high / wide + 0.1)
    draw_atoms(axes, atoms, columns)
    bar = figure.colorbar(axes.images[0], ax=axes, ticks=[-1, 0, 1], fraction=0.03, pad=0.01, aspect=30)
    bar.ax.set_yticklabels(["\N{MINUS SIGN}1", "0", "1"])
    bar.set_label("each atom over its largest |value|", fontsize=style.FONT - 2 if high > wide / 2 else style.FONT - 4)
    return style.finish(figure)


def show_grids(grids: Sequence[tuple], panels: int, room: float, names: Sequence[str] = (), beside: float = 0,
               percentile: float = 100) -> Figure:
    """Atoms in grids, a panel for each: the one helper of all figures that show dictionaries.

    ``grids`` : (title, atoms, atoms in a row) each; ``panels`` : in a row; ``room`` : inches above the grids of a row;
    ``names`` : of the rows of panels, for which ``beside`` inches are left; ``percentile`` : of an atom's magnitudes at
    which black and white begin
    """
    rows = [grids[first : first + panels] for first in range(0, len(grids), panels)]
    tall = [max(ceil(len(atoms) / across) / across for _, atoms, across in row) for row in rows]
    height = sum(tall) * (style.FULL - beside) / panels + room * len(rows)
    figure, axes = style.new_panels(len(rows), panels, height, height_ratios=tall)
    for panel, (title, atoms, across) in zip(axes.flat, grids, strict=False):
        draw_atoms(panel, atoms, across, title, percentile)
    for panel, name in zip(axes[:, 0], names, strict=False):
        panel.set_ylabel(name.replace(" ", "\n"), rotation=0, ha="right", va="center", fontsize=style.FONT - 1)
    return style.finish(figure)


def show_dictionaries(atoms: xr.DataArray, across: int = 5) -> Figure:
    """Several dictionaries of one plane, a panel for each ``kind``, ``across`` atoms in a row; zero is mid grey."""
    return show_grids([(kind, atoms.sel(kind=kind).transpose(ATOM, PLANE, ...), across) for kind in atoms.kind.values],
                      2, 0.28)


def show_pictures(titles: Sequence[str], pictures: Sequence[np.ndarray], columns: int = 4) -> Figure:
    """Pictures (row, col), each on a grey scale of its own: 0 is mid grey, the largest magnitude black or white."""
    rows = ceil(len(pictures) / columns)
    tall = max(picture.shape[0] / picture.shape[1] for picture in pictures)
    figure, axes = style.new_panels(rows, columns, rows * (style.FULL / columns * tall + 0.25))
    for picture, panel, title in zip(pictures, axes.flat, titles, strict=False):
        largest = np.abs(picture).max() or 1
        style.draw_picture(panel, picture, title, (-largest, largest))
        panel.spines[:].set(visible=True, color=style.COLOURS["grey"], linewidth=0.5)
    return style.finish(figure)


def show_one_atom(found: xr.Dataset) -> HTML:
    """Slider over images that use one top atom, of `gdd_book.models.one_atom`."""
    def frame(number: int) -> tuple[str, Figure]:
        one, (figure, axes) = found.isel(image=number), style.new_panels(1, 4, 1.6)
        titles = {"picture": "image", "own": "own positions", "projected": "projected", "part": "one of layer 1"}
        for panel, (name, title) in zip(axes[0], titles.items(), strict=True):
            largest = float(np.abs(one[name]).max()) or 1
            style.draw_picture(panel, one[name].values, title, (-largest, largest), smaller=2)
        return (f"image {number + 1}: of the piece the projected atom explains {float(one.share_of_projected):.0%},"
                f" one atom of layer 1 {float(one.share_of_part):.0%}"), figure

    says = "one top atom in images that use it: at their positions, projected, and a layer-1 atom"
    return slider(map(frame, range(found.sizes[IMAGE])), says)


def printed_counts(model: ModelSpec, images: int) -> pd.DataFrame:
    """Factors of every parameter, counted as the paper's tables do: layer (from 1), parameter, factors, count.

    Weights, positions, gamma_w and theta all have one number for each element of each map; gamma_e has one for each
    image, gamma_d one for each atom and plane.

    Source: Pu, Yuan & Carin 2015, supplement, tables of parameter numbers. Checked: tests/test_counts.py.
    """
    images, rows = check_whole("images", images, 1), []
    for number, shape in enumerate(model.shapes(), 1):
        planes = () if shape.planes == 1 else (shape.planes,)  # a factor of 1 is not printed
        element = (shape.atoms, *shape.map_size, images)
        rows += _counts(number, D=(shape.atoms, *shape.atom_size, *planes), W=element, Z=element, gamma_e=(images,),
                        gamma_d=(shape.atoms, *planes), gamma_w=element, theta=element)
    return pd.DataFrame(rows)


def kept_counts(model: ModelSpec, images: int) -> pd.DataFrame:
    """Factors of every parameter, as this package defines it; the columns are those of `printed_counts`.

    W and Z have one number for each block (weight and place of its one active position), precisions the axes of their
    spec, theta B + 1 entries for each image, atom and shape of block. Chains integrate weights and theta out.

    Departs: theta has B + 1 entries (P12), gamma_w is one per layer (P7). Checked: tests/test_counts.py.
    """
    images, rows = check_whole("images", images, 1), []
    for number, (layer, shape) in enumerate(zip(model.layers, model.shapes(), strict=True), 1):
        block, sizes = (shape.atoms, *shape.grid, images), {IMAGE: images, ATOM: shape.atoms, PLANE: shape.planes}
        gammas = {name: tuple(sizes[axis] for axis in getattr(layer, name).axes) or (1,)
                  for name in ("gamma_e", "gamma_d", "gamma_w")}
        rows += _counts(number, D=shape.dictionary, W=block, Z=block, **gammas, theta=_theta(layer, shape, images))
    return pd.DataFrame(rows)


def parameter_table(paper: pd.DataFrame, model: ModelSpec, images: int) -> pd.DataFrame:
    """Factors of every parameter: as the paper's table prints them, as derived from the spec, as defined here."""
    derived, kept = printed_counts(model, images), kept_counts(model, images)
    columns = {"paper": paper.factors, "derived": derived.factors, "as defined here": kept.factors}
    return pd.DataFrame(columns).map(product).set_index([kept.layer, kept.parameter])


def product(factors: Sequence[int]) -> str:
    """Factors as a person writes them, thousands set apart by a narrow space that does not break: ``32 × 8 × 8``."""
    return " × ".join(f"{factor:,}".replace(",", "\u202f") for factor in factors)


def _theta(layer: LayerSpec, shape: LayerShape, images: int) -> tuple[int, ...]:
    if layer.elementwise:
        return (shape.atoms, *shape.map_size, images)
    rows, cols = ({size} if n % size == 0 else {size, n % size} if n > size else {n}
                  for n, size in zip(shape.map_size, shape.block, strict=True))
    return (shape.atoms, sum(row * col + 1 for row in rows for col in cols), images)


def _counts(layer: int, **parameters: tuple[int, ...]) -> list[dict]:
    return [{"layer": layer, "parameter": name, "factors": factors, "count": prod(factors)}
            for name, factors in parameters.items()]


def show_outcomes(space: np.ndarray, shares: Mapping[str, np.ndarray], positions: int) -> Figure:
    """Probability of every z of a one-row map: black the exact posterior, a colour for each sampler.

    ``space`` (outcome, ..., block) of int, EMPTY for none; ``shares`` : name -> (outcome,), the exact posterior first;
    ``positions`` : of a block
    """
    figure, axes = style.new_figure(height=3.4)
    width = 0.84 / len(shares)
    colours = [style.COLOURS[name] for name in ("black", "blue", "orange", "red", "purple")]
    for number, ((name, share), colour) in enumerate(zip(shares.items(), colours, strict=False)):
        axes.bar(np.arange(len(space)) - 0.42 + (number + 0.5) * width, share, width, color=colour, label=name)
    words = ["\n".join(" ".join(ACTIVE if m == i else NONE for i in range(positions)) for m in z)
             for z in space.reshape(len(space), -1)]  # a full dot at the active position of each block
    axes.set_xticks(range(len(space)), words, fontsize=style.FONT - 2)
    axes.set(ylabel="probability", xlabel="positions of the two blocks, active where the dot is full")
    style.legend_outside(figure, "upper left", smaller=2)
    return style.finish(figure)


def show_contours(right: Gaussian, printed: Gaussian, truth: np.ndarray) -> Figure:
    """Contours that hold 95 % of two Gaussians over the two pixels of an atom, and the atom that made the data."""
    figure, axes = style.new_figure(height=3.4)
    for choice, name, colour in ((right, "right", "blue"), (printed, "as printed", "red")):
        axes.plot(*contour(choice), color=style.COLOURS[colour], label=name, linewidth=2)
        axes.plot(*choice.mean, "o", color=style.COLOURS[colour], markersize=4)
    axes.plot(*truth, "x", color=style.COLOURS["black"], label="the atom of the data", markersize=8, markeredgewidth=2)
    axes.set(xlabel="first pixel", ylabel="second pixel", aspect="equal")
    style.legend_outside(figure, "right upper", columns=1)
    return style.finish(figure)


def contour(choice: Gaussian) -> np.ndarray:
    """Points of the ellipse that holds `SHARE` of a Gaussian over two numbers: (2, point)."""
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(turn), np.sin(turn)]) * np.sqrt(stats.chi2(2).ppf(SHARE))
    return choice.mean[:, None] + np.linalg.solve(np.linalg.cholesky(choice.precision).T, circle)


def show_precisions(panels: Mapping[str, Mapping[str, Gamma]], truths: Mapping[str, float]) -> Figure:
    """Densities of precisions over their logarithm, each over its own peak; a dotted line at the true value.

    ``panels`` : title -> (name -> Gamma of one number), the right one first; ``truths`` : title -> what made the data
    """
    figure, axes = style.new_figure(len(panels), 1, height=2.1 * len(panels), squeeze=False)
    for panel, (title, choices) in zip(axes[:, 0], panels.items(), strict=True):
        made = {name: stats.gamma(np.ravel(c.shape)[0], scale=1 / np.ravel(c.rate)[0]) for name, c in choices.items()}
        ends = min(choice.ppf(0.05) for choice in made.values()), max(choice.ppf(0.999) for choice in made.values())
        grid = np.geomspace(ends[0], 2 * ends[1], 4000)
        for (name, choice), colour in zip(made.items(), ("blue", "red", "orange"), strict=False):
            density = choice.pdf(grid) * grid
            panel.fill_between(grid, density / density.max(), color=style.COLOURS[colour], alpha=0.25, linewidth=0)
            panel.plot(grid, density / density.max(), color=style.COLOURS[colour], label=name)
        panel.axvline(truths[title], color=style.COLOURS["black"], linestyle=":", linewidth=1)
        panel.set(xscale="log", xlim=(grid[0], grid[-1]), ylim=(0, 1.05), yticks=[], xlabel=title)
        panel.set_ylabel("density / peak", fontsize=style.FONT - 1)
        panel.legend(fontsize=style.FONT - 2, loc="upper left", frameon=False)
    return style.finish(figure)


def bottom_stages(held: xr.Dataset, learned: xr.Dataset) -> xr.DataArray:
    """Layer 1 before and after full-length refinement: (kind, atom, plane, atom_row, atom_col), largest norms first.

    held : of `mnist-refinement`, one gamma_d for all planes of an upper layer; learned : of `mnist-readings`, one each
    """
    parts = {
        "pretrained": held.bottom_dictionary.isel(model=0),
        "refined, one precision held for all planes": held.bottom_dictionary.isel(model=1),
        "pretrained, each plane's precision learned": learned.bottom_dictionary.isel(subset=0, stage=0),
        "refined, each plane's precision learned": learned.bottom_dictionary.isel(subset=0, stage=1),
    }
    stacks = [np.asarray(part, float) for part in parts.values()]
    ordered = [atoms[np.argsort(-np.sqrt((atoms**2).sum(axis=(1, 2, 3))), kind="stable")] for atoms in stacks]
    return xr.DataArray(np.stack(ordered), {"kind": list(parts)}, ("kind", *DICTIONARY))


def show_bottom(stages: xr.DataArray) -> Figure:
    """Layer 1's atoms of `bottom_stages`, every panel on one grey scale, so that an atom that vanished is grey."""
    count = stages.sizes["kind"]
    figure, axes = style.new_panels(1, count, style.FULL / count * ceil(stages.sizes[ATOM] / 4) / 4 + 0.5)
    for panel, one in zip(axes.flat, stages, strict=True):
        atoms = one.transpose(ATOM, PLANE, ...).values.astype(float)
        panel.set_title(one.kind.item().replace(", ", ",\n"), fontsize=style.FONT - 3)
        draw_mosaic(panel, atoms / np.abs(atoms).max(), 4)
    return style.finish(figure)


def bottom_table(stages: xr.DataArray, held: xr.Dataset, learned: xr.Dataset) -> pd.DataFrame:
    """Norms of layer 1's atoms, and how well projected atoms speak for the layers, by kind of `bottom_stages`."""
    norms, kept, own = np.sqrt((stages**2).sum(DICTIONARY[1:])), held.isel(model=slice(2)), learned.isel(subset=0)
    error = np.concatenate([kept.projection_error.mean(IMAGE), own.projection_error])
    winning = np.concatenate([kept.winning_share, own.winning_share])
    return style.table("kind", {
        "median norm of an atom": (norms.median(ATOM),),
        "atoms below a tenth of the largest": ((norms < 0.1 * norms.max(ATOM)).sum(ATOM), 0),
        "projection error, % of the energy": (norms.kind.copy(data=100 * error), 0),
        "winning share": (norms.kind.copy(data=winning),),
    })


def planes_table(found: xr.Dataset) -> pd.DataFrame:
    """The settings of `mnist-planes`: gamma_d of upper layers, and whether blocks may be empty."""
    low = (found.norms < 0.1 * found.norms.max("bottom_atom")).sum("bottom_atom")
    return style.table("setting", {
        "median norm, layer 1": (found.norms.median("bottom_atom"), 2),
        "layer-1 atoms below a tenth of the largest": (low, 0),
        "planes vanished, %": (100 * found.vanished_planes, 0), "blocks empty, %": (100 * found.empty_share, 0),
        "projection error, % of the energy": (100 * found.projection_error, 0),
        "active per image": (found.active, 1), "residual": (found.residual, 3),
    }).T


def show_health(found: xr.Dataset) -> Figure:
    """How freely each refinement moves, sweep by sweep: positions of strong blocks, top coefficients, and gamma_e."""
    figure, axes = style.new_figure(3, 1, height=6.2, sharex=True)
    for (colour, dash), noise in zip(style.LINES, found.noise.values, strict=False):
        one = found.sel(noise=noise)
        for strength, width in (("1 to 3", 0.8), ("above 3", 2.0)):
            share = moved_share(one).sel(strength=strength).isel(pooled_layer=0)
            style.draw_chain(axes[0], share.values, colour, dash, f"{noise};\nstrength {strength}", width)
        style.draw_chain(axes[1], (one.switched_on + one.switched_off).values, colour, dash)
        style.draw_chain(axes[2], one.gamma_e.values, colour, dash)
    axes[0].set_ylim(bottom=0)
    labels = ("share of positions\nthat move", "coefficients switched\nper image", r"$\gamma_e$")
    return _finish_chains(figure, labels)


def health_table(found: xr.Dataset) -> pd.DataFrame:
    """Each refinement, "first, last": first sweep, and mean of the last tenth up to its last sweep and the other's."""
    columns, lengths = {}, found.residual.notnull().sum("refine_draw")
    for noise, length in zip(found.noise.values, lengths.values, strict=True):
        one = found.sel(noise=noise)
        rows = {
            "gamma_e": (one.gamma_e, 0), "residual": (one.residual, 4), "active per image": (one.active, 1),
            "log joint per number": (one.log_joint / one.numbers_explained[0], 3),
            "share of strong positions that move": (moved_share(one).sel(strength="above 3").isel(pooled_layer=0), 3),
            "coefficients switched per image": (one.switched_on + one.switched_off, 2),
        }
        for sweeps in sorted({int(lengths.min()), int(length)}):
            last = slice(sweeps - max(1, sweeps // 10), sweeps)
            columns[f"{noise}, {sweeps} sweeps"] = {
                name: f"{values[0].item():.{d}f}, {values[last].mean().item():.{d}f}"
                for name, (values, d) in rows.items()
            }
    return pd.DataFrame(columns)


def moved_share(found: xr.Dataset) -> xr.DataArray:
    """Share of the visited blocks that came out at another position; NaN where none was visited."""
    return found.blocks_moved / found.blocks_visited.where(found.blocks_visited > 0)


def show_starts(found: xr.Dataset) -> Figure:
    """Refinements from several starts, of `mnist-starts`: one colour a start, one line a seed."""
    labels = {
        "log_joint": "log joint", "residual": "residual,\nroot mean square", "held_out": "held-out digits:\nresidual",
        "active": "active per image",
    }
    figure, axes = style.new_figure(len(labels), 1, height=7.4, sharex=True)
    for panel, name in zip(axes, labels, strict=True):
        for (colour, dash), start in zip(style.LINES, found.start.values, strict=False):
            for number, values in enumerate(found[name].sel(start=start).values):
                style.draw_chain(panel, values, colour, dash, f"start: {start}" if number == 0 else "")
    shown = np.concatenate([line.get_ydata() for line in axes[0].lines if len(line.get_ydata()) > 2])
    low, high = np.nanquantile(shown, 0.1), np.nanmax(shown)  # the first sweeps would flatten the rest
    axes[0].set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
    axes[0].ticklabel_format(axis="y", scilimits=(0, 0), useMathText=True)
    return _finish_chains(figure, labels.values())


def starts_table(found: xr.Dataset, usual: str = "pretrained") -> pd.DataFrame:
    """Last quarter of every chain of `mnist-starts`, mean over seeds with its interval; then less the usual start's."""
    last = found.isel({DRAW: slice(-(found.sizes[DRAW] // 4), None)}).mean(DRAW)
    less = (last - last.sel(start=usual)).drop_sel(start=usual)
    less = less.assign_coords(start=[f"{name}, less {usual}" for name in less.start.values])
    digits = {"log_joint": 0, "residual": 4, "held_out": 4, "active": 1}
    return pd.concat([
        style.table("start", {name.replace("_", " "): (part[name], d, "seed", sign) for name, d in digits.items()})
        for part, sign in ((last, ""), (less, "+"))
    ])


def by_noise(write: Callable[[xr.Dataset], pd.DataFrame], found: Mapping[float, xr.Dataset]) -> pd.DataFrame:
    """A table of each record, one below the other under its noise."""
    names = [f"noise s.d. {noise**-0.5:.2g} (precision {noise:g})" for noise in found]
    return pd.concat([write(one) for one in found.values()], keys=names)


def _finish_chains(figure: Figure, labels: Iterable[str]) -> Figure:
    """Chains over the sweeps of the refinement: all axes but the first one's vertical in steps of 1, 2 and 5."""
    first, *others = figure.axes
    for panel in others:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        style.write_ticks(panel.yaxis)
    for panel, label in zip(figure.axes, labels, strict=True):
        panel.set_ylabel(label)
    panel.set(xscale="log", xlabel="sweep of the refinement")
    style.write_ticks(panel.xaxis)
    figure.align_ylabels()
    style.label_lines(first)
    return style.finish(figure)


def pieces_of(
    atoms: np.ndarray, code: np.ndarray, stride: tuple[int, int], size: tuple[int, int], count: int | None = None
) -> np.ndarray:
    """Pictures (piece, row, col) that a code (atom, row, col) adds up, strongest first; ``count`` of them, or all."""
    strength = np.abs(code) * np.sqrt((atoms**2).sum(axis=(1, 2, 3)))[:, None, None]
    alone = np.zeros((np.count_nonzero(code) if count is None else count, *code.shape))
    for one, place in zip(alone, np.argsort(-strength, axis=None, kind="stable"), strict=False):
        one.flat[place] = code.flat[place]
    return render_projected(atoms, alone, stride, size)[:, 0]


def show_walk(found: xr.Dataset, label: int | None = None, pieces: int = 3) -> Figure:
    """One image (the first, of ``label`` if given) on its way up through all layers and down again, a row a stage.

    Down by projected atoms, piece by piece and all together; last, each layer's values at the image's own positions.
    ``found`` : of `gdd_book.models.activations`
    """
    one = found.isel({IMAGE: 0 if label is None else int((found[LABEL].values == label).argmax())})
    top = max(int(name.removeprefix("map_")) for name in found if name.startswith("map_"))
    layers, stride, size = range(1, top), tuple(found.attrs["stride"]), found.images.shape[-2:]
    titles = ["image", *(title for layer in layers for title in (f"layer {layer}", f"{layer}, pooled"))]
    titles += [*(f"piece {n}" for n in range(1, pieces + 1)), "all", "redrawn"]
    stages = found.sizes["stage"]
    figure, axes = style.new_panels(stages, len(titles), stages * style.FULL / len(titles) + 0.3)
    for row, stage in zip(axes, found.stage.values, strict=True):
        here = one.sel(stage=stage)
        atoms, code = here.projected_atoms.values, here[f"map_{top}"].values.astype(float)
        parts = pieces_of(atoms, code, stride, size, pieces)
        whole = render_projected(atoms, code[None], stride, size)[0, 0]
        maps = [np.abs(here[f"{name}_{layer}"].values).sum(axis=0) for layer in layers for name in ("map", "weight")]
        picture, own = here.images.values[0], here.redrawn.values[0]
        drawn = [(shown, max(np.abs(picture).max(), np.abs(shown).max())) for shown in (picture, *parts, whole, own)]
        for panel, title, (shown, largest) in zip(
            row, titles, [drawn[0], *((m, m.max()) for m in maps), *drawn[1:]], strict=True
        ):
            style.draw_picture(panel, shown, title if stage == found.stage[0] else "", (-largest, largest), "RdGy", 3)
        row[0].set_ylabel(stage, fontsize=style.FONT - 2)
    return style.finish(figure)
