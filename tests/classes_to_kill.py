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

    def each(self, work, tasks):
        there = [self.folder("class-atoms", training._class_atoms(*task[:2])).exists() for task in tasks]
        print("to learn", there.count(False), flush=True)
        for one in super().each(work, tasks):
            print("class", flush=True)
            yield one


if __name__ == "__main__":
    caltech_accuracy(P, Told(checkpoints(), jobs=int(sys.argv[1]))).dataset.to_netcdf(sys.argv[2])
