"""The experiment on generated digits: what is judged, and that the judge tells noise from digits."""

import numpy as np

from gdd_book.experiments import images


def test_noise_is_told_from_digits_and_digits_are_not():
    generator = np.random.default_rng(0)
    digits = np.random.default_rng(1).random((300, 1, 6, 6)) ** 4
    same, other = digits[:100], generator.standard_normal((100, 1, 6, 6))
    found = [images.describe(kind, digits[100:200], digits[200:], 0) for kind in (same, other)]
    same, noise = (float(one.told_apart) for one in found)
    assert abs(same - 50) < 3 * 100 * (0.25 / 100) ** 0.5 and noise == 100
