"""Pairs of atoms: known signs, shifts and permutations come back, and nothing else does."""

import numpy as np
import pytest

from gdd.base.checks import GddError
from gdd.evaluate.matching import match_atoms

ATOMS = np.random.default_rng(3).standard_normal((5, 2, 8, 7))


def moved(atom, row, col):
    """Atom (plane, row, col) moved by whole pixels, zeros coming in."""
    out = np.zeros_like(atom)
    h, w = atom.shape[1:]
    out[:, max(0, row) : h + min(0, row), max(0, col) : w + min(0, col)] = atom[
        :, max(0, -row) : h + min(0, -row), max(0, -col) : w + min(0, -col)
    ]
    return out


def test_sign_scale_shift_and_order_come_back():
    order, shifts, factors = [3, 0, 4, 1, 2], [(0, 0), (1, -2), (-2, 0), (2, 2), (0, -1)], [1, -3, 0.5, -1, 2]
    found = np.empty_like(ATOMS)
    for k, (place, shift, factor) in enumerate(zip(order, shifts, factors, strict=True)):
        found[place] = factor * moved(ATOMS[k], *shift)
    match = match_atoms(found, ATOMS)
    assert match.partner.values.tolist() == order
    assert list(zip(match.row.values.tolist(), match.col.values.tolist(), strict=True)) == shifts
    np.testing.assert_allclose(match.correlation, np.sign(factors), rtol=1e-12)


def test_a_shift_beyond_the_reach_is_not_found():
    match = match_atoms(moved(ATOMS[0], 3, 0)[None], ATOMS[:1])
    assert abs(float(match.correlation[0])) < 0.6
    assert abs(float(match_atoms(moved(ATOMS[0], 3, 0)[None], ATOMS[:1], reach=3).correlation[0])) > 0.999999


def test_one_found_atom_serves_one_true_atom():
    match = match_atoms(np.stack([ATOMS[1]]), np.stack([ATOMS[1], ATOMS[1] + 1e-3 * ATOMS[2]]))
    assert sorted(match.partner.values.tolist()) == [-1, 0]
    assert float(match.correlation.values[match.partner.values == -1][0]) == 0.0


def test_spare_atoms_and_the_sum_that_is_largest():
    """The exact copy is taken by its own; the mixture is left to the other; the empty atom to nobody."""
    mixed = (ATOMS[0] + ATOMS[1]) / 2
    match = match_atoms(np.stack([mixed, ATOMS[0], np.zeros_like(mixed)]), ATOMS[:2])
    assert match.partner.values.tolist() == [1, 0]
    assert 0.4 < float(match.correlation[1]) < 0.95


def test_noise_lowers_the_correlation_as_it_should():
    noise = np.random.default_rng(4).standard_normal(ATOMS.shape)
    found = ATOMS + 0.5 * noise
    expected = (found * ATOMS).sum((1, 2, 3)) / np.sqrt((found**2).sum((1, 2, 3)) * (ATOMS**2).sum((1, 2, 3)))
    np.testing.assert_allclose(match_atoms(found, ATOMS, reach=0).correlation, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("found", "reach", "words"),
    [
        (ATOMS[:, :, :-1], 2, "atom_row"), (ATOMS[:, :1], 2, "plane"), (ATOMS * np.nan, 2, "finite"),
        (ATOMS, 7, "reach"), (ATOMS, -1, "reach"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(found, reach, words):
    with pytest.raises(GddError, match=words):
        match_atoms(found, ATOMS, reach=reach)
