"""Synthesis against a direct sum, its two adjoints by their identities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdd.base.checks import GddError
from gdd.model.convolution import CHUNK, correlate, synthesise

sizes = st.integers(1, 5)
ROUNDING = 1e-12  # relative; double precision loses a few units in 1e-16 per addition


def problem(seed, images, atoms, planes, atom, map_):
    """Random dictionary, maps and images of fitting sizes."""
    rng = np.random.default_rng(seed)
    dictionary = rng.normal(size=(atoms, planes, *atom))
    maps = rng.normal(size=(images, atoms, *map_))
    pixels = rng.normal(size=(images, planes, atom[0] + map_[0] - 1, atom[1] + map_[1] - 1))
    return dictionary, maps, pixels


def direct(dictionary, maps):
    """One shifted copy of the maps per pixel of the atoms."""
    (atoms, planes, height, width), (images, _, rows, cols) = dictionary.shape, maps.shape
    out = np.zeros((images, planes, rows + height - 1, cols + width - 1))
    for n, c, k, a, b in np.ndindex(images, planes, atoms, height, width):
        out[n, c, a : a + rows, b : b + cols] += dictionary[k, c, a, b] * maps[n, k]
    return out


shapes = st.tuples(st.integers(0, 99), sizes, sizes, sizes, st.tuples(sizes, sizes), st.tuples(sizes, sizes))


@given(shapes)
@settings(max_examples=40, deadline=None)
def test_synthesis_is_the_direct_sum(shape):
    dictionary, maps, _ = problem(*shape)
    np.testing.assert_allclose(synthesise(dictionary, maps), direct(dictionary, maps), rtol=0, atol=1e-12)


@given(shapes)
@settings(max_examples=40, deadline=None)
def test_adjoints(shape):
    """<images, D * S> is the same number whichever of the three factors is taken out."""
    dictionary, maps, images = problem(*shape)
    whole = np.vdot(images, synthesise(dictionary, maps))
    scale = np.linalg.norm(images) * np.linalg.norm(dictionary) * np.linalg.norm(maps)
    assert abs(np.vdot(correlate(images, dictionary), maps) - whole) <= ROUNDING * scale


def test_adjoint_identity_rejects_convolution():
    """A negative control: without the flip that makes it a correlation, the identity fails."""
    dictionary, maps, images = problem(0, 2, 3, 2, (3, 3), (4, 4))
    wrong = correlate(images, dictionary[:, :, ::-1, ::-1])
    assert abs(np.vdot(wrong, maps) - np.vdot(images, synthesise(dictionary, maps))) > 0.1


def test_more_images_than_a_chunk():
    dictionary, maps, images = problem(3, CHUNK + 3, 2, 1, (2, 3), (3, 2))
    np.testing.assert_allclose(synthesise(dictionary, maps)[-1:], direct(dictionary, maps[-1:]), atol=1e-12)
    whole = np.vdot(images, synthesise(dictionary, maps))
    assert np.vdot(correlate(images, dictionary), maps) == pytest.approx(whole, rel=1e-10)


def test_what_does_not_fit_is_refused():
    """The transforms would go through, with a result of no meaning."""
    dictionary, maps, images = problem(0, 2, 3, 2, (3, 3), (4, 4))
    with pytest.raises(GddError, match="'row' has size 2, smaller than the 3"):
        correlate(images[:, :, :2], dictionary)
    with pytest.raises(GddError, match="'col' has size 3, smaller than the 4"):
        correlate(images[..., :3], np.ones((1, 1, 2, 4)))
