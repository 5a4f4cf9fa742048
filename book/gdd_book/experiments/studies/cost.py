"""The cost of the sampler: what `gdd bench` measures.

Times are multiples of what the arithmetic alone would take in the same minute, see `gdd_book.benchmarks.harness`,
median and minimum over repeats in turn; on one core processor time, on two wall time, which needs a low load average.
"""

import os

from gdd.inference.deconvolution import check_device
from gdd.model.spec import ChainSpec
from gdd.sampler.pretrain import pretrain
from gdd_book.benchmarks import cost, peers
from gdd_book.benchmarks.device import device_rows
from gdd_book.benchmarks.harness import as_dataset, on_threads, single
from gdd_book.experiments.common import Outcome, experiment
from gdd_book.progress import Run
from gdd_book.training import HELD_DIGITS, model_for

PARTS = ("kernels", "refinement", "threads", "images", "memory", "testing", "peers")


@experiment("bench", {
    "parts": PARTS, "data": "mnist", "images": 1000, "warm_up": 60, "repeats": 9, "seed": 0,
    "sizes": (1000, 4000, 16000, 60000), "caltech_atoms": 1616, "peer_images": 200,
}, choices={"parts": (*PARTS, "cuda")})
def bench(p: dict, run: Run) -> Outcome:
    """Warm chains up, time every part that is asked for, form the ratios.

    The part "cuda" is measured only if it is asked for, as few machines have such a processor. Where MNIST is not on
    this machine, the embedded digits stand in, repeated; the record's ``data_name`` says which.
    """
    if "cuda" in p["parts"]:
        check_device("cuda")
    everything, model = cost.all_digits(p["data"]), model_for(**HELD_DIGITS)
    images = cost.some(everything, p["images"], p["seed"])
    before = os.getloadavg()[0]
    with on_threads(1):
        fitted = pretrain(images, model, ChainSpec(p["warm_up"], 1, p["seed"]))
        parts = {
            "kernels": lambda: cost.kernel_rows(fitted, images, p, run),
            "refinement": lambda: cost.refinement_rows(images, model, p, run),
            "threads": lambda: cost.thread_rows(fitted, p, run),
            "images": lambda: cost.image_rows(fitted, everything, p, run),
            "memory": lambda: cost.memory_rows(fitted, p),
            "testing": lambda: cost.testing_rows(fitted, images, p, run),
            "cuda": lambda: device_rows(everything, model, p, run),
        }
        found = {part: rows() for part, rows in parts.items() if part in p["parts"]}
        found["machine"] = {
            "load average before": single(before, "programs"),
            "load average after": single(os.getloadavg()[0], "programs"),
        }
        table = as_dataset(found)
        if "peers" in p["parts"]:
            digits = cost.some(everything, p["peer_images"], p["seed"])
            table = table.merge(peers.contest(digits, model, p["seed"], run))
    table.attrs["distinct_images"] = everything.sizes["image"]
    return Outcome(table, model, everything.attrs["name"], everything.attrs["checksum"], p["seed"])
