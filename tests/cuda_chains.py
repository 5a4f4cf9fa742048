"""Run by tests/test_cuda.py: chains on a device, or in numba's simulator, beside the compiled ones; or their PTX."""

import sys
import warnings
from importlib import import_module
from threading import Lock
from types import SimpleNamespace

import numba
import numpy as np

from gdd.cuda import device
from gdd.inference.deconvolution import _plane_last, make_problem
from gdd.sampler.kernels.coefficients import Chains, Run, make_odds, run_chains


class Allocations(dict):
    """The simulator's shared arrays: without a lock, which `get` keeps, two threads may each make one of their own."""

    lock = Lock()

    def get(self, line):
        """The array that was made at this line; the lock is kept if there is none."""
        self.lock.acquire()
        if line not in self:
            return None
        self.lock.release()
        return self[line]

    def __setitem__(self, line, array):
        super().__setitem__(line, array)
        self.lock.release()


if sys.argv[1] == "simulated":
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    device.THREADS = 2  # each is a thread of Python
    FakeCUDAShared.__init__ = lambda self, size: vars(self).update(_allocations=Allocations())


coefficients = import_module("gdd.cuda.coefficients")  # by as many threads

SWEEPS = {"simulated": (1, 2), "hardware": (20, 20)}


def differ(kind, planes, burn_in, collect):
    """Whether any result differs by more than rounding."""
    rng, shape = np.random.default_rng(0), (2, planes, 5, 6)
    images, atoms = (rng.normal(size=size).astype(kind) for size in (shape, (3, planes, 3, 2)))
    problem, run, results = make_problem(atoms, shape[2:], (1, 2), 4.0, 1.0), Run(3, 0, 1, burn_in, collect), []
    for chains in (run_chains, coefficients.run_chains):
        maps = np.zeros((2, problem.norm.size), kind), np.empty(2), np.empty((2, 3, problem.norm.size), kind)
        results.append(Chains(*maps, np.empty((2, burn_in + collect))))
        chains(_plane_last(images * kind(2)), problem, run, results[-1], True)
    assert (results[0].best != 0).any()
    near = 1e-4 if kind is np.float32 else 1e-9
    return not all(np.allclose(one, other, near, near) for one, other in zip(*results, strict=True))


def ptx():
    """The kernel for arrays in single precision."""
    from numba.cuda import dispatcher

    maps, one = np.zeros((2, 6), np.float32), np.zeros((2, 1, 3, 3), np.float32)
    problem = make_problem(one, (4, 5), (1, 1), 1.0, 1.0)
    chains = Chains(maps, np.empty(2), np.empty((2, 3, 6)), np.empty((2, 0)))
    state = coefficients.State(maps, maps, maps, maps, maps[:, 0].copy())
    arguments = one[:, 0], problem, make_odds(problem), Run(0, 0, 1, 1, 1), True, state, chains
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(9, 0))  # there is none
    return numba.cuda.compile_ptx(coefficients.run_images.py_func, tuple(map(numba.typeof, arguments)), cc=(9, 0))[0]


if sys.argv[1] == "compiled":
    print(ptx())
else:
    warnings.simplefilter("ignore", RuntimeWarning)  # words of random numbers wrap
    for kind, planes in ((np.float32, 1), (np.float64, 2)):
        print(kind.__name__, "different" if differ(kind, planes, *SWEEPS[sys.argv[1]]) else "equal")
