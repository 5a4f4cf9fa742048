"""Depth by noise precision: what an atom is made of, digits not learned from, and the studies at their smallest."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd_book import experiments
from gdd_book.experiments import control, depth
from gdd_book.figures import depth as figures
from gdd_book.progress import Run
from gdd_book.training import digits

BARS = control.planted_dictionaries(1, np.random.default_rng(0))[0][:, 0]
SMALL = {"n_train": 60, "n_others": 60, "burn_in": 1, "collect": 1, "refine_burn_in": 1, "refine_collect": 1,
         "test_burn_in": 1, "test_collect": 1}


def placed(*parts):
    atom = np.zeros((1, 25, 25))
    for bar, row, col, weight in parts:
        atom[0, row : row + 8, col : col + 8] += weight * BARS[bar]
    return atom


def test_share_of_a_copy_of_two_parts_and_of_noise():
    one = depth.explained_by_parts(placed((3, 2, 5, -2.0)), BARS)[0]
    np.testing.assert_allclose(one, 1)
    two = depth.explained_by_parts(placed((3, 0, 0, 2.0), (7, 12, 12, 1.0)), BARS)[0]
    np.testing.assert_allclose(two, [0.8, 1, 1])
    noise = np.random.default_rng(0).standard_normal((20, 25, 25))
    assert depth.explained_by_parts(noise, BARS)[:, 0].mean() < 0.04
    assert (depth.explained_by_parts(np.zeros((1, 25, 25)), BARS) <= 1).all()


def test_effective_entries():
    np.testing.assert_allclose(depth.effective(np.array([[2.0, 2, 2, 2], [0, 5, 0, 0], [0, 0, 0, 0]])), [4, 1, 0])


def test_others_are_training_digits_that_the_model_did_not_see():
    p = {"data": "digits", "n_train": 100, "n_others": 50, "seed": 1}
    train = digits(p)
    others = depth.other_digits(p, train)
    assert len(others) == 50 and others.attrs["split"] == "train"
    assert not np.isin(others.number, train.number).any()


@pytest.fixture(scope="module")
def scan():
    return experiments.run("mnist-depth", SMALL | {"seeds": (0, 1)}).dataset


def test_scan_holds_every_precision_and_subset(scan):
    assert scan.noise.values.tolist() == [2, 44] and scan.subset.values.tolist() == [0, 1]
    assert ((scan.explained > 0) & (scan.explained <= 1)).all()
    assert (scan.explained.diff("parts") >= 0).all()
    assert (scan.hidden_error > 0).all() and (scan.plain_error > 0).all()
    assert ((scan.told_apart >= 0) & (scan.told_apart <= 100)).all()
    assert scan.reading.values.tolist() == ["normalised detectors", "mean field", "sample", "mean"]
    assert ((scan.winning_share > 1 / 9) & (scan.winning_share < 1)).all()


def test_rule_takes_the_least_error_on_hidden_halves(scan):
    half = scan.hidden_error.sel(hiding="half as a block").mean(("subset", "hidden_image", "filled_at"))
    other = scan.copy(deep=True)
    for noise in (2.0, 44.0):
        other["hidden_error"] = scan.hidden_error + 10 * (scan.noise != noise)
        assert figures.chosen(other) == noise
    assert figures.chosen(scan) == half.noise[int(half.argmin())]


def test_figures_and_tables(scan):
    votes = xr.concat([scan, scan], "vote").assign_coords(vote=["pixel", "block"])
    assert len(figures.depth_table(scan)) == len(figures.vote_table(votes)) == 2
    assert len(figures.show_depth(scan).axes) == 4 and len(figures.show_curves(scan).axes) == 3
    assert len(figures.show_filled(scan, digits=3).axes) == 3 * 3


def test_most_used_atoms_come_first(scan):
    one = scan.isel(subset=0, noise=0)
    order = one.uses.values[[int(np.flatnonzero((one.projected_atoms.values == atom).all((1, 2, 3)))[0])
                             for atom in figures.most_used(one, 5)]]
    assert (np.diff(order) <= 0).all() and order[0] == one.uses.max()


def test_finished_chains_are_not_run_again_and_a_ladder_is_another_chain(tmp_path, monkeypatch):
    once = lambda **more: experiments.run("mnist-depth", SMALL | {"seeds": (0,)} | more, within=Run(tmp_path)).dataset  # noqa: E731
    first, ladder = once(), once(ladder=True)
    assert (first.residual[0, 1] != ladder.residual[0, 1]) and first.residual[0, 0] == ladder.residual[0, 0]
    monkeypatch.setattr(depth, "describe_depth", None)
    assert once().equals(first)


def test_learned_noise_is_no_point_of_the_scan():
    with pytest.raises(GddError, match="noises: 0 given"):
        experiments.run("mnist-depth", SMALL | {"noises": (0.0, 2.0)})


def test_planted_images_show_their_class():
    p = {"n_train": 60, "n_test": 20, "burn_in": 1, "collect": 1, "refine_burn_in": 1, "refine_collect": 1,
         "test_burn_in": 1, "test_collect": 1, "noises": (2.0,)}
    found = experiments.run("planted-classes", p).dataset
    assert dict(found.error.sizes) == {"positions": 2, "stage": 2, "reading": 2}
    assert ((found.correlation >= 0) & (found.correlation <= 1 + 1e-9)).all()
    assert figures.control_table(found).shape == (2, 6)


@pytest.mark.slow
def test_faces_at_their_smallest():
    found = experiments.run("caltech-depth").dataset
    assert found.noise.values.tolist() == [0.3, 3.0] and (found.hidden_error > 0).all()
