"""One-step features of a user's images: scikit-learn's checks, the same bits however asked for, layouts, files."""

import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import gdd
from gdd import Deformations, GddError, OneStepFeatures, SecondLayer
from gdd.base.compiling import on_threads
from gdd.features import LEAST_NORM, pyramid
from gdd.inference.contrast import prepare
from gdd.inference.features import one_step_features
from gdd_book.data import datasets

#: tiny chains, tiny dictionaries: what is tested is the face, not what is learned
QUICK = {"atoms": 4, "sweeps": (3, 2), "whitening": False, "verbose": False}
WHITENED = {"whitening": Deformations()}
#: every part of it, each as small as can be
KINDS = {
    "plain": {}, "two dictionaries": {"sizes": ((8, 8), (6, 7), (8, 8))},
    "whitened": {"whitening": Deformations(), "pool": (5, 5)},
    "pyramid": {"regions": (1, 2, 3), "local_contrast": True},
    "two layers": {"second": SecondLayer(5, (3, 3)), "regions": (1, 2), "pool": (2, 2)},
    "two layers, whitened": {"second": SecondLayer(5, (3, 2)), "pool": (4, 4), "whitening": Deformations()},
}


@parametrize_with_checks([OneStepFeatures(**QUICK), OneStepFeatures(**QUICK | {"whitening": True})])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request, digits):
    return OneStepFeatures(**QUICK | KINDS[request.param]).fit(digits)


@pytest.fixture(scope="module")
def plain(digits):
    return OneStepFeatures(**QUICK).fit(digits)


# ---- what the features are


def test_features_are_one_step_of_high_pass_images_over_their_deviation(digits, plain):
    pixels = plain.scale_.forward(digits[:, None]).astype(np.float32)
    given = {"gamma_e": 100.0, "gamma_w": 0.1, "margin": 1}
    passed = prepare(pixels, None, plain.blur_, False)
    wanted = one_step_features(passed, plain.dictionaries_[0], plain.pool_, **given).values
    assert plain.blur_ == 3.0 and plain.pool_ == (3, 3) and plain.dictionaries_[0].shape[2:] == (8, 8)
    assert_allclose(plain.transform(digits), wanted.reshape(30, -1) / wanted.std(), rtol=1e-5)
    atoms = plain.dictionaries_[0]
    assert_allclose((atoms.astype(float) ** 2).sum(("plane", "atom_row", "atom_col")), 1, rtol=1e-5)
    norms = atoms.attrs["norms"]
    assert norms.shape == (4,) and len(atoms) == (norms >= LEAST_NORM * norms.max()).sum()


def test_a_label_has_no_influence_and_equal_sizes_have_atoms_of_their_own(digits):
    several = OneStepFeatures(**QUICK | KINDS["two dictionaries"])
    found = clone(several).fit(digits, np.arange(30)).dictionaries_
    for one, other in zip(found, clone(several).fit(digits).dictionaries_, strict=True):
        assert_array_equal(one, other)
    assert [one.shape[2:] for one in found] == [(8, 8), (6, 7), (8, 8)]
    assert found[0].shape != found[2].shape or not np.array_equal(found[0], found[2])


def test_whitening_shrinks_what_deformations_do_beside_what_tells_digits_apart(digits):
    """Over digits from elsewhere, moved by a pixel."""
    new = datasets.load("digits", "test", n=40).values[:, 0] * 255
    moved = np.roll(new, 1, axis=2)
    ratios = []
    for whitening in (False, Deformations()):
        model = OneStepFeatures(**QUICK | {"atoms": 8, "sweeps": (20, 5), "whitening": whitening}).fit(digits)
        features, others = model.transform(new), model.transform(moved)
        ratios.append(((features - others) ** 2).sum() / ((features - features.mean(axis=0)) ** 2).sum())
    assert ratios[1] < 0.8 * ratios[0]


def test_the_root_of_the_covariance_is_what_whitening_applies(digits):
    model = OneStepFeatures(**QUICK | KINDS["whitened"]).fit(digits)
    bare = OneStepFeatures(**QUICK | {"dictionaries": model.dictionaries_}, pool=(5, 5)).fit(digits)
    wanted = (bare.transform(digits) - bare.transform(digits).mean(axis=0)) @ model.whitening_.axes.astype(float)
    assert_allclose(model.transform(digits), wanted, atol=1e-3 * wanted.std())
    assert np.array_equal(model.whitening_.axes, np.triu(model.whitening_.axes))


def test_a_region_has_the_largest_of_its_blocks_and_levels_share_the_norm():
    maps, levels = np.random.default_rng(0).random((2, 3, 7, 6)), (1, 2, 3, 4, 6)
    expected = []
    for level in levels:
        rows, cols = np.array_split(np.arange(7), level), np.array_split(np.arange(6), level)
        largest = [maps[:, k][:, r][:, :, c].max(axis=(1, 2)) for k in range(3) for r in rows for c in cols]
        expected.append(np.sqrt(np.transpose(largest) / np.sum(largest, axis=0)[:, None] / len(levels)))
    assert_allclose(pyramid(maps, levels), np.concatenate(expected, axis=1), rtol=1e-12)


def test_a_pyramid_is_of_maps_over_their_norm(digits):
    model = OneStepFeatures(**QUICK | KINDS["pyramid"]).fit(digits)
    maps = model.maps(digits)[0].values
    bare = OneStepFeatures(**QUICK, dictionaries=model.dictionaries_, local_contrast=True).fit(digits)
    wanted = bare.maps(digits)[0].values * np.float32(bare.units_[0])
    energy = (wanted**2).sum(axis=1, keepdims=True)
    assert_allclose(maps, wanted / np.sqrt(energy + energy.mean(axis=(2, 3), keepdims=True)), rtol=1e-4)
    assert_allclose(model.transform(digits), pyramid(maps, (1, 2, 3)), rtol=1e-6)


def test_a_second_layer_reads_the_maps_of_the_first(digits):
    model = OneStepFeatures(**QUICK | KINDS["two layers"]).fit(digits)
    lower, upper = model.maps(digits)
    assert lower.shape[2:] == (11, 11) and upper.shape[2:] == (5, 5)
    passed = (lower.values - model.second_.centre) * model.second_.scale
    wanted = one_step_features(passed, model.second_.atoms, (2, 2), gamma_e=10.0, gamma_w=0.1).values
    wanted /= np.sqrt((wanted**2).sum(1, keepdims=True) + (wanted**2).sum(1, keepdims=True).mean((2, 3), keepdims=True))
    assert_allclose(upper, wanted, rtol=1e-4)


# ---- determinism


def test_one_image_many_images_and_any_threads_give_the_same_bits(digits, fitted):
    whole = fitted.transform(digits)
    assert whole.dtype == np.float32 and np.isfinite(whole).all()
    for some in (slice(0, 1), slice(7, 9), slice(0, 29)):
        assert_array_equal(fitted.transform(digits[some]), whole[some])
    for threads in (1, 2):
        with on_threads(threads):
            assert_array_equal(fitted.transform(digits), whole)
            assert_array_equal(clone(fitted).fit(digits).transform(digits), whole)
    assert_array_equal(clone(fitted).set_params(n_jobs=1).fit(digits).transform(digits), whole)


OTHER_PROCESS = """
import sys, numpy as np, gdd
np.save(sys.argv[3], gdd.load(sys.argv[2]).set_params(verbose=False).transform(np.load(sys.argv[1])))
"""


def test_another_process_gives_the_same_bits(digits, tmp_path):
    model = OneStepFeatures(**QUICK | KINDS["two layers, whitened"]).fit(digits)
    model.save(tmp_path / "m.nc")
    np.save(tmp_path / "images.npy", digits)
    places = [str(tmp_path / name) for name in ("images.npy", "m.nc", "features.npy")]
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, *places], check=True)
    assert_array_equal(np.load(places[2]), model.transform(digits))


# ---- images as people have them


def test_one_image_has_many_layouts(digits, plain):
    expected = plain.transform(digits)
    ways = {
        "planes": digits[:, None], "flat": digits.reshape(30, -1), "last": digits[..., None],
        "labelled": xr.DataArray(digits.transpose(1, 2, 0), dims=("row", "col", "image")), "list": digits.tolist(),
    }
    for name, images in ways.items():
        size = (28, 28) if name == "flat" else None
        model = OneStepFeatures(**QUICK, image_size=size).fit(images)
        assert_allclose(model.transform(images), expected, rtol=1e-5, err_msg=name)


def test_colour_may_come_first_or_last(coloured):
    one = OneStepFeatures(**QUICK).fit(coloured)
    other = OneStepFeatures(**QUICK).fit(coloured.transpose(0, 3, 1, 2))
    assert one.dictionaries_[0].sizes["plane"] == 3
    assert_array_equal(one.transform(coloured), other.transform(coloured.transpose(0, 3, 1, 2)))


def test_signals_have_one_row():
    signals = np.cumsum(np.random.default_rng(0).standard_normal((20, 90)), axis=1)
    model = OneStepFeatures(**QUICK | WHITENED).fit(signals)
    assert model.layout_.size == (1, 90) and model.dictionaries_[0].shape[2] == 1
    assert_array_equal(model.transform(signals[3:5]), model.transform(signals)[3:5])


def test_units_of_the_pixels_do_not_matter(digits, plain):
    moved = OneStepFeatures(**QUICK).fit(digits * 3.0 + 7.0)
    assert_allclose(moved.transform(digits * 3.0 + 7.0), plain.transform(digits), rtol=1e-3, atol=1e-3)


def test_what_a_missing_pixel_hides_plays_no_part(digits, fitted):
    holes, hidden = digits.astype(float), np.random.default_rng(1).random(digits.shape) < 0.2
    holes[hidden] = np.nan
    found = fitted.transform(holes)
    assert np.isfinite(found).all()
    assert_array_equal(fitted.transform(holes[4:5]), found[4:5])
    learned = clone(fitted).fit(holes)
    assert np.isfinite(learned.transform(holes)).all()
    near, far = fitted.transform(digits), fitted.transform(digits[::-1])
    assert ((found - near) ** 2).sum() < ((found - far) ** 2).sum()


def test_blank_images_have_features_of_their_own(digits, fitted):
    assert np.isfinite(fitted.transform(np.full_like(digits[:2], 3))).all()


# ---- what it is for


def test_pipeline_grid_search_and_pandas(digits):
    labels = np.arange(30) % 2
    pipeline = make_pipeline(OneStepFeatures(**QUICK), SVC())
    search = GridSearchCV(pipeline, {"onestepfeatures__margin": [0, 1]}, cv=2, error_score="raise").fit(digits, labels)
    assert search.predict(digits).shape == (30,)
    model = OneStepFeatures(**QUICK).set_output(transform="pandas")
    table = model.fit_transform(digits)
    assert table.columns.tolist() == model.get_feature_names_out().tolist()
    assert_array_equal(table["dictionary0_atom1_block_row2_col3"], model.maps(digits)[0].values[:, 1, 2, 3])


def test_every_feature_has_a_name_of_its_own(digits, fitted):
    names = fitted.get_feature_names_out()
    assert len(set(names)) == len(names) == fitted.transform(digits[:1]).shape[1]


def test_known_dictionaries_are_used_as_they_are(digits, plain):
    again = OneStepFeatures(**QUICK | {"dictionaries": plain.dictionaries_, "atoms": 99}).fit(digits)
    assert_array_equal(again.transform(digits), plain.transform(digits))


def test_the_same_atoms_read_images_of_another_size(digits):
    model = OneStepFeatures(**QUICK | KINDS["two layers"]).fit(digits)
    large = np.pad(digits, ((0, 0), (10, 6), (4, 12)))
    wide = model.for_size((44, 44), regions=(1, 3))
    assert wide.transform(large).shape == (30, 10 * (4 + 5)) and model.layout_.size == (28, 28)
    assert_array_equal(model.for_size((28, 28)).transform(digits), model.transform(digits))
    with pytest.raises(GddError, match="image_size: the features are whitened"):
        OneStepFeatures(**QUICK | KINDS["whitened"]).fit(digits).for_size((44, 44))


def test_no_more_images_than_asked_for_are_learned_from(digits, plain):
    few = OneStepFeatures(**QUICK, learn_from=10).fit(digits)
    assert not np.array_equal(few.dictionaries_[0], plain.dictionaries_[0])


def test_presets(digits):
    asked = OneStepFeatures.digits(margin=2)
    assert len(asked.sizes) == 4 and asked.whitening is True and asked.margin == 2
    photos = OneStepFeatures.photos(sweeps=(1, 1), atoms=3, second=SecondLayer(4), verbose=False)
    pictures = np.random.default_rng(0).random((3, 60, 64)).astype(np.float32)
    assert photos.fit_transform(pictures).shape[0] == 3


# ---- files


def test_a_file_holds_everything(digits, fitted, tmp_path):
    fitted.save(tmp_path / "m.nc")
    loaded = gdd.load(tmp_path / "m.nc")
    assert_array_equal(loaded.transform(digits), fitted.transform(digits))
    assert loaded.to_dataset().identical(fitted.to_dataset()) and loaded.get_params() == fitted.get_params()
    assert_array_equal(clone(loaded).fit(digits).transform(digits), fitted.transform(digits))


def test_a_file_with_a_part_missing_is_refused(plain, tmp_path):
    plain.save(tmp_path / "m.nc")
    data = gdd.results.read(tmp_path / "m.nc")
    gdd.results.write(data.drop_attrs().assign_attrs(estimator="OneStepFeatures"), tmp_path / "m.nc")
    with pytest.raises(GddError, match="a part of the model is missing"):
        gdd.load(tmp_path / "m.nc")


def test_a_fit_begun_before_is_found_again(digits, plain, tmp_path):
    model = clone(plain).set_params(checkpoint=tmp_path)
    assert_array_equal(model.fit(digits).transform(digits), plain.transform(digits))
    assert list(tmp_path.rglob("*.npz"))
    with pytest.raises(GddError, match="written by another chain"):
        clone(model).set_params(sweeps=(4, 2)).fit(digits)


# ---- pictures


def test_plots_draw_on_the_axes_given(digits, coloured, plain):
    figure, axes = plt.subplots(1, 3)
    colour = OneStepFeatures(**QUICK).fit(coloured)
    ways = [lambda ax: plain.plot_atoms(0, ax), lambda ax: plain.plot_maps(digits[0], count=3, ax=ax),
            lambda ax: colour.plot_maps(coloured[0], count=2, ax=ax)]
    for way, ax in zip(ways, axes.flat, strict=True):
        assert way(ax) is ax and ax.has_data()
    shown = axes[1].images[0].get_array()
    assert shown.shape == (28, 4 * 29 - 1)
    assert_allclose(shown[:, :28], 2.0 * digits[0] / digits[0].max() - 1, atol=1e-6)
    plt.close(figure)


# ---- bad input


@pytest.mark.parametrize(
    ("change", "images", "message"),
    [
        ({"sweeps": 5}, None, "sweeps: 5 given; two numbers of sweeps"),
        ({"atoms": 0}, None, "atoms: 0 given"),
        ({"sizes": ((40, 8),)}, None, "40"),
        ({"sizes": (8, 8)}, None, r"sizes: \(8, 8\) given; .* such as \(\(8, 8\),\)"),
        ({"sizes": ()}, None, r"sizes: \(\) given"),
        ({"pool": (0, 1)}, None, "pool, axis 'row': 0 given"),
        ({"margin": -1}, None, "margin: -1 given"),
        ({"regions": (0,)}, None, "regions: 0 given"),
        ({"regions": ()}, None, "regions: none given"),
        ({"blur": -1.0}, None, "blur: -1.0 given"),
        ({"second": 3}, None, "second: int given"),
        ({"second": SecondLayer(4, (9, 9))}, None, r"second: atoms of \(9, 9\) blocks; images of \(28, 28\) have"),
        ({}, [np.eye(28), np.eye(20)], r"images: some of shape \(20, 20\), some of \(28, 28\); crop"),
        ({"second": SecondLayer(), "sizes": ((8, 8), (6, 6))}, None, "second: given with several dictionaries"),
        ({"whitening": 3}, None, "whitening: int given"),
        ({"floor": 0.0}, None, "floor: 0.0 given"),
        ({"dictionaries": [np.ones((3, 2, 4, 4))]}, None, "dictionaries: 2 along axis 'plane', the images have 1"),
        ({"dictionaries": []}, None, "dictionaries: none given"),
        ({"noise_precision": 0.0}, None, "noise_precision: 0.0 given"),
        ({"learn_from": 0}, None, "learn_from: 0 given"),
        ({"random_state": -1}, None, "random_state: -1 given"),
        ({"n_jobs": 0}, None, "n_jobs: 0 given"),
        ({"image_size": (5, 5)}, None, r"image_size: \(5, 5\) given; the images are \(28, 28\)"),
        ({}, np.ones((24, 24, 3)), r"looks like one colour picture; give images\[None\]"),
        ({}, np.full((3, 8, 8), np.nan), "image 0 has no pixel but NaN"),
        ({}, np.zeros((3, 8, 8)), "all pixels are alike"),
    ],
)
def test_bad_input_is_named_before_any_work(change, images, message, digits):
    model = OneStepFeatures(**QUICK | change)
    with pytest.raises(ValueError, match=message):
        model.fit(digits if images is None else images)
    assert not hasattr(model, "dictionaries_")


def test_a_refused_or_interrupted_fit_leaves_what_was_fitted(digits, monkeypatch):
    model = OneStepFeatures(**QUICK).fit(digits)
    before = model.transform(digits)
    with pytest.raises(GddError):
        model.fit(digits[:, :5, :5] * 0)
    assert_array_equal(model.transform(digits), before)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for place in ("learn_atoms", "learn_whitening"):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(gdd.features, place, interrupted)
            model.set_params(whitening=Deformations()).fit(digits[::-1])
        assert_array_equal(model.transform(digits), before)


def test_one_picture_other_sizes_and_no_fit_are_named(digits, plain):
    with pytest.raises(GddError, match=r"shape \(28, 28\) .* Reshape your data: images\[None\]"):
        plain.transform(digits[0])
    with pytest.raises(GddError, match=r"images: shape \(30, 27, 28\) given; \(image, 28, 28\) is needed"):
        plain.transform(digits[:, 1:])
    with pytest.raises(GddError, match=r"image: shape \(1, 28, 28\) given; one image of shape \(28, 28\)"):
        plain.plot_maps(digits[:1])
    with pytest.raises(GddError, match="dictionary: 1 given"):
        plain.plot_atoms(1)
    for call in (lambda m: m.transform(digits), lambda m: m.save("x.nc"), lambda m: m.plot_atoms()):
        with pytest.raises(NotFittedError):
            call(OneStepFeatures())


def test_dictionaries_that_ship_need_no_fit_and_tell_digits_apart():
    """Digits from elsewhere: 100 to learn from, the atoms from MNIST."""
    model = OneStepFeatures.digits(pretrained=True, verbose=False)
    shipped = gdd.results.read(gdd.features.SHIPPED / "digits.nc")
    assert "labels were not used" in shipped.learned_from and len(model.dictionaries_) == 4
    few, new = datasets.load("digits", n=100), datasets.load("digits", "test", n=200)
    features = [model.transform(part.values[:, 0]) for part in (few, new)]
    assert SVC(C=10).fit(features[0], few.label).score(features[1], new.label) > 0.85
    again = clone(model).set_params(whitening=False).fit(few)
    for one, other in zip(again.dictionaries_, model.dictionaries_, strict=True):
        assert_array_equal(one, other)
