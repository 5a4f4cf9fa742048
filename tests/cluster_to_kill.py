"""The driver of test_cluster.py's kills: ``python cluster_to_kill.py SCHEDULER_FILE FOLDER``."""

import sys
import time
from pathlib import Path

import numpy as np
from agreement import digest_of

import gdd
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec, Precision, RefinementSpec
from gdd.sampler import chain

MODEL = ModelSpec((LayerSpec(6, (5, 5), (2, 2)), LayerSpec(8, (4, 4))), (14, 14)).with_fixed_precisions(25.0, 1.0)
CHAIN, REFINE, REFINEMENT = ChainSpec(20, 10), ChainSpec(20, 10), RefinementSpec(Precision(fixed=25.0))


def images() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1500, 1, 14, 14)).astype(np.float32) / 3


def alone() -> gdd.Refined:
    fitted = gdd.pretrain(images(), MODEL, CHAIN)
    return gdd.refine(images(), fitted.model, REFINE, REFINEMENT, fitted)


def often() -> None:
    """Write a checkpoint at every other second."""
    chain.SECONDS_BETWEEN_CHECKPOINTS, chain.SHARE_OF_WRITING = 1.0, float("inf")


if __name__ == "__main__":
    from distributed import Client

    from gdd import cluster

    with Client(scheduler_file=sys.argv[1]) as client:
        client.wait_for_workers(1, timeout=60)
        client.run(often)
        begun = time.monotonic()
        client.register_worker_callbacks(often)
        found = cluster.learn(
            images(), MODEL, CHAIN, refine=REFINE, refinement=REFINEMENT, folder=Path(sys.argv[2]) / "chain",
            progress=lambda *said: print(f"{time.monotonic() - begun:.1f}", *said, flush=True),
        )
        (Path(sys.argv[2]) / "digest.txt").write_text(digest_of(found.last))
        print("end", flush=True)
