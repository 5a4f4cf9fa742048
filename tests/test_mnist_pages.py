"""Experiments on digits at their smallest: dictionaries, atoms that are dropped, the learning curve, the judge."""


import numpy as np
import pytest

from gdd.model.spec import MNIST
from gdd.sampler import pretrain as stage
from gdd_book import experiments
from gdd_book.experiments import atoms as dictionary
from gdd_book.experiments import images
from gdd_book.progress import Run


@pytest.fixture(scope="module")
def dictionary_run():
    """The experiment at its smallest: every shape is the paper's, every number is meaningless."""
    changes = {"n_train": 20, "n_held_out": 3, "burn_in": 1, "collect": 1, "test_burn_in": 2, "test_collect": 1}
    changes |= {"refine_burn_in": 1, "refine_collect": 1}
    return experiments.run("mnist-dictionary", changes)


def test_experiment_measures_every_kind_on_both_halves(dictionary_run):
    found = dictionary_run.dataset
    assert tuple(found.kind.values) == dictionary.KINDS
    assert dict(found.high_frequency_share.sizes) == {"kind": 5, "half": 2, "atom": 160}
    assert found.most_used.shape == (5, 25, 1, *MNIST.projected_size)
    assert ((found.correlation >= 0) & (found.correlation <= 1)).all()
    assert ((found.rms > 0) & (found.rms < 2 * found.rms_of_images)).all()
    refined, cut = (found.most_used.sel(kind=kind) for kind in ("refined", "refined, thresholded"))
    np.testing.assert_allclose(cut.where(cut == 0, np.abs(refined)), cut)  # what is left is as it was, up to sign
    assert ((cut == 0) | (cut > 0.299)).all()


def test_atoms_found_twice_match_and_others_do_not():
    atoms = np.random.default_rng(0).standard_normal((2, 6, 1, 9, 9))
    uses = {kind: [np.ones(6, int)] * 2 for kind in dictionary.KINDS}
    pair = {kind: [atoms[0], atoms[0][::-1] if i % 2 else atoms[1]] for i, kind in enumerate(dictionary.KINDS)}
    correlation = dictionary._measure_halves(pair, uses).correlation
    np.testing.assert_allclose(correlation[1::2], 1)
    assert (correlation[::2] < 0.9).all()


CHANGES = {"n_train": 12, "starts_1": (4, 6), "starts_2": (5,), "shares": (0.0, 0.9), "burn_in": 8, "collect": 3,
           "prune_from": 3, "prune_every": 2, "seeds": (0, 1)}


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        run = Run(tmp_path_factory.mktemp("cache"))
        first = experiments.run("mnist-atoms", CHANGES, within=run).dataset

        patch.setattr(stage, "sweep", None)  # no finished chain is run again
        assert first.identical(experiments.run("mnist-atoms", CHANGES, within=run).dataset)
        yield first


def test_atoms_go_in_burn_in_only_and_never_come_back(pruned):
    for layer, starts in (("1", (4, 6)), ("2", (5,))):
        atoms = pruned[f"atoms_{layer}"]
        assert dict(atoms.sizes) == {"seed": 2, f"start_{layer}": len(starts), "share": 2, "draw": 11}
        assert (atoms.diff("draw") <= 0).all() and (atoms.isel(draw=slice(None, 4)) == atoms[f"start_{layer}"]).all()
        assert (atoms.isel(draw=slice(8, None)) == atoms.isel(draw=-1)).all()
        assert (atoms.sel(share=0.0) == atoms[f"start_{layer}"]).all()
        assert (atoms.sel(share=0.9).isel(draw=-1) < atoms[f"start_{layer}"]).all()


def test_uses_are_those_of_the_atoms_that_are_left(pruned):
    for layer in ("1", "2"):
        uses, left = pruned[f"uses_{layer}"], pruned[f"atoms_{layer}"].isel(draw=-1)
        assert (uses.notnull().sum(f"rank_{layer}") == left).all()
        assert ((uses.diff(f"rank_{layer}") <= 0) | uses.isel({f"rank_{layer}": slice(1, None)}).isnull()).all()
        assert uses.min() >= 0 and uses.max() <= 1
        assert (pruned[f"residual_{layer}"] > 0).all()


def test_noise_is_told_from_digits_and_digits_are_not():
    generator = np.random.default_rng(0)
    digits = np.random.default_rng(1).random((300, 1, 6, 6)) ** 4
    same, other = digits[:100], generator.standard_normal((100, 1, 6, 6))
    found = [images.describe(kind, digits[100:200], digits[200:], 0) for kind in (same, other)]
    same, noise = (float(one.told_apart) for one in found)
    assert abs(same - 50) < 3 * 100 * (0.25 / 100) ** 0.5 and noise == 100
