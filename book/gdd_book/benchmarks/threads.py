"""One thread against two: a layer-1 sweep beside two independent processes that do its bound, in wall time.

Only worth reading if nothing else runs on the machine; the record keeps the load average.
*Checked:* tests/test_bench.py.
"""

from __future__ import annotations

import numpy as np

from gdd.sampler.pretrain import Pretrained
from gdd.sampler.random import PRETRAIN
from gdd.sampler.sweep import Key
from gdd_book.benchmarks.kernels import pass_job
from gdd_book.benchmarks.material import on_images
from gdd_book.benchmarks.rows import Row, ratio, row
from gdd_book.benchmarks.scaling import sweep_job
from gdd_book.benchmarks.timing import Copies, Timing, time_in_turn

#: images in a sweep here, as a multiple of those of the other parts: a turn must outlast the start of a thread
TIMES = 2
PASSES = 3


def thread_rows(fitted: Pretrained, p: dict, progress) -> dict[str, Row]:
    """Speed-up by a second thread of the image pass and of the whole sweep, and of two copies of the bound."""
    data = fitted.inputs[0]
    n = TIMES * len(data.images)
    layer, data = on_images(fitted.layers[0], data.images[np.arange(n) % len(data.images)], PASSES, p["seed"])
    key = Key(p["seed"], PRETRAIN, 0, 10**6)
    with Copies(2, layer.shape, n) as copies:
        jobs = {}
        for threads in (1, 2):
            jobs[f"pass, {threads}"] = Timing(pass_job(layer, data, key), n, threads, True)
            jobs[f"sweep, {threads}"] = Timing(sweep_job(layer, data, 1, p["seed"]), n, threads, True)
            jobs[f"bound, {threads}"] = Timing(copies.job(threads), n * threads, 1, True)
        seconds = time_in_turn(jobs, p["repeats"], progress)
    gains = {what: ratio(seconds[f"{what}, 1"], seconds[f"{what}, 2"]) for what in ("pass", "sweep", "bound")}
    best = gains["bound"]
    per_job = {name: row(values, "ms of wall time per image") for name, values in seconds.items()}
    return {
        **{f"two threads: {name.replace(',', ' on')}": taken for name, taken in per_job.items()},
        "two threads: speed-up of the image pass": gains["pass"],
        f"two threads: speed-up of a sweep of {n} images": gains["sweep"],
        "two threads: speed-up of two copies of the bound": best,
        "two threads: image pass / bound": over(gains["pass"], best),
        "two threads: sweep / bound": over(gains["sweep"], best),
    }


def over(gain: Row, best: Row) -> Row:
    """Share of the best speed-up that is had."""
    return Row(gain.median / best.median, gain.minimum / best.minimum, "ratio")
