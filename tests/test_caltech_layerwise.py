"""Caltech layer by layer: each class's layers see every image, features lie side by side, and a second run goes on."""

import numpy as np
import pytest
import xarray as xr
from test_class_parallel import pictures  # noqa: F401

from gdd.base.axes import LABEL, GddError
from gdd.inference.held import infer_layers
from gdd.model.spec import LayerSpec, ModelSpec
from gdd_book import experiments
from gdd_book.experiments import caltech_layerwise
from gdd_book.progress import Bar
from gdd_book.training import caltech

#: atoms of the sizes of MNIST's, whose kernels other tests have compiled; maps of 21 x 21 and 7 x 7, and 2 x 2
TINY = ModelSpec((LayerSpec(3, (8, 8), (3, 3)), LayerSpec(4, (6, 6))), (28, 28))
LENGTHS = {"burn_in": 4, "collect": 2, "test_burn_in": 3, "test_collect": 2, "layer_burn_in": 2, "layer_collect": 2}
SETTINGS = LENGTHS | {"data": "caltech256", "n_classes": 2, "per_class": 6, "n_test": 3}
SETTINGS |= {"model": "two layers"}


@pytest.fixture
def once(pictures, monkeypatch):  # noqa: F811
    """Run the experiment on three kinds of bars, its checkpoints beside them."""
    monkeypatch.setitem(caltech.MODELS, "two layers", TINY)
    monkeypatch.setenv("GDD_CACHE", str(pictures / "cache"))
    return lambda: caltech_layerwise.run(experiments.merge("caltech-layerwise", "demo", SETTINGS), Bar).dataset


def test_every_way_is_classified_and_a_second_run_reads_what_is_there(once, monkeypatch):
    found = once()
    assert found.way.values.tolist() == [
        caltech_layerwise.ONE_DECONVOLUTION, caltech_layerwise.ALL_LAYERS, "layer by layer, layer 1",
        "layer by layer, layer 2",
    ]  # fmt: skip
    below, above = 3 * 7 * 7, 4 * 2 * 2
    assert found.n_features.values.tolist() == [2 * 4 * 2 * 2, 2 * (below + above), 2 * below, 2 * above]
    assert dict(found.right.sizes) == {"way": 4, "feature_kind": 2, "image": 6} and found["class"].size == 2
    assert found.right.dtype == bool and (found.baseline_accuracy > 50).all()

    def no_more(*_):
        raise AssertionError("codes of images were made again")

    monkeypatch.setattr(caltech_layerwise, "infer_layers", no_more)
    xr.testing.assert_identical(once(), found)


@pytest.mark.parametrize(("name", "value"), [("n_classes", 1), ("per_class", 4)])
def test_too_few_to_tune_on_is_refused_before_any_chain(once, monkeypatch, name, value):
    monkeypatch.setattr(caltech_layerwise, "learn_classes", None)
    with pytest.raises(GddError, match=f"{name}: {value}"):
        caltech_layerwise.run(experiments.merge("caltech-layerwise", "demo", SETTINGS | {name: value}), Bar)


def test_maps_are_those_of_each_class_and_differ_between_training_and_test(once, pictures, tmp_path):  # noqa: F811
    once()
    p = experiments.merge("caltech-layerwise", "demo", SETTINGS)
    p |= {"classes": caltech_layerwise.classes_of(p), "refined": False}
    train, test = (caltech_layerwise.normalised(part) for part in caltech_layerwise.pictures(p))
    maps = caltech_layerwise.in_layers(test, train, p, 7, tmp_path, Bar)
    own = train.isel(image=train[LABEL].values == train.attrs["label_names"].split(",").index(p["classes"][1]))
    fitted = caltech.pretrained_model(p | {"classes": p["classes"][1:]}, Bar, images=own)
    layers = infer_layers(fitted, test, 2, 2, p["seed"] + 7)
    for number, layer in enumerate(layers):
        expected = layer["mean"].values.reshape(len(test), -1)
        np.testing.assert_allclose(maps["mean"][1][number], expected, atol=1e-6)
    assert not np.array_equal(maps["mean"][0][0], maps["mean"][1][0])
    other = caltech_layerwise.in_layers(test, train, p, 8, tmp_path, Bar)
    assert not np.array_equal(maps["mean"][0][0], other["mean"][0][0])
