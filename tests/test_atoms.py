"""Pairs of atoms: known signs, shifts and permutations come back, nothing else does. Known values of sharpness."""

import numpy as np
import pytest
from scipy import ndimage

from gdd_book.evaluate.atoms import gradient_kurtosis, high_frequency_share, match_atoms, stroke_share

RNG = np.random.default_rng(5)
ATOMS = np.random.default_rng(3).standard_normal((5, 2, 8, 7))


def test_sign_scale_shift_and_order_come_back():
    order, shifts, factors = [3, 0, 4, 1, 2], [(0, 0), (1, -2), (-2, 0), (2, 2), (0, -1)], [1, -3, 0.5, -1, 2]
    found = np.empty_like(ATOMS)
    for k, (place, shift, factor) in enumerate(zip(order, shifts, factors, strict=True)):
        found[place] = factor * ndimage.shift(ATOMS[k], (0, *shift), order=0)  # zeros coming in
    match = match_atoms(found, ATOMS)
    assert match.partner.values.tolist() == order
    assert list(zip(match.row.values.tolist(), match.col.values.tolist(), strict=True)) == shifts
    np.testing.assert_allclose(match.correlation, np.sign(factors), rtol=1e-12)


# ---- sharpness
def wave(frequency):
    """A plane wave along the columns under a smooth window, (1, 1, row, col)."""
    window = np.hanning(40)
    return np.outer(window, window * np.cos(2 * np.pi * frequency * np.arange(40)))[None, None]


@pytest.mark.parametrize(("frequency", "share"), [(0.1, 0), (0.2, 0), (0.3, 1), (0.45, 1)])
def test_a_wave_lies_on_its_side_of_the_limit(frequency, share):
    assert float(high_frequency_share(wave(frequency))[0]) == pytest.approx(share, abs=1e-3)


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


def test_stroke_share():
    """Of a line all, of two lines the larger one's part, of lines of two signs too; of noise hardly any."""
    atoms = np.zeros((5, 1, 25, 25))
    atoms[0, 0, 3, 2:20] = 2.0
    atoms[1, 0, 3, 2:20], atoms[1, 0, 10:16, 5] = 1.0, -1.0
    atoms[2] = -atoms[1]
    atoms[3, 0, 0, :4], atoms[3, 0, 1, 4:6] = 1.0, 1.0  # corners do not join
    np.testing.assert_allclose(stroke_share(atoms)[:4], [1, 18 / 24, 18 / 24, 4 / 6])
    assert np.isnan(stroke_share(atoms)[4])
    noise = stroke_share(RNG.standard_normal((200, 1, 25, 25)))
    assert 0.02 < float(noise.mean()) < 0.08
    line = atoms[:1] + 0.1 * RNG.standard_normal((1, 1, 25, 25))
    assert float(stroke_share(line)[0]) > 0.7
