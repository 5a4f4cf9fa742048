"""`DeepDeconvolution`: missing pixels, further sweeps, files, pictures, what else is refused."""

import warnings

import matplotlib.pyplot as plt
import netCDF4
import numpy as np
import pytest
import xarray as xr
from tiny import QUICK

import gdd
from gdd import DeepDeconvolution, results
from gdd.base.checks import GddError
from gdd.estimator import Bar, warn_of_idle_atoms
from gdd_book.data import datasets

#: models that can be pretrained, after which no new image could be read
WIDE = gdd.ModelSpec((gdd.LayerSpec(4, (8, 8), (3, 4)), gdd.LayerSpec(4, (6, 6))), (28, 28))
ONE_ATOM = gdd.ModelSpec((gdd.LayerSpec(1, (8, 8), (3, 3)),), (28, 28))


def test_pixels_are_taken_from_their_median_in_units_of_three_root_mean_squares(digits, fitted):
    pixels = fitted.scale_.forward(digits[:, None])
    assert np.sqrt((pixels**2).mean()) == pytest.approx(1 / 3) and np.median(pixels) == 0


def test_score_is_the_share_of_variance_rebuilt(digits, fitted):
    rebuilt = fitted.inverse_transform(fitted.transform(digits))
    spread = ((digits - digits.mean()) ** 2).sum()
    assert fitted.score(digits) == pytest.approx(1 - ((digits - rebuilt) ** 2).sum() / spread, abs=1e-6)
    assert 0.2 < fitted.score(digits) < 1


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
    pooled = gdd.ModelSpec((gdd.LayerSpec(4, (8, 8), (3, 3)),), (28, 28)).with_fixed_precisions()
    for model in (DeepDeconvolution(pooled, **QUICK).fit(digits), fitted):
        drawn = model.sample(5)
        assert drawn.shape == (5, 28, 28) and not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn, fitted.sample(5))
    assert not np.array_equal(drawn, fitted.sample(5, random_state=3))


# ---- more sweeps, numbers of every sweep
def test_kept_sweeps_of_the_last_stage_are_given_to_arviz(digits, refined):
    arviz = pytest.importorskip("arviz")
    posterior = refined.to_inferencedata().posterior
    assert posterior.log_joint.shape == (1, 2) and "gamma_w" in posterior
    pretrained = DeepDeconvolution(**QUICK | {"pretrain": (3, 8)}).fit(digits)
    pretrained = pretrained.set_params(pretrain=(0, 3)).to_inferencedata()  # of the next fit
    assert {"log_joint_1", "gamma_e_2"} <= set(pretrained.posterior.data_vars)
    assert pretrained.posterior.sizes["draw"] == 8 and np.isfinite(arviz.ess(pretrained).log_joint_1)


# ---- labelled arrays and files
@pytest.mark.parametrize("name", ["fitted", "refined"])
def test_labelled_arrays_are_the_model(name, request, digits):
    model = request.getfixturevalue(name)
    data = model.to_dataset(dense=True)
    atoms, maps = data.dictionary_1.values, data.map_1.values
    assert data.dictionary_2.dims == ("atom_2", "atom_1", "atom_row_2", "atom_col_2")
    assert ((data.map_1 != 0).sum() <= data.weight_1.size) and data.position_1.dtype == np.int16
    clean = gdd.model.convolution.synthesise(atoms, maps.astype(float))
    pixels = model.scale_.forward(digits[:, None])
    stage = model.traces_["all" if name == "refined" else "1"]
    left = np.sqrt(((pixels - clean) ** 2).mean())
    assert left == pytest.approx(float(stage.residual.min()), rel=0.5)


def of_version_1(path):
    with netCDF4.Dataset(path, "a") as file:
        file.version = 1


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda path: xr.Dataset({"a": 1}).to_netcdf(path), "is no saved model"),
    (of_version_1, "is of version 1, this gdd reads 2"),
    (lambda path: path.unlink(), "no file"),
])
def test_other_files_are_refused(fitted, tmp_path, spoil, message):
    path = tmp_path / "m.nc"
    fitted.save(path)
    spoil(path)
    with pytest.raises(GddError, match=message):
        gdd.load(path)


def test_plots_draw_on_the_axes_given(digits, fitted):
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
@pytest.mark.parametrize(("change", "message"), [
    ({"pretrain": 5}, "pretrain: 5 given; two numbers of sweeps"),
    ({"atoms": (4, 4, 4, 4, 4)}, r"atoms: 5 layers given; images of 28 x 28 have room for \d"),
    ({"model": "MNIST"}, "model: str given; ModelSpec or NoneType is needed"),
    ({"atoms": 4}, "atoms: int given"),
    ({"model": WIDE}, "model: top atoms project to 31 pixels along axis 'col', where images have 28; give"),
    ({"model": ONE_ATOM}, "model: 1 atom in the top layer; .* need 2 or more"),
])
def test_bad_settings_are_named_before_any_work(change, message, digits):
    model = DeepDeconvolution(**QUICK | change)
    with pytest.raises(GddError, match=message):
        model.fit(digits)
    assert not hasattr(model, "chain_")


@pytest.mark.parametrize("refined", [False, True])
def test_a_chain_becomes_a_model(refined, tmp_path):
    """Its atoms and codes are those of the functions; labels of its images stay; sizes are checked."""
    images, chain = datasets.load("digits", n=12), gdd.ChainSpec(3, 2, seed=4)
    trained = gdd.pretrain(images, gdd.ModelSpec.for_images((28, 28), 1, (4, 6)), chain)
    if refined:
        trained = gdd.refine(images, trained.model, chain, start=trained)
    model = DeepDeconvolution.from_chain(trained, images, chain).set_params(infer=(3, 2), verbose=False)
    np.testing.assert_array_equal(model.atoms_, gdd.project(trained))
    codes = gdd.infer(trained, model.atoms_, images.values, burn_in=3, collect=2, seed=4, first_image=None)
    np.testing.assert_array_equal(model.transform(images), codes["mean"].values.reshape(12, -1))
    model.save(tmp_path / "m.nc")
    for one in (model, gdd.load(tmp_path / "m.nc")):
        np.testing.assert_array_equal(one.to_dataset().label, images.label)
        np.testing.assert_array_equal(one.transform(images), model.transform(images))
    other, loaded = images.copy(deep=True), gdd.load(tmp_path / "m.nc").chain_
    other[3, 0, 14, 14] += 0.01
    hidden = images.where(images < 1)
    few = results.select_images(trained, slice(9))
    for wrong, pixels, message in [
        (trained, images[:, :, 1:], "axis 'row' has size 27"), (few, images, "has size 9; 12 "),
        (trained, other, "trained: trained on other images"),
        (trained, hidden, "trained: trained on other images, or under another mask"),
        (loaded, other, "trained: trained on other images, or under another mask"), (3, images, "trained: int given"),
    ]:
        with pytest.raises(GddError, match=message):
            DeepDeconvolution.from_chain(wrong, pixels, chain)
    with pytest.raises(GddError, match="chain: 4 sweeps given; the last stage of trained had 5"):
        DeepDeconvolution.from_chain(trained, images, gdd.ChainSpec(3, 1, seed=4))
    with pytest.raises(GddError, match="trained: trained on other images, or under another mask"):
        results.with_images(loaded, other.values)
    np.testing.assert_array_equal(gdd.project(results.with_images(loaded, images.values)), model.atoms_)


def test_atoms_that_vanished_and_are_on_everywhere_are_told(fitted):
    chain = fitted.chain_
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


def test_there_is_no_progress_bar_where_nobody_looks(capsys):
    with Bar(2, verbose=True) as bar:
        bar.step()
    assert capsys.readouterr() == ("", "")
