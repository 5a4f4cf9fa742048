"""What a message tells one to do works, word for word; and it does not contradict itself."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.model_selection import ParameterGrid
from tiny import CHEAP
from tiny import one_step as small

import gdd
from gdd import ChainSpec, GddError, ModelSpec, RefinementSpec

IMAGES = np.random.default_rng(0).random((6, 28, 28))
PLANES, BYTES = IMAGES[:, None], (255 * IMAGES).astype(np.uint8)
ATOMS = np.random.default_rng(1).standard_normal((3, 1, 8, 8))
COLOURS = np.random.default_rng(2).random((4, 28, 28, 3))
MASKED, HIDDEN = np.ma.array(BYTES, mask=IMAGES < 0.1), np.ma.array(PLANES, mask=PLANES < 0.1)


def one_step(images=IMAGES, **options):
    model = small(**{"atoms": [ATOMS]} | options)
    return model.fit(images).transform(images)


def coloured(images):
    return one_step(images, atoms=2)


def pretrain(images, **options):
    return gdd.pretrain(images, CHEAP, ChainSpec(1, 1), **options)


def refine(**options):
    start = gdd.refine(PLANES, CHEAP, ChainSpec(1, 1), RefinementSpec(empty_blocks=True))
    return gdd.refine(PLANES, CHEAP, ChainSpec(1, 1), RefinementSpec(**options), start)


#: a call, images that it refuses, and what its message says to give instead
INSTEAD = {
    "masked": (one_step, MASKED, "images.astype(float).filled(numpy.nan)"),
    "bytes": (pretrain, BYTES[:, None], "images / 255.0"), "truth": (pretrain, PLANES > 0.5, "images / 255.0"),
    "huge": (pretrain, np.where(PLANES < 0.1, -1e9, 0.0), "images / numpy.abs(images).max()"),
    "one picture": (coloured, COLOURS[0], "images[None]"),
    "planes anywhere": (
        coloured, COLOURS[..., :2], "xarray.DataArray(images, dims=('image', 'row', 'col', 'plane'))"),
    "planes without a picture": (lambda x: gdd.plot.plot_reconstruction(x, x), COLOURS, "images[..., :1, :, :]"),
}
#: a call, arguments that it refuses, and what its message says to give instead
ARGUMENTS = {
    "mask": (pretrain, {"images": HIDDEN}, "such as images.filled(0), and hide pixels of images by mask=~numpy.ma.getm",
             {"images": HIDDEN.filled(0), "mask": ~np.ma.getmaskarray(HIDDEN)}),
    "infinite": (one_step, {"images": np.where(IMAGES > 0.1, IMAGES, np.inf)}, "or give NaN for a missing pixel",
                 {"images": np.where(IMAGES > 0.1, IMAGES, np.nan)}),
    "too large": (one_step, {"images": IMAGES * 1e9, "rescale": False}, "give pixels of the same units, such as 0 to 1",
                  {"images": IMAGES, "rescale": False}),
    "one sample": (one_step, {"images": IMAGES[:1], "whitening": True}, "or whitening=False", {"images": IMAGES[:1]}),
    "sizes": (one_step, {"sizes": ((6, 6),)}, "leave one out", {}),
    "a layer on two": (one_step, {"second": gdd.SecondLayer(3), "atoms": [ATOMS, ATOMS]}, "or second=None",
                       {"second": None, "atoms": [ATOMS, ATOMS]}),
    "regions": (one_step, {"regions": ()}, "such as (1, 2, 4), or None", {"regions": (1, 2, 4)}),
    "blur": (one_step, {"images": IMAGES[:, :1, :1], "atoms": 2}, "give blur=0, local",
             {"images": IMAGES[:, :1, :1], "atoms": 2, "blur": 0}),
    "layers": (partial(ModelSpec.for_images, (9, 9), 1), {"atoms": (4, 4, 4)}, "atoms=(4, 4)", {"atoms": (4, 4)}),
    "blocks": (refine, {}, "empty_blocks=True is needed", {"empty_blocks": True}),
}


@pytest.mark.parametrize("case", INSTEAD)
def test_what_a_message_says_to_give_instead_of_images_works(case):
    call, images, remedy = INSTEAD[case]
    with warnings.catch_warnings(), pytest.raises(GddError) as caught:
        warnings.simplefilter("ignore")
        call(images)
    assert str(caught.value).endswith(remedy)
    call(eval(remedy, {"images": images, "numpy": np, "xarray": xr}))


@pytest.mark.parametrize("case", ARGUMENTS)
def test_what_a_message_says_to_give_instead_of_arguments_works(case):
    call, wrong, remedy, right = ARGUMENTS[case]
    with pytest.raises(GddError) as caught:
        call(**wrong)
    assert remedy in str(caught.value)
    call(**right)


# ---- what is no mistake is no error


@pytest.mark.parametrize("name", ["whitening", "rescale"])
def test_a_grid_over_an_array_has_truth_values_of_numpy(name, tmp_path):
    for parameters in ParameterGrid({name: np.array([True, False])}):
        model = small(**{"atoms": [ATOMS], "pool": (5, 5)} | parameters).fit(IMAGES)
        model.save(tmp_path / "m.nc")
        loaded = gdd.load(tmp_path / "m.nc")
        assert (vars(loaded) | vars(loaded.settings))[name] == parameters[name]
        assert (model.whitening_ is not None) == bool(model.whitening)


def test_a_column_of_pictures_is_images():
    np.testing.assert_array_equal(one_step(pd.Series(list(IMAGES))), one_step(IMAGES))
