"""The full size of tests/test_joint.py and tests/test_joint_sampler.py: `make calibrate`. Correct samplers pass, every
misprint is rejected, and every shortcut of the joint model that tests of a whole sampler can see.

p-values are adjusted by Holm over everything that is asked of correct samplers, so all of them pass but once in 1000
seeds (the seed is fixed). A wrong sampler is rejected at a level at which a right one would be once in 10 000 seeds,
over both tests together. P3 is the mildest of them here, because few blocks of so small a map overlap; where every
position is enumerated (tests/test_joint.py) it falls below one in a million.
"""

import numpy as np
import pytest

from gdd_book import experiments
from gdd_book.checks.calibration import STATISTICS, holm
from gdd_book.experiments.studies import calibration

PASSES, FAILS = 1e-3, 1e-4


@pytest.fixture(scope="module")
def full():
    return experiments.run("calibration", scale="paper").dataset


@pytest.mark.slow
def test_calibration_correct_samplers_pass(full):
    right = full.sel(sampler=full.correct)
    tests = [right.exact_start.values.ravel(), right.geweke.values.ravel()]
    names = [name for name in full.ranked.values if name in calibration.CORRECT]
    tests.append(full.uniformity.sel(ranked=names).values.ravel())
    assert holm(np.concatenate(tests)).min() > PASSES


@pytest.mark.slow
@pytest.mark.parametrize("name", calibration.WRONG)
def test_calibration_wrong_sampler_is_rejected(full, name):
    tests = np.stack([full[test].sel(sampler=name).values for test in ("exact_start", "geweke")])
    assert holm(tests).min() < FAILS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["P5", "P6, rate only"])
def test_calibration_ranks_reject_misprints(full, name):
    assert holm(full.uniformity.sel(ranked=name).values).min() < FAILS


def test_record_has_every_part():
    """Of the smallest run that there is."""
    lengths = {"replicates": 3, "sweeps": 1, "chains": 3, "length": 2, "burn_in": 1, "thin": 1, "seed": 0}
    least = experiments.run("calibration", lengths | {"wrong": 3, "ranked": 3, "ranked_wrong": 2})
    found = least.dataset
    samplers = [*calibration.CORRECT, *calibration.WRONG]
    assert list(found.sampler.values) == samplers
    assert found.exact_start.sizes == {"sampler": len(samplers), "moment": 2, "statistic": len(STATISTICS)}
    assert list(found.ranked.values) == list(calibration.RANKED)
    assert int(found["rank"].max()) <= calibration.DRAWS
    for name in ("exact_start", "geweke", "uniformity"):
        assert ((found[name] >= 0) & (found[name] <= 1)).all()
    assert set(least.spec) == set(samplers)
