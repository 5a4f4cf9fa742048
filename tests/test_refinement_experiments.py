"""Experiments on refinement at their smallest: every shape is the paper's, every number meaningless but consistent."""

import pytest

from gdd_book import experiments
from gdd_book.experiments.studies import mnist_refinement
from gdd_book.progress import Run

SHORT = {"burn_in": 1, "collect": 1, "n_train": 20}


def test_fit_of_the_whole_model_and_of_its_projection():
    lengths = {"refine_burn_in": 1, "refine_collect": 2, "learned_burn_in": 1, "learned_collect": 1}
    found = experiments.run("mnist-refinement", SHORT | lengths).dataset
    last = found.residual.isel(noise=0).values[-1]
    assert found.rms.sel(model="noise fixed at 44") == pytest.approx(last, rel=0.2)
    assert found.rms.sel(model="pretrained") > last
    assert (found.projection_error > 0).all()
    assert ((found.winning_share > 1 / 9) & (found.winning_share < 1)).all()
    assert (found.uses.sum("atom") > 0).all()


def test_starts_differ_and_finished_chains_are_not_run_again(tmp_path, monkeypatch):
    changes = SHORT | {"n_held_out": 5, "sweeps": 2, "seeds": (0,)}
    once = lambda: experiments.run("mnist-starts", changes, within=Run(tmp_path)).dataset  # noqa: E731
    found = once()
    assert found.log_joint.shape == (3, 1, 2)
    first = found.isel(draw=0, seed=0)
    assert len(set(first.residual.values)) == 3 and len(set(first.held_out.values)) == 3
    assert (found.held_out > 0).all()
    monkeypatch.setattr(mnist_refinement, "joint_sweep", None)
    assert once().equals(found)
    next(tmp_path.rglob("mnist-starts-*/result.nc")).unlink()
    with pytest.raises(TypeError):
        once()
