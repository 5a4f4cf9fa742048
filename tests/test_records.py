"""Records: what goes in comes out, with its provenance; a failure leaves what was there."""

import json
import os

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd.model import spec
from gdd_book import checkout, records
from gdd_book.experiments.common import EXPERIMENTS, Experiment


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """An experiment that exists for the length of one test, and a results folder of its own."""
    settings = {"demo": {"n": 5, "name": "a b"}, "paper": {"n": 50, "name": "a b"}}
    monkeypatch.setitem(EXPERIMENTS, "toy", Experiment("toy", None, settings, {}, False))
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path))


@pytest.fixture
def results():
    return xr.Dataset(
        {
            "error": (("draw",), np.array([0.25, 1 / 3, np.nan])),
            "kept": (("draw",), np.array([True, False, True])),
            "method": (("label",), np.array(["one-step", "größer"])),
            "count": (("atom",), np.arange(4, dtype=np.int16)),
        },
        attrs={"unit": "%"},
    )


def write(path, dataset, **changes):
    return records.write(
        path, dataset,
        **{"experiment": "toy", "scale": "demo", "parameters": {"n": 5, "name": "a b"}, "spec": spec.MNIST, "seed": 3,
           "data_name": "digits", "data_checksum": "ab" * 32, "seconds": 1.5} | changes,
    )


def test_round_trip_keeps_values_types_and_attributes(tmp_path, results):
    back = records.read(write(tmp_path / "r.nc", results))
    xr.testing.assert_identical(back.drop_attrs(), results.drop_attrs())
    assert back.attrs["unit"] == "%"
    assert {name: v.dtype.kind for name, v in back.items()} == {"error": "f", "kept": "b", "method": "U", "count": "i"}


def test_runs_that_differ_in_their_subsets_alone_are_one(toy, tmp_path):
    for name, n, seeds in (("a", 5, [2]), ("b", 5, [0, 2]), ("c", 6, [0])):
        values = [n + seed + 0.5 * (name == "b") for seed in seeds]
        errors = xr.Dataset({"error": ("subset", values)}, {"subset": seeds})
        write(tmp_path / f"toy--paper--{name}.nc", errors, scale="paper", parameters={"n": n, "seeds": seeds})
    whole = records.fullest("toy")
    assert whole.error.to_series().to_dict() == {0: 5.5, 2: 7.0}
    assert records.settings(whole) == {"n": 5, "seeds": [0, 2]}
    assert whole.attrs["seconds"] == 3.0
    errors = xr.Dataset({"error": ("subset", [1.0, 2.0])}, {"subset": [0, 2]})
    write(tmp_path / "toy--paper--0.nc", errors, scale="paper", parameters={"n": 50, "name": "c", "seeds": [0, 2]})
    write(tmp_path / "toy--paper--z.nc", errors, scale="paper", parameters={"n": 50, "name": "a b", "seeds": [0, 2]})
    assert records.settings(records.fullest("toy")) == {"n": 50, "name": "a b", "seeds": [0, 2]}


def test_provenance_is_whole(tmp_path, results):
    record = records.read(write(tmp_path / "r.nc", results))
    line, back = records.provenance(record), record.attrs
    assert all(part in line for part in ("toy", "demo scale", "n 5", "digits", "seed 3", "2 s", "abababababab"))
    assert [layer["atoms"] for layer in json.loads(back["spec"])["layers"]] == [32, 160]
    assert json.loads(back["libraries"])["numpy"] == np.__version__ and len(back["code_sha256"]) == 64
    assert back["peak_memory_bytes"] > 10e6  # an interpreter with numpy cannot be smaller
    assert os.uname().nodename not in back["machine"]


def test_names_are_deterministic_and_hold_only_what_differs(toy, tmp_path):
    assert records.path_for("toy", "demo") == tmp_path / "toy--demo.nc"
    assert records.path_for("toy", "demo", {"n": 5}) == tmp_path / "toy--demo.nc"
    assert records.path_for("toy", "paper", {"n": 5, "name": "c/d"}) == tmp_path / "toy--paper--n-5--name-c_d.nc"
    with pytest.raises(GddError, match="has no parameter m; it has n, name"):
        records.path_for("toy", "demo", {"m": 1})
    with pytest.raises(GddError, match="scale 'big' is not known"):
        records.path_for("toy", "big")


def test_a_damaged_record_is_left_out_and_named(toy, tmp_path, results, capsys):
    paths = [write(records.path_for("toy", "demo", {"n": n}), results, parameters={"n": n}) for n in (6, 7, 8)]
    paths[1].write_bytes(paths[1].read_bytes()[:2000])
    assert [records.settings(record)["n"] for record in records.every("toy")] == [6, 8]
    said = capsys.readouterr()
    assert said.out.startswith("left out: record toy--demo--n-7.nc: cannot be read") and said.out.count("\n") == 1
    assert str(tmp_path) not in said.out and said.err == ""  # a chapter with anything on stderr fails the build


@pytest.mark.parametrize("path", sorted((checkout.BOOK / "results").glob("*.nc")), ids=lambda path: path.stem)
def test_every_record_of_the_book_can_be_read(path):
    record = records.read(path)
    experiment, scale, *_ = path.stem.split("--")
    assert (record.attrs["experiment"], record.attrs["scale"]) == (experiment, scale) and records.settings(record)
    assert experiment in records.provenance(record)
