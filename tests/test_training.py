"""Models that experiments share: checkpoints named after what a chain depends on, finished chains not run again."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from tiny import CHEAP

from gdd.model.spec import MNIST
from gdd_book import training
from gdd_book.progress import Run

P = {
    "data": "digits", "n_train": 20, "seed": 0, "burn_in": 1, "collect": 1, "refine_burn_in": 1, "refine_collect": 1,
    **training.HEALTHY_DIGITS,
}


def test_folders_depend_on_what_the_chain_depends_on(tmp_path):
    def folders(**changes):
        return training.folders_of(P | changes, Run(tmp_path), training.setup_of(P | changes))

    pretrained, refined = folders()
    assert folders(n_test=3, voters=2) == (pretrained, refined)
    for name in ("n_train", "seed", "burn_in", "collect", "noise_precision", "learned_planes", "random_start"):
        assert pretrained not in folders(**{name: 7}) and refined not in folders(**{name: 7})
    for name in ("refine_burn_in", "refine_collect", "refine_noise", "first_noise", "dictionary_every"):
        assert folders(**{name: 7})[0] == pretrained and folders(**{name: 7})[1] != refined
    assert training.folders_of(P, Run(), training.setup_of(P)) == (None, None)


def test_a_finished_chain_is_not_run_again(tmp_path, monkeypatch):
    run = Run(tmp_path)
    fitted, refined = training.trained_models(P, run).values()
    folders = training.folders_of(P, run, training.setup_of(P))
    names = "layer1.joblib", "refined.joblib"
    assert all((folder / name).exists() for folder, name in zip(folders, names, strict=True))
    monkeypatch.setattr("gdd.sampler.pretrain.sweep", None)
    monkeypatch.setattr("gdd.sampler.refine.joint_sweep", None)
    again = training.trained_models(P, run)
    np.testing.assert_array_equal(again["refined"].state.shared.dictionaries[1], refined.state.shared.dictionaries[1])
    for one, other in ((again["pretrained"].layers[1], fitted.layers[1]), (again["refined"], refined)):
        assert one.traces.identical(other.traces) and one.traces.attrs["cpu_seconds"] > 0
    with pytest.raises(TypeError):
        training.trained_models(P | {"refine_collect": 2}, run)


def test_kept_results_are_of_the_same_images_model_and_code(tmp_path):
    """What an earlier run left is used again; made from anything else, or damaged, it is made anew."""
    run, made = Run(tmp_path), []

    def compute():
        made.append(1)
        return xr.Dataset({"total": ("x", [1.0, 2.0])})

    images = xr.DataArray(np.zeros((2, 1, 3, 3)), dims=("image", "plane", "row", "col"))
    depends = {"images": images, "model": MNIST, "seed": 0, "code": training.code_of("projection")}
    first = run.kept("a", compute, **depends)
    assert run.kept("a", compute, **depends).identical(first) and len(made) == 1
    others = {"images": images + 1, "model": training.model_for(44.0, 0.1), "seed": 1, "code": "ab"}
    for number, (name, other) in enumerate(others.items(), 2):
        run.kept("a", compute, **depends | {name: other})
        assert len(made) == number
    (path,) = run.folder("a", depends).iterdir()
    path.write_bytes(path.read_bytes()[:3000])
    assert run.kept("a", compute, **depends).total.equals(first.total) and len(made) == 6
    assert training.code_of("projection") != training.code_of("inference") != training.code_of()


@pytest.fixture
def learned(pictures):
    """Classes learned once; learns them again from these images, with changes to the parameters."""
    p = {"data": "caltech256", "classes": ("stands", "lies"), "per_class": 6, "seed": 0, "model": "two layers"}
    p |= {"burn_in": 2, "collect": 1, "refined": False, **training.HELD_CALTECH}
    images = training.normalised(training.caltech_images(p))

    def learn(images=images, within=None, **changes):
        return training.learn_classes(p | changes, images, within or Run(pictures / "cache"))

    learn()
    return learn, images


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_class_of_other_images_is_learned_anew(learned, pictures, jobs):
    learn, images = learned
    pairs = zip(learn(), learn(images + 0.5, Run(pictures / "cache", jobs=jobs)), strict=True)
    assert not any(one.atoms.equals(other.atoms) for one, other in pairs)


def test_a_class_of_another_model_or_code_is_learned_anew(learned, monkeypatch):
    learn, _ = learned
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr(training, "code_of", lambda *parts: "other code")
        patch.setattr(training, "trained_models", None)
        learn()
    bottom, top = CHEAP.layers
    monkeypatch.setitem(training.MODELS, "two layers", replace(CHEAP, layers=(bottom, replace(top, atoms=6))))
    assert [one.sizes["atom"] for one in learn()] == [6, 6]
