"""What it costs to run one chain on workers of dask: time against threads of one process, rounds, and bytes.

All ways make the same sweeps from the same start, one way after another, and the round is repeated; so what disturbs
one disturbs all. Times are of the wall, as several processes work together.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from gdd.model.spec import ChainSpec, ModelSpec, RefinementSpec
from gdd.model.state import LayerData, Shard
from gdd.sampler.pretrain import pretrain, pretrain_layers
from gdd.sampler.refine import refine, run_joint_chain, start_from
from gdd.sampler.sums import BATCH
from gdd_book.benchmarks.harness import on_threads
from gdd_book.data import datasets
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.progress import Run
from gdd_book.training import HELD_DIGITS, digits_model, refinement_for

WAYS = ("1 thread", "1 worker", "2 threads", "2 workers")
STAGES = ("layer 1", "layer 2", "all layers")
#: numbers of the messages whose rounds are timed
MESSAGES = (1, 10**6)


@experiment(
    "cluster-cost", seed=0, refine_noise=44.0, **HELD_DIGITS,
    demo={"data": "digits", "sizes": (600,), "sweeps": 1, "repeats": 1},
    paper={"data": "mnist", "sizes": (2000, 20000), "sweeps": 2, "repeats": 1},
)
def cluster_cost(p: dict, run: Run) -> Outcome:
    """Seconds of a sweep (way, stage, size, repeat); rounds and bytes a sweep (stage, size); seconds of a round."""
    from gdd import cluster

    model, refinement = digits_model(p), refinement_for(p["refine_noise"])
    chain = ChainSpec(p["sweeps"], 1, p["seed"])
    everything = datasets.load(p["data"], "train", n=max(p["sizes"]), seed=p["seed"])
    images = everything.values
    seconds = np.zeros((len(WAYS), len(STAGES), len(p["sizes"]), p["repeats"]))

    def here(pixels: np.ndarray, threads: int) -> list[float]:
        with on_threads(threads):
            fitted = pretrain(pixels, model, chain)
            return of_sweep(fitted, refine(pixels, fitted.model, chain, refinement, fitted))

    def there(pixels: np.ndarray, client) -> list[float]:
        learn = partial(cluster.learn, pixels, model, chain, client=client, keep=1)
        return of_sweep(learn(), learn(refine=chain, refinement=refinement))

    local = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with cluster.Client(n_workers=1, **local) as one, cluster.Client(n_workers=2, **local) as two:
        ways = [partial(here, threads=1), partial(there, client=one),
                partial(here, threads=2), partial(there, client=two)]
        with run.bar(len(p["sizes"]) * p["repeats"] * len(ways), "cluster-cost") as bar:
            for way in ways:
                way(images[: 2 * BATCH])  # compiles
            for size, number in enumerate(p["sizes"]):
                for repeat in range(p["repeats"]):
                    for at, way in enumerate(ways):
                        seconds[at, :, size, repeat] = way(images[:number])
                        bar.step()
        rounds = seconds_of_rounds(two)
    counts = np.array([count_meetings(images[:number], model, chain, refinement) for number in p["sizes"]])
    return outcome(xr.Dataset({
        "seconds": (("way", "stage", "size", "repeat"), seconds),
        "rounds": (("stage", "size"), counts[..., 0].T), "bytes": (("stage", "size"), counts[..., 1].T),
        "round_seconds": ("message", rounds),
    }, {"way": list(WAYS), "stage": list(STAGES), "size": list(p["sizes"]), "message": [8 * n for n in MESSAGES]}),
        p, everything, model=model)


def of_sweep(fitted, refined) -> list[float]:
    """Seconds of a sweep of each stage."""
    return [one.attrs["seconds"] / one.sizes["draw"] for one in (*(x.traces for x in fitted.layers), refined.traces)]


def count_meetings(
    images: np.ndarray, model: ModelSpec, chain: ChainSpec, refinement: RefinementSpec
) -> list[tuple[float, float]]:
    """Rounds of a sweep, and bytes that one process which holds all images would send, by stage."""
    said: list[float] = []

    def allreduce(combine, value):
        said.append(size_of(value))
        return combine([value])

    data = LayerData(images, shard=Shard(0, len(images), allreduce))
    one, more = ChainSpec(1, 1, chain.seed), ChainSpec(3, 1, chain.seed)

    def said_in_a_sweep(work) -> np.ndarray:
        ends = []
        for each in (one, more):
            said.clear()
            work(each)
            ends.append([len(said), sum(said)])
        return np.subtract(*ends[::-1]) / 2

    fitted = pretrain_layers(data, model, one)
    begun = start_from(fitted, refinement, one)
    bottom, both = (said_in_a_sweep(partial(pretrain_layers, data, spec))
                    for spec in (replace(model, layers=model.layers[:1]), model))
    joint = said_in_a_sweep(lambda chain: run_joint_chain(begun, data, fitted.model, chain, refinement))
    return [tuple(bottom), tuple(both - bottom), tuple(joint)]


def size_of(value) -> float:
    """Bytes of the arrays in what a shard sends."""
    if isinstance(value, np.ndarray):
        return float(value.nbytes)
    return float(sum(map(size_of, value))) if isinstance(value, list | tuple) else 8.0


def seconds_of_rounds(client, repeats: int = 20) -> list[float]:
    """Median seconds of a meeting of two workers, by the size of what each says."""
    from gdd import cluster

    there = cluster.running(client)
    workers = sorted(there)
    rendezvous = client.submit(cluster.Rendezvous, len(workers), workers=workers[:1], actor=True, pure=False).result()
    place = {workers[0]: there[workers[0]]}
    ranks = [cluster.Rank(rendezvous, place, number, 0, 1) for number in range(len(workers))]
    found = [client.submit(_reduce_often, rank, repeats, workers=[worker], pure=False)
             for rank, worker in zip(ranks, workers, strict=True)]
    return client.gather(found)[0]


def _reduce_often(rank, repeats: int) -> list[float]:
    shard, found = rank.shard(), []
    for numbers in MESSAGES:
        said, times = np.zeros(numbers), []
        for _ in range(repeats):
            begun = time.perf_counter()
            shard.reduce(_first, said)
            times.append(time.perf_counter() - begun)
        found.append(float(np.median(times)))
    return found


def _first(said: list[np.ndarray]) -> np.ndarray:
    return said[0]
