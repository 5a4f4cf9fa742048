"""What the chapter on parameters shows of chains that drop atoms."""

import json

import numpy as np
import pytest
import xarray as xr

from gdd_book.figures import mnist as pruning


@pytest.fixture
def record():
    """Two seeds, two starts, two shares, four sweeps; the second seed loses one atom more."""
    atoms = np.array([[[[8, 8, 6, 6], [8, 8, 3, 3]], [[9, 9, 7, 7], [9, 9, 4, 4]]]] * 2, float)
    atoms[1, ..., 2:] -= 1
    left = np.where(np.arange(9) < 6, 0.5 ** np.arange(9), np.nan)
    parts = {}
    for name in "12":
        axes = ("seed", f"start_{name}", "share")
        parts[f"atoms_{name}"] = (*axes, "draw"), atoms
        parts[f"residual_{name}"] = (*axes, "draw"), 0.1 * atoms
        parts[f"uses_{name}"] = (*axes, f"rank_{name}"), np.broadcast_to(left, (2, 2, 2, 9))
    coords = {"seed": [0, 1], "start_1": [8, 9], "start_2": [8, 9], "share": [0.05, 0.5]}
    return xr.Dataset(parts, coords, {"parameters": json.dumps({"burn_in": 3, "n_train": 1000})})


def test_atoms_left_of_the_first_seed_by_digits_layer_and_start(record):
    more = record.sel(share=[0.5], start_1=[9]).assign_attrs(parameters=json.dumps({"n_train": 5000}))
    table = pruning.left_table([record, more])
    assert table.columns.tolist() == ["0.05 of the mean", "0.5 of the mean"]
    assert table.loc["1,000", 1, 8].tolist() == ["6", "3"] and table.loc["1,000", 2, 9].tolist() == ["7", "4"]
    assert table.loc["5,000", 1, 9].tolist() == ["not run", "4"] and len(table) == 7


def test_what_is_left_of_the_input_and_how_many_coefficients_it_takes(record):
    # uses add up to 63 / 32 of the 49 or 4 blocks of an atom
    table = pruning.fit_table([record])
    assert table.loc["1,000", 1, 8].tolist() == ["0.600, 96 active", "0.300, 96 active"]
    assert table.loc["1,000", 2, 9].tolist() == ["0.700, 8 active", "0.400, 8 active"]


def test_lines_of_starts_and_shares(record):
    axes, = pruning.show_left(record).axes
    lines = axes.get_lines()
    assert [line.get_label() for line in lines[:4]] == [
        "8 at first, 0.05", "8 at first, 0.5", "9 at first, 0.05", "9 at first, 0.5"
    ]
    assert lines[1].get_ydata().tolist() == [8, 8, 3, 3]  # of the first seed
    assert lines[4].get_ydata() == [32, 32]  # the paper's
    assert lines[5].get_xdata() == [3, 3]


def test_uses_of_the_atoms_that_are_left(record):
    line = pruning.show_uses(record).axes[0].get_lines()[0]
    assert line.get_label() == "8 at first"
    assert line.get_ydata()[:6].tolist() == [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]
