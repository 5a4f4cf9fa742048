"""Chains on a graphics processor are the compiled ones: in numba's simulator, and compiled to PTX, without hardware."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny import QUICK

import gdd
from gdd.base.checks import GddError
from gdd.inference.deconvolution import deconvolve

CHAINS = Path(__file__).with_name("cuda_chains.py")
#: chains that it compares, and kernels that it compiles
CASES, KERNELS = 18, 5


def run_apart(how, **environment):
    """Run this in a process of its own, as numba decides at its import what CUDA is."""
    done = subprocess.run([sys.executable, CHAINS, how], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same_chains(lines):
    """Every case is equal; too little memory is refused by name of what needs it."""
    assert [line.split()[-1] for line in lines[:CASES]] == ["equal"] * CASES
    for line, what in zip(lines[CASES:], ("images, atoms, stride", "atoms of layer 1", "images, model"), strict=True):
        assert line.startswith(f"{what}: ") and "memory are needed" in line


def test_simulated_chains_are_the_compiled_ones():
    assert_same_chains(run_apart("simulated", NUMBA_ENABLE_CUDASIM="1").splitlines())


def test_kernels_compile_to_ptx():
    pytest.importorskip("numba_cuda", reason="needs the extra: pip install 'gdd[cuda]'")
    assert run_apart("compiled").count(".visible .entry") == KERNELS


@pytest.mark.cuda
def test_chains_on_hardware_are_the_compiled_ones():
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("no NVIDIA graphics processor here")
    assert_same_chains(run_apart("hardware").splitlines())


def test_without_a_device_one_line_says_so_before_any_work():
    images, atoms = np.random.default_rng(0).normal(size=(2, 1, 5, 5)), np.ones((2, 1, 3, 3))
    with pytest.raises(GddError, match="device: 'gpu' given"):
        deconvolve(images, atoms, (1, 1), gamma_e=1, gamma_w=1, device="gpu")
    from numba import cuda

    model, many = gdd.ModelSpec((gdd.LayerSpec(2, (2, 2)),), (5, 5)), np.random.default_rng(0).normal(size=(2, 28, 28))
    calls = [
        lambda: deconvolve(images, atoms, (1, 1), gamma_e=1, gamma_w=1, device="cuda"),
        lambda: gdd.pretrain(images, model, gdd.ChainSpec(1, 1), device="cuda"),
        lambda: gdd.refine(images, model, gdd.ChainSpec(1, 1), device="cuda"),
        lambda: gdd.DeepDeconvolution(**QUICK, device="cuda").fit(many),
        lambda: gdd.DeepDeconvolution(**QUICK, device="cuda", refine=(1, 1)).fit(many),
    ]
    for call in [] if cuda.is_available() else calls:
        with pytest.raises(GddError, match="no NVIDIA graphics processor"):
            call()


def test_nothing_of_cuda_is_imported_before_it_is_asked_for():
    """Where the extra is installed, its packages put modules of that name into every start: those do not count."""
    words = ("import sys; started = {*sys.modules}; import gdd; gdd.DeepDeconvolution, gdd.refine; "
             "print([name for name in sys.modules if 'cuda' in name and name not in started])")
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout == "[]\n"
