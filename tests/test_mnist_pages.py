"""Experiments on digits at their smallest: dictionaries, atoms that are dropped, the learning curve, the judge."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from gdd.model.spec import MNIST
from gdd.sampler import pretrain as stage
from gdd_book import experiments
from gdd_book.experiments import atoms as dictionary
from gdd_book.experiments import images
from gdd_book.experiments.common import repeated
from gdd_book.experiments.studies import mnist_refinement
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


def test_uses_are_shares_of_blocks():
    """Two images, three atoms, two blocks each: active in all four, in one, in none."""
    z = np.array([[[[0, 4]], [[-1, -1]], [[-1, -1]]], [[[2, 0]], [[-1, -1]], [[-1, 8]]]])
    traces = xr.Dataset({name: (("chain", "draw"), [[3.0, 3.0]]) for name in ("atoms", "residual")})
    state = SimpleNamespace(local=SimpleNamespace(z=z))
    found = mnist_refinement._describe_pruned(SimpleNamespace(traces=traces, state=state), 4, 1)
    atoms, residual, uses = (found[f"{name}_1"].values for name in ("atoms", "residual", "uses"))
    assert atoms.tolist() == residual.tolist() == [3, 3]
    assert uses[:3].tolist() == [1, 0.25, 0] and np.isnan(uses[3])


def test_sizes_and_their_subsets():
    assert repeated((10, 20, 30), 3, 1) == [(10, 0), (10, 1), (10, 2), (20, 0), (30, 0)]
    assert repeated((10,), 1, 9) == [(10, 0)]


def test_noise_is_told_from_digits_and_digits_are_not():
    generator = np.random.default_rng(0)
    digits = np.random.default_rng(1).random((300, 1, 6, 6)) ** 4
    same, other = digits[:100], generator.standard_normal((100, 1, 6, 6))
    found = [images.describe(kind, digits[100:200], digits[200:], 0) for kind in (same, other)]
    same, noise = (float(one.told_apart) for one in found)
    assert abs(same - 50) < 3 * 100 * (0.25 / 100) ** 0.5 and noise == 100
