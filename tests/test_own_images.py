"""Images as people have them: other units, other orders of axes, missing planes, collections, very large pixels."""

import re
import warnings
from collections import UserList

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from skimage import io
from sklearn.model_selection import ParameterGrid
from tiny import QUICK, one_step

import gdd
from gdd import DeepDeconvolution
from gdd.base.checks import GddError
from gdd.layout import PLANES_FIRST, PLANES_LAST, find_layout
from gdd_book.data import datasets
from gdd_book.pages import notebooks

#: one layer alone, for whose atoms nothing is compiled, whatever the planes of the images
ONE_LAYER = QUICK | {"atoms": (4,)}


def test_a_plane_that_no_image_shows_is_named(coloured):
    holes = coloured.copy()
    holes[..., 2] = np.nan
    model = DeepDeconvolution(gdd.ModelSpec((gdd.LayerSpec(4, (5, 1)),), (16, 18), 3), **QUICK)
    with pytest.raises(GddError, match="images: plane 2 has no pixel but NaN in any image; leave that plane"):
        model.fit(holes)
    holes[0, 3, 4, 2] = 1.0
    assert np.isfinite(model.fit(holes).sample(2)).all()


# ---- units
@pytest.mark.parametrize("change", [lambda x: x[:1] / 255, lambda x: x + 5000.0])
def test_other_units_are_warned_of(digits, fitted, change):
    for call in (fitted.transform, fitted.score, fitted.deconvolve):
        with pytest.warns(UserWarning, match="pixels spread .* times as widely as those of fit, and lie"):
            call(change(digits))


def test_the_same_units_are_not_warned_of(digits, fitted, coloured):
    holes = np.where(np.random.default_rng(0).random(digits.shape) < 0.5, np.nan, digits)
    middling = DeepDeconvolution(**ONE_LAYER).fit(coloured)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dull = 200 + digits[:1] / 20  # one picture may have little contrast
        for images in (digits[:1], digits * 2.0, digits / 2, np.zeros((2, 28, 28)), holes, dull):
            fitted.transform(images)
        middling.score(np.where(np.arange(3) == 1, np.nan, coloured))  # a plane that new images do not show


def test_far_too_large_pixels_are_refused_in_the_units_of_the_fit(digits, fitted):
    with pytest.raises(GddError, match="image 0 has a pixel .* units of scale_ from its median; .* give pixels"):
        fitted.transform(digits * 1e9)


@pytest.mark.parametrize("factor", [2.0**900, 2.0**-900])
def test_pixels_need_no_preparation_whatever_their_size(digits, fitted, factor):
    model = DeepDeconvolution(**QUICK).fit(digits * factor)
    np.testing.assert_array_equal(model.transform(digits * factor), fitted.transform(digits))


# ---- axes
@pytest.mark.parametrize("shape", [(16, 16, 5), (3, 16, 3)])
def test_planes_that_may_stand_second_or_last_are_refused(shape):
    with pytest.raises(GddError, match="planes may stand second or last; name the axes, such as xarray.DataArray"):
        DeepDeconvolution(**QUICK).fit(np.random.default_rng(0).random((9, *shape)))


@pytest.mark.parametrize(("shape", "options", "axes"), [
    ((16, 18, 3), {}, PLANES_LAST), ((3, 16, 18), {}, PLANES_FIRST), ((5, 16, 18), {}, PLANES_FIRST),
    ((16, 16, 5), {"image_size": (16, 16)}, PLANES_LAST), ((16, 16, 5), {"image_size": (16, 5)}, PLANES_FIRST),
    ((16, 16, 5), {"model_size": (5, 16, 16)}, PLANES_LAST), ((16, 16, 5), {"labelled": True}, PLANES_FIRST),
    ((28, 28, 3), {"labelled": True}, PLANES_FIRST),
])
def test_where_the_planes_stand(shape, options, axes):
    assert find_layout(np.ones((2, *shape)), **options).axes == axes


def test_labelled_images_are_read_by_their_names_at_every_call(coloured):
    many = np.concatenate([coloured, coloured[..., :2]], -1)[:, :16, :16]
    labelled = xr.DataArray(many, dims=("image", "row", "col", "plane"))
    model = DeepDeconvolution(**ONE_LAYER).fit(labelled)
    assert (model.model_.planes, model.model_.image_size) == (5, (16, 16))
    assert model.transform(labelled[::-1]).shape == (12, 4 * model._map_shape[1] * model._map_shape[2])
    last = DeepDeconvolution(**ONE_LAYER).fit(coloured)
    features = last.transform(xr.DataArray(coloured, dims=("image", "row", "col", "plane")))
    np.testing.assert_array_equal(features, last.transform(coloured))
    with pytest.raises(GddError, match=r"\(5, 16, 16\) along \(plane, row, col\) given; \(3, 16, 18\) is needed"):
        last.transform(labelled)


# ---- collections, tables, seeds
def test_collections_of_pictures_are_images(digits, fitted):
    """Those that are no list as well: pictures one by one, as skimage's and others'; a column of a table."""
    for collection in (UserList(digits), [*digits], pd.Series([*digits])):
        np.testing.assert_array_equal(fitted.transform(collection), fitted.transform(digits))
    with pytest.raises(GddError, match="images: not an array"):
        fitted.transform(UserList([digits[0], digits[1][:, :20]]))
    with pytest.raises(GddError, match="values of type object given"):
        fitted.transform(iter(digits))


def test_folders_of_labelled_pictures_lead_to_a_score(tmp_path, monkeypatch, capsys):
    text = notebooks.text_path("your-images").read_text(encoding="utf-8")
    source = next(block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "cross_val_score" in block)
    digits = datasets.load("digits", n=60)
    for number, (image, label) in enumerate(zip(digits.values, digits.label.values, strict=True)):
        if label in (0, 1):
            folder = tmp_path / "pictures" / f"{label}"
            folder.mkdir(parents=True, exist_ok=True)
            io.imsave(folder / f"{number}.png", (255 * image[0]).astype(np.uint8), check_contrast=False)
    monkeypatch.chdir(tmp_path)
    exec(source.replace("OneStepFeatures()", "OneStepFeatures(6, sizes=((8, 8),), sweeps=(2, 1), verbose=False)"), {})
    model, pixels = map(float, re.findall(r": ([\d.]+)", capsys.readouterr().out))
    assert model > 70 and pixels > 70


@pytest.mark.parametrize("name", ["whitening", "rescale"])
def test_a_grid_over_an_array_has_truth_values_of_numpy(name, digits, tmp_path):
    for parameters in ParameterGrid({name: np.array([True, False])}):
        model = one_step(pool=(5, 5), **parameters).fit(digits)
        model.save(tmp_path / "m.nc")
        loaded = gdd.load(tmp_path / "m.nc")
        assert (vars(loaded) | vars(loaded.settings))[name] == parameters[name]
        assert (model.whitening_ is not None) == bool(model.whitening)
