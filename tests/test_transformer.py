"""Both estimators as transformers: scikit-learn's checks, layouts and units of images, pipelines, fits that fail."""

import pickle
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from tiny import ONE_STEP, QUICK, one_step

import gdd
from gdd import DeepDeconvolution, GddError, OneStepFeatures, OneStepSettings
from gdd.base.compiling import on_threads

INTERRUPTED = Mock(side_effect=KeyboardInterrupt)
MODELS = {"deconvolution": DeepDeconvolution(**QUICK), "one step": OneStepFeatures(**ONE_STEP)}


@parametrize_with_checks([DeepDeconvolution(**QUICK | {"atoms": (4,)}), OneStepFeatures(**ONE_STEP)])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module", params=MODELS)
def fitted(request, digits):
    return clone(MODELS[request.param]).fit(digits)


# ---- images as people have them
def test_one_image_has_many_layouts(digits, fitted):
    expected = fitted.transform(digits)
    ways = {
        "planes": digits[:, None], "flat": digits.reshape(30, -1), "last": digits[..., None],
        "labelled": xr.DataArray(digits.transpose(1, 2, 0), dims=("row", "col", "image")), "list": digits.tolist(),
    }
    for name, images in ways.items():
        model = clone(fitted).set_params(image_size=(28, 28) if name == "flat" else None).fit(images)
        np.testing.assert_allclose(model.transform(images), expected, rtol=1e-5, atol=1e-5, err_msg=name)
        if hasattr(model, "inverse_transform"):
            assert model.inverse_transform(expected).shape == np.shape(images if name != "labelled" else digits)


def test_units_of_the_pixels_do_not_matter(digits, fitted):
    """Double precision before the scaling, single precision after it."""
    moved = clone(fitted).fit(digits * 3.0 + 7.0)
    np.testing.assert_allclose(moved.transform(digits * 3.0 + 7.0), fitted.transform(digits), rtol=1e-3, atol=1e-3)
    assert moved.scale_.centre == pytest.approx(3 * fitted.scale_.centre + 7)


@pytest.mark.parametrize(("change", "images", "message"), [
    ({"image_size": (5, 5)}, None, r"image_size: \(5, 5\) given; the images are \(28, 28\)"),
    ({"n_jobs": 0}, None, "n_jobs: 0 given"),
    ({"image_size": (4, 4)}, np.ones((5, 48)), "flat ones of 3 planes; give them with their axes"),
    ({}, [np.eye(28), np.eye(20)], r"images: some of shape \(20, 20\), some of \(28, 28\); crop"),
    ({}, np.ones((24, 24, 3)), r"looks like one colour picture; give images\[None\]"),
    ({}, np.full((3, 8, 8), np.nan), "image 0 has no pixel but NaN"),
    ({}, np.ma.ones((3, 8, 8)), r"a masked array given; give images.astype\(float\)"),
    ({}, np.zeros((3, 8, 8)), "all pixels are alike"),
    ({}, np.full((3, 8, 8), np.inf), "pixel image 0, plane 0, row 0, col 0 is inf"),
    ({}, np.zeros((3, 2, 2, 2, 2)), "images: 5 axes of sizes"),
])
@pytest.mark.parametrize("kind", MODELS)
def test_bad_input_is_named_and_a_first_fit_that_fails_leaves_nothing(kind, change, images, message, digits):
    model = clone(MODELS[kind]).set_params(**change)
    with pytest.raises(ValueError, match=message):
        model.fit(digits if images is None else images)
    assert vars(model).keys() == vars(clone(model)).keys()


def test_one_picture_other_sizes_and_no_fit_are_named(digits, fitted):
    with pytest.raises(GddError, match=r"shape \(28, 28\) .* Reshape your data: images\[None\]"):
        fitted.transform(digits[0])
    with pytest.raises(GddError, match=r"images: shape \(30, 27, 28\) given; \(image, 28, 28\) is needed"):
        fitted.transform(digits[:, 1:])
    for call in (lambda m: m.transform(digits), lambda m: m.save("x.nc"), lambda m: m.plot_atoms()):
        with pytest.raises(NotFittedError):
            call(clone(fitted))


# ---- the same bits
def test_a_feature_depends_on_its_image_alone_and_on_no_thread(digits, fitted):
    whole = fitted.transform(digits)
    for some in (slice(0, 1), slice(7, 9)):
        np.testing.assert_array_equal(fitted.transform(digits[some]), whole[some])
    with on_threads(2):
        np.testing.assert_array_equal(clone(fitted).fit(digits).transform(digits), whole)
    np.testing.assert_array_equal(clone(fitted).set_params(n_jobs=1).fit(digits).transform(digits), whole)


OTHER_PROCESS = """
import sys, numpy as np, gdd
images = np.load(sys.argv[1]); model = gdd.load(sys.argv[2]).set_params(verbose=False)
np.save(sys.argv[3], model.transform(images)); model.fit(images)
"""


def test_another_process_gives_the_same_bits_and_fits_again(digits, fitted, tmp_path):
    fitted.save(tmp_path / "m.nc")
    np.save(tmp_path / "images.npy", digits)
    places = [str(tmp_path / name) for name in ("images.npy", "m.nc", "features.npy")]
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, *places], check=True)
    np.testing.assert_array_equal(np.load(places[2]), fitted.transform(digits))


def test_a_fit_begun_before_is_found_again_and_leaves_nothing_once_it_ends(digits, fitted, tmp_path, monkeypatch):
    """Whatever else is fitted with the same folder: other images, other parameters, the folds of a search."""
    model = clone(fitted).set_params(checkpoint=tmp_path)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("gdd.transformer.shutil.rmtree", INTERRUPTED)  # the last of all
        clone(model).fit(digits)
    chains = {path: path.read_bytes() for path in tmp_path.rglob("*.joblib")}
    grid = {f"pipeline__{'pretrain' if 'pretrain' in model.get_params() else 'sweeps'}": [(2, 1), (1, 1)]}
    pipeline = Pipeline([("pipeline", clone(model)), ("classifier", LogisticRegression())])
    GridSearchCV(pipeline, grid, cv=2, error_score="raise", refit=False).fit(digits, np.arange(30) % 2)
    clone(model).set_params(random_state=7).fit(digits)
    clone(model).fit(digits[:20]).fit(digits[10:])
    assert chains and {path: path.read_bytes() for path in tmp_path.rglob("*.joblib")} == chains
    with monkeypatch.context() as patched:
        patched.setattr("gdd.sampler.chain.advance", None)  # would be the next sweep
        np.testing.assert_array_equal(clone(model).fit(digits).transform(digits), fitted.transform(digits))
    assert [*tmp_path.iterdir()] == []


# ---- in a pipeline
@pytest.mark.parametrize(("kind", "grid"), [
    ("deconvolution", {"deepdeconvolution__atoms": [(4, 4), (4, 6)]}),
    ("one step", {"onestepfeatures__settings": [OneStepSettings(margin=0), OneStepSettings(margin=1)]}),
])
def test_pipeline_and_grid_search(digits, kind, grid):
    labels, (name, values) = np.arange(30) % 2, *grid.items()
    pipeline = make_pipeline(clone(MODELS[kind]), LogisticRegression(max_iter=1000))
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(digits, labels)
    assert len(search.cv_results_["mean_test_score"]) == 2 and search.predict(digits).shape == (30,)
    assert search.best_estimator_.get_params()[name] == search.best_params_[name] in values


def test_every_feature_has_a_name_of_its_own_in_a_table(digits, fitted):
    names = fitted.get_feature_names_out()
    table = clone(fitted).set_output(transform="pandas").fit_transform(digits)
    assert table.columns.tolist() == names.tolist() and len(set(names)) == table.shape[1]
    np.testing.assert_array_equal(table, fitted.transform(digits))


# ---- a fit that fails
@pytest.mark.parametrize(("model", "places"), [
    (MODELS["deconvolution"], ("gdd.estimator.pretrain_layers", "gdd.estimator.project")),
    (one_step(whitening=True, pool=(5, 5)), ("gdd.one_step.learn_atoms", "gdd.one_step.learn_whitening")),
], ids=["deconvolution", "one step, whitened"])
def test_a_refit_that_fails_leaves_the_model_as_it_was(table, model, places, monkeypatch, tmp_path):
    model = clone(model).set_params(image_size=(28, 28)).fit(table)
    before, features = pickle.dumps(model), model.transform(table)
    with pytest.raises(ValueError, match="features|image_size"):
        model.fit(np.zeros((20, 128)))
    for place in places:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(place, INTERRUPTED)
            model.fit(table)
    assert vars(model).keys() == vars(pickle.loads(before)).keys()
    np.testing.assert_array_equal(model.transform(table), features)
    model.save(tmp_path / "m.nc")
    np.testing.assert_array_equal(gdd.load(tmp_path / "m.nc").transform(table), features)
