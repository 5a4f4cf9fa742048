"""Chains on a device, or in numba's simulator, beside the compiled ones; or their PTX. tests/test_cuda.py runs it.

    NUMBA_ENABLE_CUDASIM=1 python tests/cuda_chains.py simulated [SWEEPS]

prints the largest difference of each pass, relative to 1 + the value, and whether it is equal but for rounding.
"""

import sys
import warnings
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from threading import Barrier, BrokenBarrierError, Lock, Thread
from types import SimpleNamespace

import numba
import numpy as np
from tiny import draw
from tiny import layer as layer_spec
from tiny_joint import draw_joint

from gdd.base.checks import GddError
from gdd.cuda import device
from gdd.inference.deconvolution import make_problem, run_problem
from gdd.model.spec import ChainSpec, ModelSpec, layer_shape
from gdd.model.state import EMPTY, Shared
from gdd.reference.random import PRETRAIN, REFINE, Key
from gdd.sampler.arrays import allocate_buffers
from gdd.sampler.joint_sweep import image_pass as joint_pass
from gdd.sampler.kernels.coefficients import Chains, Run
from gdd.sampler.kernels.joint import JointLayers
from gdd.sampler.kernels.joint_pass import JointPriors, JointSums
from gdd.sampler.kernels.operations import CHUNK, ImageArrays, Sums
from gdd.sampler.pretrain import pretrain
from gdd.sampler.refine import refine
from gdd.sampler.sweep import PROCESSOR, empty_sums, image_pass, layer_constants, passes_on


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


@contextmanager
def in_all_modules(function, simulated, *, swapped):
    """The simulator's replacement of ``cuda`` by itself, for the whole launch in every module that has kernels.

    Each call of a function of another module would replace and restore it there, while other threads are inside.
    """
    with ExitStack() as stack:
        for module in (device, coefficients, layer, joint) if device.cuda is not simulated else ():
            stack.enter_context(swapped(SimpleNamespace(__globals__=vars(module)), simulated))
        yield


def run_block(block, place, *arguments):
    """The simulator's, whose threads wait at a barrier; its own asks them in turn, which takes most of the time."""
    block.barrier = Barrier(device.THREADS)

    def run():
        try:
            block._f(*arguments)
        except BaseException:
            block.barrier.abort()
            raise

    threads = [launch.BlockThread(run, block, place, point, False) for point in np.ndindex(*block._block_dim)]
    for step in (Thread.start, Thread.join):
        for thread in threads:
            step(thread)
    for error, trace in (thread.exception for thread in threads if thread.exception):
        if not isinstance(error, BrokenBarrierError):
            raise error.with_traceback(trace)


if sys.argv[1] == "simulated":
    from numba.cuda.simulator import kernel as launch
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    launch.swapped_cuda_module = partial(in_all_modules, swapped=launch.swapped_cuda_module)
    launch.BlockThread.syncthreads = lambda thread: thread._manager.barrier.wait()
    launch.BlockManager.run = run_block
    device.THREADS = 2  # each is a thread of Python; kernels' modules, imported below, have as many
    FakeCUDAShared.__init__ = lambda self, size: vars(self).update(
        _allocations=Allocations(), _dynshared_size=size, _dynshared=np.zeros(size, np.byte)
    )


coefficients, layer, joint = (import_module(f"gdd.cuda.{name}") for name in ("coefficients", "layer", "joint"))

PASSES = (
    "pooled, ragged", "several planes", "masked", "masked, planes, top", "top, large maps", "top, atoms fill the input",
    "gamma_e shared", "block larger than map", "top, filled, gamma_e shared",
)
JOINT_PASSES = "two layers", "two layers, planes, masked", "three layers", "three layers, empty blocks, masked"
SWEEPS = int(sys.argv[2]) if sys.argv[2:] else {"hardware": 20}.get(sys.argv[1], 1)


def deconvolve(kind, planes, masked):
    """Results of the compiled chains and of the device's, of a whole image and one that may have hidden pixels."""
    rng, shape = np.random.default_rng(0), (2, planes, 5, 6)
    images, atoms = (rng.normal(size=size).astype(kind) for size in (shape, (3, planes, 3, 2)))
    problem, run = make_problem(atoms, shape[2:], (1, 2), 4.0, 1.0), Run(3, 0, 1, SWEEPS, 2)
    observed = rng.random(shape) < np.array([1.0, 0.7])[:, None, None, None] if masked else None
    return [run_problem(problem, images * kind(2), observed, None, run, True, name) for name in ("cpu", "cuda")]


def redraw(name, kind, images):
    """Results of image passes of a layer of `tiny.LAYERS`, compiled and on the device."""
    state, data, spec, shape = draw(name, images)
    data = data._replace(images=data.images.astype(kind))
    found = []
    for passes in (PROCESSOR, passes_on("cuda", [shape], data)):
        drawn = state
        for number in range(SWEEPS):
            local, sums, residuals = image_pass(drawn, data, spec, shape, Key(7, PRETRAIN, 0, number), passes)
            drawn = drawn._replace(local=local)
        found.append((*local, *sums, residuals))
    return found


def redraw_joint(name, kind, images):
    """Local part after sweeps of a model of `tiny_joint.JOINTS`, and the last sums.

    Compiled, in double precision, for which other tests compile the pass too; and on the device.
    """
    state, data, model, spec = draw_joint(name, images)
    local, found = state.local._replace(z=state.local.z.copy(), w=state.local.w.copy()), []
    local.z[0], local.w[0] = EMPTY, 0  # an image in which nothing is active
    for device_name, precision in (("cpu", float), ("cuda", kind)):
        data = data._replace(images=data.images.astype(precision))
        passes = passes_on(device_name, model.shapes(), data, joint=True)
        buffers = allocate_buffers(data, model).load(state._replace(local=local))
        for number in range(SWEEPS):
            sums = joint_pass(buffers, state.shared, model, spec, Key(7, REFINE, 0, number), passes)
        _, _, *drawn, _ = buffers.images
        found.append((buffers.images.w, *drawn, *sums))
    return found


def learn(name):
    """Results of `pretrain`, then of `refine`, on a device: maps, then traces."""
    model = ModelSpec((layer_spec(2, (2, 2), (2, 2)), layer_spec(2, (2, 2), None)), (6, 6))
    images, chain = np.random.default_rng(1).normal(size=(2, 1, 6, 6)), ChainSpec(1, 1, single_precision=False)
    fitted = pretrain(images, model, chain, device=name)
    refined = refine(images, model, chain, start=fitted, device=name)
    maps = (array for layer in fitted.layers for array in layer.state.local)
    positions, *joint_maps = refined.last.local
    traces = [*(each.traces.to_array() for each in fitted.layers), *refined.traces.values()]
    return [*maps, *positions, *joint_maps, *traces]


def refuse(call):
    """Print what is said where the device's memory is too small."""
    device.cuda.current_context = lambda: SimpleNamespace(get_memory_info=lambda: SimpleNamespace(free=1e3))
    try:
        call()
    except GddError as error:
        print(error)


def compare(name, kind, one, other):
    """Print by how much any result differs, and whether that is more than rounding; positions have to be the same."""
    near = 1e-4 if kind is np.float32 else 1e-9
    assert (one[0] != 0).any()
    pairs = ((np.asarray(a, float), np.asarray(b, float)) for a, b in zip(one, other, strict=True))
    apart = np.max([np.max(np.abs(a - b) / (1 + np.abs(b)), initial=0.0) for a, b in pairs])  # NaN if any is
    print(f"{name}, {kind.__name__}: {apart:.0e}", "equal" if apart < near else "different")


def ptx(kernel, *arguments):
    """Print the first lines of a kernel for arguments of these types."""
    from numba.cuda import dispatcher

    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(9, 0))  # there is none
    text, _ = numba.cuda.compile_ptx(kernel.py_func, tuple(map(numba.typeof, arguments)), cc=(9, 0))
    print(*(line for line in text.splitlines() if ".entry" in line))


def compile_all():
    """Every kernel for arrays in single precision."""
    maps, one = np.zeros((2, 6), np.float32), np.zeros((2, 1, 3, 3), np.float32)
    problem = make_problem(one, (4, 5), (1, 1), 1.0, 1.0)
    chains = Chains(maps, np.empty(2), np.empty((2, 3, 6)), np.empty((2, 0)))
    pixels, terms = (one[:, 0], np.ones((2, 3, 3), bool), one[:, 0]), np.ones((3, 2, 6))
    state = coefficients.State(*pixels, *[maps] * 4, *terms, maps)
    ptx(coefficients.run_images, state, problem.atoms, problem, Run(0, 0, 1, 1, 1), True, True, chains)
    spec, shape = layer_spec(pool=None), layer_shape(layer_spec(pool=None), (4, 5), 1)
    constants = layer_constants(Shared(one, np.ones((2, 1)), np.ones(1)), spec, shape, np.float32)
    images = ImageArrays(maps, maps[:0], np.zeros((2, 2, 2, 3), np.int16), one, np.ones(2), 0)
    scratch = layer.Scratch(*[maps] * 3, np.zeros((2, 4, 2), int), np.ones((2, 4, 1)), np.ones((2, 2)), np.ones(2))
    rest = constants.layer, constants.prior, Key(0, 0, 0, 0), scratch
    ptx(layer.redraw_layer, images, one[0], maps[0].copy(), *rest)
    ptx(layer.redraw_top, images, one[:, 0], problem, *rest)
    sums = Sums(*(np.zeros((1, *array.shape)) for array in empty_sums(shape, False)))
    ptx(layer.sum_up, images, constants.layer, constants.prior, scratch, sums)
    state, data, model, _ = draw_joint("two layers", 2)
    (_, _, images, (work, *_), shared, _), counts = allocate_buffers(data, model).load(state), np.ones((3, 2, 4))
    scratch = joint.Work(
        *(array[None] for array in work[:3]), *(np.zeros((1, *array.shape, 2), array.dtype) for array in work[3:]),
        work.values[None], np.ones((1, 4, 3)),
    )
    sums = [counts[0]] * 2 + [np.ones(3)] * 5 + [counts] * 2 + [np.ones(3)] * 7
    rest = JointPriors(0.0, 1.0, 0.0, 1.0, 1.0, True), scratch, JointSums(*sums), Key(0, 0, 0, 0)
    ptx(joint.redraw_joint, images, JointLayers(shared.layers, 0), work.values, *rest)


if sys.argv[1] == "compiled":
    compile_all()
else:
    warnings.simplefilter("ignore", RuntimeWarning)  # words of random numbers wrap
    for kind, planes, masked in ((np.float32, 1, False), (np.float64, 2, False), (np.float32, 2, True)):
        compare("masked" if masked else "whole", kind, *deconvolve(kind, planes, masked))
    for name in PASSES:
        kind = np.float32 if name == "pooled, ragged" else np.float64
        compare(name, kind, *redraw(name, kind, 2))
    for name in JOINT_PASSES:
        kind = np.float32 if name == "two layers" else np.float64
        compare(f"joint, {name}", kind, *redraw_joint(name, kind, 2))
    compare("two chunks", np.float64, *redraw("whole blocks", np.float64, CHUNK + 1))
    compare("pretrain and refine", np.float64, learn("cpu"), learn("cuda"))
    refuse(lambda: deconvolve(np.float32, 1, False))
    refuse(lambda: learn("cuda"))
    refuse(lambda: redraw_joint("two layers", float, 2))
