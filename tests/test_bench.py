"""The cost experiment: the table holds what it says, jobs take turns, the bound does the arithmetic that it claims."""

from dataclasses import replace

import numba
import numpy as np
import pytest

from gdd import experiments, timing
from gdd.experiments import bench
from gdd.experiments.mnist_error import model_for
from gdd.progress import Bar
from gdd.sampler.random import Stream
from gdd.timing import Timing


@pytest.fixture(scope="module")
def table():
    """Two layers of few atoms, otherwise MNIST's sizes."""

    def small(*precisions):
        model = model_for(*precisions)
        lower, upper = model.layers
        return replace(model, layers=(replace(lower, atoms=3), replace(upper, atoms=4)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "model_for", small)
        changes = {"images": 20, "sizes": (5, 30), "warm_up": 2, "repeats": 2}
        return bench.run(experiments.merge("bench", "demo", changes), Bar).dataset


def test_every_quantity_is_a_finite_number(table):
    assert np.isfinite(table["median"]).all() and np.isfinite(table["minimum"]).all()
    for name in table["quantity"].values:
        row = table.sel(quantity=name)
        if row["unit"] in ("ms", "bytes per image") or name in ("layer 1: image pass", "layer 2: image pass"):
            assert 0 < row["minimum"] <= row["median"], name


def test_bound_is_the_sum_of_its_parts(table):
    for layer in ("layer 1", "layer 2"):
        parts = [n for n in table["quantity"].values if n.startswith(f"{layer}: bound,")]
        assert len(parts) == 3
        minima = table["minimum"].sel(quantity=parts).sum().item()
        assert table["minimum"].sel(quantity=f"{layer}: bound").item() >= minima * (1 - 1e-9)


def test_memory_is_two_and_four_bytes_a_block(table):
    assert table["median"].sel(quantity="layer 1: local state").item() == pytest.approx(3 * 49 * 6 + 8 / 20)


def test_the_table_says_how_busy_the_machine_was(table):
    assert {"load_average_before", "load_average_after", "cores"} <= set(table.attrs)
    assert 0 < table.attrs["active_per_image_layer_1"] <= 3 * 49


def test_jobs_take_turns_and_the_first_turn_does_not_count():
    seen = []
    jobs = {name: Timing(lambda name=name: seen.append(name)) for name in "ab"}
    seconds = timing.time_in_turn(jobs, 3, Bar)
    assert seen == list("abababab")
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_threads_are_put_back():
    before = numba.get_num_threads()
    with pytest.raises(ZeroDivisionError), timing.on_threads(1):
        assert numba.get_num_threads() == 1
        raise ZeroDivisionError
    assert numba.get_num_threads() == before


def test_the_generators_share_of_the_bound_is_the_samplers_generator():
    stream = Stream(0, 0, 0, 0, 0)
    assert timing.many_uniforms(9) == pytest.approx(sum(stream.uniform() for _ in range(9)), rel=1e-14)


def test_copies_run_all_jobs():
    seen = []
    timing.copies_job([[lambda: seen.append(1), lambda: seen.append(2)], [lambda: seen.append(3)]])()
    assert sorted(seen) == [1, 2, 3]
