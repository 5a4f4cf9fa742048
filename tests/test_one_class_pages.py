"""What the chapters show of runs of caltech-class: only chains of the paper's lengths, one column for each class."""

import json

import numpy as np
import pytest
import xarray as xr

from gdd_book import experiments, paper_values, records
from gdd_book.dictionaries import pack
from gdd_book.figures import caltech

PAPER = experiments.defaults("caltech-class", "paper")
STAGES = ["pretrained", "refined"]


def record(name="stop_sign", minutes=1.0, seed=0, **changes):
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
    joint = 100.0 * np.arange(2000) + np.tile([-500.0, 500.0], 1000)
    return xr.Dataset(
        {
            "cpu_seconds": ("part", [60 * minutes, 30 * minutes]), "sweeps": ("part", [20, 0]), **atoms,
            "log_joint": ("refine_draw", joint), "active": ("refine_draw", np.linspace(90, 30, 2000)),
            "pre_active": (("layer", "draw"), np.repeat([[400.0], [90.0], [25.0]], 3, axis=1)),
            "winning_share": (("stage", "pooled_layer"), [[0.2, 0.4], [0.1, 0.3]]),
            "projection_error": ("image", [2.0] * 15 + [3.0] * 15),
        },
        {"part": ["layer 1", "projection"], "stage": STAGES},
        {"scale": "paper", "parameters": json.dumps(p)},
    )


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


def test_cost_of_classes():
    table = caltech.cost_table([record(minutes=1.0), record("ketch", minutes=3.0)])
    assert table.index.tolist() == ["stop sign", "ketch", "ms per image and sweep"]
    assert table["layer 1"].tolist() == ["1.0", "3.0", "200.00"]  # 60 and 180 s over 20 sweeps of 30 images
    assert table["projection"].tolist() == ["0.5", "1.5", ""]
    assert table["in all"].tolist() == ["1.5", "4.5", ""]


def test_error_of_the_projection():
    # half of 30 values are half a unit off their mean on either side: 0.5 sqrt(30 / 29) / sqrt(30)
    assert caltech.projection_table([record()]).loc["stop sign"].tolist() == ["2.50 ± 0.09"]


def test_dictionaries_of_both_stages():
    figure = caltech.show_class_stages(record())
    assert [axes.get_title() for axes in figure.axes] == [
        f"layer {number}, {stage}" for number in (1, 2, 3) for stage in STAGES
    ]
    picture = figure.axes[0].get_images()[0].get_array()
    assert picture.max() == 1 and (picture[5, :27] == 1).all()  # the bar


def test_noise_has_more_high_frequencies_and_less_kurtosis_than_a_bar():
    table = caltech.class_sharpness_table([record(), record("ketch")]).astype(float)
    assert table.index.tolist() == [(name, stage) for name in ("stop sign", "ketch") for stage in STAGES]
    assert table.columns.tolist() == [
        (words, f"layer {n}") for words in ("energy above half Nyquist", "gradient kurtosis") for n in (1, 2, 3)
    ]
    bar, noise = table.loc["stop sign", "pretrained"], table.loc["stop sign", "refined"]
    assert (noise["energy above half Nyquist"] > bar["energy above half Nyquist"]).all()
    assert (noise["gradient kurtosis"] < bar["gradient kurtosis"]).all()
    assert noise["gradient kurtosis", "layer 3"] == pytest.approx(3, abs=0.2)  # Gaussian


def test_examples_of_every_class_in_a_row():
    images = np.zeros((2, 8, 8), np.int8)
    images[:, 2:4] = 100
    both = [record().assign(images=(("example", "row", "col"), images)), record("ketch")]
    both[1] = both[1].assign(images=(("example", "row", "col"), -images))
    axes = caltech.show_examples(both).axes
    assert [panel.get_ylabel() for panel in axes] == ["stop\nsign", "ketch"]
    assert [np.ma.filled(panel.get_images()[0].get_array(), 0).min() for panel in axes] == [0, -1]


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


def test_weight_at_the_winning_positions_beside_chance():
    table = caltech.winning_table([record()])
    assert table.index.tolist() == ["stop sign", "spread evenly"]
    assert table.values.tolist() == [["10", "30"], ["6", "25"]]


def test_log_joint_over_the_sweeps():
    figure = caltech.show_class_traces([record(), record("ketch")])
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines[:2]] == ["stop sign", "ketch"]
    assert lines[0].get_ydata()[[0, -1]] == pytest.approx([-200.9, 0])  # thousands, less the last
    assert lines[2].get_xdata() == [1500, 1500]
    sweeps, rise, over_spread, *active = caltech.rise_table([record()]).loc["stop sign"]
    # a hundred a sweep over 500 sweeps, about which the values jump by 500 up and down
    assert sweeps == "500" and rise.startswith("50,0") and over_spread == "100.0"
    assert active == ["25", "90", "30"]
