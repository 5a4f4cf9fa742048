"""Experiments of the Caltech chapters on dictionaries and interpolation, on tiny images.

Training is cut short: pretraining of a tiny model, and the state that refinement starts from in place of a refined one.
"""

import numpy as np
import pytest
import xarray as xr

from gdd.base.axes import IMAGES, LABEL
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, RefinementSpec
from gdd.model.state import LayerData
from gdd.sampler.pretrain import pretrain
from gdd.sampler.refine import Refined, start_from
from gdd_book import experiments, training
from gdd_book.experiments import atoms as dictionaries
from gdd_book.experiments import images as filling
from gdd_book.training import STAGES, pictures

#: maps of 20x20, 10x10, 8x8, 4x4, 3x3: projected atoms of 17x17 at every fourth pixel
THREE = ModelSpec((LayerSpec(4, (5, 5), (2, 2)), LayerSpec(3, (3, 3), (2, 2)), LayerSpec(2, (2, 2))), (24, 24))
TWO = ModelSpec((LayerSpec(4, (5, 5), (3, 3)), LayerSpec(3, (3, 3))), (24, 24))


def blobs(count, seed, classes=2):
    """Smooth random images of a few classes, labelled in order."""
    generator = np.random.default_rng(seed)
    labels = np.sort(np.arange(count) % classes)
    row, col = np.mgrid[:24, :24]
    centres = generator.uniform(6, 18, (count, 2)) + 3 * labels[:, None]
    pixels = np.exp(-((row - centres[:, :1, None]) ** 2 + (col - centres[:, 1:, None]) ** 2) / 20)
    pixels = (pixels + 0.05 * generator.random(pixels.shape))[:, None].astype("f4")
    attrs = {"checksum": "sha256:ab", "label_names": "a,b"}
    return xr.DataArray(pixels, {LABEL: ("image", labels)}, IMAGES, attrs=attrs)


def fake_train(p, run, setup, label=""):
    images, model, seed = setup
    fitted = pretrain(images, model, ChainSpec(2, 1, seed))
    refinement, chain = RefinementSpec(), ChainSpec(1, 1, seed)
    state = start_from(fitted, refinement, chain)
    traces = xr.Dataset({name: (("chain", "draw"), np.zeros((1, 2))) for name in ("residual", "active", "log_joint")})
    refined = Refined(fitted.model, refinement, state, state, traces, LayerData(images.values))
    both = {"pretrained": fitted, "refined": refined}
    return {stage: both[stage] for stage in p.get("stages", STAGES)}


@pytest.fixture(scope="module")
def run():
    """Run one experiment on tiny images."""
    with pytest.MonkeyPatch.context() as patch:
        def pictures(p, classes, per_class, held_out=0):
            return blobs(held_out, 1, 1) if held_out else blobs(per_class * len(classes), 0, len(classes))

        patch.setattr(training, "pictures", pictures)
        patch.setattr(training, "trained_models", fake_train)
        patch.setattr(training, "caltech_model", lambda name, p: TWO if name == "faces, interpolation" else THREE)
        no_model = lambda test, *_: {"one layer": np.zeros(test.shape)}  # noqa: E731
        patch.setattr(filling, "fill_by_models", no_model)

        yield lambda name, **changes: experiments.run(name, changes).dataset


@pytest.fixture(scope="module")
def joint(run):
    return run("caltech-joint", n_train=4)


def test_every_atoms_weight_is_shared_out_among_the_classes(joint):
    assert joint["class"].values.tolist() == ["a", "b"] * 4
    shares = joint.weight_share[0, :, :4].values
    np.testing.assert_allclose(shares.sum(axis=0), 1)


def test_shares_follow_the_weights():
    fitted = fake_train({"stages": ("pretrained",)}, None, (blobs(4, 0), TWO, 0))["pretrained"]
    w = fitted.layers[0].state.local.w
    w[:], w[0, 0, 0, 0], w[3, 0, 1, 1] = 0, 3.0, -1.0
    shares = dictionaries.weight_shares(fitted)
    np.testing.assert_allclose(shares[:, 0], [0.9, 0, 0, 0.1])
    assert np.isnan(shares[:, 1]).all()


def test_shares_of_a_refined_model_are_those_of_what_the_layers_above_draw():
    refined = fake_train({"stages": STAGES}, None, (blobs(4, 0), TWO, 0))["refined"]
    w, z = refined.state.local.w, refined.state.local.z
    z[:], w[:] = -1, 0
    z[0, 0, 0, 0], w[0, 0, 0, 0], z[3, 0, 1, 1], w[3, 0, 1, 1] = 0, 3.0, 0, -1.0
    shares = dictionaries.weight_shares(refined)
    top = shares[:, shares.layer == 2]
    np.testing.assert_allclose(top[:, 0], [0.9, 0, 0, 0.1])
    below = shares[:, shares.layer == 1].values  # one top atom, and linear below it: nine times the energy
    np.testing.assert_allclose(below, np.tile([[0.9], [0], [0], [0.1]], below.shape[1]))


def test_classes_take_turns():
    images = dictionaries.in_turn(blobs(7, 0, 3))
    assert images[LABEL].values.tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_faces_are_filled_in_by_methods_that_know_no_layers(run):
    found = run("caltech-interpolation", n_train=12, n_test=5)
    assert found.hiding.values.tolist() == ["half as a block", "at random"]
    assert found.way.values.tolist()[-2:] == ["principal components", "one layer"]
    blank = found.hidden_error.sel(way="left blank")
    np.testing.assert_allclose(blank, found.hidden_error.sel(way="one layer"), rtol=1e-6)
    assert (found.hidden_error.sel(way="principal components").mean("image") < blank.mean("image")).all()


def test_digits_stand_in_where_there_is_no_archive():
    which = ({"data": "digits", "seed": 0}, ("3", "5"), 2)
    train, held_out = pictures(*which), pictures(*which, 3)
    assert train.shape == (4, 1, 128, 128)
    assert sorted(train[LABEL].values) == [3, 3, 5, 5]
    assert held_out.shape == (3, 1, 128, 128)
    assert not set(train.number.values) & set(held_out.number.values)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["faces", "interpolation", "classes", "joint"])
def test_demo_scale_runs_whole(name):
    outcome = experiments.run(f"caltech-{name}")
    assert outcome.data_name == "digits"
    assert all(np.isfinite(part).any() for part in outcome.dataset.values())
