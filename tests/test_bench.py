"""The cost experiment: the table holds what it says, the bound does the arithmetic that it claims."""

from dataclasses import replace

import numpy as np
import pytest

from gdd.base.checks import GddError
from gdd.model.spec import ChainSpec, layer_shape
from gdd.reference.random import Stream
from gdd_book import experiments
from gdd_book.benchmarks import cost, harness
from gdd_book.experiments.studies import cost as experiment
from gdd_book.training import model_for


@pytest.fixture(scope="module")
def table():
    """Two layers of few atoms, otherwise MNIST's sizes; every part but the peers."""

    def small(**precisions):
        model = model_for(**precisions)
        lower, upper = model.layers
        return replace(model, layers=(replace(lower, atoms=3), replace(upper, atoms=4)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "model_for", small)
        patch.setattr(cost, "SWEEPS", (2, 1))
        patch.setattr(cost, "REFINED_PICTURES", 1)
        changes = {
            "parts": ("kernels", "refinement", "threads", "images", "memory", "testing"), "data": "digits", "images": 6,
            "sizes": (5, 9), "warm_up": 2, "repeats": 2, "caltech_atoms": 3,
        }
        return experiments.run("bench", changes).dataset


def value(table, name):
    return table["median"].sel(quantity=name).item()


@pytest.mark.slow
def test_ratios_are_of_times_in_the_same_table(table):
    for name in ("layer 1: whole sweep", "layer 2: image pass", cost.HALF_HIDDEN, cost.SWEEP):
        below = f"{name.split(':')[0].removesuffix(', half hidden')}: bound"
        assert value(table, f"{name} / bound") == pytest.approx(value(table, name) / value(table, below))


@pytest.mark.slow
def test_refinement_stands_beside_pretraining_at_both_sizes(table):
    for shapes in ("MNIST shapes", "Caltech shapes"):
        above, below = f"{shapes}: refinement, a sweep", f"{shapes}: pretraining, a sweep of every layer"
        ratio = value(table, f"{shapes}: refinement / pretraining")
        assert ratio == pytest.approx(value(table, above) / value(table, below))


@pytest.mark.slow
def test_memory_is_two_and_four_bytes_a_block_and_a_chain_holds_a_few_states(table):
    assert value(table, "layer 1: local state") == pytest.approx(3 * 49 * 6 + 8 / 6)
    assert value(table, "layer 1: stated, 2 + 4 bytes a block") == 3 * 49 * 6
    image = 28 * 28 * 4
    grows = value(table, "layer 1: peak of a running chain")
    assert 2 * 3 * 49 * 6 < grows < 5 * 3 * 49 * 6 + 2 * image, "old and new state at least; not one for every sweep"


def test_unknown_part_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(cost, "all_digits", lambda name: pytest.fail("work was done"))
    with pytest.raises(GddError, match="parts: 'speed' given; one of 'kernels', 'refinement'"):
        experiments.run("bench", {"parts": ("speed",)})


def test_digits_stand_in_where_mnist_is_missing_and_repeat(monkeypatch, tmp_path):
    monkeypatch.setenv("GDD_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = cost.all_digits("mnist")
    assert images.attrs["name"] == "digits"
    n = images.sizes["image"]
    more = cost.some(images, n + 2, 0)
    assert sorted(more.number.values[:n]) == sorted(images.number.values)
    np.testing.assert_array_equal(more.values[n:], more.values[:2])


@pytest.mark.slow
def test_a_sweep_of_the_first_images_is_that_of_a_smaller_set():
    spec = replace(model_for(100.0, 0.1).layers[0], atoms=2)
    images = cost.some(cost.all_digits("digits"), 6, 0).values.astype(np.float32)
    data = cost.LayerData(images)
    layer = cost.fit_layer(data, spec, layer_shape(spec, (28, 28), 1), ChainSpec(0, 1))
    few, of_few = cost.first_images(layer, data, 4)
    whole, part = cost.pass_job(layer, data, 0)().local, cost.pass_job(few, of_few, 0)().local
    np.testing.assert_array_equal(part.w, whole.w[:4])


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
