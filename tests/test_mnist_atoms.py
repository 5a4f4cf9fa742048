"""Chains that drop atoms: how many are left after every sweep, from every start, for both layers."""

import numpy as np
import pytest

from gdd import experiments
from gdd.experiments import mnist_atoms
from gdd.progress import Bar
from gdd.spec import MNIST

CHANGES = {"n_train": 12, "starts_1": (4, 6), "starts_2": (5,), "shares": (0.0, 0.9), "burn_in": 8, "collect": 3,
           "prune_from": 3, "prune_every": 2, "seeds": (0, 1)}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GDD_CACHE", str(tmp_path_factory.mktemp("cache")))
        chosen = experiments.merge("mnist-atoms", "demo", CHANGES)
        first = mnist_atoms.run(chosen, Bar).dataset
        again = mnist_atoms.run(chosen, Bar).dataset  # from its checkpoints
        assert first.identical(again)
        yield first


def test_atoms_go_in_burn_in_only_and_never_come_back(found):
    for layer, starts in (("1", (4, 6)), ("2", (5,))):
        atoms = found[f"atoms_{layer}"]
        assert dict(atoms.sizes) == {"seed": 2, f"start_{layer}": len(starts), "share": 2, "draw": 11}
        assert (atoms.diff("draw") <= 0).all() and (atoms.isel(draw=slice(None, 4)) == atoms[f"start_{layer}"]).all()
        assert (atoms.isel(draw=slice(8, None)) == atoms.isel(draw=-1)).all()
        assert (atoms.sel(share=0.0) == atoms[f"start_{layer}"]).all()
        assert (atoms.sel(share=0.9).isel(draw=-1) < atoms[f"start_{layer}"]).all()


def test_uses_are_those_of_the_atoms_that_are_left(found):
    for layer in "12":
        uses, left = found[f"uses_{layer}"], found[f"atoms_{layer}"].isel(draw=-1)
        assert (uses.notnull().sum(f"rank_{layer}") == left).all()
        assert ((uses.diff(f"rank_{layer}") <= 0) | uses.isel({f"rank_{layer}": slice(1, None)}).isnull()).all()
        assert uses.min() >= 0 and uses.max() <= 1
        assert (found[f"residual_{layer}"] > 0).all()


def test_one_layer_by_itself_explains_what_it_explains_in_the_model():
    alone, within = mnist_atoms.single(MNIST, 1, 7).shapes()[0], MNIST.shapes()[1]
    assert alone.dictionary == (7, *within.dictionary[1:])
    assert (alone.input_size, alone.map_size, alone.grid) == (within.input_size, within.map_size, within.grid)
    assert np.prod(mnist_atoms.single(MNIST, 0, 9).shapes()[0].dictionary) == 9 * 64
