"""Classes learned side by side: the record of killed runs with two processes is that of one run with one process."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr
from tiny import CHEAP

from gdd_book import training
from gdd_book.progress import Run

SCRIPT = Path(__file__).parent / "classes_to_kill.py"


def start(pictures, cache, jobs):
    """Begin a run; its checkpoints are in a cache of that name."""
    environment = os.environ | {"GDD_CACHE": str(pictures / cache)}
    command = [sys.executable, str(SCRIPT), str(jobs), str(pictures / f"{cache}.nc")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def classes(run, until=9):
    """Read what a run says until it has finished so many classes, or ends: how many it has to learn, and finished."""
    to_learn, finished = 0, 0
    for line in run.stdout:
        to_learn += int(line.split()[2]) if line.startswith("to learn") else 0
        finished += line == "class\n"
        if finished >= until:
            break
    return to_learn, finished


@pytest.mark.slow
def test_two_kills_of_two_processes_end_at_the_record_of_one(pictures):
    whole = start(pictures, "whole", 1)
    assert classes(whole) == (3, 3)
    assert whole.wait() == 0
    for reach in (1, 2):
        killed = start(pictures, "killed", 2)
        assert classes(killed, reach)[1] == reach
        killed.kill()
        killed.wait()
    last = start(pictures, "killed", 2)
    to_learn, finished = classes(last)
    assert to_learn < 3 == finished  # those that were finished are not learned again
    assert last.wait() == 0
    one, other = (xr.load_dataset(pictures / f"{name}.nc") for name in ("whole", "killed"))
    xr.testing.assert_identical(one, other)
    assert (one.accuracy.sel(feature_kind="raw pixels") > 60).all()
    found = [sorted(path.name for path in (pictures / name / "checkpoints").iterdir()) for name in ("whole", "killed")]
    assert found[0] == found[1]
    assert sum(name.startswith("class-atoms") for name in found[0]) == 3


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
