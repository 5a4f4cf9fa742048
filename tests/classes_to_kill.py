"""What the processes of test_class_parallel.py do: ``python classes_to_kill.py JOBS RECORD``; a line for each class."""

import sys

from tiny import CHEAP

from gdd.sampler import chain
from gdd_book import training
from gdd_book.experiments.caltech import caltech_accuracy
from gdd_book.progress import Run, checkpoints

training.MODELS["tiny"] = CHEAP
chain.SECONDS_BETWEEN_CHECKPOINTS, chain.SHARE_OF_WRITING = 0.0, float("inf")
P = {
    "data": "caltech256", "model": "tiny", "refined": True, "n_classes": 3, "per_class": 6, "n_test": 4, "seeds": (0,),
    "voters": 2, "burn_in": 12, "collect": 4, "refine_burn_in": 6, "refine_collect": 2, "test_burn_in": 4,
    "test_collect": 2, **training.HEALTHY_CALTECH,
}


class Told(Run):
    """Print a line whenever a class is finished, and the number of them that are to be learned."""

    def bar(self, total, label):
        bar = super().bar(total, label)
        if label == "classes":
            bar.step = lambda: print("class", flush=True)
            print("to learn", sum(name.endswith("atoms.nc") for name in self.chains), flush=True)
        return bar


if __name__ == "__main__":
    caltech_accuracy(P, Told(checkpoints(), jobs=int(sys.argv[1]))).dataset.to_netcdf(sys.argv[2])
