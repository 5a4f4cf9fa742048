"""Whitening against small deformations: affine transforms on known pictures, the covariance written out."""

import numpy as np
import pytest
import xarray as xr
from skimage.transform import AffineTransform, warp

from gdd.base.axes import FEATURE, IMAGE, IMAGES
from gdd.inference.deformations import Deformations, deform, learn_whitening
from gdd_book.data import datasets


def picture():
    values = np.zeros((1, 1, 9, 9))
    values[0, 0, 4, 2:7] = 1.0
    return xr.DataArray(values, dims=IMAGES)


@pytest.mark.parametrize("size", [(9, 12), (1, 17)])
def test_affine_transforms_are_those_of_scikit_image(size):
    """Which places coordinates in single precision."""
    image = np.random.default_rng(0).random((1, 1, *size))
    centre = AffineTransform(translation=(np.array(size[::-1]) - 1) / 2)
    for transform in Deformations(2, 30, 0.3, 0.4).draw(5):
        moved = centre.inverse + AffineTransform(**transform) + centre
        wanted = warp(image[0, 0], moved.inverse, order=1)
        np.testing.assert_allclose(deform(xr.DataArray(image, dims=IMAGES), transform)[0, 0], wanted, atol=1e-4)


def test_ten_deformations_come_in_pairs():
    found = Deformations(shift=2, turn=90, scale=0.5, shear=0.25).transforms()
    assert len(found) == 10
    for there, back in zip(found[:5], found[5:], strict=True):
        assert there.keys() == back.keys() and there != back


def test_drawn_deformations_do_all_at_once_within_bounds():
    far = Deformations(shift=2, turn=90, scale=0.5, shear=0.25)
    found = far.draw(200, seed=3)
    assert far.draw(0) == [] and far.draw(200, seed=3)[7] == found[7] and far.draw(1, seed=4)[0] != found[0]
    parts = np.array([[*one["translation"], one["rotation"], *(np.array(one["scale"]) - 1), one["shear"]]
                      for one in found])
    ends = np.array([2, 2, np.pi / 2, 0.5, 0.5, 0.25])
    assert (abs(parts) <= ends).all() and (abs(parts).max(axis=0) > 0.95 * ends).all()
    assert (abs(np.corrcoef(parts.T) - np.eye(6)) < 4.5 / np.sqrt(200)).all()
    assert deform(picture(), found[0]).shape == picture().shape


def test_directions_that_deformations_move_are_divided_by_how_far():
    """Features: the mean, which a shift leaves, and the first moment along the columns, which it moves by one."""
    images = datasets.load("digits", n=40)
    images = images.copy(data=np.pad(images.values[..., 4:-4, 4:-4], ((0, 0), (0, 0), (4, 4), (4, 4))))
    cols = np.arange(28) - 13.5

    def make(batch):
        flat = batch.values.astype(float).sum(axis=(1, 2))
        total = flat.sum(axis=1)
        return xr.DataArray(np.stack([total / 100, flat @ cols / total], axis=1), dims=(IMAGE, FEATURE))

    floor = 1e-3
    only_shifts = Deformations(shift=1, turn=0, scale=0, shear=0, floor=floor)
    plain = make(images).values
    whitening = learn_whitening(images, make, only_shifts)
    change = np.mean([(make(deform(images, one)).values - plain) ** 2 for one in only_shifts.transforms()], axis=(0, 1))
    assert change[1] == pytest.approx(2 / 10, rel=0.02) and change[0] < 1e-4
    expected = (plain - plain.mean(axis=0)) / np.sqrt(change + floor * plain.var(axis=0).mean())
    got = whitening.apply(plain)
    np.testing.assert_allclose(got @ got.T, expected @ expected.T, rtol=1e-2, atol=1e-2)
