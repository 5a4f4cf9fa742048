"""Average images of upper atoms, against averages over drawn positions; the guessed precision is well formed."""

import numpy as np
import pytest

from gdd.model.joint import layer_values
from gdd.model.spec import LayerSpec, ModelSpec
from gdd.model.state import EMPTY, JointLocal, Shard
from gdd.reference.screening import mean_atom_images
from gdd.sampler import preconditioner

TWO = ModelSpec((LayerSpec(2, (3, 3), (2, 2)), LayerSpec(2, (2, 2))), (8, 8))
THREE = ModelSpec((LayerSpec(2, (2, 2), (2, 2)), LayerSpec(2, (2, 2), (2, 2)), LayerSpec(2, (2, 2))), (11, 11))


@pytest.mark.parametrize(("model", "low"), [(TWO, 0.0), (THREE, 0.3)], ids=["two layers", "three layers"])
def test_expected_norms_and_mean_images(model, low):
    """20,000 draws of uniform positions of whole blocks; the means agree within 5 standard errors.

    With three layers the norm is a guess that may be low, here by at most 30 %; the mean image is exact for any number.
    """
    generator, shapes, number = np.random.default_rng(1), model.shapes(), 20000
    dictionaries = [generator.standard_normal(shape.dictionary) for shape in shapes]
    average = mean_atom_images(dictionaries, [shape.block for shape in shapes])[-1]
    positions = tuple(
        generator.integers(0, shape.block[0] * shape.block[1], (number, shape.atoms, *shape.grid)).astype(np.int16)
        for shape in shapes[:-1]
    )
    top = shapes[-1]
    z = np.full((number, top.atoms, *top.grid), EMPTY, np.int16)
    z[:, 1, 0, 0] = 0
    local = JointLocal(positions, z, (z == 0).astype(float), np.ones(1))
    images = layer_values(local, dictionaries, shapes)[0]
    norms = (images**2).sum(axis=(1, 2, 3))
    guess, error = average.overlaps[1, 0, 0], norms.std() / np.sqrt(number)
    assert (1 - low) * norms.mean() - 5 * error < guess < norms.mean() + 5 * error
    mean = average.images[1]
    found = images.mean(axis=0)[:, : mean.shape[1], : mean.shape[2]]
    error = images.std(axis=0)[:, : mean.shape[1], : mean.shape[2]] / np.sqrt(number)
    assert (np.abs(found - mean) < 5 * error + 1e-9).all()


def upper_layer():
    """Shape of the upper of two layers, average images of the one below, and the generator that drew their atoms."""
    generator, shapes = np.random.default_rng(2), TWO.shapes()
    dictionaries = [generator.standard_normal(shape.dictionary) for shape in shapes]
    return shapes[1], mean_atom_images(dictionaries, [(2, 2), (1, 1)])[1], generator


def symmetric(apply, shape):
    """Matrix of a guess."""
    matrix = np.array([apply(unit) for unit in np.eye(np.prod(shape.dictionary))])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    return matrix


def test_guess_by_atom_is_symmetric_and_positive():
    (shape, below, _), weights = upper_layer(), np.array([3.0, 0.0])
    matrix = symmetric(preconditioner.precondition_by_atom(below, shape, weights, np.full((2, 1), 1.5)), shape)
    assert np.linalg.eigvalsh(matrix).min() > 0
    idle = matrix[matrix.shape[0] // 2 :, matrix.shape[0] // 2 :]  # an atom that nothing uses: the prior alone
    np.testing.assert_allclose(idle, np.eye(len(idle)) / 1.5, atol=1e-12)


def test_guess_by_plane_is_the_inverse_where_the_data_say_more_and_diagonal_elsewhere():
    shape, below, _ = upper_layer()
    weights, gamma_d = np.array([3.0, 0.0]), np.array([[0.5, 1e4], [2.0, 7.0]])[:, : shape.planes]
    matrix = symmetric(preconditioner.precondition_by_plane(below, shape, weights, gamma_d), shape)
    places = shape.atom_size[0] * shape.atom_size[1]
    for k, weight in enumerate(weights):
        own = weight * preconditioner.design_products(below, shape.atom_size).astype(float)
        own += np.diag(np.tile(weight * below.variance + gamma_d[k], places))
        near = np.tile([weight > 0, False], places)[: len(own)]
        wanted = np.diag(1 / np.diag(own))
        wanted[np.ix_(near, near)] = np.linalg.inv(own[np.ix_(near, near)])
        part = slice(k * len(own), (k + 1) * len(own))
        np.testing.assert_allclose(matrix[part, part], wanted, atol=1e-9)


@pytest.mark.parametrize("by", ["nothing", "atom", "plane"])
def test_guess_by_frequency_is_symmetric_and_positive(by):
    shape, below, generator = upper_layer()
    maps = generator.standard_normal((3, 2, *shape.map_size))
    maps[:, 1] = 0.0  # an atom that nothing uses
    prior = {"nothing": np.full((1, 1), 1.5), "atom": np.array([[0.5], [2.0]]), "plane": np.array([[0.5, 2.0]])}[by]
    apply = preconditioner.precondition_by_frequency(below, shape, maps, np.array([1.0, 2.0, 3.0]), prior, Shard())
    matrix = symmetric(apply, shape)
    assert np.linalg.eigvalsh(matrix).min() > 0
    idle = matrix[matrix.shape[0] // 2 :, matrix.shape[0] // 2 :]  # its prior alone, in order (row, col, plane)
    np.testing.assert_allclose(idle, np.diag(1 / np.resize(np.broadcast_to(prior, (2, 2))[1], len(idle))), atol=1e-12)
