"""Images as people have them: other units, other orders of axes, missing planes, collections, very large pixels."""

import numpy as np
import pytest

from gdd import DeepDeconvolution
from gdd.base.checks import GddError

QUICK = {"pretrain": (3, 2), "infer": (3, 2), "atoms": (4, 6), "verbose": False}


@pytest.fixture(scope="module")
def pictures():
    """Coloured noise, smooth enough for atoms, (image, row, col, plane)."""
    rough = np.random.default_rng(0).random((12, 16, 18, 3))
    return (rough + np.roll(rough, 1, 1) + np.roll(rough, 1, 2)).astype(np.float32)


@pytest.mark.parametrize("plane", [0, 2])
def test_a_plane_that_no_image_shows_is_named(pictures, plane):
    holes = pictures.copy()
    holes[..., plane] = np.nan
    model = DeepDeconvolution(**QUICK)
    with pytest.raises(GddError, match=f"images: plane {plane} has no pixel but NaN in any image; leave that plane"):
        model.fit(holes)
    holes[0, 3, 4, plane] = 1.0
    assert np.isfinite(model.fit(holes).sample(2)).all()
