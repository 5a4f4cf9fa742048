"""Chains on workers of dask: the bits of one process, whatever is killed; refusals by a sentence."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import cluster_to_kill
import numpy as np
import pytest
import xarray as xr
from agreement import digest_of
from numpy.testing import assert_equal
from test_sums import CASES, CHAIN, MODEL, PARTITIONS

import gdd
from gdd.base.checks import GddError
from gdd.model.spec import ChainSpec

distributed = pytest.importorskip("distributed")

from gdd import cluster  # noqa: E402
from gdd.sampler.sums import BATCH  # noqa: E402

DASK = str(Path(sys.executable).with_name("dask"))


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).standard_normal((PARTITIONS[0][-1], 1, 11, 11)).astype(np.float32) / 3


@pytest.fixture(scope="module")
def client():
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        yield client


def alone(images, case, mask=None):
    model, chain, refinement, _ = CASES[case]
    fitted = gdd.pretrain(images, model, chain, mask)
    return fitted, gdd.refine(images, fitted.model, chain, refinement, fitted, mask)


def assert_same(one, other):
    if isinstance(one, gdd.Pretrained):
        for a, b, c, d in zip(one.layers, other.layers, one.inputs, other.inputs, strict=True):
            assert_equal((b.state, d.images), (a.state, c.images))
            assert a.traces.equals(b.traces) and (a.spec, a.shape) == (b.spec, b.shape)
    else:
        assert_equal((other.state, other.last, other.data.images), (one.state, one.last, one.data.images))
        assert one.traces.equals(other.traces)
    assert one.model == other.model


def test_without_a_client_one_is_asked_for(images):
    """The first test here, as others start one."""
    with pytest.raises(GddError, match="client: there is none; work within"):
        cluster.learn(images, MODEL, CHAIN)


@pytest.mark.parametrize("case", CASES)
def test_two_workers_give_the_bits_of_one_process(client, images, case):
    model, chain, refinement, fresh = CASES[case]
    fitted, refined = alone(images, case)
    assert_same(fitted, cluster.learn(images, model, chain))
    assert_same(refined, cluster.learn(images, model, chain, refine=chain, refinement=refinement))


def test_workers_are_known_whatever_the_client_last_heard(client, monkeypatch):
    async def hears_nothing(n_workers=0):
        return None

    monkeypatch.setattr(client, "_update_scheduler_info", hears_nothing)
    monkeypatch.setattr(client, "_scheduler_identity", {"workers": {}})
    assert len(cluster.running(client)) == 2


def test_masked_images_and_images_in_files_give_the_same_bits(client, images, tmp_path):
    mask = np.random.default_rng(3).random(images.shape) < 0.9
    fitted, refined = alone(images, "learned", mask)
    model, chain, refinement, _ = CASES["learned"]
    assert_same(refined, cluster.learn(images, model, chain, refine=chain, refinement=refinement, mask=mask))
    xr.Dataset({"images": (("image", "plane", "row", "col"), images)}).to_netcdf(tmp_path / "images.nc")
    stored = xr.open_dataset(tmp_path / "images.nc", chunks={"image": BATCH}).images
    kept = cluster.learn(stored, MODEL, CHAIN, keep=3)
    whole = gdd.pretrain(images, MODEL, CHAIN)
    for one, other in zip(kept.layers, whole.layers, strict=True):
        assert_equal(one.state.local.w, other.state.local.w[:3])
        assert_equal(one.state.shared.dictionary, other.state.shared.dictionary)


def test_new_images_give_the_same_bits(client, images, tmp_path):
    fitted = gdd.pretrain(images, *CASES["by image"][:2])
    atoms, options = gdd.project(fitted), {"burn_in": 3, "collect": 2, "seed": 5}
    for folder, seed in ((None, 5), (tmp_path, 6), (tmp_path, 5)):  # the last time over what is there
        found = cluster.infer(fitted, atoms, images[:1100], folder=folder, **options | {"seed": seed}).load()
        xr.testing.assert_equal(found, gdd.infer(fitted, atoms, images[:1100], **options | {"seed": seed}))
        found.close()
    assert len(list(tmp_path.glob("*.nc"))) == 3
    seen = np.random.default_rng(0).random(images[:1100].shape) < 0.7
    found = cluster.infer(fitted, atoms, images[:1100], mask=seen, **options)
    xr.testing.assert_equal(found, gdd.infer(fitted, atoms, images[:1100], mask=seen, **options))
    with pytest.raises(GddError, match="first_image: 1.5"):
        cluster.infer(fitted, atoms, images[:1100], folder=tmp_path, first_image=1.5, **options)


def test_independent_tasks_come_in_order(client):
    assert list(cluster.each(pow, [(2, n) for n in range(5)])) == [1, 2, 4, 8, 16]


def test_workers_of_other_code_or_kind_are_refused(client, images, monkeypatch):
    own = cluster.fingerprint()
    monkeypatch.setattr(cluster, "fingerprint", lambda: own)
    for there, message in [
        (("0123456789abcdef", *own[1:]), "another version of the code, 0123456789ab there and"),
        ((own[0], "another CPU"), "another kind of machine"),
        (ModuleNotFoundError("No module named 'gdd'"), "No module named 'gdd'; install this version"),
    ]:
        monkeypatch.setattr(client, "run", lambda *_, there=there, **__: {"tcp://a": own, "tcp://b": there})
        with pytest.raises(GddError, match=f"worker tcp://b: {message}"):
            cluster.learn(images, MODEL, CHAIN)


def test_bad_input_is_refused_before_any_work(client, images):
    broken = images.copy()
    broken[BATCH * 3 + 1] = np.nan
    for given, mask, message in [
        (images[:, 0], None, "images: shape"), (images[:, :, 1:], None, "axis 'row' has size 10"),
        (xr.DataArray(images, dims=("plane", "image", "row", "col")), None, "images: shape .* images first"),
        (images, np.ones((len(images) + 1, *images.shape[1:]), bool), "mask: shape"),
        (broken, None, f"images counted from {BATCH * 2}"),
    ]:
        with pytest.raises(GddError, match=message):
            cluster.learn(given, MODEL, CHAIN, mask=mask)


def test_a_worker_started_again_at_its_address_counts_as_gone(client):
    workers = cluster.running(client)
    cluster.refuse_gone(workers, client)
    first = min(workers)
    with pytest.raises(cluster.WorkerLost, match=f"{first} has gone"):
        cluster.refuse_gone(workers | {first: "the folder of an earlier start"}, client)


def test_a_chain_that_its_driver_has_left_ends(client, images, tmp_path):
    """An error of the progress is not taken for a lost worker; the paused chains end."""

    def chains() -> int:
        threads = client.run(lambda: sum(t.name.startswith("DaskThreadPool") for t in threading.enumerate()))
        return sum(threads.values())

    before, during = chains(), []

    def fail(*_):
        during.append(chains())
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        cluster.learn(images, MODEL, ChainSpec(100, 1), folder=tmp_path, progress=fail)
    given_up = time.monotonic() + 60
    while chains() > before and time.monotonic() < given_up:
        time.sleep(0.1)
    assert during[0] == before + 2 and chains() == before


# ---- kills
class Machines:
    """A scheduler, workers and a driver, each a process started by the commands that the book gives."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.number = folder, folder / "scheduler.json", 0
        self.environment = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s"}
        self.running: dict[str, subprocess.Popen] = {}
        self.start_all()

    def start(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def start_all(self) -> None:
        self.file.unlink(missing_ok=True)
        self.start("scheduler", DASK, "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file))
        while not self.file.exists():
            time.sleep(0.1)
        self.start_worker()
        self.start_worker()
        self.start_driver()

    def start_worker(self) -> None:
        self.number += 1
        self.start(f"worker{self.number}", DASK, "worker", "--scheduler-file", str(self.file), "--nthreads", "1",
                   "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder / "space"))

    def start_driver(self) -> None:
        self.start("driver", sys.executable, cluster_to_kill.__file__, str(self.file), str(self.folder))

    def kill(self, name: str) -> None:
        one = self.running.pop(name)
        one.send_signal(signal.SIGKILL)
        one.wait()

    def workers(self) -> list[str]:
        return [name for name, one in self.running.items() if name.startswith("worker") and one.poll() is None]

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(4))
def test_five_kills_in_a_row_end_at_the_same_bits(tmp_path, round_):
    """A worker, the driver, the scheduler, at random, at random moments; what is killed is started again."""
    whole, dice = digest_of(cluster_to_kill.alone().last), random.Random(round_)
    digest, lost, begun = tmp_path / "digest.txt", [], time.monotonic()
    with closing(Machines(tmp_path)) as here:
        for _ in range(5):
            time.sleep(dice.uniform(3.0, 12.0))
            name = dice.choice([*here.workers(), "driver", "scheduler"])
            if digest.exists():  # it has ended before: the whole run once more
                for path in (digest, *tmp_path.glob("chain/*")):
                    path.unlink()
                name = "driver"
            killed = time.monotonic()
            here.kill(name)
            if name == "scheduler":
                here.close()
                here.start_all()
            elif name == "driver":
                here.start_driver()
            else:
                here.start_worker()
            lost.append((name, time.monotonic() - killed))
        while not digest.exists() and time.monotonic() - begun < 300:
            if here.running["driver"].poll() not in (None, 0):
                here.start_driver()
            time.sleep(0.5)
    assert digest.read_text() == whole, lost
