"""Chains that drop atoms: how many are left after every sweep, from every start, for both layers."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd.model.spec import MNIST
from gdd.sampler import pretrain as stage
from gdd_book import experiments
from gdd_book.experiments.studies import mnist_refinement
from gdd_book.progress import Run

CHANGES = {"n_train": 12, "starts_1": (4, 6), "starts_2": (5,), "shares": (0.0, 0.9), "burn_in": 8, "collect": 3,
           "prune_from": 3, "prune_every": 2, "seeds": (0, 1)}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        run = Run(tmp_path_factory.mktemp("cache"))
        first = experiments.run("mnist-atoms", CHANGES, within=run).dataset

        patch.setattr(stage, "sweep", None)  # no finished chain is run again
        assert first.identical(experiments.run("mnist-atoms", CHANGES, within=run).dataset)
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
    for layer in ("1", "2"):
        uses, left = found[f"uses_{layer}"], found[f"atoms_{layer}"].isel(draw=-1)
        assert (uses.notnull().sum(f"rank_{layer}") == left).all()
        assert ((uses.diff(f"rank_{layer}") <= 0) | uses.isel({f"rank_{layer}": slice(1, None)}).isnull()).all()
        assert uses.min() >= 0 and uses.max() <= 1
        assert (found[f"residual_{layer}"] > 0).all()


def test_one_layer_by_itself_explains_what_it_explains_in_the_model():
    alone, within = mnist_refinement._single(MNIST, 1, 7).shapes()[0], MNIST.shapes()[1]
    assert alone.dictionary == (7, *within.dictionary[1:])
    assert (alone.input_size, alone.map_size, alone.grid) == (within.input_size, within.map_size, within.grid)
    assert np.prod(mnist_refinement._single(MNIST, 0, 9).shapes()[0].dictionary) == 9 * 64


def test_uses_are_shares_of_blocks():
    """Two images, three atoms, two blocks each: active in all four, in one, in none."""
    z = np.array([[[[0, 4]], [[-1, -1]], [[-1, -1]]], [[[2, 0]], [[-1, -1]], [[-1, 8]]]])
    traces = xr.Dataset({name: (("chain", "draw"), [[3.0, 3.0]]) for name in ("atoms", "residual")})
    state = SimpleNamespace(local=SimpleNamespace(z=z))
    found = mnist_refinement._describe_pruned(SimpleNamespace(traces=traces, state=state), 4, 1)
    atoms, residual, uses = (found[f"{name}_1"].values for name in ("atoms", "residual", "uses"))
    assert atoms.tolist() == residual.tolist() == [3, 3]
    assert uses[:3].tolist() == [1, 0.25, 0] and np.isnan(uses[3])


def test_layer_2_stands_on_a_layer_1_of_32_atoms_that_is_not_pruned(monkeypatch):
    seen = []

    def pretrain(images, model, chain, mask, folder, bar):
        seen.append((np.shape(images)[1], model.planes, chain.pruning))
        if len(seen) == 4:  # the first chain of layer 2
            raise KeyboardInterrupt
        local = SimpleNamespace(w=np.zeros((12, model.layers[0].atoms, 7, 7)), z=np.zeros((12, 4, 7, 7), int))
        traces = xr.Dataset({name: (("chain", "draw"), np.zeros((1, 11))) for name in ("atoms", "residual")})
        return SimpleNamespace(layers=[SimpleNamespace(state=SimpleNamespace(local=local), traces=traces)])

    monkeypatch.setattr(mnist_refinement, "pretrain", pretrain)
    changes = CHANGES | {"starts_1": (4,), "seeds": (0,)}
    with pytest.raises(KeyboardInterrupt):
        experiments.run("mnist-atoms", changes)
    assert seen[0] == (1, 1, None)
    assert [one[:2] for one in seen[1:]] == [(1, 1), (1, 1), (32, 32)]
    assert all(one[2] is not None for one in seen[1:])


def test_settings_that_drop_nothing_are_refused_before_any_chain():
    with pytest.raises(GddError, match="prune_from: 8 given; below burn_in, 8, is needed"):
        experiments.run("mnist-atoms", CHANGES | {"prune_from": 8})
    with pytest.raises(GddError, match="atoms"):
        experiments.run("mnist-atoms", CHANGES | {"starts_2": (1,)})
