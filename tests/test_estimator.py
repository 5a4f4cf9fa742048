"""The scikit-learn face: its own checks, pipelines, missing pixels, files, further sweeps, several chains."""

import subprocess
import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from agreement import arrays_of
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import gdd
from gdd import DeepDeconvolution
from gdd.base.checks import GddError
from gdd.estimator import warn_of_idle_atoms
from gdd.layout import find_layout
from gdd_book.data import datasets

#: tiny chains, tiny models: what is tested is the face, not what is learned
QUICK = {"pretrain": (3, 2), "infer": (3, 2), "atoms": (4, 6), "verbose": False}


#: a model that can be pretrained and not refined
AVERAGED = gdd.ModelSpec((gdd.LayerSpec(4, (8, 8), (3, 3), "average"), gdd.LayerSpec(4, (6, 6))), (28, 28))


@parametrize_with_checks([DeepDeconvolution(**QUICK | {"atoms": (4,)})])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def fitted(digits):
    return DeepDeconvolution(**QUICK).fit(digits)


@pytest.fixture(scope="module")
def refined(digits):
    return DeepDeconvolution(**QUICK, refine=(2, 2), n_chains=2).fit(digits)


def bits(model, images):
    return model.transform(images).tobytes()


# ---- axes and scale


def test_one_image_has_many_layouts(digits, fitted):
    expected = fitted.transform(digits)
    ways = {
        "planes": digits[:, None], "flat": digits.reshape(30, -1), "last": digits[..., None],
        "labelled": xr.DataArray(digits.transpose(1, 2, 0), dims=("row", "col", "image")), "list": digits.tolist(),
    }
    for name, images in ways.items():
        size = (28, 28) if name == "flat" else None
        model = DeepDeconvolution(**QUICK, image_size=size).fit(images)
        np.testing.assert_allclose(model.transform(images), expected, atol=1e-5, err_msg=name)
        back = model.inverse_transform(expected)
        assert back.shape == np.shape(images if name != "labelled" else digits)


def test_planes_may_come_first_or_last(coloured):
    one = DeepDeconvolution(**QUICK).fit(coloured)
    other = DeepDeconvolution(**QUICK).fit(coloured.transpose(0, 3, 1, 2))
    assert one.model_ == other.model_ and one.model_.planes == 3
    np.testing.assert_array_equal(one.transform(coloured), other.transform(coloured.transpose(0, 3, 1, 2)))


def test_signals_have_one_row():
    signals = np.cumsum(np.random.default_rng(0).standard_normal((20, 90)), axis=1)
    model = DeepDeconvolution(**QUICK).fit(signals)
    assert model.model_.image_size == (1, 90) and model.inverse_transform(model.transform(signals)).shape == (20, 90)


def test_scale_and_background_of_the_pixels_do_not_matter(digits, fitted):
    """Double precision before the scaling, single precision after it."""
    moved = DeepDeconvolution(**QUICK).fit(digits * 3.0 + 7.0)
    np.testing.assert_allclose(moved.transform(digits * 3.0 + 7.0), fitted.transform(digits), atol=1e-4)
    assert moved.scale_.centre == pytest.approx(3 * fitted.scale_.centre + 7)
    pixels = fitted.scale_.forward(digits[:, None])
    assert np.sqrt((pixels**2).mean()) == pytest.approx(1 / 3) and np.median(pixels) == 0


def test_a_feature_depends_on_its_image_alone_and_on_no_thread(digits, fitted):
    whole = fitted.transform(digits)
    np.testing.assert_array_equal(fitted.transform(digits[7:9]), whole[7:9])
    alone = clone(fitted).set_params(n_jobs=1).fit(digits)
    np.testing.assert_array_equal(alone.transform(digits), whole)


# ---- what it is for


def test_score_is_the_share_of_variance_rebuilt(digits, fitted):
    rebuilt = fitted.inverse_transform(fitted.transform(digits))
    spread = ((digits - digits.mean()) ** 2).sum()
    assert fitted.score(digits) == pytest.approx(1 - ((digits - rebuilt) ** 2).sum() / spread, abs=1e-6)
    assert 0.2 < fitted.score(digits) < 1


def test_pipeline_and_grid_search(digits):
    labels = np.arange(30) % 2
    pipeline = make_pipeline(DeepDeconvolution(**QUICK), LogisticRegression(max_iter=1000))
    grid = {"deepdeconvolution__atoms": [(4, 4), (4, 6)]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(digits, labels)
    best = search.best_estimator_[0]
    assert len(search.cv_results_["mean_test_score"]) == 2 and search.predict(digits).shape == (30,)
    assert best.model_.layers[1].atoms == search.best_params_["deepdeconvolution__atoms"][1]


def test_names_of_features_and_pandas(digits, fitted):
    names = fitted.get_feature_names_out()
    table = clone(fitted).set_output(transform="pandas").fit_transform(digits)
    assert table.columns.tolist() == names.tolist() and table.shape == (30, len(names))
    maps = fitted.deconvolve(digits)["mean"]
    assert maps.dims == ("image", "atom", "row", "col")
    np.testing.assert_array_equal(table["atom2_row3_col0"], maps.sel(atom=2, row=3, col=0))


def test_missing_pixels_are_filled_and_what_they_hid_plays_no_part(digits):
    holes, hidden = digits.astype(float), np.random.default_rng(1).random(digits.shape) < 0.3
    holes[hidden] = np.nan
    model = DeepDeconvolution(**QUICK | {"pretrain": (20, 10), "infer": (20, 20)}).fit(holes)
    filled = model.inverse_transform(model.transform(holes))
    assert np.isfinite(filled).all()
    wrong = ((filled - digits)[hidden] ** 2).mean()
    assert wrong < 0.5 * (digits[hidden].astype(float) ** 2).mean()
    assert model.score(holes) == pytest.approx(
        1 - ((holes - filled)[~hidden] ** 2).sum() / ((holes - np.nanmean(holes))[~hidden] ** 2).sum()
    )


def test_samples_are_images(digits, fitted):
    pooled = gdd.ModelSpec((gdd.LayerSpec(4, (8, 8), (3, 3)),), (28, 28)).with_held()
    for model in (DeepDeconvolution(pooled, **QUICK).fit(digits), fitted):
        drawn = model.sample(5)
        assert drawn.shape == (5, 28, 28) and not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn, fitted.sample(5))
    assert not np.array_equal(drawn, fitted.sample(5, random_state=3))


# ---- more sweeps, more chains


def test_warm_start_goes_on(digits):
    model = DeepDeconvolution(**QUICK, warm_start=True).fit(digits)
    first = model.traces_["1"].log_joint.values
    more = model.fit(digits).traces_["1"].log_joint.values
    assert more.shape == (1, 10) and np.array_equal(more[:, :5], first)
    assert more[0, 5] > first[0, 0]  # not from the beginning
    model.set_params(refine=(2, 1)).fit(digits)
    assert isinstance(model.chains_[0], gdd.Refined) and model.traces_["all"].sizes["draw"] == 3
    again = model.fit(digits).traces_["all"].log_joint.values[0]
    assert len(again) == 6 and again[3] > again[0]


def test_a_refinement_that_goes_on_begins_where_it_was(digits, refined):
    chain, data = refined.chains_[0], refined.chains_[0].data
    further = gdd.refine(data.images, chain.model, gdd.ChainSpec(0, 1, 9), chain.refinement, chain)
    assert float(further.traces.residual[0, 0]) == pytest.approx(float(chain.traces.residual[0, -1]), rel=0.3)
    with pytest.raises(GddError, match="start: trained on other images, image 0 differs"):
        gdd.refine(data.images[::-1], chain.model, gdd.ChainSpec(0, 1), chain.refinement, chain)


def test_a_fit_begun_before_is_found_again(digits, fitted, tmp_path):
    model = clone(fitted).set_params(checkpoint=tmp_path)
    assert bits(model.fit(digits), digits) == bits(fitted, digits)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    assert len(stamps) == 4 and bits(clone(model).fit(digits), digits) == bits(fitted, digits)
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    with pytest.raises(GddError, match="written by another chain"):
        clone(model).set_params(pretrain=(4, 2)).fit(digits)


def test_several_chains_are_stacked_and_the_likeliest_makes_the_features(digits, refined):
    data = refined.to_dataset()
    assert data.weight_2.dims == ("chain", "image", "atom_2", "block_row_2", "block_col_2")
    likelihood = refined.traces_["all"].log_likelihood[:, -2:].max("draw").values
    assert refined.best_ == likelihood.argmax() and likelihood[0] != likelihood[1]
    arviz = pytest.importorskip("arviz")
    posterior = refined.to_inferencedata().posterior
    assert posterior.log_joint.shape == (2, 2) and "gamma_w" in posterior
    pretrained = DeepDeconvolution(**QUICK | {"pretrain": (0, 8)}, n_chains=2).fit(digits)
    pretrained = pretrained.set_params(pretrain=(0, 3)).to_inferencedata()  # of the next fit
    assert {"log_joint_1", "gamma_e_2"} <= set(pretrained.posterior.data_vars)
    assert pretrained.posterior.sizes["draw"] == 8
    assert np.isfinite(arviz.rhat(pretrained).log_joint_1) and np.isfinite(arviz.ess(pretrained).log_joint_1)


def test_features_of_several_chains_are_averaged(digits, fitted):
    several = clone(fitted).set_params(infer_chains=3).fit(digits)
    assert bits(several, digits[:1]) == several.transform(digits)[:1].tobytes()
    alone = []
    for seed in range(3):
        one = clone(fitted).fit(digits)
        one.seed_ = seed
        alone.append(one.deconvolve(digits))
    found = several.deconvolve(digits)
    np.testing.assert_allclose(found["mean"], sum(one["mean"] for one in alone) / 3, atol=1e-6)
    likelihoods = [one.log_likelihood.values for one in alone]
    np.testing.assert_array_equal(found.log_likelihood, np.max(likelihoods, axis=0))
    best = np.argmax(likelihoods, axis=0)[4]
    np.testing.assert_array_equal(found.ml_sample[4], alone[best].ml_sample[4])
    with pytest.raises(GddError, match="infer_chains: 0 given"):
        fitted.set_params(infer_chains=0).transform(digits)
    fitted.set_params(infer_chains=1)


# ---- labelled arrays and files


@pytest.mark.parametrize("name", ["fitted", "refined"])
def test_labelled_arrays_are_the_model(name, request, digits):
    model = request.getfixturevalue(name)
    data = model.to_dataset(dense=True)
    if "chain" in data.weight_1.dims:
        data = data.isel(chain=model.best_)
    atoms, maps = data.dictionary_1.values, data.map_1.values
    assert data.dictionary_2.dims == ("atom_2", "atom_1", "atom_row_2", "atom_col_2")
    assert ((data.map_1 != 0).sum() <= data.weight_1.size) and data.position_1.dtype == np.int16
    clean = gdd.model.convolution.synthesise(atoms, maps.astype(float))
    pixels = model.scale_.forward(digits[:, None])
    stage = model.traces_["all" if name == "refined" else "1"]
    left = np.sqrt(((pixels - clean) ** 2).mean())
    assert left == pytest.approx(float(stage.residual.min()), rel=0.5)


@pytest.mark.parametrize("name", ["fitted", "refined"])
def test_a_file_holds_every_array(name, request, tmp_path):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "m.nc")
    loaded = gdd.load(tmp_path / "m.nc")
    assert loaded.to_dataset().identical(model.to_dataset())
    for one, other in zip(model.chains_, loaded.chains_, strict=True):
        states = [(one.state, other.state)] if name == "refined" else [
            (a.state, b.state) for a, b in zip(one.layers, other.layers, strict=True)
        ]
        for a, b in states:
            for key, array in arrays_of(a).items():
                np.testing.assert_array_equal(array, arrays_of(b)[key], err_msg=key)
                assert array.dtype == arrays_of(b)[key].dtype
    assert loaded.get_params() == model.get_params()


OTHER_PROCESS = """
import sys, numpy as np, gdd
images = np.load(sys.argv[1]); model = gdd.load(sys.argv[2]); model.verbose = False
np.save(sys.argv[3], model.transform(images)); model.set_params(warm_start=True).fit(images)
"""


def test_another_process_gives_the_same_bits_and_goes_on(digits, fitted, tmp_path):
    fitted.save(tmp_path / "m.nc")
    np.save(tmp_path / "images.npy", digits)
    places = [str(tmp_path / name) for name in ("images.npy", "m.nc", "features.npy")]
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, *places], check=True)
    np.testing.assert_array_equal(np.load(places[2]), fitted.transform(digits))


def test_a_model_from_a_file_goes_on_with_the_same_images(digits, fitted, tmp_path):
    fitted.save(tmp_path / "m.nc")
    loaded = gdd.load(tmp_path / "m.nc").set_params(warm_start=True)
    for others in (digits[:20], digits[::-1]):
        with pytest.raises(GddError, match="X: other images than those of the fit that goes on"):
            loaded.fit(others)
    data, chain = fitted.chains_[0].inputs[0], loaded.chains_[0]
    refined = gdd.refine(data.images, chain.model, gdd.ChainSpec(1, 1, 9), start=chain)
    np.testing.assert_array_equal(refined.data.images, data.images)
    assert np.isfinite(refined.traces.log_joint).all()


def test_a_file_keeps_numbers_of_numpy_and_the_sweeps_of_its_fit(digits, tmp_path):
    lengths = {"pretrain": (np.int64(1), 3), "image_size": np.array([28, 28])}
    model = DeepDeconvolution(**QUICK | lengths, n_chains=np.int64(1)).fit(digits)
    model.set_params(pretrain=(0, 2)).save(tmp_path / "m.nc")
    loaded = gdd.load(tmp_path / "m.nc")
    assert loaded.kept_ == 3 and loaded.pretrain == (0, 2) and loaded.image_size == (28, 28)


def newer(path):
    with xr.open_dataset(path) as file:
        data = file.load()
    data.assign_attrs(version=99).to_netcdf(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "is damaged or no NetCDF file"),
        (lambda path: path.write_text("hello"), "is damaged or no NetCDF file"),
        (lambda path: xr.Dataset({"a": 1}).to_netcdf(path), "is no saved model"),
        (newer, "is of version 99"),
        (lambda path: path.unlink(), "no file"),
    ],
)
def test_other_files_are_refused(fitted, tmp_path, spoil, message):
    path = tmp_path / "m.nc"
    fitted.save(path)
    spoil(path)
    with pytest.raises(GddError, match=message):
        gdd.load(path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(fitted, tmp_path):
    (tmp_path / "m.nc").mkdir()
    with pytest.raises(GddError, match="cannot write"):
        fitted.save(tmp_path / "m.nc")


# ---- pictures


def test_plots_draw_on_the_axes_given(digits, coloured, fitted):
    figure, axes = plt.subplots(2, 3)
    ways = [
        lambda ax: fitted.plot_atoms(ax=ax), lambda ax: fitted.plot_atoms(1, ax),
        lambda ax: fitted.plot_reconstruction(digits, ax, 4), lambda ax: fitted.plot_trace("residual", "1", ax),
        lambda ax: fitted.plot_activations(digits[0], 2, ax), lambda ax: gdd.plot.plot_atoms(np.ones((2, 3, 4, 4)), ax),
    ]
    for way, ax in zip(ways, axes.flat, strict=True):
        assert way(ax) is ax and ax.has_data()
    used = np.abs(fitted.deconvolve(digits[:1])["mean"].values[0])
    assert len(axes[1, 1].patches) == (used[2] > 0.02 * used.max()).sum()
    shown = axes[0, 2].images[0].get_array()
    assert shown.shape == (57, 4 * 29 - 1)
    np.testing.assert_allclose(shown[:28, :28], 2.0 * digits[0] / digits[:4].max() - 1, atol=1e-6)
    labelled = xr.DataArray(digits.transpose(1, 2, 0), dims=("row", "col", "image"))
    again = fitted.plot_reconstruction(labelled, axes[0, 2].figure.add_subplot(), 4).images[0].get_array()
    np.testing.assert_array_equal(again, shown)
    plt.close(figure)


# ---- bad input


@pytest.mark.parametrize(
    ("change", "images", "message"),
    [
        ({"pretrain": 5}, None, "pretrain: 5 given; two numbers of sweeps"),
        ({"infer": (5, 0)}, None, "collect: 0 given"),
        ({"atoms": (4, 4, 4, 4, 4)}, None, r"atoms: 5 layers given; images of 28 x 28 have room for \d"),
        ({"model": "MNIST"}, None, "model: str given; ModelSpec or NoneType is needed"),
        ({"model": gdd.CALTECH101}, None, "axis 'row' has size 28, the model is for size 128"),
        ({"model": AVERAGED, "refine": (3, 2)}, None, "layer 1 has pooling 'average'; the joint model needs"),
        ({"atoms": 4}, None, "atoms: int given"),
        ({"image_size": (5, 5)}, None, r"image_size: \(5, 5\) given; the images are \(28, 28\)"),
        ({"n_chains": 0}, None, "n_chains: 0 given"),
        ({"random_state": -1}, None, "random_state: -1 given"),
        ({"n_jobs": 0}, None, "n_jobs: 0 given"),
        ({"image_size": (4, 4)}, np.ones((5, 48)), "flat ones of 3 planes; give them with their axes"),
        ({}, np.ones((24, 24, 3)), r"looks like one colour picture; give images\[None\]"),
        ({}, np.full((3, 8, 8), np.nan), "image 0 has no pixel but NaN"),
        ({}, np.ma.ones((3, 8, 8)), r"a masked array given; give images.filled\(numpy.nan\)"),
        ({}, np.zeros((3, 8, 8)), "all pixels are alike"),
        ({}, np.full((3, 8, 8), np.inf), "pixel image 0, plane 0, row 0, col 0 is inf"),
        ({}, np.zeros((3, 2, 2, 2, 2)), "images: 5 axes of sizes"),
        ({}, np.array([["a"]] * 3), "could not convert string"),
    ],
)
def test_bad_input_is_named_before_any_work(change, images, message, digits):
    model = DeepDeconvolution(**QUICK | change)
    with pytest.raises(ValueError, match=message):
        model.fit(digits if images is None else images)
    assert not hasattr(model, "chains_")


@pytest.mark.parametrize("refined", [False, True])
def test_a_chain_becomes_a_model(refined, tmp_path):
    """Its atoms and codes are those of the functions; labels of its images stay; sizes are checked."""
    images, chain = datasets.load("digits", n=12), gdd.ChainSpec(3, 2, seed=4)
    trained = gdd.pretrain(images, gdd.ModelSpec.for_images((28, 28), 1, (4, 6)), chain)
    if refined:
        trained = gdd.refine(images, trained.model, chain, start=trained)
    model = DeepDeconvolution.from_chain(trained, images, chain).set_params(infer=(3, 2), verbose=False)
    np.testing.assert_array_equal(model.atoms_, gdd.project(trained))
    codes = gdd.infer(trained, model.atoms_, images.values, burn_in=3, collect=2, seed=4, shared_stream=True)
    np.testing.assert_array_equal(model.transform(images), codes["mean"].values.reshape(12, -1))
    model.save(tmp_path / "m.nc")
    for one in (model, gdd.load(tmp_path / "m.nc")):
        np.testing.assert_array_equal(one.to_dataset().label, images.label)
        np.testing.assert_array_equal(one.transform(images), model.transform(images))
    with pytest.raises(GddError, match="axis 'row' has size 27"):
        DeepDeconvolution.from_chain(trained, images[:, :, 1:], chain)


def test_flat_pictures_are_asked_for_their_size():
    with pytest.warns(UserWarning, match=r"576 numbers each are read as signals; .* image_size=\(24, 24\)"):
        assert find_layout(np.ones((3, 576))).size == (1, 576)
    assert find_layout(np.ones((3, 576)), (24, 24)).size == (24, 24)


def test_one_picture_and_no_fit_are_named(digits, fitted):
    for call in (fitted.transform, fitted.score, fitted.plot_reconstruction):
        with pytest.raises(GddError, match=r"shape \(28, 28\) .* Reshape your data: images\[None\]"):
            call(digits[0])
    with pytest.raises(GddError, match=r"image: shape \(1, 28, 28\) given; one image of shape \(28, 28\)"):
        fitted.plot_activations(digits[:1], 0)
    with pytest.raises(GddError, match="layer: 2 has atoms of 4 planes, which have no picture; leave layer out"):
        fitted.plot_atoms(2)
    for call in (lambda m: m.score(digits), lambda m: m.save("x.nc"), lambda m: m.plot_activations(digits[0], 0)):
        with pytest.raises(NotFittedError):
            call(DeepDeconvolution())


def test_other_images_and_features_are_refused(digits, fitted):
    with pytest.raises(GddError, match=r"images: shape \(30, 27, 28\) given; \(image, 28, 28\) is needed"):
        fitted.transform(digits[:, 1:])
    with pytest.raises(GddError, match="X: 3 features given"):
        fitted.inverse_transform(np.ones((2, 3)))
    begun = clone(fitted).set_params(warm_start=True).fit(digits)
    with pytest.raises(GddError, match="X: other images than those of the fit that goes on"):
        begun.fit(digits[::-1])
    with pytest.raises(GddError, match="model, atoms, image_size: changed since"):
        begun.set_params(atoms=(4, 5)).fit(digits)
    with pytest.raises(GddError, match="n_chains: 2 given; the fit that goes on has 1"):
        clone(fitted).set_params(warm_start=True).fit(digits).set_params(n_chains=2).fit(digits)


def test_atoms_that_vanished_and_are_on_everywhere_are_told(fitted):
    chain = fitted.chains_[0]
    bottom = chain.layers[0]
    local, shared = bottom.state
    atoms, z = shared.dictionary.copy(), local.z.copy()
    atoms[:2] *= 1e-3
    z[:, :2] = 0
    state = bottom.state._replace(local=local._replace(z=z), shared=shared._replace(dictionary=atoms))
    idle = chain._replace(layers=(bottom._replace(state=state), *chain.layers[1:]))
    with pytest.warns(UserWarning, match="2 of 4 in layer 1 have vanished"):
        warn_of_idle_atoms(idle)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_idle_atoms(chain)
