"""The compiled sweep: the same chain as the plain one, the same for any number of threads, its running sums right."""

from dataclasses import replace

import numpy as np
import pytest
from agreement import assert_same_chain, assert_threads_change_no_bit, two_cores
from numba import njit
from scipy.signal import correlate as scipy_correlate
from tiny import LAYERS, WHOLE, draw, draw_from, layer, proper, with_local, with_shared

from gdd.base.axes import IMAGE
from gdd.model.layer import block_groups, log_joint, log_likelihood, outcome_counts, residual
from gdd.model.state import maps_of, positions_exist
from gdd.reference.conditionals import atom_statistics
from gdd.reference.layer_sweep import plain_sweep
from gdd.reference.random import PRETRAIN, Key
from gdd.sampler.arrays import plane_last
from gdd.sampler.dictionary import explain_atoms, toeplitz
from gdd.sampler.kernels.layer import Bound, UnmaskedAtom, correlate, make_work, sweep_map
from gdd.sampler.kernels.operations import CHUNK, ROUNDING_MARGIN, count_outcomes, slab_of
from gdd.sampler.kernels.random import fill_key
from gdd.sampler.sums import ACCUMULATORS
from gdd.sampler.sweep import image_pass, layer_constants, padded_autocorrelations, sweep

SWEEPS = 4


def key(number, seed=11):
    return Key(seed, PRETRAIN, 0, number)


def as_double(state):
    local, shared = (part._make(a if a.dtype.kind == "i" else a.astype(float) for a in part) for part in state)
    return state._replace(local=local, shared=shared)


@pytest.mark.parametrize("images", [3, 1])
@pytest.mark.parametrize("name", LAYERS)
def test_same_chain_as_the_plain_sweep(name, images):
    """Its running sums are those of the model, its positions inside their blocks.

    With one image, a gamma_e by image and one shared by images are the same number, but not the same code.
    """
    fast, data, spec, shape = draw(name, images)
    plain = fast
    for number in range(SWEEPS):
        fast, info = sweep(fast, data, spec, shape, key(number))
        plain = plain_sweep(plain, data, spec, shape, key(number))
        assert_same_chain(fast, plain, 1e-8)
        assert info.log_joint == pytest.approx(log_joint(fast, data, spec, shape), rel=1e-9)
        assert info.log_likelihood == pytest.approx(log_likelihood(fast, data, shape).sum(), rel=1e-9)
        assert info.active.sum() == (fast.local.z >= 0).sum()
    z = fast.local.z
    assert ((z >= 0) == (fast.local.w != 0)).all()
    row, col = np.indices(shape.grid)
    assert positions_exist(shape)[row, col, z][z >= 0].all()
    assert maps_of(fast.local, shape).shape[2:] == shape.map_size


@pytest.mark.parametrize(("pool", "masked"), [((3, 3), False), ((3, 3), True), (None, False)])
def test_same_chain_where_the_kernel_is_compiled_for_its_width(pool, masked):
    fast, data, spec, shape = wide(pool)
    data = data._replace(mask=np.random.default_rng(4).random(data.images.shape) < 0.7 if masked else None)
    plain = fast
    for number in range(2):
        fast, _ = sweep(fast, data, spec, shape, key(number))
        plain = plain_sweep(plain, data, spec, shape, key(number))
        assert_same_chain(fast, plain, 1e-8)


def wide(pool, images=2):
    """A one-plane layer with atoms wide enough for the kernel specialised by width, as in test_masked."""
    return draw_from(layer(2, (3, 6), pool), (7, 11), images=images, seed=3)


@pytest.mark.parametrize("name", WHOLE)
def test_sums_are_those_of_the_state(name):
    """After a pass over every block: residual, Gram and linear terms equal freshly computed ones."""
    state, data, spec, shape = draw(name, images=5)
    for number in range(3):
        local, sums, _ = image_pass(state, data, spec, shape, key(number))
        state = state._replace(local=local)
    by_image = IMAGE in spec.gamma_e.axes
    gamma_e = np.broadcast_to(local.gamma_e, 5) if by_image else np.ones(5)
    energy = (residual(state, data, shape) ** 2).sum(axis=(1, 2, 3))
    assert sums.energy == pytest.approx(energy.sum(), rel=1e-10)
    assert sums.weighted_energy == pytest.approx((gamma_e * energy).sum(), rel=1e-10)
    weighed, rows = with_local(state, gamma_e=gamma_e), shape.atom_size[0]
    atoms = plane_last(state.shared.dictionary, float).reshape(shape.atoms, rows, -1)
    for k in range(shape.atoms):
        gram, linear = atom_statistics(weighed, data, shape, k)
        np.testing.assert_allclose(toeplitz(sums.pairs[k, k], shape.atom_size), gram[0], rtol=1e-9, atol=1e-9)
        out = sums.cross[k].reshape(rows, -1).copy()
        explain_atoms(k, 0, shape.atoms, sums.pairs, atoms, shape.planes, out)
        np.testing.assert_allclose(out.reshape(-1, shape.planes).T, linear, rtol=1e-8, atol=1e-8)
        assert sums.active[k] == (local.z[:, k] >= 0).sum()
        assert sums.squares[k] == pytest.approx((local.w[:, k] ** 2).sum(), rel=1e-10)


@njit
def scan_repeatedly(image, z, w, lags, constants, key):
    """Fifty scans of one map with the residual carried along; returns residual, correlations and counts."""
    layer = constants.layer
    work = make_work(z.reshape((1, *z.shape)), image, layer)
    fill_key(work.stream, key, 0)
    work.residual[:] = image
    count_outcomes(z, layer, work.counts)
    slab = slab_of(2.0, lags[lags.shape[0] // 2, lags.shape[1] // 3 - 1], constants.prior.gamma_w)
    for _ in range(50):
        correlate(work.residual, layer.dictionary, 0, layer, constants.static, work.correlations)
        bound = Bound(ROUNDING_MARGIN * slab.gain, 0.0, slab.factor)
        sweep_map(z, w, UnmaskedAtom(0, lags, slab), None, bound, constants, work)
    return work.residual, work.correlations, work.counts


@pytest.mark.slow
def test_caches_inside_a_map_are_current():
    """One map visited fifty times over: residual, counts and correlations as if made afresh."""
    state, data, spec, shape = wide((3, 3), images=1)
    image, atom = data.images[0, 0], np.ascontiguousarray(state.shared.dictionary[0, 0])
    lags = padded_autocorrelations(state.shared.dictionary, float)[0]
    z, w = np.full(shape.grid, -1, np.int16), np.zeros(shape.grid)
    constants = layer_constants(state.shared, spec, shape, np.dtype(float))
    residuals, correlations, counts = scan_repeatedly(image.ravel(), z, w, lags, constants, tuple(key(0)))
    alone = with_local(state, z=z[None, None], w=w[None, None])
    alone = with_shared(alone, dictionary=state.shared.dictionary[:1])
    expected = residual(alone, data, replace(shape, atoms=1))[0, 0]
    assert (z >= 0).any()
    np.testing.assert_allclose(residuals.reshape(expected.shape), expected, atol=1e-11)
    (rows, cols), width = shape.map_size, shape.input_size[1]
    found = correlations[: rows * width].reshape(rows, width)[:, :cols]
    last = (shape.grid[0] - 1) * shape.block[0]  # earlier rows are not kept, nothing reads them again
    np.testing.assert_allclose(found[last:], scipy_correlate(expected, atom, "valid")[last:], atol=1e-11)
    assert sorted(counts[counts > 0]) == sorted(
        n for group in block_groups(shape) for n in outcome_counts(z[None, None], group).ravel() if n > 0
    )


@pytest.mark.parametrize("name", ["pooled, ragged", "top, planes", "masked", "top, atoms fill the input"])
def test_single_precision_is_close(name):
    """One sweep from the same state. Float32 rounding (6e-8), summed over at most a thousand terms: 1e-4.

    A block whose uniform number falls within rounding of a boundary would differ; at these sizes none does.
    """
    state, data, spec, shape = draw(name)
    single = with_local(state, w=state.local.w.astype(np.float32))
    double, info = sweep(state, data, spec, shape, key(0))
    rough, rough_info = sweep(single, data._replace(images=data.images.astype(np.float32)), spec, shape, key(0))
    assert rough.local.w.dtype == np.float32
    assert_same_chain(rough, double, 2e-3)
    assert rough_info.log_likelihood == pytest.approx(info.log_likelihood, rel=1e-3)


def test_single_precision_does_not_drift():
    """Two hundred sweeps on: the running log joint still is that of the state, to single precision's rounding."""
    state, data, spec, shape = draw("pooled, ragged")
    data = data._replace(images=data.images.astype(np.float32))
    for number in range(200):
        state, info = sweep(state, data, spec, shape, key(number))
    assert info.log_joint == pytest.approx(log_joint(as_double(state), data, spec, shape), rel=1e-4)


@two_cores
@pytest.mark.parametrize(("dtype", "planes", "hidden"), [
    (np.float32, 1, None), (np.float64, 1, None), (np.float64, 3, 0.3),
])
def test_threads_change_no_bit(dtype, planes, hidden):
    """More than `ACCUMULATORS` chunks of images, the last one not full; one thread and two."""
    images = ACCUMULATORS * CHUNK + 70
    state, data, spec, shape = draw_from(layer(2, (3, 2), (2, 2)), (5, 5), planes, images, 5, hidden)
    data = data._replace(images=data.images.astype(dtype))

    def run():
        chain = state
        for number in range(3):
            chain, info = sweep(chain, data, spec, shape, key(number))
        return chain, info

    end, info = assert_threads_change_no_bit(run)
    assert info.log_joint == pytest.approx(log_joint(as_double(end), data, spec, shape), rel=1e-4)


def test_a_fixed_precision_stays():
    for name in ("gamma_e fixed", "gamma_e fixed by image"):
        state, data, spec, shape = draw(name)
        new, _ = sweep(state, data, spec, shape, key(0))
        assert (new.local.gamma_e == 2.0).all()
    spec = replace(spec, gamma_w=proper(fixed=2.5), gamma_d=proper(fixed=1.5))
    state = with_shared(state, gamma_w=np.full(1, 2.5), gamma_d=np.full((1, 1), 1.5))
    new, _ = sweep(state, data, spec, shape, key(0))
    assert new.shared.gamma_w == 2.5 and new.shared.gamma_d == 1.5
