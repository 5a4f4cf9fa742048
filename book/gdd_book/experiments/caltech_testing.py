"""What one test image of Caltech 101 costs: real images, the atoms of all classes, the paper's sweeps at test time.

Images are deconvolved one at a time, on one core; what they share, the atoms' Gram matrix, is timed by itself. The same
shapes with stand-ins are in `gdd bench`.
"""

from __future__ import annotations

import time

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.inference.deconvolution import make_problem, run_problem
from gdd_book.benchmarks.timing import on_threads
from gdd_book.experiments import Outcome
from gdd_book.experiments.caltech_accuracy import classes_of, normalised, pictures, together
from gdd_book.training.caltech import DATA, HELD, MODELS, model_for
from gdd_book.training.class_training import learn_classes

NAME = "caltech-testing"
#: its run takes ``jobs``, a number of processes, on which the result does not depend
IN_PARALLEL = True
_COMMON = {"data": "caltech101", "model": "three layers", "seed": 0, **HELD}
PARAMETERS = {
    "demo": {
        "n_classes": 2, "per_class": 10, "n_images": 3, "burn_in": 15, "collect": 5, "test_burn_in": 30,
        "test_collect": 10, **_COMMON,
    },
    "paper": {
        "n_classes": 101, "per_class": 30, "n_images": 40, "burn_in": 60, "collect": 20, "test_burn_in": 500,
        "test_collect": 200, **_COMMON,
    },
}  # fmt: skip
CHOICES = {"data": DATA, "model": tuple(MODELS)}


def run(parameters: dict, progress, resumable: bool = True, jobs: int = 1) -> Outcome:
    """Learn the classes that are not known yet, then time evenly spaced test images; see the module.

    ``resumable`` is there for the sake of form: classes are kept always.
    """
    p = parameters | {"refined": False, "n_test": 1}
    p["classes"] = classes_of(p)
    train, test = pictures(p)
    classes = learn_classes(p, normalised(train), jobs, progress)
    chosen = np.unique(np.linspace(0, len(test) - 1, p["n_images"]).round().astype(int))
    images = normalised(test.isel(image=chosen))
    atoms, gamma_e, gamma_w = together(classes, "pretrained")
    model = model_for(p["model"], p["noise_precision"], p["weight_precision"])
    with on_threads(1), progress(len(images), "deconvolving") as bar:
        begun = time.process_time()
        problem = make_problem(atoms, model.image_size, model.stride, gamma_e, gamma_w)
        shared = time.process_time() - begun
        scaled = images.values.astype(np.float32) * np.float32(gamma_e**0.5)
        run_problem(problem, scaled[:1], None, (p["seed"], 0, 0, 1), False)  # compiles
        seconds, active, left = [], [], []
        for number, image in enumerate(scaled):
            begun = time.process_time()
            sample, *_, squared, _ = run_problem(
                problem, image[None], None, (p["seed"], number, p["test_burn_in"], p["test_collect"]), False
            )
            seconds.append(time.process_time() - begun)
            active.append(int((sample != 0).sum()))
            left.append((float(squared[0]) / gamma_e / image.size) ** 0.5)
            bar.step()
    dataset = xr.Dataset({
        "cpu_seconds": (IMAGE, seconds), "active": (IMAGE, active), "residual": (IMAGE, left),
        "gram_cpu_seconds": shared, "gram_bytes": problem.gram.nbytes, "n_atoms": len(atoms),
        "n_positions": int(np.prod(problem.grid)),
    }, {LABEL: (IMAGE, images[LABEL].values)})  # fmt: skip
    return Outcome(dataset, {"model": model}, p["data"], train.attrs["checksum"], p["seed"])
