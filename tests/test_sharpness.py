"""Measures of sharpness: known values, order under blurring, no dependence on scale, bad input."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from gdd.base.checks import GddError
from gdd.evaluate.sharpness import gradient_kurtosis, high_frequency_share

RNG = np.random.default_rng(5)


def wave(frequency, size=40):
    """A plane wave along the columns under a smooth window, (1, 1, row, col)."""
    window = np.hanning(size)
    return (np.outer(window, window * np.cos(2 * np.pi * frequency * np.arange(size))))[None, None]


@pytest.mark.parametrize(("frequency", "share"), [(0.1, 0), (0.2, 0), (0.3, 1), (0.45, 1)])
def test_a_wave_lies_on_its_side_of_the_limit(frequency, share):
    assert float(high_frequency_share(wave(frequency))[0]) == pytest.approx(share, abs=1e-3)


def test_the_limit_is_radial():
    """0.2 along each axis is 0.28 in all; 0.15 along each is 0.21."""
    diagonal = [wave(f)[0, 0] * np.cos(2 * np.pi * f * np.arange(40))[:, None] for f in (0.2, 0.15)]
    np.testing.assert_allclose(high_frequency_share(np.array(diagonal)[:, None]), [1, 0], atol=0.05)


def test_one_pixel_and_noise_have_the_area_outside_the_circle():
    pixel = np.zeros((1, 1, 200, 200))
    pixel[..., 100, 100] = 1
    assert float(high_frequency_share(pixel)[0]) == pytest.approx(1 - np.pi / 16, abs=2e-3)
    noise = RNG.standard_normal((40, 1, 25, 25))
    spread = high_frequency_share(noise)
    assert abs(float(spread.mean()) - (1 - np.pi / 16)) < 4 * float(spread.std()) / 40**0.5 + 2e-3


def test_kurtosis_of_known_atoms():
    noise = gradient_kurtosis(RNG.standard_normal((200, 1, 25, 25)))
    assert abs(float(noise.mean()) - 3) < 4 * float(noise.std()) / 200**0.5 + 0.02
    stairs = np.zeros((1, 1, 10, 10))
    stairs[..., 5:] = 1  # 10 steps of 1 among 180 differences: 18
    assert float(gradient_kurtosis(stairs)[0]) == pytest.approx(18)
    assert float(gradient_kurtosis(np.arange(10.0)[None, None, None] * np.ones((10, 1)))[0]) == pytest.approx(2)


def test_blurring_lowers_both_and_scale_changes_neither():
    drawing = np.zeros((1, 1, 25, 25))
    drawing[..., 6:19, 11:14] = 1
    soft = gaussian_filter(drawing, (0, 0, 2, 2))
    for measure in (high_frequency_share, gradient_kurtosis):
        assert float(measure(soft)[0]) < 0.7 * float(measure(drawing)[0])
        np.testing.assert_allclose(measure(-1e-8 * soft), measure(soft), rtol=1e-9)


def test_planes_are_taken_together():
    both = RNG.standard_normal((3, 2, 8, 8))
    both[:, 1] = 0
    np.testing.assert_allclose(high_frequency_share(both), high_frequency_share(both[:, :1]))
    assert (gradient_kurtosis(both) > gradient_kurtosis(both[:, :1])).all()  # half of the differences are 0 now


def test_an_empty_atom_has_no_sharpness():
    atoms = np.stack([np.zeros((1, 4, 4)), np.eye(4)[None]])
    for measure in (high_frequency_share, gradient_kurtosis):
        assert np.isnan(measure(atoms)).values.tolist() == [True, False]


@pytest.mark.parametrize(
    ("atoms", "words"),
    [(np.full((1, 1, 3, 3), np.inf), "finite"), (np.ones((3, 3)), "axes"), (np.ones((1, 1, 1, 1)), "pixel")],
)
def test_bad_input_is_refused(atoms, words):
    with pytest.raises(GddError, match=words):
        gradient_kurtosis(atoms)
