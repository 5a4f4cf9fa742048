"""The cost experiment: the table holds what it says, jobs take turns, the bound does the arithmetic that it claims."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from gdd.base import compiling
from gdd.base.checks import GddError
from gdd.model.spec import ChainSpec, layer_shape
from gdd.sampler.random import Stream
from gdd_book import experiments
from gdd_book.benchmarks import cost, harness, peers
from gdd_book.benchmarks.harness import Timing, as_dataset, ratio, row, single
from gdd_book.benchmarks.peers import Curve
from gdd_book.experiments.studies import cost as experiment
from gdd_book.figures import performance
from gdd_book.progress import Run
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
        changes = {
            "parts": ("kernels", "threads", "images", "memory", "testing"), "data": "digits", "images": 6,
            "sizes": (5, 9), "warm_up": 2, "repeats": 2, "caltech_atoms": 3,
        }
        return experiments.run("bench", changes).dataset


def value(table, name):
    return table["median"].sel(quantity=name).item()


@pytest.mark.slow
def test_every_quantity_is_a_finite_number_and_times_are_positive(table):
    assert np.isfinite(table["median"]).all() and np.isfinite(table["minimum"]).all()
    taken = table.sel(quantity=["layer 1: image pass", "sweep of 9 images", "two threads: pass on 2"])
    assert (taken["minimum"] > 0).all() and (taken["minimum"] <= taken["median"]).all()
    assert table["size"].sel(quantity="sweep of 9 images") == 9
    assert set(table.part.values) == {"kernels", "threads", "images", "memory", "testing", "machine"}


@pytest.mark.slow
def test_every_kernel_has_a_bound_and_every_twin_a_ratio(table):
    over = [name for name in table.quantity.values if name.endswith("/ bound") and not name.startswith("two")]
    assert {name.split(":")[0] for name in over} == {
        "layer 1", "layer 2", "layer 1, half hidden", "one-step features", "deconvolution",
    }
    twins = [name for name in table.quantity.values if name.endswith("plain twin / compiled")]
    assert {name.split(":")[0] for name in twins} == {"layer 1", "layer 2", "layer 1, half hidden", "deconvolution"}


@pytest.mark.slow
def test_bound_is_the_sum_of_its_parts(table):
    for layer in ("layer 1", "layer 2", "deconvolution"):
        parts = [n for n in table["quantity"].values if n.startswith(f"{layer}: bound,")]
        assert len(parts) == 3
        minima = table["minimum"].sel(quantity=parts).sum().item()
        assert table["minimum"].sel(quantity=f"{layer}: bound").item() >= minima * (1 - 1e-9)


@pytest.mark.slow
def test_memory_is_two_and_four_bytes_a_block_and_a_chain_holds_a_few_states(table):
    assert value(table, "layer 1: local state") == pytest.approx(3 * 49 * 6 + 8 / 6)
    assert value(table, "layer 1: stated, 2 + 4 bytes a block") == 3 * 49 * 6
    image = 28 * 28 * 4
    grows = value(table, "layer 1: peak of a running chain")
    assert 2 * 3 * 49 * 6 < grows < 5 * 3 * 49 * 6 + 2 * image, "old and new state at least; not one for every sweep"


@pytest.mark.slow
def test_the_table_says_how_busy_the_machine_was(table):
    assert value(table, "load average before") >= 0
    assert table.attrs["cores"] >= 1
    assert 0 < value(table, "layer 1: active blocks") <= 3 * 49


def test_unknown_part_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(cost, "all_digits", lambda name: pytest.fail("work was done"))
    with pytest.raises(GddError, match="parts: 'speed' given; one of 'kernels', 'threads'"):
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
    key = cost.Key(0, cost.PRETRAIN, 0, 5)
    whole, _ = cost.image_pass(layer.state, data, spec, layer.shape, key)
    part, _ = cost.image_pass(few.state, of_few, spec, layer.shape, key)
    np.testing.assert_array_equal(part.w, whole.w[:4])


def test_stand_ins_have_caltechs_shapes():
    atoms, images = cost.stand_ins(3, (128, 128), (96, 96), (8, 8), 0)
    assert atoms.shape == (3, 1, 96, 96)
    assert images.shape == (cost.CALTECH_IMAGES, 1, 128, 128)
    np.testing.assert_allclose((atoms**2).sum(axis=(1, 2, 3)), 1, rtol=1e-5)


def test_jobs_take_turns_and_the_first_turn_does_not_count():
    seen = []
    jobs = {name: Timing(lambda name=name: seen.append(name)) for name in "ab"}
    seconds = harness.time_in_turn(jobs, 3, Run())
    assert seen == list("abababab")
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_threads_are_put_back():
    before = compiling.thread_count()
    with pytest.raises(ZeroDivisionError), harness.on_threads(1):
        assert compiling.thread_count() == 1
        raise ZeroDivisionError
    assert compiling.thread_count() == before


def test_the_generators_share_of_the_bound_is_the_samplers_generator():
    stream = Stream(0, 0, 0, 0, 0)
    assert harness.many_uniforms(9) == pytest.approx(sum(stream.uniform() for _ in range(9)), rel=1e-14)


@pytest.mark.slow
def test_bound_multiplies_and_exponentiates_as_often_as_the_layer(monkeypatch):
    shape = model_for(100.0, 0.1).shapes()[0]
    done = {"adds": 0, "exponentials": 0, "calls": 0}

    def matmul(left, right, out):
        done["adds"] += left.shape[0] * left.shape[1] * right.shape[1]

    def exp(values, out):
        done["exponentials"] += values.size

    parts = harness.bound("one", shape, 10)
    monkeypatch.setattr(harness.np, "matmul", matmul)
    monkeypatch.setattr(harness.np, "exp", exp)
    monkeypatch.setattr(harness, "many_uniforms", lambda calls: done.update(calls=calls))
    for part in parts.values():
        part.job()
    images = parts["one: bound, product"].images
    per_image = {name: count / images for name, count in done.items()}
    assert images >= 10
    assert per_image == {"adds": 32 * 21 * 21 * 64, "exponentials": 32 * 21 * 21, "calls": 32 * 49}


def test_speed_up_over_the_bounds():
    one, two = np.array([4.0, 4.0, 5.0]), np.array([2.0, 2.5, 3.0])
    gain = ratio(one, two)
    assert (gain.median, gain.minimum) == (1.6, 2.0)
    assert cost._share(gain, ratio(one, one)).median == 1.6


def test_sweeps_of_few_images_are_repeated(monkeypatch):
    seen = []
    monkeypatch.setattr(cost, "sweep", lambda *a: seen.append(a[-2].sweep))
    layer = cost.Fitted(None, None, None, xr.Dataset())
    cost.sweep_job(layer, None, 3, 0)()
    assert len(set(seen)) == 3


@pytest.fixture
def record():
    """A record of three rows and two tasks, with a peer that is missing."""
    rows = {
        "kernels": {"layer 1: whole sweep / bound": single(2.9, "ratio")},
        "images": {
            "sweep of 10 images": row(np.array([0.2]), size=10),
            "sweep of 90 images / of 10": single(1.2, "ratio")._replace(size=90),
        },
    }
    curve = Curve(np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.2, 0.1]), np.array([9.0, 5.0, 5.5]))
    outcomes = [
        peers.Entry("learning", "gdd", curve, 2, "3 sweeps"),
        peers.Entry("learning", "other", curve, curve.first(0.2, 5.0), "lambda 1"),
        peers.missing("learning", "sporco", "sporco"),
    ]
    return as_dataset(rows).merge(peers.as_dataset(outcomes))


def test_goals_are_judged_by_their_rows(record):
    table = performance.goal_table(record)
    assert table[""].tolist() == ["met", "not measured", "not met", "not measured", "not measured"]
    assert table["measured"].tolist() == ["2.9", "-", "1.2", "-", "-"]


def test_peers_are_compared_where_they_are_as_good(record):
    assert record.peer_seconds.values[:2].tolist() == [0.3, 0.2]
    assert record.peer_ratio.values[1] == pytest.approx(2 / 3)
    table = performance.peer_table(record)
    assert table["time / ours"].tolist() == ["1", "0.667", "-"]
    assert "pip install sporco" in table["how"].iloc[2]


def test_a_curve_is_never_there_if_it_is_not_as_good_in_both():
    curve = Curve(np.arange(3.0), np.array([0.1, 0.2, 0.3]), np.array([9, 8, 7]))
    assert curve.first(0.15, 8.5) is None
    assert curve.first(0.25, 8.5) == 1


@pytest.mark.slow
def test_every_part_has_its_figure(table, record):
    assert len(performance.show_ratios(table).axes[0].patches) == 7
    lines = [line for line in performance.show_contest(record).axes[0].lines if line.get_linestyle() != "None"]
    np.testing.assert_allclose(lines[0].get_xdata(), [100, 200, 300])
    assert not performance.has(record, "threads") and performance.has(record, "peers")
    assert not performance.has(None, "peers")
