"""What the record of one chain on several workers counts, and the model of its time."""

import numpy as np
import pytest
import xarray as xr
from test_sums import CHAIN, FIXED, MODEL

from gdd.sampler.sums import BATCH
from gdd_book.experiments.studies import scaling
from gdd_book.figures import performance


def test_meetings_of_a_sweep_are_counted_apart_from_those_of_the_start():
    images = np.random.default_rng(0).standard_normal((3 * BATCH, 1, 11, 11)).astype(np.float32)
    one, two, all_layers = scaling.count_meetings(images, MODEL, CHAIN, FIXED)
    assert one[0] == two[0] == 2  # the sums, and the noise of the likelihood
    sums = 8 * (3 * 3 * 7 * 7 + 3 * 64 + 2 * 3 + 4)
    assert one[1] == pytest.approx(2 * sums, rel=0.1)  # two nodes for three batches, and little else
    assert all_layers[0] > 3 + 1  # an atom of the bottom layer each, in every other sweep at least


@pytest.fixture
def record():
    """Times that the model makes itself: an image 1 ms, a round 2 ms, 1 GB/s."""
    size, way = [BATCH, 64 * BATCH], list(scaling.WAYS)
    seconds = np.zeros((4, 3, 2, 1))
    for at, workers in enumerate((1, 1, 2, 2)):
        seconds[at, :, :, 0] = np.array(size) * 1e-3 / workers
    return performance.cluster_runs([xr.Dataset({
        "seconds": (("way", "stage", "size", "repeat"), seconds), "rounds": (("stage", "size"), np.full((3, 2), 10.0)),
        "bytes": (("stage", "size"), np.full((3, 2), 1e6)), "round_seconds": ("message", [2e-3, 2e-3 + 4 * 8e6 / 1e9]),
    }, {"way": way, "stage": list(scaling.STAGES), "size": size, "message": [8, 8 * 10**6]})])


def test_the_model_adds_images_rounds_and_bytes(record):
    time = performance.sweep_time(record, "layer 1", 64 * BATCH, 2)
    assert time == pytest.approx(32 * BATCH * 1e-3 + 10 * 2e-3 + 2 * 1e6 * (1 + 5 + 1) / 1e9)
    table = performance.cluster_table(record)
    assert (table["1 worker / 1 thread"] == 1).all() and table["model / 2 workers"].between(1, 1.1).all()
