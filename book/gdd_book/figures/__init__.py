"""Labelled arrays in, a matplotlib figure out: one function per figure. Nothing is computed here that is a result."""

from gdd_book.figures.calibration import show_p_values, show_ranks
from gdd_book.figures.dictionaries import show_atoms
from gdd_book.figures.errata import show_atom, show_outcomes, show_precisions
from gdd_book.figures.flowchart import draw_algorithm, draw_deconvolution
from gdd_book.figures.mnist import (
    FEATURES,
    curve_table,
    dictionary_table,
    error_table,
    feature_table,
    most_used,
    sharper_or_noisier,
    show_dictionaries,
    show_learning_curve,
    show_matches,
)
from gdd_book.figures.operators import show_grids
from gdd_book.figures.panels import show_pictures
from gdd_book.figures.schematic import draw_generative_process
from gdd_book.figures.style import COLOURS, FULL, bare, finish, new_figure
from gdd_book.records import settings

__all__ = [
    "COLOURS", "FEATURES", "FULL", "bare", "curve_table", "dictionary_table", "draw_algorithm", "draw_deconvolution",
    "draw_generative_process", "error_table", "feature_table", "finish", "most_used", "new_figure", "settings",
    "sharper_or_noisier", "show_atom", "show_atoms", "show_dictionaries", "show_grids", "show_learning_curve",
    "show_matches", "show_outcomes", "show_p_values", "show_pictures", "show_precisions", "show_ranks",
]  # fmt: skip
