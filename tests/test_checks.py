"""Checks of single arguments: the plain form of what is accepted, the message for what is refused."""

import re

import numpy as np
import pytest
import xarray as xr

from gdd.base import checks
from gdd.base.axes import IMAGES
from gdd.base.checks import GddError, as_finite, as_pixels, as_plain, check_memory


def test_what_is_right_comes_back_plain():
    assert checks.check_whole("n", np.int8(3), 1) == 3
    assert type(checks.check_seed(np.uint64(7))) is int
    assert checks.check_pair("size", np.array([2, 3])) == checks.check_pair("size", [2, 3]) == (2, 3)
    assert checks.check_lengths(5, np.int16(1)) == (5, 1)
    assert type(checks.check_precision("gamma", np.float32(0.5))) is float


@pytest.mark.parametrize(("check", "message"), [
    (lambda: checks.check_whole("n", True, 0), "n: True given; a whole number of at least 0"),
    (lambda: checks.check_whole("n", 10**5000, 0), "n: a whole number of about 5000 digits given"),
    (lambda: checks.check_seed(2**63), "seed: 9223372036854775808 given; a whole number from 0"),
    (lambda: checks.check_pair("size", (1, 0)), "size, axis 'col': 0 given"),
    (lambda: checks.check_block("pool", (200, 200)), "pool: (200, 200) given; a block has at most 32767 places"),
    (lambda: checks.check_precision("gamma_w", float("nan")), "gamma_w: nan given; a positive finite number"),
    (lambda: checks.check_choice("start", ["a"], ("a", "b")), "start: ['a'] given; one of 'a', 'b' is needed"),
    (lambda: checks.check_kind("model", 3, (str, type(None))), "model: int given; str or NoneType is needed"),
    (lambda: as_plain([[1.0], [1.0, 2.0]], ("row", "col"), "maps"), "maps: not an array"),
    (lambda: as_plain(np.ones((2, 0)), ("row", "col"), "maps"), "maps: axis 'col' has size 0"),
    (lambda: as_plain(np.ones(2, complex), ("row",), "maps"), "maps: values of type complex128 given"),
    (lambda: as_finite([[0.0, np.inf]], ("row", "col"), "maps"), "maps: row 0, col 1 is inf; finite numbers"),
    (lambda: as_pixels(np.full((1, 1, 2, 2), 1e300) * [1, 2]), "image 0 has a pixel of magnitude 2e+300; at most"),
    (lambda: as_pixels(1e5 + np.arange(4.0).reshape(1, 1, 2, 2) * 1e-3), "image 0 is constant to within 0.003"),
])
def test_what_is_wrong_is_named(check, message):
    with pytest.raises(GddError, match=re.escape(message)):
        check()


def test_arrays_too_large_for_the_machine_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr(checks, "memory", lambda: 1000)
    check_memory("size", 125)
    with pytest.raises(GddError, match="size: an array of 126 numbers would be needed; this machine has"):
        check_memory("size", 126)
    with pytest.raises(GddError, match="images: an array of"):
        as_plain(np.broadcast_to(0.0, (10**6, 1, 10**9, 3)), IMAGES, "images")


def test_a_masked_array_is_refused_and_not_read_without_its_mask():
    """NumPy's conversion drops the mask without a word; an array in which nothing is masked loses nothing."""
    images = np.ma.masked_array(np.arange(8.0).reshape(2, 1, 2, 2), np.arange(8).reshape(2, 1, 2, 2) == 3)
    for given in (images, list(images)):
        with pytest.raises(GddError, match=re.escape("images.filled(0), and hide pixels of images by mask=")):
            as_pixels(given)
    np.testing.assert_array_equal(as_pixels(np.ma.masked_array(images.data)), images.data)


def test_pixels_are_a_copy_in_order_without_what_is_hidden():
    images = xr.DataArray(np.arange(24.0, dtype=">f4").reshape(2, 3, 1, 4), dims=("image", "row", "plane", "col"))
    mask = np.ones((2, 1, 3, 4), bool)
    mask[0, 0, 0, 0] = False
    images[0, 0, 0, 0] = np.nan
    pixels = as_pixels(images, mask=mask)
    assert pixels.dtype == np.float32 and pixels.flags.c_contiguous and pixels.flags.writeable
    np.testing.assert_array_equal(pixels, np.nan_to_num(images.values.transpose(0, 2, 1, 3)))
    assert as_pixels(images.astype(float), mask=mask).dtype == np.float64
