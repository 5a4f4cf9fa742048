"""Experiments and studies at their smallest: shapes are the paper's, numbers are meaningless; and their pieces."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from tiny import CHEAP

from gdd.base.axes import ATOM, IMAGES, LABEL
from gdd.base.checks import GddError
from gdd.inference.deconvolution import InferenceChain, deconvolve
from gdd.model.convolution import synthesise
from gdd.model.layer import log_likelihood, reconstruction
from gdd.model.spec import MNIST, LayerSpec, ModelSpec
from gdd.sampler import pretrain as stage
from gdd_book import experiments
from gdd_book.data import datasets
from gdd_book.dictionaries import placed_atoms
from gdd_book.experiments import atoms as dictionary
from gdd_book.experiments import caltech, images
from gdd_book.experiments.studies import one_step, planted
from gdd_book.experiments.studies.class_wise import class_energies, class_model
from gdd_book.experiments.studies.mnist_readings import Atoms, cooled
from gdd_book.progress import Run
from gdd_book.training import HEALTHY_DIGITS, normalised

#: of the tests, in which the others are named
TESTS = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
UNTRIED = [name for name in experiments.names() if not any(f'"{name}"' in text for text in TESTS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", UNTRIED)
def test_every_other_experiment_runs_in_chains_of_few_sweeps(name):
    few = {key: 1 + key.endswith("burn_in") for key in experiments.defaults(name, "demo")
           if key.endswith(("burn_in", "collect"))}
    for variable, values in experiments.run(name, few).dataset.items():
        assert values.dtype.kind != "f" or np.isfinite(values).any(), variable


# ---- Experiments on digits at their smallest: dictionaries, atoms that are dropped, the learning curve, the judge.
def test_experiment_measures_every_kind_on_both_halves():
    changes = {"n_train": 20, "n_held_out": 3, "burn_in": 1, "collect": 1, "test_burn_in": 2, "test_collect": 1}
    found = experiments.run("mnist-dictionary", changes | {"refine_burn_in": 1, "refine_collect": 1}).dataset
    assert tuple(found.kind.values) == dictionary.KINDS
    assert dict(found.high_frequency_share.sizes) == {"kind": 5, "half": 2, "atom": 160}
    assert found.most_used.shape == (5, 25, 1, *MNIST.projected_size)
    assert ((found.correlation >= 0) & (found.correlation <= 1)).all()
    assert ((found.rms > 0) & (found.rms < 2 * found.rms_of_images)).all()
    refined, cut = (found.most_used.sel(kind=kind) for kind in ("refined", "refined, thresholded"))
    np.testing.assert_allclose(cut.where(cut == 0, np.abs(refined)), cut)  # what is left is as it was, up to sign
    assert ((cut == 0) | (cut > 0.299)).all()


def test_atoms_found_twice_match_and_others_do_not():
    atoms = np.random.default_rng(0).standard_normal((2, 6, 1, 9, 9))
    uses = {kind: [np.ones(6, int)] * 2 for kind in dictionary.KINDS}
    pair = {kind: [atoms[0], atoms[0][::-1] if i % 2 else atoms[1]] for i, kind in enumerate(dictionary.KINDS)}
    correlation = dictionary._measure_halves(pair, uses).correlation
    np.testing.assert_allclose(correlation[1::2], 1)
    assert (correlation[::2] < 0.9).all()


def test_atoms_below_the_share_go_in_burn_in_and_uses_are_those_of_the_others(tmp_path, monkeypatch):
    changes = {"n_train": 12, "starts_1": (4, 6), "starts_2": (5,), "shares": (0.0, 0.9), "burn_in": 8, "collect": 3,
               "prune_from": 3, "prune_every": 2, "seeds": (0, 1)}
    once = lambda: experiments.run("mnist-atoms", changes, within=Run(tmp_path)).dataset  # noqa: E731
    pruned = once()
    monkeypatch.setattr(stage, "sweep", None)  # no finished chain is run again
    assert pruned.identical(once())
    for layer, starts in (("1", (4, 6)), ("2", (5,))):
        atoms, uses, start = (pruned[f"{name}_{layer}"] for name in ("atoms", "uses", "start"))
        assert dict(atoms.sizes) == {"seed": 2, f"start_{layer}": len(starts), "share": 2, "draw": 11}
        left, ranks = atoms.isel(draw=-1), f"rank_{layer}"
        assert (atoms.diff("draw") <= 0).all() and (atoms.isel(draw=slice(None, 4)) == start).all()
        assert (atoms.isel(draw=slice(8, None)) == left).all()
        assert (atoms.sel(share=0.0) == start).all() and (left.sel(share=0.9) < start).all()
        assert (uses.notnull().sum(ranks) == left).all() and uses.min() >= 0 and uses.max() <= 1
        assert ((uses.diff(ranks) <= 0) | uses.isel({ranks: slice(1, None)}).isnull()).all()
        assert (pruned[f"residual_{layer}"] > 0).all()


def test_noise_is_told_from_digits_and_digits_are_not():
    digits = np.random.default_rng(1).random((300, 1, 6, 6)) ** 4
    same, other = digits[:100], np.random.default_rng(0).standard_normal((100, 1, 6, 6))
    found = [images.describe(kind, digits[100:200], digits[200:], 0) for kind in (same, other)]
    same, noise = (float(one.told_apart) for one in found)
    assert abs(same - 50) < 3 * 100 * (0.25 / 100) ** 0.5 and noise == 100


# ---- Experiments with `gdd.OneStepFeatures`: what they judge, and that no test image reaches what is learned.
def test_patches_of_two_strips_share_no_pixel(monkeypatch):
    ramp = np.tile(np.arange(200.0), (40, 1))
    monkeypatch.setattr(one_step, "PICTURES", ("ramp",))
    monkeypatch.setattr(one_step.data, "ramp", lambda: ramp, raising=False)
    train, test = one_step.texture_patches(300, 0), one_step.texture_patches(300, 1, one_step.TEST)
    border = 200 * one_step.TEST[0] - 0.5
    assert train.max() * 255 < border < test.min() * 255 and train.shape == (300, 1, 32, 32)


@pytest.fixture
def kymatio(monkeypatch, tmp_path):
    """An interpreter in which kymatio gives the images themselves, and zeros."""
    (tmp_path / "kymatio").mkdir()
    (tmp_path / "kymatio" / "numpy.py").write_text(
        "import numpy as np\nclass Scattering2D:\n    def __init__(self, J, shape, L): self.shape = shape\n"
        "    def __call__(self, x): return np.stack([x.reshape(-1, *self.shape), 0 * x], 1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(one_step.KYMATIO, sys.executable)


@pytest.mark.parametrize("data", ["digits", pytest.param("textures", marks=pytest.mark.slow)])
def test_few_labels(data, kymatio):
    small = {"data": data, "counts": (5,), "n_test": 10, "patches": 20}
    found = experiments.run("few-labels", small).dataset
    assert found.error.dims == ("count", "trial", "feature_kind") and found.sizes["feature_kind"] == 7
    assert (found.error < 80).all() and (found.seconds >= 0).all()  # chance: 90


def test_scattering_is_classified_where_it_is_asked_for(kymatio, monkeypatch):
    small = {"n_learn": 12, "burn_in": 1, "collect": 1, "sizes": (100,), "trials": 1, "n_test": 10, "choose_size": 100,
             "choose_on": 1, "kinds": ("scattering",)}
    found = experiments.run("mnist-best", small).dataset
    assert found.error.feature_kind == ["scattering"] and found.features == 2 * 784
    monkeypatch.delenv(one_step.KYMATIO)
    with pytest.raises(GddError, match="python with kymatio is needed, named by the variable GDD_KYMATIO"):
        experiments.run("mnist-best", small)


# ---- The planted-data experiment: what it returns, that the truth stays found.
def test_the_planted_state_leaves_only_the_noise():
    truth = datasets.planted(3, images=20)
    shape, state = planted.shape_of(truth), planted.planted_state(truth)
    left = truth.images.values - reconstruction(state, shape)
    assert abs(left.std() / truth.attrs["noise_sd"] - 1) < 5 / np.sqrt(2 * left.size)
    expected = (-0.5 * (left / 0.1) ** 2 - np.log(0.1 * np.sqrt(2 * np.pi))).sum()
    np.testing.assert_allclose(log_likelihood(state, planted.data_of(truth), shape).sum(), expected, rtol=1e-5)


def test_a_chain_started_at_the_truth_stays_and_fits_better_than_a_short_random_one():
    found = experiments.run("planted", {"images": 60, "seeds": 2, "burn_in": 6, "collect": 2}).dataset
    assert (found.truth_recovered == 8).all()
    assert (found.truth_log_likelihood > found.log_likelihood.sel(setting=planted.NO_MOVES)).all()


# ---- Atoms by class: the sizes, the energies, and that labels without meaning give nothing away.
P = {
    "data": "digits", "n_train": 300, "seed": 0, "burn_in": 20, "collect": 5, "refine_burn_in": 4, "refine_collect": 1,
    "dictionary_every": 2, **HEALTHY_DIGITS,
}


def test_all_classes_together_have_the_atoms_of_one_model():
    assert class_model(P, 10).layers[-1].atoms == 16
    assert class_model(P, 10).layers[0] == class_model(P, 1).layers[0]


def test_energies_are_those_of_the_residual():
    """Two classes of two atoms each; an image made of the second's is explained by those alone."""
    rng = np.random.default_rng(0)
    atoms, weights = rng.normal(size=(2, 2, 1, 6, 6)).astype(np.float32), np.array([[[[0.0]], [[1.5]]]])
    image = xr.DataArray(synthesise(atoms[1], weights).astype(np.float32), dims=IMAGES, attrs={"split": "test"})
    named = xr.DataArray(atoms, {LABEL: [3, 8]}, (LABEL, "atom", "plane", "atom_row", "atom_col"))
    found = class_energies(image, named, (1, 1), (100.0, 1.0), {"test_burn_in": 10, "test_collect": 5, "seed": 0})
    constant = image[0].size * np.log(100.0 / (2 * np.pi))
    assert found.shape == (1, 2) and found.argmin() == 1
    assert found[0, 1] + constant < 5.0 < 100.0 < found[0, 0] + constant


# ---- What is timed on real images is the chain of test-time deconvolution, image by image.
def test_the_timed_chains_are_those_of_deconvolution(pictures):
    asked = {"data": "caltech256", "n_classes": 3, "per_class": 6, "n_images": 2, "burn_in": 4, "collect": 2}
    asked |= {"test_burn_in": 3, "test_collect": 2, "model": "two layers"}
    settings, run = experiments.merge("caltech-testing", "demo", asked), Run(pictures / "cache")
    found = caltech.caltech_testing(settings, run).dataset
    learned = caltech.learn(settings | {"refined": False, "n_test": 1}, run)
    test, (atoms, (gamma_e, gamma_w)) = learned.test, learned.together("pretrained")
    assert len(test) == 3 and found.label.values.tolist() == test.label.values[[0, 2]].tolist()
    assert int(found.n_atoms) == len(atoms) == 3 * 4 and int(found.n_positions) == 2 * 2
    constant = 0.5 * 28**2 * np.log(gamma_e / (2 * np.pi))  # of the log-likelihood of an image
    for number, image in enumerate((0, 2)):
        codes = deconvolve(
            normalised(test.isel(image=[image])), atoms, CHEAP.stride, gamma_e=gamma_e, gamma_w=gamma_w,
            chain=InferenceChain(3, 2, 0, number),
        )
        left = (-2 * (codes.log_likelihood.item() - constant) / gamma_e / 28**2) ** 0.5
        assert float(found.residual[number]) == pytest.approx(left, rel=1e-4)
        assert int((codes.ml_sample != 0).sum((ATOM, "row", "col", "image"))) == int(found.active[number])
    assert (found.cpu_seconds > 0).all() and np.isfinite(found.gram_cpu_seconds) and (found.active > 0).any()


# ---- Ways to read a digit's code: the cooled chain against all modes of a tiny posterior, detectors written out.
GAMMA_E, GAMMA_W = 3.0, 0.5
RANDOM = np.random.default_rng(2)
VALUES = RANDOM.standard_normal((2, 1, 4, 4)).astype(np.float32)
VALUES /= np.linalg.norm(VALUES.reshape(2, -1), axis=1)[:, None, None, None]
KEPT = Atoms(VALUES, ModelSpec((LayerSpec(2, (4, 4)),), (5, 5)), (GAMMA_E, GAMMA_W))  # two at 2 x 2 places


def density(image, placed, chosen):
    """Log posterior density at its highest point where just these coefficients are active, but for a constant."""
    some = placed[chosen]
    weights = np.linalg.solve(GAMMA_E * some @ some.T + GAMMA_W * np.eye(len(some)), GAMMA_E * some @ image)
    left = ((image - weights @ some) ** 2).sum()
    each = 0.0 + 0.5 * np.log(GAMMA_W / (2 * np.pi))  # the prior odds of two atoms are 1 / (2 - 1)
    return -0.5 * GAMMA_E * left + each * len(some) - 0.5 * GAMMA_W * (weights**2).sum(), weights


def test_the_cooled_chain_ends_at_the_highest_mode():
    images = RANDOM.standard_normal((40, 1, 5, 5)).astype(np.float32)
    labelled = xr.DataArray(images, dims=IMAGES, attrs={"split": "train"})
    codes, placed = cooled(KEPT, labelled, 0), placed_atoms(VALUES, (1, 1), KEPT.model.image_size)
    found, every = 0, [np.flatnonzero(some) for some in product((0, 1), repeat=8)]
    for image, code in zip(images.reshape(40, -1), codes.reshape(40, -1), strict=True):
        best = max(every, key=lambda chosen: density(image, placed, chosen)[0])  # noqa: B023
        if set(best) == set(np.flatnonzero(code)):
            found += 1
            np.testing.assert_allclose(code[best], density(image, placed, best)[1], atol=0.4)
    assert found >= 30
