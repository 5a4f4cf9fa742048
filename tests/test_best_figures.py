"""Figures and tables of the chapter on the best honest use say what the records say."""

import json

import numpy as np
import pytest
import xarray as xr

from gdd_book import paper_values
from gdd_book.experiments.studies.mnist_features import COPIED, MARGINS, ROWS
from gdd_book.experiments.studies.mnist_features import KINDS as ALL_KINDS
from gdd_book.figures import mnist as best
from gdd_book.figures.mnist import subset_errors, subset_table

KINDS = ALL_KINDS[:4]
PAPER = paper_values.table("mnist_error")


def record(sizes, trials, first=3.0):
    """A record of mnist-best; the second size has one trial fewer."""
    values = first + np.arange(len(sizes) * trials * len(KINDS), dtype=float).reshape(len(sizes), trials, len(KINDS))
    values[1:, -1] = np.nan
    choice = np.array([[5.0, 4.0, 3.0, 6.0], [5.0, 4.5, 3.5, 6.0]])
    return xr.Dataset({
        "error": (("size", "trial", "feature_kind"), values), "choice": (("subset", "candidate"), choice),
        "chosen": 2, "margin": ("candidate", list(MARGINS)),
    }, {"size": list(sizes), "feature_kind": list(KINDS)}, {"scale": "paper", "parameters": json.dumps({})}
    )


@pytest.fixture
def ablation():
    errors = np.stack([np.linspace(30, 5, len(ROWS)), np.linspace(32, 6, len(ROWS))])
    names = {"factor": ("row", [row[0] for row in ROWS]), "setting": ("row", [row[1] for row in ROWS])}
    return xr.Dataset({"error": (("subset", "row"), errors)}, names)


def test_table_has_means_and_standard_errors():
    table = subset_table(subset_errors([record([1000, 5000], 2)], KINDS))
    assert table.index.tolist() == [1000, 5000] and table.columns.tolist() == list(KINDS)
    # 3 and 7: mean 5, standard error sqrt(8) / sqrt(2)
    assert table.iloc[0, 0] == "5.00 \u00b1 2.00 (2)" and table.iloc[1, 0] == "11.00 (1)"


def test_of_two_records_of_a_size_the_one_with_more_subsets_counts():
    found = subset_errors([record([5000], 1), record([1000], 3), record([1000], 2, 50.0)], KINDS)
    assert found.feature_kind.values.tolist() == list(KINDS) and found["size"].values.tolist() == [1000, 5000]
    np.testing.assert_array_equal(found.sel(feature_kind=KINDS[0], size=1000), [3, 7, 11])
    np.testing.assert_array_equal(found.sel(feature_kind=KINDS[0], size=5000), [3, np.nan, np.nan])


def test_a_record_of_another_feature_joins_the_table():
    other = record([1000], 2).isel(feature_kind=[0]).assign_coords(feature_kind=["scattering"])
    table = subset_table(subset_errors([other, record([1000, 5000], 2)], KINDS))
    assert table["scattering"].tolist() == ["5.00 \u00b1 2.00 (2)", "not run"]


def test_copies_stand_beside_the_printed_errors():
    copied = record([1000, 5000], 2, 1.0).isel(feature_kind=[1])
    copied = copied.assign_coords(feature_kind=[COPIED.format(ALL_KINDS[4])])
    plain = record([1000, 5000], 2).isel(feature_kind=[0]).assign_coords(feature_kind=[ALL_KINDS[4]])
    table = best.copies_table([plain, copied], PAPER)
    assert table.index.tolist() == ["the paper prints", ALL_KINDS[4], COPIED.format(ALL_KINDS[4])]
    # 2 and 6: mean 4, standard error sqrt(8) / sqrt(2)
    assert table[1000].tolist() == ["1.66", "5.00 \u00b1 2.00 (2)", "4.00 \u00b1 2.00 (2)"]
    assert table[5000].tolist() == ["1.02", "11.00 (1)", "10.00 (1)"]


def test_curve_has_a_line_for_each_kind_and_the_paper():
    axes = best.show_best_curve(PAPER, [], [record([1000, 5000], 2)]).axes[0]
    assert [c.get_label() for c in axes.containers] == list(KINDS)
    assert axes.get_lines()[0].get_xydata()[0].tolist() == [1000, 1.66]
    assert axes.containers[0].lines[0].get_xydata().tolist() == [[1000, 5], [5000, 11]]
    assert len(best.show_best_curve(PAPER, [], []).axes[0].containers) == 0
    copied = record([1000, 5000], 2).isel(feature_kind=[1]).assign_coords(feature_kind=[COPIED.format(KINDS[1])])
    both = best.show_best_curve(PAPER, [], [record([1000, 5000], 2), copied]).axes[0].containers
    assert both[-1].lines[0].get_color() == both[1].lines[0].get_color()


def test_ablation_shows_every_row_in_order(ablation):
    axes = best.show_ablation(ablation).axes[0]
    points = np.concatenate([c.lines[0].get_xydata() for c in axes.containers])
    order = points[np.argsort(-points[:, 1])]
    np.testing.assert_allclose(order[:, 0], ablation.error.mean("subset"))
    assert len(axes.get_yticklabels()) == len(ROWS)
    table = best.ablation_table(ablation)
    assert table.iloc[0].tolist() == ["31.00 \u00b1 1.00", ""]
    gain = ablation.error[:, -1] - ablation.error[:, 0]  # -25 and -26
    assert float(gain.mean()) == -25.5 and table.iloc[-1, 1] == "-25.50 \u00b1 0.50"
