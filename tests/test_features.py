"""Unfolding, and features of one step against the formula, numerical integration, and the chain at test time."""

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import foldnorm, norm

from gdd.base.axes import BLOCKS
from gdd.base.checks import GddError
from gdd.base.compiling import on_threads
from gdd.inference.block_magnitudes import one_step_features, stack_features, unfold

GAMMA_E, GAMMA_W = 4.0, 0.6


def example(dtype=np.float64):
    rng = np.random.default_rng(0)
    return rng.normal(size=(70, 2, 8, 7)).astype(dtype), rng.normal(size=(3, 2, 3, 2)).astype(dtype) * 0.3


def by_hand(images, atoms, pool):
    """E|w| block by block; maps are 6 x 6, so a pool of (4, 3) leaves ragged blocks below."""
    grid = (-(-6 // pool[0]), -(-6 // pool[1]))
    out = np.zeros((len(images), len(atoms), *grid))
    for n, k, i, j in np.ndindex(out.shape):
        odds, answers = [], []
        for row in range(i * pool[0], min((i + 1) * pool[0], 6)):
            for col in range(j * pool[1], min((j + 1) * pool[1], 6)):
                window = images[n, :, row : row + 3, col : col + 2]
                c = (GAMMA_E * window * atoms[k]).sum()
                precision = (GAMMA_E * atoms[k] ** 2).sum() + GAMMA_W
                odds.append(np.sqrt(GAMMA_W / precision) * np.exp(c**2 / (2 * precision)))
                sd = precision**-0.5
                answers.append(foldnorm.mean(abs(c) / precision / sd, scale=sd))
        out[n, k, i, j] = np.dot(odds, answers) / (1 + sum(odds))
    return out


@pytest.mark.parametrize("pool", [(3, 3), (4, 3), (1, 1)])
def test_one_step_is_the_formula(pool):
    images, atoms = example()
    ours = one_step_features(images, atoms, pool, gamma_e=GAMMA_E, gamma_w=GAMMA_W)
    assert ours.dims == BLOCKS and ours.shape[2:] == (-(-6 // pool[0]), -(-6 // pool[1]))
    some = [0, 40, 69]  # of both chunks
    assert_allclose(ours[some], by_hand(images[some], atoms, pool), rtol=1e-9)


def test_one_step_is_the_posterior_by_integration():
    """One block that is the whole map: joint density of x and w, summed over positions, integrated over w."""
    rng = np.random.default_rng(1)
    image, atom = rng.normal(size=(2, 4)), rng.normal(size=(1, 4)) * 0.8
    atom_maps = [np.vstack([atom, np.zeros((1, 4))]), np.vstack([np.zeros((1, 4)), atom])]

    def density(w, picture):
        return norm.pdf(w, scale=GAMMA_W**-0.5) * np.exp(-((image - w * picture) ** 2).sum())  # gamma_e = 2

    empty = np.exp(-(image**2).sum())
    total = empty + sum(quad(density, -9, 9, args=(p,))[0] for p in atom_maps)
    wanted = sum(quad(lambda w, p: abs(w) * density(w, p), -9, 9, args=(p,), points=[0])[0] for p in atom_maps) / total
    ours = one_step_features(image[None, None], atom[None, None], (2, 1), gamma_e=2.0, gamma_w=GAMMA_W)
    assert_allclose(ours.item(), wanted, rtol=1e-7)


@pytest.mark.parametrize(("sizes", "pool", "margin"), [
    ((40, 1, 28, 28, 7, 8, 8), (3, 3), 1), ((9, 1, 1, 60, 4, 1, 9), (1, 5), 1), ((9, 4, 20, 19, 3, 13, 11), (2, 3), 0),
])
def test_single_precision_is_the_formula_within_rounding(sizes, pool, margin):
    """The gain, half an answer's square, is exponentiated: its rounding is relative to its size, here up to 300."""
    n, planes, rows, cols, count, *size = sizes
    rng = np.random.default_rng(2)
    images = (3 * rng.random((n, planes, rows, cols)) ** 4).astype(np.float32)
    atoms = rng.normal(size=(count, planes, *size)).astype(np.float32)
    atoms /= np.sqrt((atoms**2).sum(axis=(1, 2, 3), keepdims=True))
    given = {"gamma_e": 100.0, "gamma_w": 0.1, "margin": margin}
    single = one_step_features(images, atoms, pool, **given)
    double = one_step_features(images.astype(float), atoms, pool, **given)
    assert single.dtype == np.float32 and double.dtype == np.float64
    assert_allclose(single, double, rtol=300 * 16 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("size", [(8, 8), (13, 12)])
def test_one_image_or_many_and_any_number_of_threads_give_the_same_bits(size):
    """Atoms of both kinds of correlation: sums, and Fourier transforms."""
    rng = np.random.default_rng(3)
    images = rng.random((150, 4, 21, 19)).astype(np.float32)
    atoms, given = rng.normal(size=(5, 4, *size)).astype(np.float32), {"gamma_e": 10.0, "gamma_w": 0.1, "margin": 1}
    with on_threads(1):
        whole = one_step_features(images, atoms, (3, 2), **given)
    for some in (slice(0, 1), slice(149, 150), slice(3, 140), slice(None)):
        with on_threads(2):
            assert_array_equal(one_step_features(images[some], atoms, (3, 2), **given), whole[some])


def test_hidden_pixels_play_no_part_and_the_formula_is_that_of_what_is_seen():
    images, atoms = example()
    mask = np.random.default_rng(4).random(images.shape) < 0.6
    given = {"gamma_e": GAMMA_E, "gamma_w": GAMMA_W}
    ours = one_step_features(images, atoms, (1, 1), mask=mask, **given)
    assert_array_equal(one_step_features(np.where(mask, images, 7), atoms, (1, 1), mask=mask, **given), ours)
    cut = atoms[1] * mask[5, :, 2:5, 3:5]
    assert_allclose(ours[5, 1, 2, 3], by_hand(images[5:6], cut[None], (1, 1))[0, 0, 2, 3], rtol=1e-9)
    all_seen = np.ones_like(mask)
    assert_allclose(one_step_features(images, atoms, (4, 3), mask=all_seen, **given),
                    one_step_features(images, atoms, (4, 3), **given), rtol=1e-9)


@pytest.mark.parametrize(("change", "message"), [
    ({"gamma_w": 0.0}, "gamma_w: 0.0"),
    ({"dictionary": np.ones((3, 1, 3, 2))}, "plane"),
    ({"dictionary": np.ones((3, 2, 9, 2))}, "row"),
    ({"images": np.full((1, 2, 8, 7), np.inf)}, "images: pixel"),
])
def test_bad_input_is_named(change, message):
    images, atoms = example()
    arguments = {"images": images, "dictionary": atoms, "pool": (3, 2), "gamma_e": 1.0, "gamma_w": 1.0} | change
    with pytest.raises(GddError, match=message):
        one_step_features(**arguments)


def test_unfold_puts_image_first_and_keeps_labels():
    values = np.arange(24.0).reshape(2, 3, 4)
    labelled = xr.DataArray(values, {"label": ("image", [7, 8, 9])}, ("atom", "image", "row"))
    ours = unfold(labelled)
    assert ours.dims == ("image", "feature") and list(ours.label) == [7, 8, 9]
    assert_array_equal(ours[1], np.concatenate([values[0, 1], values[1, 1]]))
    assert_array_equal(unfold(values), values.reshape(2, 12))


def test_a_test_image_is_scaled_as_in_training_whatever_the_other_test_images():
    train, test = np.full((4, 3), 2.0), np.array([[1.0, 1, 1], [9, 9, 9]])
    parts = [test, 10 * test]
    stacked = stack_features(parts, [train, 5 * train])
    np.testing.assert_allclose(stacked[0], [0.5] * 3 + [1.0] * 3)
    np.testing.assert_array_equal(stacked[:1], stack_features([part[:1] for part in parts], [train, 5 * train]))
