"""The cost experiment: the bound does the arithmetic that it claims; peers that are missing are named."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd.reference.random import Stream
from gdd_book import experiments
from gdd_book.benchmarks import cost, device, harness, peers
from gdd_book.benchmarks.peers import Curve
from gdd_book.progress import Run
from gdd_book.training import model_for


def test_every_pass_of_a_device_is_timed_beside_the_processors(monkeypatch):
    """The processor in place of the device; without one nothing is measured."""
    monkeypatch.setattr(device, "SIZES", (2,))
    monkeypatch.setattr(device, "DEVICES", ("cpu", "cpu"))
    monkeypatch.setattr(device, "copy_rate", lambda: 1e9)
    rows = device.device_rows(cost.all_digits("digits"), model_for(100.0, 0.1), {"seed": 0}, Run())
    passes = "layer 1", "layer 2", "refinement", "deconvolution, 10 sweeps"
    kinds = "{}: first call, which compiles", "{}: 2 digits, cpu"
    assert list(rows)[1:] == [kind.format(name) for kind in kinds for name in passes]
    assert all(rows[f"{name}: 2 digits, cpu"].minimum > 0 for name in passes)


def test_a_missing_device_is_said_before_any_work(monkeypatch):
    from numba import cuda

    monkeypatch.setattr(cuda, "is_available", lambda: False)
    monkeypatch.setattr(cost, "all_digits", lambda name: pytest.fail("work was done"))
    with pytest.raises(GddError, match="no NVIDIA graphics processor"):
        experiments.run("bench", {"parts": ("cuda",)})


def test_the_generators_share_of_the_bound_is_the_samplers_generator():
    stream = Stream(0, 0, 0, 0, 0)
    assert harness.many_uniforms(9) == pytest.approx(sum(stream.uniform() for _ in range(9)), rel=1e-14)


def test_bound_multiplies_and_exponentiates_as_often_as_the_layer(monkeypatch):
    done = {"adds": 0, "exponentials": 0, "calls": 0}

    def matmul(left, right, out):
        done["adds"] += left.shape[0] * left.shape[1] * right.shape[1]

    def exp(values, out):
        done["exponentials"] += values.size

    timing = harness.bound(model_for(100.0, 0.1).shapes()[0], 10)
    monkeypatch.setattr(harness.np, "matmul", matmul)
    monkeypatch.setattr(harness.np, "exp", exp)
    monkeypatch.setattr(harness, "many_uniforms", lambda calls: done.update(calls=calls))
    timing.job()
    assert timing.images >= 10
    per_image = {name: count / timing.images for name, count in done.items()}
    assert per_image == {"adds": 32 * 21 * 21 * 64, "exponentials": 32 * 21 * 21, "calls": 32 * 49}


def test_tuning_finds_the_weight_by_either_goal():
    def run(weight):
        return Curve(*(np.array([v]) for v in (1.0, weight, 100 / weight)))

    assert peers.tuned(run, 50.0, "active", 1e-3, 1e3) == pytest.approx(2.0, rel=1e-2)
    assert peers.tuned(run, 0.25, "error", 1e-3, 1e3) == pytest.approx(0.25, rel=1e-2)
    assert peers.tuned(run, 50.0, "error", 1e-3, 10.0) == pytest.approx(10.0)  # beyond the range: its end


def test_without_peers_ours_is_measured_and_they_are_named(monkeypatch):
    monkeypatch.setattr(peers, "installed", lambda package: False)
    monkeypatch.setattr(peers, "LEARNING", (2, 1))
    monkeypatch.setattr(peers, "CODING", ((0, 1), (1, 1), (2, 1)))
    images = cost.some(cost.all_digits("digits"), 4, 0)
    found = peers.contest(images, model_for(100.0, 0.1), 0, Run())
    assert isinstance(found, xr.Dataset)
    ours = found.sel(entry=found.peer_method == "gdd")
    assert ours.peer_task.values.tolist() == ["learning", "coding"]
    assert (ours.peer_ratio == 1).all() and (ours.peer_error > 0).all()
    others = found.sel(entry=found.peer_method != "gdd")
    assert all(note.startswith("not installed: pip install") for note in others.peer_note.values)
    assert others.peer_seconds.isnull().all()
    assert found.curve_error.isel(entry=0).notnull().sum() == 3
