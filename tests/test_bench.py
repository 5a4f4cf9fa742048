"""The cost experiment: the table holds what it says, the bound does the arithmetic that it claims."""


import pytest

from gdd.base.checks import GddError
from gdd.reference.random import Stream
from gdd_book import experiments
from gdd_book.benchmarks import cost, harness
from gdd_book.training import model_for


def test_unknown_part_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(cost, "all_digits", lambda name: pytest.fail("work was done"))
    with pytest.raises(GddError, match="parts: 'speed' given; one of 'kernels', 'refinement'"):
        experiments.run("bench", {"parts": ("speed",)})


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
