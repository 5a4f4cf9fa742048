"""A saved model is all of the fitted one: nothing is forgotten, damage is noticed, other images are refused."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from agreement import arrays_of

import gdd
from gdd import DeepDeconvolution
from gdd.base.checks import GddError
from gdd.data import datasets

QUICK = {"pretrain": (3, 2), "infer": (3, 2), "atoms": (4, 6), "verbose": False}


@pytest.fixture(scope="module")
def digits():
    """Grey values from 0 to 255, (image, row, col)."""
    return (255 * datasets.load("digits", n=30).values[:, 0]).astype(np.uint8)


@pytest.fixture(scope="module")
def table(digits):
    """The same as a table with names of columns."""
    return pd.DataFrame(digits.reshape(30, -1).astype(float), columns=[f"pixel{n}" for n in range(784)])


@pytest.fixture(scope="module")
def named(table):
    return DeepDeconvolution(**QUICK, image_size=(28, 28)).set_output(transform="pandas").fit(table)


@pytest.fixture(scope="module")
def refined(digits):
    return DeepDeconvolution(**QUICK, refine=(2, 2), n_chains=2).fit(digits)


def reloaded(model, folder):
    model.save(folder / "m.nc")
    return gdd.load(folder / "m.nc")


def plain(value):
    """Value without the images, which no file holds, and with its arrays by name."""
    if isinstance(value, gdd.Pretrained):
        return [arrays_of(layer.state) for layer in value.layers]
    if isinstance(value, gdd.Refined):
        return [value.refinement, arrays_of(value.state), arrays_of(value.last)]
    if isinstance(value, xr.DataArray | xr.Dataset):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


# ---- nothing is forgotten


@pytest.mark.parametrize("name", ["named", "refined"])
def test_a_loaded_model_has_every_attribute_of_the_fitted_one(name, request, tmp_path):
    model = request.getfixturevalue(name)
    loaded = reloaded(model, tmp_path)
    assert vars(loaded).keys() == vars(model).keys()
    for key, value in vars(model).items():
        np.testing.assert_equal(plain(getattr(loaded, key)), plain(value), err_msg=key)


def test_a_loaded_model_refuses_other_columns_and_gives_a_table(table, named, tmp_path):
    loaded = reloaded(named, tmp_path)
    assert loaded.transform(table).equals(named.transform(table))
    swapped = table[[*table.columns[:300], "pixel301", "pixel300", *table.columns[302:]]]
    for model in (named, loaded):
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            model.transform(swapped)


def test_a_loaded_model_knows_what_it_was_asked_for(digits, tmp_path):
    model = DeepDeconvolution(**QUICK, warm_start=True).fit(digits).set_params(atoms=(4, 5))
    for one in (model, reloaded(model, tmp_path)):
        with pytest.raises(GddError, match="model, atoms, image_size: changed since"):
            one.fit(digits)


def test_a_loaded_refinement_goes_on_from_the_same_state(digits, tmp_path):
    model = DeepDeconvolution(**QUICK, refine=(2, 4), random_state=1, warm_start=True).fit(digits)
    assert not np.array_equal(model.chains_[0].state.local.w, model.chains_[0].last.local.w)
    loaded = reloaded(model, tmp_path)
    np.testing.assert_array_equal(loaded.fit(digits).transform(digits), model.fit(digits).transform(digits))


def test_a_loaded_model_goes_on_with_its_own_images_only(digits, tmp_path):
    model = DeepDeconvolution(**QUICK, warm_start=True).fit(digits)
    others = digits.copy()
    others[3, 14, 14] ^= 1
    for one in (model, reloaded(model, tmp_path)):
        with pytest.raises(GddError, match="X: other images than those of the fit that goes on"):
            one.fit(others)
        one.fit(digits)
