"""Labelled arrays in, a matplotlib figure out: one function per figure. Nothing is computed here that is a result."""

from gdd.figures.dictionaries import show_atoms
from gdd.figures.flowchart import draw_algorithm, draw_deconvolution
from gdd.figures.operators import show_grids
from gdd.figures.panels import show_pictures
from gdd.figures.schematic import draw_generative_process
from gdd.figures.style import COLOURS, FULL, bare, finish, new_figure

__all__ = [
    "COLOURS", "FULL", "bare", "draw_algorithm", "draw_deconvolution", "draw_generative_process", "finish",
    "new_figure", "show_atoms", "show_grids", "show_pictures",
]  # fmt: skip
