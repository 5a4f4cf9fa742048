"""Models of Caltech images: what they are trained on, what their chains depend on, finished chains not run again."""

import numpy as np
import pytest
from PIL import Image

from gdd.data import datasets
from gdd.data.contrast import normalise_contrast
from gdd.model.spec import CALTECH101, LayerSpec, ModelSpec
from gdd_book.experiments import caltech_class
from gdd_book.progress import Bar
from gdd_book.training import caltech
from gdd_book.training.training import folder_of

#: atoms of the sizes of MNIST's, whose kernels other tests have compiled
TINY = ModelSpec((LayerSpec(3, (8, 8), (3, 3)), LayerSpec(4, (6, 6))), (28, 28))
P = {
    "data": "caltech256", "classes": ("cup",), "per_class": 4, "seed": 0, "model": "tiny", "burn_in": 1, "collect": 1,
    "refine_burn_in": 1, "refine_collect": 1, **caltech.HEALTHY,
}  # fmt: skip


@pytest.fixture(autouse=True)
def pictures(tmp_path, monkeypatch):
    """A small tree of Caltech 256's form, and a model for it."""
    random = np.random.default_rng(0)
    for folder in ("001.cup", "002.hat"):
        path = tmp_path / "caltech256" / "256_ObjectCategories" / folder
        path.mkdir(parents=True)
        for number in range(6):
            pixels = random.integers(0, 255, (20, 24), dtype=np.uint8)
            Image.fromarray(pixels).save(path / f"{folder[:3]}_{number:04d}.jpg")
    monkeypatch.setenv("GDD_DATA", str(tmp_path))
    monkeypatch.setenv("GDD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(caltech.MODELS, "tiny", TINY)


def test_images_are_normalised_and_of_the_class():
    train, test = caltech.images_of(P), caltech.images_of(P, "test")
    assert (train.shape, test.shape) == ((4, 1, 28, 28), (2, 1, 28, 28))
    assert (train.label == 0).all()
    assert not np.isin(train.number, test.number).any()
    plain = datasets.load("caltech256", classes=["cup"], per_class=4, seed=0, size=(28, 28))
    np.testing.assert_array_equal(train, normalise_contrast(plain))
    both = caltech.images_of(P | {"classes": ("cup", "hat")})
    np.testing.assert_array_equal(both[both.label == 0], train)  # a class's images do not depend on the others


def test_folders_depend_on_what_the_chain_depends_on():
    folder = folder_of("caltech-refined", caltech.REFINEMENT, P)
    assert folder_of("caltech-refined", caltech.REFINEMENT, P | {"n_test": 3}) == folder
    for name in caltech.REFINEMENT:
        assert folder_of("caltech-refined", caltech.REFINEMENT, P | {name: "other"}) != folder
    assert set(caltech.PRETRAINING) < set(caltech.REFINEMENT)


def test_every_class_and_split_has_its_own_seed():
    changes = ({}, {"classes": ("hat",)}, {"classes": ("cup", "hat")}, {"seed": 1})
    assert len({caltech.chain_seed(P | change) for change in changes}) == 4
    assert caltech.chain_seed(P | {"collect": 9}) == caltech.chain_seed(P)


def test_models_of_both_depths_have_the_paper_s_test_time():
    assert caltech.model_for("three layers", 0, 0.1) is CALTECH101
    for name in ("two layers", "three layers"):
        model = caltech.model_for(name, 3.0, 0.1)
        assert (model.projected_size, model.stride) == ((96, 96), (8, 8))
        assert model.shapes()[-1].map_size == (5, 5)
        bottom, *upper = model.layers
        assert (bottom.gamma_e.fixed, bottom.gamma_w.fixed, bottom.gamma_d.fixed) == (3.0, 0.1, 289.0)
        assert all(layer.gamma_e.fixed is None and layer.gamma_e.axes == () for layer in upper)
        assert all(layer.gamma_w.fixed == pytest.approx(0.01) for layer in upper)


def test_a_finished_chain_is_not_run_again_and_keeps_its_cpu_time(monkeypatch):
    fitted, refined = caltech.trained_models(P, Bar)
    monkeypatch.setattr("gdd.sampler.chain.sweep", None)
    monkeypatch.setattr("gdd.sampler.refine.joint_sweep", None)
    again = caltech.trained_models(P, Bar)
    np.testing.assert_array_equal(again[1].state.shared.dictionaries[1], refined.state.shared.dictionaries[1])
    for one, other in ((again[0].layers[1], fitted.layers[1]), (again[1], refined)):
        assert one.traces.equals(other.traces)
        assert one.traces.attrs == other.traces.attrs
        assert one.traces.attrs["cpu_seconds"] > 0


def test_class_experiment_adds_up_its_parts():
    found = caltech_class.run(P | {"collect": 2, "voters": 2}, Bar).dataset
    assert found.part.values.tolist() == [
        "layer 1", "layer 2", "refinement", "projection, pretrained", "projection, refined"
    ]  # fmt: skip
    assert found.sweeps.values.tolist() == [3, 3, 2, 0, 0]
    assert (found.cpu_seconds > 0).all()
    fitted, refined = caltech.trained_models(P | {"collect": 2}, Bar)  # found finished
    assert found.cpu_seconds[2] == refined.traces.attrs["cpu_seconds"]
    np.testing.assert_array_equal(found.pre_residual[1], fitted.layers[1].traces.residual.values[0])
    assert found.atoms_1.shape == (2, 3, 8, 8)
    assert found.atoms_2.shape == (2, 4, 25, 25)
    assert (np.abs(found.atoms_2).max(("row_2", "col_2")) == 100).all()
    assert found.uses.dims == ("stage", "atom_top")
