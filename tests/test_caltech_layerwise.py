"""Caltech layer by layer: each class's layers see every image, features lie side by side, and a second run goes on."""

import pytest
import xarray as xr
from tiny import CHEAP

from gdd_book import experiments, training
from gdd_book.experiments import caltech
from gdd_book.progress import Run

LENGTHS = {"burn_in": 4, "collect": 2, "test_burn_in": 3, "test_collect": 2, "layer_burn_in": 2, "layer_collect": 2}
SETTINGS = LENGTHS | {"data": "caltech256", "n_classes": 2, "per_class": 6, "n_test": 3}
SETTINGS |= {"model": "two layers"}


@pytest.fixture
def once(pictures, monkeypatch):
    """Run the experiment on three kinds of bars, its checkpoints beside them."""
    monkeypatch.setitem(training.MODELS, "two layers", CHEAP)
    return lambda: experiments.run("caltech-layerwise", SETTINGS, within=Run(pictures / "cache")).dataset


def test_every_way_is_classified_and_a_second_run_reads_what_is_there(once, monkeypatch):
    found = once()
    assert found.way.values.tolist() == [
        caltech.ONE_DECONVOLUTION, caltech.ALL_LAYERS, "layer by layer, layer 1",
        "layer by layer, layer 2",
    ]
    below, above = 3 * 7 * 7, 4 * 2 * 2
    assert found.n_features.values.tolist() == [2 * 4 * 2 * 2, 2 * (below + above), 2 * below, 2 * above]
    assert dict(found.right.sizes) == {"way": 4, "feature_kind": 2, "image": 6} and found["class"].size == 2
    assert found.right.dtype == bool and (found.baseline_accuracy > 50).all()

    monkeypatch.setattr(caltech, "infer_layers", None)  # no codes are made again
    xr.testing.assert_identical(once(), found)
