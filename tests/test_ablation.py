"""The ablation at its smallest: every row is run, and changes what its name says."""

import numpy as np
import pytest
import xarray as xr

from gdd_book import experiments
from gdd_book.experiments.studies import mnist_features as ablation
from gdd_book.experiments.studies.mnist_features import PROTOCOL

SMALL = {
    "n_train": 60, "n_test": 30, "seeds": (3,), "burn_in": 1, "collect": 1, "refine_burn_in": 1, "refine_collect": 1,
    "test_burn_in": 2, "test_collect": 2, "chains": 2, "n_learn": 40,
}


@pytest.fixture(scope="module")
def run():
    """Settings and lengths of every call of `code`, and the features of every row, beside the record."""
    calls, kept = [], {}
    with pytest.MonkeyPatch.context() as patched:
        code, classified = ablation.code, ablation.classified

        def seen(images, setting, p):
            calls.append((setting, images.attrs["split"]))
            return code(images, setting, p)

        def keep(features, *others):
            kept.update(features)
            return classified(features, *others)

        patched.setattr(ablation, "code", seen)
        patched.setattr(ablation, "classified", keep)
        found = experiments.run("mnist-ablation", SMALL).dataset
    return found, calls, kept


@pytest.mark.slow
def test_one_thing_is_changed_at_a_time(run):
    _, calls, _ = run
    first = calls[0][0]
    assert [split for _, split in calls] == ["train", "test"] * (len(calls) // 2)
    changed = []
    for setting, _ in calls[2::2]:
        different = [name for name in first if not np.array_equal(first[name], setting[name])]
        assert len(different) == 1
        changed += different
    assert changed == ["chain", "length", "length", "gamma_e", "gamma_e", *["atoms"] * 5]


@pytest.mark.slow
def test_features_are_what_their_rows_say(run):
    _, _, kept = run
    plain = kept["nothing explained away", "correlations with the same atoms"][0]
    code = kept[ablation.PROTOCOL_ROW][0]
    assert plain.shape == code.shape
    assert kept["atoms", "the half used most"][0].sizes["atom"] == code.sizes["atom"] // 2
    for row in ablation.BY_CLASS.values():
        assert kept[row][0].sizes["atom"] == code.sizes["atom"]  # sixteen for each of ten classes
    assert kept[ablation.NORMALISED][0].shape == code.shape
    assert kept[ablation.MORE_DIGITS][0].sizes["atom"] == code.sizes["atom"]
    assert (kept["no model", "raw pixels"][0].values >= 0).all()
    assert not np.allclose(kept["several chains", "mean of their samples"][0], code)
    held, drawn = (kept[row][0] for row in ablation.EVERYWHERE)
    assert held.shape == drawn.shape == (60, code.sizes["atom"]) and not np.allclose(held, drawn)


def test_atoms_that_saw_labels_are_not_tuned_on_them(monkeypatch):
    """The width of that row's kernel is the protocol's own, whatever the row's features would have chosen."""
    used = {}

    def error(features, labels, test_features, test_labels, protocol, seed):
        used[len(used)] = protocol.gammas
        axes = {"cost": [10.0], "gamma": list(protocol.gammas)}
        table = xr.DataArray([[3.0, 1.0, 2.0, 4.0][: len(protocol.gammas)]], axes)
        return xr.Dataset({"error": 1.0, "cross_validation": table})

    monkeypatch.setattr(ablation, "error", error)
    digits = xr.DataArray(np.zeros(3), coords={"label": ("image", [0, 1, 2])}, dims="image")
    rows = (ablation.PROTOCOL_ROW, ablation.SCALED, *ablation.BY_CLASS.values())
    ablation.classified(dict.fromkeys(rows, (None, None)), digits, digits, 0)
    assert list(used.values()) == [PROTOCOL.gammas, PROTOCOL.gammas, *[(PROTOCOL.gammas[1],)] * 2]
