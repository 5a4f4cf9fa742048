"""Models that experiments share: checkpoints named after what a chain depends on, finished chains not run again."""

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd.model.spec import MNIST
from gdd_book import training
from gdd_book.progress import Run

P = {
    "data": "digits", "n_train": 20, "seed": 0, "burn_in": 1, "collect": 1, "refine_burn_in": 1, "refine_collect": 1,
    **training.HEALTHY_DIGITS,
}


def test_folders_depend_on_what_the_chain_depends_on(tmp_path):
    images = training.digits(P)
    folders = lambda **changes: training.setup_of(P | changes, Run(tmp_path), images).folders  # noqa: E731
    pretrained, refined = folders()
    assert folders(n_test=3, refine_noise=0.0)[0] == pretrained
    assert folders(n_test=3)[1] == refined
    for name in training.DIGITS_CHAIN:
        assert pretrained not in folders(**{name: 7}) and refined not in folders(**{name: 7})
    for name in training.REFINEMENT:
        assert folders(**{name: 7})[1] != refined
    assert training.setup_of(P, Run(), images).folders == (None, None)


def test_chains_of_an_experiments_own_images_share_their_pretraining_between_refinements(tmp_path):
    folders = lambda **changes: training.own_folders("one", P | changes, Run(tmp_path), "half")  # noqa: E731
    pretrained, refined = folders()
    for name in (*training.REFINEMENT, "voters", "stages", "test_collect"):
        assert folders(**{name: 7})[0] == pretrained and folders(**{name: 7})[1] != refined
    assert folders(burn_in=7)[0] != pretrained


def test_flat_priors_are_asked_for_by_a_zero():
    assert training.model_for(0, 0.1) == MNIST.as_printed()
    assert training.refinement_for(44.0).noise.fixed == 44.0
    learned = training.refinement_for(0.0).noise
    assert learned.fixed is None and learned.axes == ("image",)


def test_a_finished_chain_is_not_run_again(tmp_path, monkeypatch):
    run = Run(tmp_path)
    fitted, refined = training.trained_models(P, run).values()
    folders = training.setup_of(P, run).folders
    names = "layer1.joblib", "refined.joblib"
    assert all((folder / name).exists() for folder, name in zip(folders, names, strict=True))
    monkeypatch.setattr("gdd.sampler.pretrain.sweep", None)
    monkeypatch.setattr("gdd.sampler.refine.joint_sweep", None)
    again = training.trained_models(P, run)
    np.testing.assert_array_equal(
        again["refined"].state.shared.dictionaries[1], refined.state.shared.dictionaries[1]
    )
    for one, other in ((again["pretrained"].layers[1], fitted.layers[1]), (again["refined"], refined)):
        assert one.traces.identical(other.traces) and one.traces.attrs["cpu_seconds"] > 0
    with pytest.raises(TypeError):
        training.trained_models(P | {"refine_collect": 2}, run)


def test_kept_results_are_of_the_same_images_model_and_code(tmp_path):
    """What an earlier run left is used again; made from anything else, or cut off, it is refused and stays."""
    path, made = tmp_path / "a" / "kept.nc", []

    def compute():
        made.append(1)
        return xr.Dataset({"total": ("x", [1.0, 2.0])}, attrs={"seconds": 3.0})

    images = xr.DataArray(np.zeros((2, 1, 3, 3)), dims=("image", "plane", "row", "col"))
    belongs = {"images": images, "model": MNIST, "seed": 0, "code": training.code_of("projection")}
    first = training.kept(path, compute, **belongs)
    assert training.kept(path, compute, **belongs).identical(first) and len(made) == 1
    for name, other in {"images": images + 1, "model": training.model_for(44.0, 0.1), "seed": 1, "code": "ab"}.items():
        with pytest.raises(GddError, match=f"made from other {name} than this run's; move it away.*--restart"):
            training.kept(path, compute, **belongs | {name: other})
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(GddError, match="kept.nc: cannot be read: it is "):
        training.kept(path, compute, **belongs)
    assert len(made) == 1
    assert training.code_of("projection") != training.code_of("inference") != training.code_of()
