"""One-step features of a user's images: what they are, the same bits however asked for, missing pixels, files."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVC
from tiny import one_step

import gdd
from gdd import Deformations, GddError, OneStepFeatures, OneStepSettings, SecondLayer
from gdd.base.compiling import on_threads
from gdd.inference.block_magnitudes import one_step_features
from gdd.inference.contrast import prepare
from gdd.one_step import LEAST_NORM, pyramid
from gdd_book.data import datasets

#: every part of it, each as small as can be; of the sizes of atoms only one is such that kernels are compiled for it
KINDS = {
    "plain": {}, "two dictionaries": {"sizes": ((8, 8), (6, 5), (8, 8))},
    "whitened": {"whitening": Deformations(), "pool": (5, 5)},
    "pyramid": {"regions": (1, 2, 3), "local_contrast": True},
    "two layers": {"second": SecondLayer(5, (3, 1)), "regions": (1, 2), "pool": (2, 2)},
    "two layers, whitened": {"second": SecondLayer(5, (2, 1)), "pool": (4, 4), "whitening": Deformations()},
}


#: three kinds have every part
@pytest.fixture(scope="module", params=["two dictionaries", "pyramid", "two layers, whitened"])
def fitted(request, digits):
    return one_step(**KINDS[request.param]).fit(digits)


@pytest.fixture(scope="module")
def plain(digits):
    return one_step().fit(digits)


# ---- what the features are
def test_features_are_one_step_of_high_pass_images_over_their_deviation(digits, plain):
    pixels = plain.scale_.forward(digits[:, None]).astype(np.float32)
    given = {"gamma_e": 100.0, "gamma_w": 0.1, "margin": 1}
    passed = prepare(pixels, None, plain.settings_.blur, False)
    wanted = one_step_features(passed, plain.dictionaries_[0], plain.settings_.pool, **given).values
    assert plain.settings_.blur == 3.0 and plain.settings_.pool == (3, 3) and plain.dictionaries_[0].shape[2:] == (8, 8)
    assert_allclose(plain.transform(digits), wanted.reshape(30, -1) / wanted.std(), rtol=1e-5)
    atoms = plain.dictionaries_[0]
    assert_allclose((atoms.astype(float) ** 2).sum(("plane", "atom_row", "atom_col")), 1, rtol=1e-5)
    norms = atoms.attrs["norms"]
    assert norms.shape == (4,) and len(atoms) == (norms >= LEAST_NORM * norms.max()).sum()


def test_a_label_has_no_influence_and_equal_sizes_have_atoms_of_their_own(digits):
    several = one_step(**KINDS["two dictionaries"])
    found = clone(several).fit(digits, np.arange(30)).dictionaries_
    for one, other in zip(found, clone(several).fit(digits).dictionaries_, strict=True):
        assert_array_equal(one, other)
    assert [one.shape[2:] for one in found] == [(8, 8), (6, 5), (8, 8)]
    assert found[0].shape != found[2].shape or not np.array_equal(found[0], found[2])


def test_whitening_shrinks_what_deformations_do_beside_what_tells_digits_apart(digits):
    """Over digits from elsewhere, moved by a pixel."""
    new = datasets.load("digits", "test", n=40).values[:, 0] * 255
    moved = np.roll(new, 1, axis=2)
    ratios = []
    for whitening in (False, Deformations()):
        model = one_step(atoms=8, sweeps=(20, 5), whitening=whitening).fit(digits)
        features, others = model.transform(new), model.transform(moved)
        ratios.append(((features - others) ** 2).sum() / ((features - features.mean(axis=0)) ** 2).sum())
    assert ratios[1] < 0.8 * ratios[0]


def test_the_root_of_the_covariance_is_what_whitening_applies(digits):
    model = one_step(**KINDS["whitened"]).fit(digits)
    bare = one_step(atoms=model.dictionaries_, pool=(5, 5)).fit(digits)
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
    model = one_step(**KINDS["pyramid"]).fit(digits)
    maps = model.maps(digits)[0].values
    bare = one_step(atoms=model.dictionaries_, local_contrast=True).fit(digits)
    wanted = bare.maps(digits)[0].values * np.float32(bare.units_[0])
    energy = (wanted**2).sum(axis=1, keepdims=True)
    assert_allclose(maps, wanted / np.sqrt(energy + energy.mean(axis=(2, 3), keepdims=True)), rtol=1e-4)
    assert_allclose(model.transform(digits), pyramid(maps, (1, 2, 3)), rtol=1e-6)


def test_a_second_layer_reads_the_maps_of_the_first(digits):
    model = one_step(**KINDS["two layers"]).fit(digits)
    lower, upper = model.maps(digits)
    assert lower.shape[2:] == (11, 11) and upper.shape[2:] == (5, 6)
    passed = (lower.values - model.second_.centre) * model.second_.scale
    wanted = one_step_features(passed, model.second_.atoms, (2, 2), gamma_e=10.0, gamma_w=0.1).values
    wanted /= np.sqrt((wanted**2).sum(1, keepdims=True) + (wanted**2).sum(1, keepdims=True).mean((2, 3), keepdims=True))
    assert_allclose(upper, wanted, rtol=1e-4)


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


# ---- images as people have them
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


def test_what_a_fit_was_made_with_stays_until_the_next(digits, tmp_path):
    """Whatever ``set_params`` asks for; the file has it, and so has the copy for another size."""
    model = one_step(**KINDS["two layers"]).fit(digits)
    before, names = model.transform(digits), model.get_feature_names_out().tolist()
    settings = OneStepSettings((4, 4), 2, None, 0.0, True, False, 1.0, 1.0)
    asked = {"settings": settings, "regions": None, "whitening": True, "atoms": 9}
    model.set_params(**asked).save(tmp_path / "m.nc")
    for one in (model, gdd.load(tmp_path / "m.nc"), model.for_size((28, 28))):
        assert_array_equal(one.transform(digits), before)
        assert one.get_feature_names_out().tolist() == names and one.units_ == [1.0]
    assert model.fit(digits).settings_.pool == (4, 4) and model.second_ is None


def test_the_same_atoms_read_images_of_another_size(digits):
    model = one_step(**KINDS["two layers"]).fit(digits)
    large = np.pad(digits, ((0, 0), (10, 6), (4, 12)))
    wide = model.for_size((44, 44), regions=(1, 3))
    assert wide.transform(large).shape == (30, 10 * (4 + 5)) and model.layout_.size == (28, 28)
    assert_array_equal(model.for_size((28, 28)).transform(digits), model.transform(digits))
    with pytest.raises(GddError, match="image_size: the features are whitened"):
        one_step(**KINDS["whitened"]).fit(digits).for_size((44, 44))


@pytest.mark.parametrize("images", ["one", "repeated but for rounding"])
def test_a_whitening_of_images_that_do_not_differ_is_refused_before_any_work(images, digits, monkeypatch):
    same = np.repeat(digits[:1], 6, axis=0).astype(float)
    given = same[:1] if images == "one" else same * (1 + 1e-12 * np.arange(6)[:, None, None])
    monkeypatch.setattr(gdd.one_step, "learn_atoms", None)  # would be the first work
    with pytest.raises(GddError, match="one sample, or several that are alike, given; .* or whitening=False"):
        one_step(whitening=True).fit(given)


def test_a_file_holds_everything(digits, fitted, tmp_path):
    fitted.save(tmp_path / "m.nc")
    loaded = gdd.load(tmp_path / "m.nc")
    assert_array_equal(loaded.transform(digits), fitted.transform(digits))
    assert loaded.to_dataset().identical(fitted.to_dataset()) and loaded.get_params() == fitted.get_params()
    assert_array_equal(clone(loaded).fit(digits).transform(digits), fitted.transform(digits))


def test_plots_draw_on_the_axes_given(digits, coloured, plain):
    figure, axes = plt.subplots(1, 3)
    colour = one_step(sizes=((5, 1),)).fit(coloured)
    ways = [lambda ax: plain.plot_atoms(0, ax), lambda ax: plain.plot_maps(digits[0], count=3, ax=ax),
            lambda ax: colour.plot_maps(coloured[0], count=2, ax=ax)]
    for way, ax in zip(ways, axes.flat, strict=True):
        assert way(ax) is ax and ax.has_data()
    shown = axes[1].images[0].get_array()
    assert shown.shape == (28, 4 * 29 - 1)
    assert_allclose(shown[:, :28], 2.0 * digits[0] / digits[0].max() - 1, atol=1e-6)
    plt.close(figure)


# ---- bad input
@pytest.mark.parametrize(("change", "message"), [
    ({"sweeps": 5}, "sweeps: 5 given; two numbers of sweeps"),
    ({"sizes": ((40, 8),)}, "40"),
    ({"sizes": (8, 8)}, r"sizes: \(8, 8\) given; .* such as \(\(8, 8\),\)"),
    ({"regions": (0,)}, "regions: 0 given"),
    ({"second": SecondLayer(4, (9, 9))}, r"second: atoms of \(9, 9\) blocks; images of \(28, 28\) have"),
    ({"second": SecondLayer(), "sizes": ((8, 8), (6, 6))}, "second: given with several dictionaries"),
    ({"settings": {}}, "settings: dict given; OneStepSettings or NoneType is needed"),
    ({"atoms": [np.ones((3, 2, 4, 4))]}, "atoms: 2 along axis 'plane', the images have 1"),
    ({"atoms": [np.ones((3, 1, 4, 4))], "sizes": ((8, 8),)}, "sizes: .* given, and dictionaries of"),
])
def test_bad_input_is_named_before_any_work(change, message, digits):
    model = one_step(**change)
    with pytest.raises(GddError, match=message):
        model.fit(digits)
    assert not hasattr(model, "dictionaries_")


def test_dictionaries_that_ship_need_no_fit_and_tell_digits_apart():
    """Digits from elsewhere: 100 to learn from, the atoms from MNIST."""
    model = OneStepFeatures.digits(pretrained=True, verbose=False)
    shipped = gdd.results.read(gdd.one_step.SHIPPED / "digits.nc")
    assert "labels were not used" in shipped.learned_from and len(model.dictionaries_) == 4
    few, new = datasets.load("digits", n=100), datasets.load("digits", "test", n=200)
    features = [model.transform(part.values[:, 0]) for part in (few, new)]
    assert SVC(C=10).fit(features[0], few.label).score(features[1], new.label) > 0.85
    again = clone(model).set_params(whitening=False).fit(few)
    for one, other in zip(again.dictionaries_, model.dictionaries_, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("change", [
    {"pool": (6, 6)}, {"rescale": False}, {"regions": (1, 2)}, {"image_size": (28, 28)},
])
def test_what_is_asked_of_dictionaries_that_ship_is_used_by_fit_or_refused(change, digits):
    """A change of how images are read is not passed over: there is nothing to read by before a fit."""
    model = OneStepFeatures.digits(pretrained=True, **change | {"whitening": False, "verbose": False})
    with pytest.raises(NotFittedError):
        model.transform(digits)
    model.fit(digits)
    assert len(model.dictionaries_) == 4 and set(model.units_) != {1.0} or "regions" in change
    for refused in ({"sizes": ((8, 8),)}, {"atoms": 4}, {"sweeps": (2, 1)}):
        with pytest.raises(GddError, match=f"{[*refused][0]}: given with pretrained=True, which brings dictionaries"):
            OneStepFeatures.digits(pretrained=True, **refused)
