"""Dictionaries of all layers: packed for a record, matched layer by layer, judged on images."""

import numpy as np
import pytest

from gdd.base.checks import GddError
from gdd_book.dictionaries import match_layers, pack, unpack


def stack(seed):
    """Atoms of two layers."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((count, 1, size, size)) for count, size in ((3, 5), (4, 9))]


def test_packed_atoms_come_back_over_their_largest_magnitude():
    one, other = stack(0), stack(1)
    one[1][2] = 0.0
    record = pack([one, other]).assign_coords(stage=["one", "other"])
    assert all(part.dtype == np.int8 for part in record.values())
    for layer, atoms in enumerate(one, 1):
        largest = np.abs(atoms).max(axis=(1, 2, 3), keepdims=True)
        scaled = np.divide(atoms, largest, out=np.zeros_like(atoms), where=largest > 0)
        np.testing.assert_allclose(unpack(record, layer, stage="one"), scaled, atol=0.5 / 127)
    with pytest.raises(GddError, match="layer: 3"):
        unpack(record, 3, stage="one")


def test_atoms_are_matched_within_their_layer_at_its_reach():
    one = stack(0)
    moved = [atoms[::-1] * -2 for atoms in one]
    moved[1] = np.roll(moved[1], 2, axis=3)
    found = match_layers(moved, one, (0, 2))
    assert found.layer.values.tolist() == [1, 1, 1, 2, 2, 2, 2]
    np.testing.assert_allclose(found, 1)
    assert (match_layers(moved, one, (0, 1))[3:] < 0.9).all()
    assert (match_layers(stack(2), one, (0, 1)) < 0.9).all()
