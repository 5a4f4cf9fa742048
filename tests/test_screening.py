"""Average images of upper atoms, against averages over drawn positions; the guessed precision is well formed."""

import numpy as np
import pytest

from gdd.joint import layer_values
from gdd.sampler.preconditioner import preconditioner
from gdd.sampler.screening import average_images, screening_norms
from gdd.spec import LayerSpec, ModelSpec
from gdd.state import EMPTY, JointLocal

TWO = ModelSpec((LayerSpec(2, (3, 3), (2, 2)), LayerSpec(2, (2, 2))), (8, 8))
THREE = ModelSpec((LayerSpec(2, (2, 2), (2, 2)), LayerSpec(2, (2, 2), (2, 2)), LayerSpec(2, (2, 2))), (11, 11))


@pytest.mark.parametrize(("model", "low"), [(TWO, 0.0), (THREE, 0.3)], ids=["two layers", "three layers"])
def test_expected_norms_and_mean_images(model, low):
    """20,000 draws of uniform positions of whole blocks; the means agree within 5 standard errors.

    With three layers the norm is a guess that may be low, here by at most 30 %; the mean image is exact for any number.
    """
    generator, shapes, number = np.random.default_rng(1), model.shapes(), 20000
    dictionaries = [generator.standard_normal(shape.dictionary) for shape in shapes]
    pools = [layer.pool for layer in model.layers[:-1]]
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
    guess, error = screening_norms(dictionaries, pools)[1], norms.std() / np.sqrt(number)
    assert (1 - low) * norms.mean() - 5 * error < guess < norms.mean() + 5 * error
    mean = average_images(dictionaries, pools)[-1].mean[1]
    found = images.mean(axis=0)[:, : mean.shape[1], : mean.shape[2]]
    error = images.std(axis=0)[:, : mean.shape[1], : mean.shape[2]] / np.sqrt(number)
    assert (np.abs(found - mean) < 5 * error + 1e-9).all()


def test_guess_of_the_precision_is_symmetric_and_positive():
    generator = np.random.default_rng(2)
    shapes = TWO.shapes()
    dictionaries = [generator.standard_normal(shape.dictionary) for shape in shapes]
    below = average_images(dictionaries, [(2, 2)])[0]
    apply = preconditioner(below, shapes[1], np.array([3.0, 0.0]), np.full((2, 1), 1.5))
    matrix = np.array([apply(unit) for unit in np.eye(dictionaries[1].size)])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > 0
    idle = matrix[matrix.shape[0] // 2 :, matrix.shape[0] // 2 :]  # an atom that nothing uses: the prior alone
    np.testing.assert_allclose(idle, np.eye(len(idle)) / 1.5, atol=1e-12)
