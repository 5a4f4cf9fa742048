"""Models that experiments share: checkpoints named after what a chain depends on, finished chains not run again."""

import numpy as np
import pytest

from gdd.model.spec import MNIST
from gdd_book.progress import Bar
from gdd_book.training import training

P = {
    "data": "digits", "n_train": 20, "seed": 0, "burn_in": 1, "collect": 1, "refine_burn_in": 1, "refine_collect": 1,
    **training.HEALTHY,
}  # fmt: skip


def folders(p):
    stages = (("pretrained", training.PRETRAINING), ("refined", training.REFINEMENT))
    return [training.folder_of(stage, names, p) for stage, names in stages]


def test_folders_depend_on_what_the_chain_depends_on():
    pretrained, refined = folders(P)
    assert folders(P | {"n_test": 3, "refine_noise": 0.0})[0] == pretrained
    assert folders(P | {"n_test": 3})[1] == refined
    for name in training.PRETRAINING:
        assert folders(P | {name: "other"})[0] != pretrained
    for name in training.REFINEMENT:
        assert folders(P | {name: "other"})[1] != refined


def test_flat_priors_are_asked_for_by_a_zero():
    assert training.model_for(0, 0.1) is MNIST
    assert training.refinement_for(44.0).noise.fixed == 44.0
    learned = training.refinement_for(0.0).noise
    assert learned.fixed is None and learned.axes == ("image",)


def test_a_finished_chain_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setenv("GDD_CACHE", str(tmp_path))
    fitted, refined = training.trained_models(P, Bar)
    assert all((folder / name).exists() for folder, name in zip(folders(P), ("layer1.npz", "refined.npz"), strict=True))
    monkeypatch.setattr("gdd.sampler.chain.sweep", None)
    monkeypatch.setattr("gdd.sampler.refine.joint_sweep", None)
    again = training.trained_models(P, Bar)
    np.testing.assert_array_equal(again[1].state.shared.dictionaries[1], refined.state.shared.dictionaries[1])
    assert again[0].layers[1].traces.equals(fitted.layers[1].traces)
    with pytest.raises(TypeError):
        training.trained_models(P | {"refine_collect": 2}, Bar)
