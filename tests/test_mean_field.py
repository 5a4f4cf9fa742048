"""Mean field at test time: its fixed point is a stationary point of a bound that lies below the enumerated evidence."""

from copy import copy
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal, norm

import gdd
from gdd.base.checks import GddError
from gdd.inference.features import one_step_codes
from gdd.inference.mean_field import mean_field
from gdd.model.placement import correlate_at_stride, sum_at_stride

SIZE, STRIDE = (6, 7), (2, 3)
PRECISIONS = {"gamma_e": 2.0, "gamma_w": 0.4}
MANY = 3000


def atoms_and_images(apart=False):
    """Two atoms of 4 x 4 pixels at four places, the last ones cut off by the edge; ``apart``: none overlap."""
    rng = np.random.default_rng(5)
    atoms = rng.normal(size=(2, 1, 4, 4))
    if apart:
        atoms[:] = 0
        atoms[0, 0, 0, 0], atoms[1, 0, 0, 1] = 1.0, 1.2
    return atoms, 1.5 * rng.normal(size=(2, 1, *SIZE))


def placed(atoms):
    """Pictures of all placed atoms, (coefficient, pixel), in the order of maps (atom, row, col)."""
    shape = len(atoms), 2, 2
    units = np.eye(np.prod(shape)).reshape(-1, *shape)
    return sum_at_stride(units.transpose(0, 2, 3, 1), atoms, STRIDE, SIZE).reshape(len(units), -1)


def bound_by_hand(image, pictures, inclusion, mean, variance, gamma_e, gamma_w, atoms):
    """E log p(X, S) - E log q(S), term by term, for factors (1 - pi) delta + pi N(mean, variance)."""
    on, prior = inclusion, 1 / atoms
    first, second = on * mean, on * (mean**2 + variance)
    gram = pictures @ pictures.T
    squares = image @ image - 2 * first @ pictures @ image + first @ gram @ first + (second - first**2) @ np.diag(gram)
    fit = 0.5 * image.size * np.log(gamma_e / (2 * np.pi)) - 0.5 * gamma_e * squares
    slab = 0.5 * np.log(gamma_w / (2 * np.pi)) - 0.5 * gamma_w * (mean**2 + variance)
    entropy = on * norm.entropy(mean, np.sqrt(variance)) - on * np.log(on) - (1 - on) * np.log(1 - on)
    return fit + (on * (np.log(prior) + slab) + (1 - on) * np.log(1 - prior) + entropy).sum()


def evidence(image, pictures, gamma_e, gamma_w, atoms):
    """log p(X), over all z, weights integrated out."""
    terms = []
    for z in product([False, True], repeat=len(pictures)):
        used = pictures[list(z)]
        covariance = np.eye(image.size) / gamma_e + used.T @ used / gamma_w
        prior = np.where(z, np.log(1 / atoms), np.log(1 - 1 / atoms)).sum()
        terms.append(multivariate_normal.logpdf(image, np.zeros(image.size), covariance) + prior)
    return np.logaddexp.reduce(terms)


def factors(found, number, norms, gamma_e, gamma_w):
    """Inclusion, mean and variance of every coefficient of one image."""
    inclusion = found.inclusion.values[number].ravel()
    return inclusion, found["mean"].values[number].ravel() / inclusion, 1 / (gamma_e * norms + gamma_w)


def test_sum_at_stride_is_the_adjoint_of_correlations():
    atoms, images = atoms_and_images()
    maps = np.random.default_rng(0).normal(size=(2, 2, 2, 2))
    assert_allclose((sum_at_stride(maps, atoms, STRIDE, SIZE) * images).sum(),
                    (correlate_at_stride(images, atoms, STRIDE) * maps).sum())


@pytest.mark.parametrize("hidden", [False, True])
def test_fixed_point_is_a_stationary_point_of_the_bound_below_the_evidence(hidden):
    atoms, images = atoms_and_images()
    mask = np.ones(images.shape, bool)
    mask[1, :, :3, :4] = not hidden
    found = mean_field(images, atoms, STRIDE, **PRECISIONS, mask=mask, steps=MANY)
    assert found.change.max() < 1e-9
    assert_allclose(found.damped_mean, found["mean"], atol=1e-9)
    for number, (image, seen) in enumerate(zip(images.reshape(2, -1), mask.reshape(2, -1), strict=True)):
        pictures = placed(atoms)[:, seen]
        q = factors(found, number, (pictures**2).sum(axis=1), **PRECISIONS)
        arguments = image[seen], pictures
        assert_allclose(found.bound[number], bound_by_hand(*arguments, *q, **PRECISIONS, atoms=2), rtol=1e-9)
        assert found.bound[number] < evidence(*arguments, **PRECISIONS, atoms=2) - 1e-3
        units = q[0] * (1 - q[0]), np.sqrt(q[2]), q[2]
        for which, place in product(range(3), range(len(pictures))):
            bounds = []
            for step in (-1e-3, 1e-3):
                moved = [part.copy() for part in q]
                moved[which][place] += step * units[which][place]
                bounds.append(bound_by_hand(*arguments, *moved, **PRECISIONS, atoms=2))
            assert abs(bounds[1] - bounds[0]) < 1e-8


def test_a_wrong_factor_is_no_stationary_point():
    atoms, images = atoms_and_images()
    found = mean_field(images, atoms, STRIDE, **PRECISIONS, steps=MANY)
    pictures = placed(atoms)
    inclusion, mean, variance = factors(found, 0, (pictures**2).sum(axis=1), **PRECISIONS)
    moved = bound_by_hand(images[0].ravel(), pictures, inclusion, 1.1 * mean, variance, **PRECISIONS, atoms=2)
    assert moved < float(found.bound[0]) - 1e-3


def test_where_atoms_do_not_overlap_the_bound_is_the_evidence():
    atoms, images = atoms_and_images(apart=True)
    found = mean_field(images, atoms, STRIDE, **PRECISIONS, steps=20)
    exact = [evidence(image, placed(atoms), **PRECISIONS, atoms=2) for image in images.reshape(2, -1)]
    assert_allclose(found.bound, exact, rtol=1e-9)


def test_without_steps_every_coefficient_alone():
    atoms, images = atoms_and_images()
    found, alone = mean_field(images, atoms, STRIDE, **PRECISIONS, steps=0), one_step_codes(
        images, atoms, STRIDE, **PRECISIONS
    )
    for name in alone:
        assert_array_equal(found[name], alone[name])
    assert not found.damped_mean.any()


def test_hidden_pixels_play_no_part_and_a_mask_that_hides_none_changes_nothing():
    atoms, images = atoms_and_images()
    mask = np.ones(images.shape, bool)
    plain = mean_field(images, atoms, STRIDE, **PRECISIONS, steps=30)
    assert_allclose(mean_field(images, atoms, STRIDE, **PRECISIONS, steps=30, mask=mask)["mean"], plain["mean"])
    mask[0, :, 1:4] = False
    first = mean_field(images, atoms, STRIDE, **PRECISIONS, steps=30, mask=mask)
    other = mean_field(np.where(mask, images, np.nan), atoms, STRIDE, **PRECISIONS, steps=30, mask=mask)
    assert_array_equal(first["mean"], other["mean"])
    assert_allclose(first["mean"][1], plain["mean"][1])


@pytest.mark.parametrize(("change", "message"), [
    ({"steps": -1}, "steps: -1 given"), ({"steps": 1.5}, "steps: 1.5 given"), ({"gamma_e": 0.0}, "gamma_e: 0"),
    ({"atoms": np.ones((2, 1, 9, 4))}, "atoms: size 9 along axis 'row'"),
])
def test_bad_input_is_named(change, message):
    atoms, images = atoms_and_images()
    settings = {"images": images, "atoms": atoms, "stride": STRIDE} | PRECISIONS | change
    with pytest.raises(GddError, match=message):
        mean_field(**settings)


@pytest.fixture(scope="module")
def fitted():
    images = np.random.default_rng(0).uniform(size=(12, 12, 12))
    return gdd.DeepDeconvolution(atoms=(4, 5), pretrain=(2, 1), verbose=False).fit(images), images


def by_mean_field(fitted):
    model = copy(fitted[0])
    return model.set_params(method="mean field"), fitted[1]


def test_estimator_says_what_infer_says(fitted):
    model, images = by_mean_field(fitted)
    pixels = model.scale_.forward(images[:, None]).astype(np.float32)
    found = gdd.infer(model.chains_[0], model.atoms_, pixels, "mean field")
    assert_allclose(model.transform(images), found["mean"].values.reshape(len(images), -1), atol=1e-5)
    assert np.abs(model.transform(images) - fitted[0].transform(images)).max() > 1e-2  # not the chain's


def test_features_of_an_image_depend_on_it_alone_and_on_no_seed(fitted):
    model, images = by_mean_field(fitted)
    features = model.transform(images)
    model.seed_ += 1
    assert_array_equal(model.transform(images), features)
    assert_allclose(model.transform(images[3:4]), features[3:4], atol=1e-5)
    spoiled = images.copy()
    spoiled[0, 0, 0] = np.nan
    assert_allclose(model.transform(spoiled)[1:], features[1:], atol=1e-5)


def test_method_is_kept_in_a_file(fitted, tmp_path):
    model, images = by_mean_field(fitted)
    model.save(tmp_path / "model.nc")
    assert_array_equal(gdd.load(tmp_path / "model.nc").transform(images), model.transform(images))


def test_methods_and_their_options_are_named(fitted):
    model, images = fitted
    with pytest.raises(GddError, match="method: 'variational' given; one of 'sampling', 'mean field'"):
        gdd.DeepDeconvolution(method="variational").fit(images)
    with pytest.raises(GddError, match="burn_in: not an option of infer by mean field"):
        gdd.infer(model.chains_[0], model.atoms_, images[:, None], "mean field", burn_in=3)
