"""The command line: what it runs, what it prints, and how it fails."""

import importlib
import json
import os
import re
import shlex
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd_book import cli, experiments, records


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """An experiment of every kind of parameter, which counts its runs and keeps a checkpoint."""
    seen = []

    def run(parameters, progress):
        seen.append(parameters)
        checkpoints = experiments.checkpoint_folder("toy", parameters)
        checkpoints.mkdir(parents=True, exist_ok=True)
        kept = checkpoints / "sweeps.txt"  # as a chain would: sweeps done
        done = int(kept.read_text()) if kept.exists() else 0
        with progress(3, "toy") as bar:
            bar.begin("layer 1", 3, done, 100.0 * done, "toy's chain")
            bar.step(residual=0.1, active=4)
        kept.write_text(str(done + 1))
        if parameters["stop"]:
            raise KeyboardInterrupt
        data = xr.Dataset({"total": ("atom", np.full(2, parameters["n"]))})
        return experiments.Outcome(data, {"layers": 1}, "digits", "cd" * 32, parameters["seed"])

    settings = {"n": 5, "seed": 0, "noise": 0.5, "stop": False, "sizes": (100, 200), "data": "digits"}
    module = SimpleNamespace(NAME="toy", PARAMETERS={"demo": settings, "paper": settings | {"n": 50}}, run=run)
    monkeypatch.setattr(experiments, "names", lambda: ["bench", "toy"])
    load = importlib.import_module  # others import too: netCDF4 when a record is first written
    toys = {f"gdd_book.experiments.{name}": module for name in experiments.names()}
    monkeypatch.setattr(experiments.importlib, "import_module", lambda name, *more: toys.get(name) or load(name, *more))
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GDD_CACHE", str(tmp_path / "cache"))
    return seen


def test_run_writes_a_record_and_prints_where(toy, capsys):
    assert cli.main(["run", "toy", "-p", "n", "7", "-p", "sizes", "1,2,3", "-p", "noise", "1e-2"]) == 0
    path = records.path_for("toy", "demo", {"n": 7, "sizes": (1, 2, 3), "noise": 0.01})
    assert capsys.readouterr().out.strip() == str(path)
    back = records.read(path)
    assert back.total.values.tolist() == [7, 7]
    assert json.loads(back.attrs["parameters"])["sizes"] == [1, 2, 3]
    assert toy == [{"n": 7, "seed": 0, "noise": 0.01, "stop": False, "sizes": (1, 2, 3), "data": "digits"}]


def test_scale_chooses_the_defaults(toy):
    assert cli.main(["run", "toy", "--scale", "paper"]) == 0
    assert toy[0]["n"] == 50


def test_parameters_are_listed_as_they_are_to_be_typed_and_no_work_is_done(toy, capsys):
    assert cli.main(["run", "toy", "--scale", "paper", "-p", "noise", "1e-2", "--parameters"]) == 0
    assert capsys.readouterr().out.split("\n")[:5] == ["n 50", "seed 0", "noise 0.01", "stop False", "sizes 100,200"]
    assert toy == []


def test_names_are_not_broken_in_the_help(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert set(experiments.names()) <= set(words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "experiment 'nothing' is not known; choose from bench, toy"),
        (["toy", "-p", "m", "1"], "has no parameter m; it has n, seed, noise, stop, sizes, data"),
        (["toy", "-p", "n", "1.5"], "parameter n: '1.5' given, a value like its default 5 needed"),
        (["toy", "-p", "stop", "perhaps"], "a value true or false needed"),
        (["toy", "-p", "sizes", "1,b"], "parameter sizes: '1,b' given, a value like its default (100, 200) needed"),
    ],
)
def test_errors_are_one_line_and_no_work_is_done(toy, capsys, arguments, message):
    assert cli.main(["run", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert toy == []


def checkpoints_of(tmp_path):
    return sorted((tmp_path / "cache" / "checkpoints").iterdir())


def log_of(*parts):
    return records.path_for(*parts).with_suffix(".log").read_text()


def test_interrupt_says_how_to_go_on_and_keeps_checkpoints(toy, capsys, tmp_path):
    asked = ["run", "toy", "-p", "stop", "true", "-p", "sizes", "1, 2"]
    assert cli.main([*asked, "--restart"]) == 130
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].strip() == "gdd run toy --scale demo -p stop true -p sizes '1, 2'"
    assert cli.main([*shlex.split(said[-1])[1:]]) == 130  # it goes on, and is interrupted again
    assert "gdd: toy, layer 1: resumed after sweep 1 of 3 (100 s in earlier runs)" in capsys.readouterr().err
    assert len(checkpoints_of(tmp_path)) == 1
    assert not list((tmp_path / "results").glob("*.nc"))


def test_seconds_of_earlier_runs_are_in_the_record_and_all_runs_in_the_log(toy, tmp_path):
    (folder := experiments.checkpoint_folder("toy", experiments.defaults("toy", "demo"))).mkdir(parents=True)
    (folder / "sweeps.txt").write_text("2")
    assert cli.main(["run", "toy"]) == 0
    seconds = records.read(records.path_for("toy", "demo")).attrs["seconds"]
    assert 200 <= seconds < 260
    log = log_of("toy", "demo")
    for part in (
        "start: toy, demo scale", '"n": 5', "machine: ", "resumed after sweep 2 of 3", "toy: done in",
        "end: toy--demo.nc", "of them in earlier runs, peak memory",
    ):  # fmt: skip
        assert part in log
    assert str(tmp_path) not in log and os.uname().nodename not in log


def test_restart_sets_old_checkpoints_aside(toy, capsys, tmp_path):
    (folder := experiments.checkpoint_folder("toy", experiments.defaults("toy", "demo"))).mkdir(parents=True)
    (folder / "sweeps.txt").write_text("2")
    for number in (1, 2):
        assert cli.main(["run", "toy", "--restart"]) == 0
        assert "resumed" not in log_of("toy", "demo")
        kept = [path.name for path in checkpoints_of(tmp_path)]
        assert kept == [f"{folder.name}.aside{n + 1}" for n in range(number)]
        folder.mkdir()
    assert (folder.with_name(kept[0]) / "sweeps.txt").read_text() == "2"
    assert f"set aside: {folder.with_name(kept[1])}" in capsys.readouterr().err


def test_results_that_cannot_be_written_are_told_before_any_work(toy, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path / "file" / "results"))
    assert cli.main(["run", "toy"]) == 2
    assert "set GDD_RESULTS" in capsys.readouterr().err
    assert toy == []


def test_a_record_that_cannot_be_written_keeps_checkpoints_and_the_old_record(toy, capsys, tmp_path, monkeypatch):
    assert cli.main(["run", "toy"]) == 0
    before = records.path_for("toy", "demo").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(["run", "toy"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert records.path_for("toy", "demo").read_bytes() == before
    assert len(checkpoints_of(tmp_path)) == 1
    assert "stopped: record toy--demo.nc: cannot be written" in log_of("toy", "demo")


def test_checkpoints_go_once_the_record_is_written(toy, tmp_path):
    assert cli.main(["run", "toy"]) == 0
    assert list((tmp_path / "cache" / "checkpoints").iterdir()) == []


def test_checkpoint_folder_depends_on_every_parameter(toy):
    base = {"n": 5, "sizes": (1, 2)}
    assert experiments.checkpoint_folder("toy", base) == experiments.checkpoint_folder("toy", base | {"sizes": [1, 2]})
    assert experiments.checkpoint_folder("toy", base) != experiments.checkpoint_folder("toy", base | {"n": 6})
    assert experiments.checkpoint_folder("toy", base) != experiments.checkpoint_folder("bench", base)


def test_bench_prints_the_tables_of_its_record(toy, capsys, monkeypatch):
    from gdd_book.benchmarks.rows import as_dataset, single

    measured = as_dataset({"images": {"sweep of 9 images": single(1.25, "ms per image", 9)}})
    module = experiments.get("toy")
    outcome = experiments.Outcome(measured, {"layers": 1}, "digits", "cd" * 32, 0)
    monkeypatch.setattr(module, "run", lambda parameters, progress: toy.append(parameters) or outcome)
    assert cli.main(["bench", "-p", "n", "9"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"sweep of 9 images +1\.25 +1\.25 +ms per image", printed)
    assert "not measured" in printed
    assert toy[0]["n"] == 9


def test_data_says_what_is_here(capsys):
    assert cli.main(["data"]) == 0
    assert "digits" in capsys.readouterr().out


def test_data_fetch_of_an_unknown_name(capsys):
    assert cli.main(["data", "fetch", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_bar_is_silent_when_not_on_a_terminal(toy, capsys):
    assert cli.main(["run", "toy"]) == 0
    assert capsys.readouterr().err == ""


def test_every_experiment_keeps_the_contract():
    """Names and scales of the experiments that exist; their parameters must be of kinds that the command can read."""
    for name in experiments.names():
        module = experiments.get(name)
        assert name == module.NAME
        assert set(module.PARAMETERS) <= set(experiments.SCALES)
        kinds = {tuple((key, type(value)) for key, value in known.items()) for known in module.PARAMETERS.values()}
        assert len(kinds) == 1, f"{name}: scales differ in names or types"
        for _, kind in kinds.pop():
            assert kind in (int, float, str, bool, tuple)
    with pytest.raises(GddError, match="is not known"):
        experiments.get("no-such-experiment")
