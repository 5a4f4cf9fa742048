"""Test-time inference: every rung of proof from the exact ratio to the enumeration of all z."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import foldnorm, multivariate_normal, norm

from gdd.base.checks import GddError
from gdd.base.compiling import MOST_THREADS, on_threads
from gdd.inference.deconvolution import InferenceChain, deconvolve, make_problem, under_mask
from gdd.model.spec import CALTECH101, MNIST, LayerSpec, ModelSpec
from gdd.projection import render_projected
from gdd.reference import deconvolution as reference
from gdd.reference.random import TEST, Stream
from gdd.sampler.kernels import coefficients as kernels
from gdd.sampler.kernels.random import fill_key
from gdd.sampler.placement import offset_index, placement_grid

GAMMA_E, GAMMA_W = 3.0, 0.5

#: image size, stride: one where all atoms fit, one where the last row and column stick out
CASES = {"fitting": ((9, 8), (2, 2)), "ragged": ((8, 9), (2, 3))}


def atoms_and_images(size, images=3):
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 2, 5, 4)), rng.normal(size=(images, 2, *size))


def placed(atoms, size, stride):
    """Every placed atom as a picture, (row, col, atom) unfolded along the first axis; written out by hand."""
    rows, cols = placement_grid(size, atoms.shape[2:], stride)
    pictures = []
    for i, j, atom in product(range(rows), range(cols), atoms):
        large = np.zeros((len(atom), size[0] + 20, size[1] + 20))
        large[:, i * stride[0] : i * stride[0] + atom.shape[1], j * stride[1] : j * stride[1] + atom.shape[2]] = atom
        pictures.append(large[:, : size[0], : size[1]])
    return np.array(pictures)


def chain_of(correlation):
    """A chain with nothing active."""
    chain = kernels.make_chain(np.zeros_like(correlation))
    chain.correlation[:] = correlation
    return chain


def unfolded(maps):
    """(image, atom, row, col) as (image, coefficient), the atom running fastest."""
    return np.asarray(maps).transpose(0, 2, 3, 1).reshape(len(maps), -1)


def log_joint(image, weights, pictures, gamma_e, gamma_w, atoms):
    """Log p(image, z, w) in its plainest form; a zero weight is an inactive coefficient."""
    residual = image - np.tensordot(weights, pictures, 1)
    log_p = 0.5 * image.size * np.log(gamma_e / (2 * np.pi)) - 0.5 * gamma_e * (residual**2).sum()
    for w in weights:
        slab = np.log(1 / atoms) + 0.5 * np.log(gamma_w / (2 * np.pi)) - 0.5 * gamma_w * w**2
        log_p += slab if w != 0 else np.log(1 - 1 / atoms)
    return log_p


#: maps of 26 x 25 under blocks of 3 x 4, then of 8 x 5 under blocks of 2 x 2
RAGGED = ModelSpec((LayerSpec(4, (6, 6), (3, 4)), LayerSpec(5, (2, 3), (2, 2)), LayerSpec(6, (2, 2))), (31, 30))


@pytest.mark.parametrize("model", [MNIST, CALTECH101, RAGGED])
def test_grid_of_projected_atoms_is_the_top_map(model):
    assert placement_grid(model.image_size, model.projected_size, model.stride) == model.shapes()[-1].map_size


def pixels_seen(size):
    """Nine tenths of the pixels of one image, none of the first place's, (plane, row, col)."""
    seen = np.random.default_rng(8).random((2, *size)) < 0.9
    seen[:, :5, :4] = False
    return seen


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_coefficient_is_exact_ratio(case, hidden):
    """Of the log joint of the pixels seen: a hidden one has weight zero."""
    size, stride = CASES[case]
    atoms, images = atoms_and_images(size, 1)
    pictures, rng = placed(atoms, size, stride), np.random.default_rng(2)
    problem = make_problem(atoms, size, stride, GAMMA_E, GAMMA_W)
    if hidden:
        seen = pixels_seen(size)
        images, pictures = images[:, seen], pictures[:, seen]
        problem = under_mask(problem, np.ascontiguousarray(seen.transpose(1, 2, 0)).reshape(size[0], -1))
        assert_allclose(problem.norm, GAMMA_E * (pictures**2).sum(axis=1), atol=1e-12)
        assert problem.norm[0] == 0 < problem.norm[-1]
    weights = rng.normal(size=len(pictures)) * (rng.random(len(pictures)) < 0.3)
    for i in range(len(pictures)):
        rest = weights.copy()
        rest[i] = 0.0
        residual = images[0] - np.tensordot(rest, pictures, 1)
        correlation = (GAMMA_E * residual * pictures[i]).sum()
        choice = reference.coefficient_given_rest(correlation, problem.norm[i], GAMMA_W, 1 / 2)
        states = [(-1, 0.0), (0, 0.3), (0, -1.7)]
        joint = []
        for _, w in states:
            rest[i] = w
            joint.append(log_joint(images[0], rest, pictures, GAMMA_E, GAMMA_W, 3))
        ours = [choice.logpdf(z, w) for z, w in states]
        assert_allclose(np.diff(ours), np.diff(joint), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("hidden", "pursued"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("case", CASES)
def test_compiled_chain_is_the_plain_chain(case, hidden, pursued):
    """On whole images by the Gram matrix of all, on others by their own, from a pursuit or a given start."""
    size, stride = CASES[case]
    atoms, images = atoms_and_images(size, 2)
    pictures, sweeps, rng = placed(atoms, size, stride), 2 * kernels.REFRESH + 3, np.random.default_rng(9)
    mask = np.stack([pixels_seen(size), rng.random(images[0].shape) < 0.5]) if hidden else np.ones(images.shape, bool)
    start = None if pursued else rng.normal(size=(2, 3, *make_problem(atoms, size, stride, 1.0, 1.0).grid))
    options = {"gamma_e": GAMMA_E, "gamma_w": GAMMA_W, "mask": mask if hidden else None, "start": start}
    holed = np.where(mask, images, np.nan)
    best = deconvolve(holed, atoms, stride, chain=InferenceChain(sweeps - 6, 6, 5), trace=True, **options)
    last = deconvolve(holed, atoms, stride, chain=InferenceChain(sweeps - 1, 1, 5), **options)
    for n, seen in enumerate(mask):
        shown = np.sqrt(GAMMA_E) * pictures[:, seen]
        gram, scaled = shown @ shown.T, shown @ (np.sqrt(GAMMA_E) * images[n][seen])
        if pursued:
            weight, correlation = reference.plain_pursuit(scaled, gram, GAMMA_W, 1 / 2)
        else:
            weight = unfolded(start)[n]
            correlation = scaled - gram @ weight
        states = []
        for t in range(sweeps):
            given = weight, correlation, gram, GAMMA_W, 1 / 2
            weight, correlation = reference.plain_coefficients(*given, Stream(5, TEST, 0, t, n))
            states.append(weight)
        left = images[n][seen] - np.tensordot(states, pictures[:, seen], 1)
        log_likelihood = norm.logpdf(left, scale=GAMMA_E**-0.5).sum(axis=1)
        assert 0 < (weight != 0).sum() < weight.size
        assert_allclose(unfolded(last.ml_sample)[n], weight, atol=1e-10)
        assert_allclose(best.trace[n], log_likelihood, rtol=1e-10)
        assert_allclose(unfolded(best.ml_sample)[n], states[-6:][log_likelihood[-6:].argmax()], atol=1e-10)
        assert_allclose(best.log_likelihood[n], log_likelihood[-6:].max(), rtol=1e-10)


@pytest.mark.parametrize("hiding", [np.nan, 0.0, 50.0])
def test_a_hidden_pixel_plays_no_part(hiding):
    """Neither its value nor, as it would in a pursuit of blanks, its being hidden: half an atom is a whole one."""
    atoms, _ = atoms_and_images((5, 4))
    seen = np.ones((1, 2, 5, 4), bool)
    seen[:, :, 2:] = False
    image = np.where(seen, 2.0 * atoms[:1], hiding)
    found = deconvolve(image, atoms, (1, 1), gamma_e=1e4, gamma_w=1e-4, mask=seen, chain=InferenceChain(0, 1))
    assert_allclose(found.ml_sample.values.ravel(), [2.0, 0.0, 0.0], atol=0.02)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-11), (np.float32, 1e-4)])
def test_running_correlations_and_likelihood_equal_recomputed_ones(dtype, tolerance):
    size, stride = CASES["ragged"]
    atoms, images = atoms_and_images(size, 1)
    problem = make_problem(atoms.astype(dtype), size, stride, 1.0, GAMMA_W)
    pictures = placed(atoms, size, stride)
    given = np.tensordot(pictures, images[0], 3).astype(dtype)
    chain, odds = chain_of(given), kernels.make_odds(problem)
    weight, correlation = chain.weight, chain.correlation
    kernels.inactive_bounds(odds, weight, chain.bound)
    for t in range(100):
        fill_key(chain.stream, (0, TEST, 0, t), 0)
        kernels.sweep_coefficients(chain, problem, odds, False)
    residual = images[0] - np.tensordot(weight.astype(float), pictures, 1)
    fresh = np.tensordot(pictures, residual, 3)
    assert_allclose(correlation, fresh, atol=tolerance * abs(given).max())
    running = kernels.squared_residual(float((images**2).sum()), weight, given, correlation)
    assert_allclose(running, (residual**2).sum(), rtol=tolerance)
    correlation[:] = given
    kernels.explain_all(correlation, weight, problem)
    assert_allclose(correlation, fresh, atol=tolerance * abs(given).max())


SMALL = {"gamma_e": 2.0, "gamma_w": 0.8}
SMALL_SIZE, SMALL_STRIDE = (5, 4), (2, 1)


def small_model():
    """Two overlapping atoms at four positions: eight coefficients, 256 values of z."""
    rng = np.random.default_rng(3)
    atoms = rng.normal(size=(2, 1, 3, 3)) * 0.5
    atoms[1] = 0.8 * atoms[0] + 0.4 * atoms[1]
    return atoms, 2 * rng.normal(size=(1, 1, *SMALL_SIZE))


def enumerate_posterior(image, pictures, gamma_e, gamma_w, prior):
    """Posterior mean, inclusion and mean magnitude of every coefficient, over all z, w integrated by hand."""
    log_p, moments = [], []
    for z in product([False, True], repeat=len(pictures)):
        z = np.array(z)
        used = pictures[z]
        covariance = np.eye(image.size) / gamma_e + used.T @ used / gamma_w
        log_prior = np.where(z, np.log(prior), np.log(1 - prior)).sum()
        log_p.append(multivariate_normal.logpdf(image, np.zeros(image.size), covariance) + log_prior)
        spread = np.linalg.inv(gamma_e * used @ used.T + gamma_w * np.eye(z.sum()))
        mean, sd = gamma_e * spread @ used @ image, np.sqrt(np.diag(spread))
        row = np.zeros((3, len(z)))
        row[:, z] = [mean, np.ones(z.sum()), foldnorm.mean(abs(mean) / sd, scale=sd)]
        moments.append(row)
    p = np.exp(np.array(log_p) - max(log_p))
    return np.tensordot(p / p.sum(), moments, 1)


def spread_of_chains(image, chain, **options):
    """Sixty-four independent chains of one image: their spread is the Monte Carlo error."""
    copies = np.repeat(image, 64, axis=0)
    result = deconvolve(copies, small_model()[0], SMALL_STRIDE, chain=chain, **SMALL, **options)
    values = np.array([unfolded(result[name]) for name in ("mean", "inclusion", "magnitude")])
    return values.mean(1), values.std(1, ddof=1) / 8


def distance_from_enumeration(run, gamma_w=SMALL["gamma_w"], prior=1 / 2, seen=slice(None)):
    atoms, image = small_model()
    pictures = placed(atoms, SMALL_SIZE, SMALL_STRIDE).reshape(8, -1)[:, seen]
    exact = enumerate_posterior(image.ravel()[seen], pictures, SMALL["gamma_e"], gamma_w, prior)
    return abs((run[0] - exact) / run[1]).max(), exact


def test_long_run_equals_enumeration():
    run = spread_of_chains(small_model()[1], InferenceChain(50, 400))
    distance, exact = distance_from_enumeration(run)
    assert exact[1].min() < 0.4 and exact[1].max() > 0.5  # the data say something
    assert distance < 4.5  # 24 numbers, Student's t with 63 degrees of freedom: exceeded once in 1,400 seeds
    assert distance_from_enumeration(run, prior=0.4)[0] > 6  # a wrong model is rejected
    assert distance_from_enumeration(run, gamma_w=0.5)[0] > 6


def test_missing_pixels_equal_enumeration_over_the_observed_ones():
    """And not enumeration over all pixels; the six hidden ones are NaN."""
    image = small_model()[1]
    mask = np.ones(image.shape, bool)
    mask[0, 0, 1:3, :3] = False
    many = np.repeat(mask, 64, axis=0)
    run = spread_of_chains(np.where(mask, image, np.nan), InferenceChain(100, 1500), mask=many)
    assert distance_from_enumeration(run, seen=mask.ravel())[0] < 4.5  # see test_long_run_equals_enumeration
    assert distance_from_enumeration(run)[0] > 6


def exact_start(drawn_with):
    """Paired change of four statistics, in standard errors, after three sweeps from exact draws of the model."""
    rng, images = np.random.default_rng(4), 4000
    atoms, _ = small_model()
    maps = (rng.random((images, 2, 2, 2)) < 1 / 2) * rng.normal(size=(images, 2, 2, 2)) / np.sqrt(drawn_with)
    noise = rng.normal(size=(images, 1, *SMALL_SIZE)) / np.sqrt(SMALL["gamma_e"])
    data = render_projected(atoms, maps, SMALL_STRIDE, SMALL_SIZE) + noise
    after = deconvolve(data, atoms, SMALL_STRIDE, chain=InferenceChain(2, 1), start=maps, **SMALL).ml_sample.values
    statistics = []
    for s in (maps, after):
        off = data - render_projected(atoms, s, SMALL_STRIDE, SMALL_SIZE)
        columns = [s != 0, s**2, s[:, :1] * s[:, 1:], off**2]
        statistics.append(np.transpose([c.sum((1, 2, 3)) for c in columns]))
    change = statistics[1] - statistics[0]
    return change.mean(0) / (change.std(0, ddof=1) / np.sqrt(images))


def test_exact_start_stays_exact_and_rejects_another_slab():
    assert abs(exact_start(SMALL["gamma_w"])).max() < 4.5
    assert abs(exact_start(1.5 * SMALL["gamma_w"])).max() > 6


def test_without_data_the_prior():
    atoms, images = atoms_and_images((9, 8))
    result = deconvolve(images, atoms, (2, 2), gamma_e=1e-12, gamma_w=4.0, chain=InferenceChain(0, 3))
    assert_allclose(result.inclusion, 1 / 3, rtol=1e-6)
    assert_allclose(result.magnitude, 0.5 * np.sqrt(2 / np.pi) / 3, rtol=1e-6)


def test_idle_coefficients_are_drawn_with_their_probability():
    """Proposals decide about rare coefficients, bounds about which are rare; collecting changes no draw."""
    atoms, count, offsets = 250, 1000, [offset_index(2, 4, 3, 1)] * 2
    log_odds = np.linspace(kernels.LOG_MIN_ODDS - 2.0, kernels.LOG_MIN_ODDS + 0.5, count)
    odds = kernels.Odds(np.full(count, 0.5), log_odds)
    gram, unused = np.zeros((atoms, 3, 3, atoms)), np.zeros((3, 3, atoms))
    problem = kernels.Problem(unused, 1, np.ones(2, int), gram, *offsets, np.ones(count), 1.0, 0.0)
    correlation = np.where(np.arange(count) % 3, 0.0, 1.0)
    active = np.zeros(count)
    for t in range(400):
        weights = []
        for collected in (False, True):
            chain = chain_of(correlation)
            fill_key(chain.stream, (0, TEST, 0, t), 0)
            kernels.inactive_bounds(odds, chain.weight, chain.bound)
            kernels.sweep_coefficients(chain, problem, odds, collected)
            weights.append(chain.weight)
        assert_array_equal(*weights)
        assert_array_equal(chain.bound < 0, (chain.weight != 0) | (log_odds >= kernels.LOG_MIN_ODDS))
        active += chain.weight != 0
    expected = 1 / (1 + np.exp(-log_odds - 0.25 * correlation**2))
    assert_allclose(chain.sums[1], expected, rtol=1e-12)
    rare = expected < reference.MIN_PROPOSAL_PROBABILITY
    for part in (rare, ~rare):
        error = np.sqrt((expected * (1 - expected))[part].sum() / 400)
        assert abs(active[part].sum() / 400 - expected[part].sum()) < 4.5 * error


def test_mean_of_the_absolute_value_from_its_table():
    x = np.concatenate([np.linspace(0, 10, 2003), [np.nextafter(9.0, 0.0), 9.0, 1e3]])
    assert_allclose([kernels.folded_mean(v) for v in x], foldnorm.mean(x), rtol=1e-14)


@pytest.mark.parametrize("hidden", [False, True])
def test_neither_threads_nor_the_part_that_is_given_change_a_bit(hidden):
    """With half of the pixels hidden of all images but the first and the last, too."""
    atoms, images = (a.astype(np.float32) for a in atoms_and_images((9, 8), 7))
    mask = np.random.default_rng(5).random(images.shape) < 0.5
    mask[[0, -1]] = True
    read = lambda first, number=0: deconvolve(  # noqa: E731
        images[first:], atoms, (2, 2), gamma_e=2.0, gamma_w=1.0, chain=InferenceChain(5, 30, 0, number),
        mask=mask[first:] if hidden else None,
    )
    whole, part, other = read(0), read(3, 3), read(3, 2)
    assert whole.ml_sample.dtype == np.float32
    assert_array_equal(whole.ml_sample[3:], part.ml_sample)
    assert not np.array_equal(part.ml_sample, other.ml_sample)
    for threads in (1, 2)[:MOST_THREADS]:
        with on_threads(threads):
            assert read(0).equals(whole)


@pytest.mark.parametrize(("change", "message"), [
    (lambda x, _: {"images": np.where(x == x[1, 0, 2, 3], np.nan, x)}, "pixel image 1, plane 0, row 2, col 3 is nan"),
    (lambda x, _: {"images": x[:, :1]}, "'plane'"),
    (lambda x, _: {"images": x[:, :, :3]}, "atoms: size 5 along axis 'row'"),
    (lambda _, a: {"atoms": a[:1]}, "atoms: 1 along axis 'atom'"),
    (lambda _, a: {"atoms": a * np.inf}, "atoms: atom 0, plane 0.* is inf"),
    (lambda *_: {"stride": (2, 0)}, "stride, axis 'col': 0"), (lambda *_: {"gamma_e": np.ones(3)}, "gamma_e"),
    (lambda *_: {"gamma_w": -1.0}, "gamma_w: -1.0"), (lambda *_: {"chain": InferenceChain(1, 0)}, "collect: 0"),
    (lambda *_: {"start": np.zeros((3, 3, 3, 2))}, "start"),
])
def test_bad_input_is_named(change, message):
    atoms, images = atoms_and_images((9, 8))
    right = {"images": images, "atoms": atoms, "stride": (2, 2), "gamma_e": 1.0, "gamma_w": 1.0}
    with pytest.raises(GddError, match=message):
        deconvolve(**right | change(images, atoms))
