"""The cost of the sampler, as multiples of what the arithmetic alone would take on the same machine in the same minute.

The bound of a layer is one single-precision matrix product with the multiply-adds of its correlations, one vectorised
exponential per candidate position and one call of the random generator per block, each timed alone and added up.

Everything is repeated in turn, so that a disturbance hits all alike; the median and the minimum over the repeats are
kept. One-core times are processor time, which other programs on the machine disturb little; two-core times cannot be
anything but wall time, and are worth reading only if the load average in the record is low.
"""

from __future__ import annotations

import os

import numpy as np
from threadpoolctl import threadpool_limits

from gdd.base.checks import GddError
from gdd_book.benchmarks.contest import contest
from gdd_book.benchmarks.kernels import kernel_rows
from gdd_book.benchmarks.material import HEALTHY, all_digits, some, warm_up
from gdd_book.benchmarks.rows import as_dataset, single
from gdd_book.benchmarks.scaling import atom_rows, image_rows, memory_rows
from gdd_book.benchmarks.testing import testing_rows
from gdd_book.benchmarks.threads import thread_rows
from gdd_book.benchmarks.timing import on_threads
from gdd_book.experiments import Outcome
from gdd_book.training.training import model_for

NAME = "bench"
PARTS = ("kernels", "threads", "images", "atoms", "memory", "testing", "peers")
PARAMETERS = {
    "demo": {
        "parts": PARTS, "data": "mnist", "images": 1000, "warm_up": 60, "repeats": 9, "seed": 0,
        "sizes": (1000, 4000, 16000, 60000), "atom_sizes": (4, 8, 12, 16), "caltech_atoms": 1616, "peer_images": 200,
    },
}  # fmt: skip


def run(parameters: dict, progress) -> Outcome:
    """Warm chains up, time every part that is asked for, form the ratios; see the module.

    Where MNIST is not on this machine, the embedded digits stand in, repeated; the record's ``data_name`` says which.
    """
    p = parameters
    unknown = sorted(set(p["parts"]) - set(PARTS))
    if unknown:
        raise GddError(f"parts: {', '.join(unknown)} given; choose from {', '.join(PARTS)}")
    everything, model = all_digits(p["data"]), model_for(*HEALTHY)
    images = some(everything, p["images"], p["seed"])
    before = os.getloadavg()[0]
    with on_threads(1), threadpool_limits(1):
        fitted = warm_up(images.values.astype(np.float32), model, p["warm_up"], p["seed"])
        jobs = {
            "kernels": lambda: kernel_rows(fitted, images, p, progress),
            "threads": lambda: thread_rows(fitted, p, progress),
            "images": lambda: image_rows(fitted, everything, p, progress),
            "atoms": lambda: atom_rows(fitted, p, progress),
            "memory": lambda: memory_rows(fitted, p),
            "testing": lambda: testing_rows(fitted, images, p, progress),
        }
        found = {part: job() for part, job in jobs.items() if part in p["parts"]}
        found["machine"] = {
            "load average before": single(before, "programs"),
            "load average after": single(os.getloadavg()[0], "programs"),
        }
        table = as_dataset(found)
        if "peers" in p["parts"]:
            table = table.merge(contest(some(everything, p["peer_images"], p["seed"]), model, p["seed"], progress))
    table.attrs |= {"cores": os.cpu_count(), "distinct_images": everything.sizes["image"]}
    return Outcome(table, model, everything.attrs["name"], everything.attrs["checksum"], p["seed"])
