"""Arrays as users have them in memory: whatever their order, strides, bytes and type, the numbers are those of C order.

Kernels are compiled for contiguous arrays of one type; `gdd.base.checks.as_array` makes them so at the face.
"""

import numpy as np
import pytest
import xarray as xr
from tiny import CHEAP, QUICK
from tiny import one_step as small

import gdd
from gdd import DeepDeconvolution, RefinementSpec
from gdd.base.axes import IMAGES
from gdd.base.checks import as_plain
from gdd.inference import fixed_dictionary
from gdd.inference.block_magnitudes import one_step_features

CHAIN, READ = gdd.ChainSpec(1, 1), {"burn_in": 1, "collect": 1}

#: ways to hold the same values
FORMS = {
    "Fortran": np.asfortranarray, "transposed": lambda x: x.T.copy().T,
    "steps": lambda x: np.repeat(np.repeat(x, 2, -1), 3, 0)[::3, ..., ::2],
    "backwards": lambda x: x[::-1, ..., ::-1].copy()[::-1, ..., ::-1],
    "axis moved": lambda x: np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1),
    "window": lambda x: np.pad(x, 1)[1:-1, 1:-1, 1:-1, 1:-1],
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "unaligned": lambda x: np.frombuffer(bytearray(1) + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "half": lambda x: x.astype(np.float16) if x.dtype.kind == "f" else x,
}


@pytest.fixture(scope="module")
def images(digits):
    """Digits (image, plane, row, col); every pixel, and half of it, is a number in half precision too."""
    return (digits[:8, None] / 256).astype(np.float32)


@pytest.fixture(scope="module")
def trained(images):
    start = gdd.pretrain(images, CHEAP, CHAIN)
    return start, gdd.refine(images, CHEAP, CHAIN, start=start), gdd.project(start).values.astype(np.float16)


def deep(images, *_):
    model = DeepDeconvolution(**QUICK | {"pretrain": (1, 1), "infer": (1, 1)}).fit(images)
    features = model.transform(images)
    return [features, model.score(images), model.inverse_transform(np.asfortranarray(features))]


def one_step(**options):
    def call(images, form, trained):
        known = [form(trained[0].layers[0].state.shared.dictionary.astype(np.float16))]
        model = small(**{"atoms": known} | options).fit(images)
        return [model.transform(images), model.maps(images)[0].values]

    return call


def masked(images):
    return np.random.default_rng(0).random(images.shape) < 0.9


CALLS = {
    "pretrain, project": lambda x, *_: gdd.project(gdd.pretrain(x, CHEAP, CHAIN)).values,
    "pretrain, masked": lambda x, form, _: gdd.pretrain(x, CHEAP, CHAIN, form(masked(x))).layers[1].state,
    "refine, project": lambda x, _, known: gdd.project(gdd.refine(x, CHEAP, CHAIN, start=known[0])).values,
    "infer": lambda x, form, known: gdd.infer(known[1], form(known[2]), x, **READ),
    "infer, masked": lambda x, form, known: gdd.infer(known[1], form(known[2]), x, mask=form(masked(x)), **READ),
    "infer, from a start": lambda x, form, known: gdd.infer(
        known[0], form(known[2]), x, start=form(np.full((8, 4, 2, 2), 0.5)), **READ),
    "infer_jointly": lambda x, _, known: fixed_dictionary.infer_jointly(
        x, CHEAP, known[1].state.shared, RefinementSpec(), CHAIN),
    "one_step_features": lambda x, form, known: one_step_features(
        x, form(known[2][..., :8, :8]), (3, 3), gamma_e=9.0, gamma_w=0.1),
    "DeepDeconvolution": deep, "no blur": one_step(blur=0.0), "whitened": one_step(whitening=True, pool=(5, 5)),
}


def arrays(value):
    """Every number of a result, in a row."""
    if isinstance(value, xr.Dataset):
        value = [value[name].values for name in sorted(value.data_vars)]
    if isinstance(value, list | tuple):
        return np.concatenate([arrays(one) for one in value])
    return np.ravel(value).astype(float)


@pytest.fixture(scope="module", params=CALLS)
def call(request, images, trained):
    call = CALLS[request.param]
    return call, arrays(call(images, np.copy, trained))


@pytest.mark.parametrize("form", FORMS)
def test_an_array_is_made_plain_whatever_its_order_in_memory(form, images):
    plain = as_plain(FORMS[form](images), IMAGES, "images")
    np.testing.assert_array_equal(plain, images)
    assert plain.flags.carray and plain.dtype.isnative


@pytest.mark.parametrize("form", ["backwards", "big-endian"])
def test_the_order_of_an_array_in_memory_changes_no_number(call, form, images, trained):
    """Wherever arrays are given."""
    call, wanted = call
    np.testing.assert_array_equal(arrays(call(FORMS[form](images), FORMS[form], trained)), wanted)


@pytest.mark.parametrize("dtype", ["u1", ">i8", "?", "f2"])
@pytest.mark.parametrize("kind", [DeepDeconvolution(**QUICK | {"atoms": (4,)}), small(blur=0.0, sizes=((5, 1),))])
def test_estimators_take_every_type_of_number(kind, dtype, digits):
    """In Fortran order, of colours that stand last."""
    images = (digits[..., None] % np.array([2, 200, 60]))[:, :16, :18] // (128 if dtype == "?" else 1)
    wanted = kind.fit(images.astype(float)).transform(images.astype(float))
    given = np.asfortranarray(images.astype(dtype))
    np.testing.assert_array_equal(kind.fit(given).transform(given), wanted)


def test_memory_maps_and_frames_are_arrays(images, table, tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(images))
    mapped, model = np.load(tmp_path / "x.npy", mmap_mode="r"), small(image_size=(28, 28))
    np.testing.assert_array_equal(deep(mapped)[0], deep(images)[0])
    wanted = model.fit(table.to_numpy().copy()).transform(table.to_numpy().copy())
    np.testing.assert_array_equal(model.fit(np.asfortranarray(table)).transform(table.astype("u1").to_numpy()), wanted)
    plain = as_plain(mapped, IMAGES, "images")
    assert type(plain) is np.ndarray and plain.flags.carray
