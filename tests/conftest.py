"""What tests of several modules share, and which modules one process runs."""

import time
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

#: Modules whose quick tests refine, by the precision of their arrays. Compiling the kernels of refinement takes minutes
#: for every model; two processes that need the same ones at the same time would both compile them.
REFINING = {
    "single": {
        "test_caltech", "test_completion_pages", "test_estimator", "test_mnist_pages", "test_readme", "test_refine",
        "test_refinement_experiments", "test_training",
    },
    "double": {
        "test_calibration", "test_interpolation", "test_held", "test_joint_sampler", "test_joint_sweep",
    },
}


class OneCompiles(LoadFileScheduling):
    """Tests of a module are run by one process; so are those of all modules that refine in one precision."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return next((name for name, modules in REFINING.items() if Path(file).stem in modules), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Of ``--dist loadfile``; other ways of sharing the tests out are left as they are."""
    return OneCompiles(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still; its only entry is the time in seconds, to be moved on by the test."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now
