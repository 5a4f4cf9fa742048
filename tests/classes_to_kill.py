"""What the processes of test_class_parallel.py do: ``python classes_to_kill.py JOBS RECORD``; a sweep is told by a dot.

Its model is a small one, known under its name to the processes that it starts, which import this file.
"""

import sys

from gdd.model.spec import LayerSpec, ModelSpec
from gdd.sampler import chain as chains
from gdd_book.experiments import caltech_accuracy
from gdd_book.training import caltech

#: atoms of the sizes of MNIST's, whose kernels other tests have compiled
caltech.MODELS["tiny"] = ModelSpec((LayerSpec(3, (8, 8), (3, 3)), LayerSpec(4, (6, 6))), (28, 28))
chains.SECONDS_BETWEEN_CHECKPOINTS, chains.SHARE_OF_WRITING = 0.0, float("inf")
P = {
    "data": "caltech256", "model": "tiny", "refined": True, "n_classes": 3, "per_class": 6, "n_test": 4, "seeds": (0,),
    "voters": 2, "burn_in": 12, "collect": 4, "refine_burn_in": 6, "refine_collect": 2, "test_burn_in": 4,
    "test_collect": 2, **caltech.HEALTHY,
}  # fmt: skip


class Dots:
    """A bar that prints a dot for every sweep."""

    def __init__(self, total, label):
        self.dots = label == "classes"

    def begin(self, stage, sweeps, done):
        print(f"{done} sweeps of finished classes", flush=True)

    def step(self, count=1, **_):
        if self.dots:
            print("." * count, flush=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


if __name__ == "__main__":
    outcome = caltech_accuracy.run(P, Dots, jobs=int(sys.argv[1]))
    outcome.dataset.drop_vars(["cpu_seconds", "test_cpu_seconds"]).to_netcdf(sys.argv[2])
