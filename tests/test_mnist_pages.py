"""What the experiment on MNIST dictionaries measures."""

import numpy as np
import pytest

from gdd.model.spec import MNIST
from gdd_book import experiments
from gdd_book.experiments import atoms as dictionary


@pytest.fixture(scope="module")
def tiny():
    """The experiment at its smallest: every shape is the paper's, every number is meaningless."""
    changes = {"n_train": 20, "n_held_out": 3, "burn_in": 1, "collect": 1, "test_burn_in": 2, "test_collect": 1}
    changes |= {"refine_burn_in": 1, "refine_collect": 1}
    return experiments.run("mnist-dictionary", changes)


def test_experiment_measures_every_kind_on_both_halves(tiny):
    found = tiny.dataset
    assert tuple(found.kind.values) == dictionary.KINDS
    assert dict(found.high_frequency_share.sizes) == {"kind": 5, "half": 2, "atom": 160}
    assert found.most_used.shape == (5, 25, 1, *MNIST.projected_size)
    np.testing.assert_allclose(np.abs(found.most_used).max(("plane", "atom_row", "atom_col")), 1)
    assert ((found.correlation >= 0) & (found.correlation <= 1)).all()
    assert ((found.rms > 0) & (found.rms < 2 * found.rms_of_images)).all()
    digits = found.sel(kind="training digits")
    assert (digits.uses == 1).all()
    assert (digits.most_used >= 0).all()  # pixels: the other kinds have both signs
    signed = ["probabilistic", "probabilistic, no vote", "refined"]
    assert (found.most_used.sel(kind=signed).min(("shown", "plane", "atom_row", "atom_col")) < 0).all()
    refined = found.most_used.sel(kind="refined")
    cut = found.most_used.sel(kind="refined, thresholded")
    np.testing.assert_allclose(cut.where(cut == 0, np.abs(refined)), cut)  # what is left is as it was, up to sign
    assert ((cut == 0) | (cut > 0.299)).all()


def test_atoms_found_twice_match_and_others_do_not():
    atoms = np.random.default_rng(0).standard_normal((2, 6, 1, 9, 9))
    uses = {kind: [np.ones(6, int)] * 2 for kind in dictionary.KINDS}
    pair = {kind: [atoms[0], atoms[0][::-1] if i % 2 else atoms[1]] for i, kind in enumerate(dictionary.KINDS)}
    correlation = dictionary._measure_halves(pair, uses).correlation
    np.testing.assert_allclose(correlation[1::2], 1)
    assert (correlation[::2] < 0.9).all()
