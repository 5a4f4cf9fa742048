"""What the chapters show of runs of caltech-class: only chains of the paper's lengths; whose atoms match."""

import json

import numpy as np
import xarray as xr

from gdd_book import experiments, paper_values, records
from gdd_book.dictionaries import pack
from gdd_book.figures import caltech

PAPER = experiments.defaults("caltech-class", "paper")
STAGES = ["pretrained", "refined"]


def record(name="stop_sign", seed=0, **changes):
    """A record of three layers of four atoms each, with noise for refined atoms and bars for pretrained ones."""
    shape = {n: (2, 4, 17 + 10 * n, 17 + 10 * n) for n in (1, 2, 3)}
    random = np.random.default_rng(seed)
    atoms = {}
    for n, size in shape.items():
        values = random.normal(0, 30, size).clip(-100, 100)
        values[0] = 0
        values[0, :, 5] = 100
        atoms[f"atoms_{n}"] = ("stage", f"atom_{n}", f"row_{n}", f"col_{n}"), values.astype(np.int8)
    p = PAPER | {"classes": [name], "seed": seed} | changes
    return xr.Dataset(atoms, {"stage": STAGES}, {"scale": "paper", "parameters": json.dumps(p)})


def test_the_experiments_own_settings_are_the_papers_lengths():
    for name in ("burn_in", "collect"):
        assert PAPER[name] == PAPER[f"refine_{name}"] == paper_values.fact(name)["value"]


def test_only_chains_of_the_papers_lengths_are_shown(monkeypatch):
    first = record("nautilus")
    known = [record("umbrella"), record("nautilus", seed=3), first, record("ketch", collect=499),
             record("pyramid", refine_burn_in=30), record("ant", model="two layers"), record("beaver", per_class=15),
             record("camera", classes=["camera", "chair"])]
    monkeypatch.setattr(records, "every", lambda name: known)
    found = caltech.at_length("paper")
    assert [caltech.class_of(one) for one in found] == ["nautilus", "umbrella"] and found[0] is first
    assert caltech.at_length("demo") == []


def test_atoms_of_two_classes_that_are_the_same_match_and_noise_does_not():
    table = caltech.class_match_table([record(seed=0), record(seed=1)]).astype(float)
    assert table.index.tolist() == [1, 2, 3] and (table["pretrained"] == 1).all()
    assert (table["refined"] < 0.3).all()
    assert (caltech.class_match_table([record(seed=0)] * 2).astype(float) == 1).all(axis=None)


def test_atoms_of_a_class_are_found_again_where_a_joint_model_has_them():
    one, other = record(seed=0), record("pyramid", seed=1)
    both = pack([caltech.atoms_of(one, stage) for stage in STAGES], "stage").assign_coords(stage=STAGES)
    both = both.assign_coords(layer=("atom", np.repeat([1, 2, 3], 4)))
    both.attrs["parameters"] = json.dumps({"classes": ["ketch", "stop_sign"], "model": "three layers"})
    table = caltech.joint_match_table(both, [one, other])
    assert table["", "among the six"].to_dict() == {"stop sign": "yes", "pyramid": "no"}
    refined = table.xs("refined", axis=1, level=1).astype(float)
    assert (refined.loc["stop sign"] == 1).all() and (refined.loc["pyramid"] < 0.3).all()
