"""Coordinates of a user's images: every kind comes back from a file or is refused at fit; none has a name of ours."""

import string

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import one_step as small

import gdd
from gdd import GddError
from gdd.base import files
from gdd.base.axes import OURS
from gdd.estimator import coords_of
from gdd.inference import fixed_dictionary
from gdd.inference.block_magnitudes import one_step_features
from gdd.results import last_arrays, storable


def objects(*values):
    return np.array(values, object)


#: what comes back as it was, in the type in which it is kept
KEPT = {
    "numbers": np.array([1.5, np.nan, -np.inf, 0.0]), "large": np.arange(4, dtype="u8") + 2**63,
    "big-endian": np.arange(4, dtype=">i4"), "truth as objects": objects(True, False, False, True),
    "words": objects("a", "", "größe ", "\U0001f600"), "categories": pd.Categorical(["b", "a", "b", "c"]),
    "moments": np.array(["2020", "NaT", "1999-01-01T01:02:03.000000001", "2262"], "M8[ns]"),
    "lengths of time": np.array([1, 2, "NaT", 4], "m8[s]"),
}
#: what no file gives back, and what of it the message names
REFUSED = {
    "missing word": (objects("a", None, "b", "c"), "float and str|NoneType and str"),
    "mixed": (objects("a", 1, 2.0, "c"), "float and int and str"), "complex": (np.arange(4) * 1j, "complex"),
    "bytes": (np.array([b"a", b"b", b"\xff", b""]), "bytes"),
    "zone of time": (objects(*pd.date_range("2020", periods=4, tz="UTC")), "Timestamp|datetime"),
    "more than 64 bits": (objects(*[10**30] * 4), "int"), "null": (objects("a\0b", "c", "d", "e"), "words with null"),
    "half a letter": (np.array(["a\udcff", "c", "d", "e"]), "words with .* halves of characters"),
    "year 3000": (np.array(["3000", "2000", "2001", "2002"], "M8[s]"), "times that have no nanoseconds"),
}


def labelled(values):
    return xr.DataArray(np.zeros((4, 9, 9)), {"label": ("image", values)}, ("image", "row", "col"))


def written(name, values, folder):
    files.write(xr.Dataset({"a": ("image", np.zeros(4))}, {name: ("image", values)}), folder / "m.nc")
    return files.load(folder / "m.nc")[name].values


@pytest.mark.parametrize("kind", KEPT)
def test_a_coordinate_comes_back_from_a_file(kind, tmp_path):
    kept = coords_of(labelled(KEPT[kind]), 4)["label"]
    assert kept.tolist() == np.asarray(KEPT[kind]).astype(kept.dtype).tolist() or kind == "numbers"
    back = storable("label", written("label", kept, tmp_path))
    assert back.dtype == kept.dtype
    np.testing.assert_array_equal(back, kept)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_file_gives_back_is_refused_by_name(kind):
    values, what = REFUSED[kind]
    images = labelled(values)
    with pytest.raises(GddError, match=f"coordinate 'label' holds ({what}).*, or leave it out, such as by ") as caught:
        coords_of(images, 4)
    remedy = str(caught.value).rpartition("such as by ")[2]
    assert [*coords_of(eval(remedy, {"images": images}), 4)] == ["image"]


letters = st.text(st.sampled_from(string.printable + "é\u0301\u212b\u202f\udcffλ/"), max_size=5)


@settings(max_examples=25, derandomize=True, deadline=None, database=None)
@given(letters | st.integers() | st.tuples(letters))
def test_a_name_is_one_that_a_file_gives_back_or_refused(tmp_path_factory, name):
    try:
        storable(name, np.arange(4))
    except GddError as error:
        assert f"by the name {name!r}; rename it, or leave it out" in str(error)
    else:
        assert written(name, np.arange(4), tmp_path_factory.mktemp("names")).tolist() == [0, 1, 2, 3]


# ---- names of ours
def atoms_of(model):
    """Of layer 1."""
    return model.to_dataset().dictionary_1.values


def test_every_name_in_our_results_is_reserved(refined, fitted, digits):
    chain, images = refined.chain_, refined.scale_.forward(digits[:, None]).astype(np.float32)
    found = [
        refined.to_dataset(dense=True), fitted.to_dataset(dense=True), fitted.deconvolve(digits[:2]),
        *fixed_dictionary.infer_layers(fitted.chain_, images[:2], 1, 1, 0), last_arrays(refined.chain_),
        gdd.infer(chain, refined.atoms_, images[:2], burn_in=1, collect=1, trace=True),
        one_step_features(images[:2], atoms_of(fitted), (3, 3), gamma_e=9.0, gamma_w=0.1).to_dataset(),
    ]
    names = {name for one in found for name in (*one.variables, *one.dims)} - {"image", "row", "col"}
    assert len(names) > 60 and [name for name in names if not OURS.fullmatch(name)] == []
    for theirs in ("label", "number", "class", "mapped", "weights", "my_weight_1", "time", "image", "rows", "weight"):
        assert not OURS.fullmatch(theirs)


@pytest.mark.parametrize("name", ["weight_1", "chain"])
def test_a_coordinate_with_a_name_of_ours_is_refused_wherever_images_are_given(name, fitted, digits):
    labels, pixels = {name: ("image", np.arange(30))}, (digits / 256).astype(np.float32)
    images = xr.DataArray(pixels, labels, ("image", "row", "col"))
    planes, chain, digits = images.expand_dims("plane"), fitted.chain_, gdd.OneStepFeatures.digits(pretrained=True)
    calls = [
        lambda: gdd.DeepDeconvolution().fit(images), lambda: fitted.deconvolve(images), lambda: digits.maps(images),
        lambda: gdd.infer(chain, fitted.atoms_, planes), lambda: fixed_dictionary.infer_layers(chain, planes, 1, 1, 0),
    ]
    for call in calls:
        with pytest.raises(GddError, match=f"coordinate '{name}' has the name of an array of the results") as caught:
            call()
    remedy = eval(str(caught.value).partition("rename it: ")[2], {"images": images})
    assert [*fitted.deconvolve(remedy[:2]).coords] == ["row", "col", f"my_{name}"]


# ---- labels are kept
def test_what_has_a_value_an_image_keeps_the_labels_of_new_images(fitted, digits):
    labels = {"label": ("image", [*"abc"] * 10), "day": ("image", np.arange(30).astype("M8[D]"))}
    images = xr.DataArray(digits, labels, ("image", "row", "col"))[3:7]
    one_step = small(atoms=[atoms_of(fitted)]).fit(digits)
    turned = images.transpose("col", "image", "row")
    for result in (fitted.deconvolve(images), fitted.deconvolve(turned), one_step.maps(images)[0]):
        xr.testing.assert_equal(result.label, images.label)
        xr.testing.assert_equal(result.day, images.day)
    assert "label" not in fitted.deconvolve(digits[:2]).coords
