"""Flow charts: the whole algorithm, and test-time inference within it."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

from gdd_book.figures.style import bare, finish, new_figure

WIDTH, TOP = 12.8, 20.4
STEPS = (
    ("1  pretrain, layer by layer upwards", "gdd.sampler.pretrain", "atoms, maps, positions\nin the pooling blocks"),
    ("2  refine, all layers downwards", "gdd.sampler.refine", "the same, fitted together"),
    ("3  project the top atoms", "gdd.projection", "large atoms in the data\nplane, and a stride"),
    ("4  deconvolve, one layer", "gdd.inference.deconvolution", "activations of the top\natoms: the features"),
    ("5  train and apply the classifier", "gdd.evaluate.classify", "a label for every image"),
)
EDGE = {"linewidth": 1.2, "edgecolor": "black"}
ARROW = {"arrowstyle": "-|>", "color": "black", "linewidth": 1.3, "mutation_scale": 13, "shrinkA": 0, "shrinkB": 0}


def draw_deconvolution() -> Figure:
    """What is computed once for all images, once per image, per sweep and per coefficient.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Testing"; the paper has no such figure.
    Departs: shows `gdd.inference.deconvolution`, Gram matrix and averages included.
    Checked: tests/test_flowchart.py.
    """
    figure, axes = new_figure(height=8.7)
    axes.set(xlim=(0, WIDTH), ylim=(0, TOP), aspect="equal")
    _panels(axes)
    _preparation(axes)
    _coefficient(axes)
    _collection(axes)
    bare(axes)
    return finish(figure)


def draw_algorithm() -> Figure:
    """From images to labels: the steps, what each hands on, and the module that does it.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, supplement, "Algorithm Flow-Chart".
    Departs: our own drawing; the paper lists the steps.
    Checked: tests/test_flowchart.py.
    """
    figure, axes = new_figure(height=5.2)
    axes.set(xlim=(0, WIDTH), ylim=(0, 12.2), aspect="equal")
    axes.text(3.6, 11.85, "training images", ha="center", va="center", fontsize=10.5, style="italic")
    axes.text(7.7, 11.85, "what comes out", va="center", fontsize=10.5, style="italic")
    for number, (action, module, result) in enumerate(STEPS):
        y = 10.0 - 2.3 * number
        path(axes, [(3.6, y + (1.5 if number else 1.6)), (3.6, y + 0.65)])
        box(axes, 3.6, y, 6.9, 1.3, "")
        axes.text(3.6, y + 0.25, action, ha="center", va="center", fontsize=10.5)
        axes.text(3.6, y - 0.32, module, ha="center", va="center", fontsize=9, family="monospace", color="#444444")
        axes.text(7.7, y, result, va="center", fontsize=10.5)
    for y, text in ((4.25, "images to be labelled, and the\ntraining images once more"), (1.95, "training labels")):
        axes.text(6.3, y, text, va="center", fontsize=10.5, style="italic", color="#0072B2")
        axes.annotate("", (3.7, y), (6.15, y), arrowprops=ARROW | {"color": "#0072B2"})
    bare(axes)
    return finish(figure)


def _panels(axes: Axes) -> None:
    for left, bottom, width, height, colour, text in (
        (0.1, 17.75, 12.6, 2.5, "#E4F0F8", "once for all images"),
        (0.1, 0.1, 12.6, 17.45, "#F3F3F3", "for each image"),
        (0.45, 2.3, 11.9, 12.75, "#FFF3DA", "in each sweep"),
        (0.8, 6.3, 11.2, 8.0, "#FFE3AE", "for each coefficient $i$"),
    ):
        axes.add_patch(Rectangle((left, bottom), width, height, facecolor=colour, linewidth=0))
        axes.text(left + 0.2, bottom + height - 0.15, text, va="top", fontsize=10, weight="bold", color="#444444")


def _preparation(axes: Axes) -> None:
    box(axes, 3.2, 18.6, 5.2, 1.3, "projected atoms, stride,\n$\\gamma_e$, $\\gamma_w$ from training")
    box(axes, 9.5, 18.6, 5.2, 1.3, "Gram matrix of all placed\natoms, $G_{ij} = \\langle d_i, d_j\\rangle$")
    path(axes, [(5.8, 18.6), (6.9, 18.6)])
    box(axes, 3.2, 16.2, 5.2, 1.0, "correlations $c_i = \\langle x, d_i\\rangle$")
    box(axes, 9.5, 16.2, 5.2, 1.0, "start: greedy pursuit")
    path(axes, [(3.2, 17.95), (3.2, 16.7)])
    path(axes, [(5.8, 16.2), (6.9, 16.2)])
    path(axes, [(9.5, 15.7), (9.5, 15.35), (6.4, 15.35), (6.4, 13.55)])


def _coefficient(axes: Axes) -> None:
    box(axes, 6.4, 12.85, 8.0, 1.4, "give back its own part: $b = \\gamma_e (c_i + s_i\\, G_{ii})$\n"
         "precision $\\lambda = \\gamma_e\\, G_{ii} + \\gamma_w$")  # fmt: skip
    path(axes, [(6.4, 12.15), (6.4, 11.7)])
    box(axes, 6.4, 10.95, 8.0, 1.5, "odds of being active\n"
         "$\\frac{1}{K-1}\\;\\sqrt{\\gamma_w/\\lambda}\\;\\exp(b^2/2\\lambda)$")  # fmt: skip
    path(axes, [(6.4, 10.2), (6.4, 9.75)])
    _diamond(axes, 6.4, 8.95, "draw $z_i$: active?")
    box(axes, 2.75, 8.1, 3.3, 0.9, "$s_i = 0$")
    box(axes, 10.05, 8.1, 3.3, 0.9, "$s_i \\sim N(b/\\lambda,\\,1/\\lambda)$")
    path(axes, [(4.4, 8.95), (2.75, 8.95), (2.75, 8.55)])
    path(axes, [(8.4, 8.95), (10.05, 8.95), (10.05, 8.55)])
    axes.text(4.3, 9.05, "no", ha="right", va="bottom", fontsize=10)
    axes.text(8.5, 9.05, "yes", ha="left", va="bottom", fontsize=10)
    box(axes, 6.4, 7.0, 6.4, 0.9, "if $s_i$ changed: $c_j \\leftarrow c_j - \\Delta s_i\\, G_{ij}$, all $j$")
    path(axes, [(2.75, 7.65), (2.75, 7.0), (3.2, 7.0)])
    path(axes, [(10.05, 7.65), (10.05, 7.0), (9.6, 7.0)])


def _collection(axes: Axes) -> None:
    path(axes, [(6.4, 6.55), (6.4, 5.9)])
    _diamond(axes, 6.4, 5.1, "burn-in over?")
    path(axes, [(8.4, 5.1), (9.4, 5.1), (9.4, 4.1)])
    axes.text(8.5, 5.2, "yes", ha="left", va="bottom", fontsize=10)
    path(axes, [(4.4, 5.1), (2.2, 5.1), (2.2, 3.7)])
    axes.text(4.3, 5.2, "no", ha="right", va="bottom", fontsize=10)
    axes.text(2.2, 3.3, "next sweep", ha="center", va="center", fontsize=10.5)
    box(axes, 7.9, 3.35, 8.2, 1.5, "add to the averages;\n"
         "keep $S$ if $\\log p(x\\,|\\,S)$ is the highest so far")  # fmt: skip
    box(axes, 6.4, 0.95, 11.6, 1.3, "kept sample of highest likelihood; posterior mean of $S$,\n"
         "of $Z$ (inclusion) and of $|S|$ (magnitude)", colour="#D9F0E6")  # fmt: skip
    path(axes, [(7.9, 2.6), (7.9, 1.6)])
    axes.text(8.1, 1.95, "after the last sweep", va="center", fontsize=10)


def box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str = "white") -> None:
    """Draw a box around (x, y)."""
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0,rounding_size=0.15"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=colour, **EDGE))
    axes.text(x, y, text, ha="center", va="center", fontsize=10.5, linespacing=1.3)


def _diamond(axes: Axes, x: float, y: float, text: str) -> None:
    """Draw a question around (x, y)."""
    corners = [(x - 2.0, y), (x, y + 0.8), (x + 2.0, y), (x, y - 0.8)]
    axes.add_patch(Polygon(corners, facecolor="white", **EDGE))
    axes.text(x, y, text, ha="center", va="center", fontsize=10)


def path(axes: Axes, points: list[tuple[float, float]]) -> None:
    """Draw straight lines from point to point, an arrow's head at the last."""
    axes.plot(*zip(*points[:-1], strict=True), color=ARROW["color"], linewidth=ARROW["linewidth"])
    axes.annotate("", points[-1], points[-2], arrowprops=ARROW)
