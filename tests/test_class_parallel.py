"""Classes learned side by side: the record of killed runs with two processes is that of one run with one process."""

from dataclasses import replace

import pytest
from tiny import CHEAP

from gdd_book import training
from gdd_book.progress import Run


@pytest.fixture
def learned(pictures, monkeypatch):
    """Classes learned once; learns them again from these images, with changes to the parameters."""
    monkeypatch.setitem(training.MODELS, "tiny", CHEAP)
    p = {"data": "caltech256", "classes": ("stands", "lies"), "per_class": 6, "seed": 0, "model": "tiny", "burn_in": 2}
    p |= {"collect": 1, "refined": False, **training.HELD_CALTECH}
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
    monkeypatch.setitem(training.MODELS, "tiny", replace(CHEAP, layers=(bottom, replace(top, atoms=6))))
    assert [one.sizes["atom"] for one in learn()] == [6, 6]
