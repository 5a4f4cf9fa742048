"""The command line: what it runs, what it prints, and how it fails."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd.cuda import device
from gdd_book import experiments, records, run
from gdd_book.experiments.common import EXPERIMENTS, Experiment
from gdd_book.progress import Run, checkpoints


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """An experiment of every kind of parameter, which counts its runs and keeps a checkpoint."""
    seen = []

    def work(parameters, run):
        """Count a run."""
        seen.append(parameters)
        folder = run.folder("toy", parameters)
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "sweeps.txt"  # as a chain would: sweeps done
        done = int(kept.read_text()) if kept.exists() else 0
        with run.bar(3, "toy") as bar:
            bar.begin("layer 1", 3, done, 100.0 * done, "toy's chain")
            bar.step(residual=0.1, active=4)
        kept.write_text(str(done + 1))
        if parameters["stop"]:
            raise KeyboardInterrupt
        data = xr.Dataset({"total": ("atom", np.full(2, parameters["n"]))})
        return experiments.Outcome(data, {"layers": 1}, "digits", "cd" * 32, parameters["seed"])

    settings = {"n": 5, "seed": 0, "noise": 0.5, "stop": False, "sizes": (100, 200), "data": "digits"}
    toy = Experiment("toy", work, {"demo": settings, "paper": settings | {"n": 50}}, {}, False)
    monkeypatch.setitem(EXPERIMENTS, "toy", toy)
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GDD_CACHE", str(tmp_path / "cache"))
    return seen


def test_run_writes_a_record_and_prints_where(toy, capsys):
    assert run.main(["run", "toy", "-p", "n", "7", "-p", "sizes", "1", "2", "3", "-p", "noise=1e-2"]) == 0
    path = records.path_for("toy", "demo", {"n": 7, "sizes": (1, 2, 3), "noise": 0.01})
    assert capsys.readouterr().out.strip() == str(path)
    back = records.read(path)
    assert records.durations("toy")[2:] == [f"{path.stem}: {back.seconds / 60:.1f} min, {back.machine}"]
    assert back.total.values.tolist() == [7, 7]
    assert json.loads(back.attrs["parameters"])["sizes"] == [1, 2, 3]
    assert toy == [{"n": 7, "seed": 0, "noise": 0.01, "stop": False, "sizes": (1, 2, 3), "data": "digits"}]


@pytest.mark.parametrize(("arguments", "message"), [
    (["nothing"], "experiment 'nothing' is not known; choose from bench, calibration,"),
    (["toy", "-p", "m", "1"], "has no parameter m; it has n, seed, noise, stop, sizes, data"),
    (["toy", "-p", "sizes", "1", "1"], "parameter sizes: (1, 1) given; one or more different values"),
])
def test_errors_are_one_line_and_no_work_is_done(toy, capsys, arguments, message):
    assert run.main(["run", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert toy == []


def test_a_device_is_refused_before_any_work_or_named_in_the_record(toy, capsys, monkeypatch):
    """The record has the same name, as the chains are the same."""
    asked = ["run", "toy", "--device", "cuda"]
    monkeypatch.setattr(device.cuda, "is_available", lambda: False)
    assert run.main(asked) == 2
    assert "no NVIDIA graphics processor" in capsys.readouterr().err and toy == []
    monkeypatch.setattr(device, "check_available", lambda: None)
    monkeypatch.setattr(device, "name", lambda: "Model 1")
    assert run.main(asked) == 0
    assert capsys.readouterr().out.strip() == str(records.path_for("toy", "demo"))
    assert records.find("toy", "demo").attrs["machine"].endswith("chains on Model 1")


def checkpoints_of(tmp_path):
    return sorted((tmp_path / "cache" / "checkpoints").iterdir())


def test_interrupt_says_how_to_go_on_and_keeps_checkpoints(toy, capsys, tmp_path):
    asked = ["run", "toy", "-p", "stop", "true", "-p", "sizes", "1, 2"]
    assert run.main([*asked, "--restart"]) == 130
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].strip() == "gdd run toy -p stop true -p sizes '1, 2'"
    assert run.main([*shlex.split(said[-1])[1:]]) == 130  # it goes on, and is interrupted again
    assert re.search(r"toy, layer 1: .* 1/3 ", capsys.readouterr().err)
    assert len(checkpoints_of(tmp_path)) == 1
    assert not list((tmp_path / "results").glob("*.nc"))


def test_restart_sets_old_checkpoints_aside(toy, tmp_path):
    (folder := Run(checkpoints()).folder("toy", experiments.defaults("toy", "demo"))).mkdir(parents=True)
    (folder / "sweeps.txt").write_text("2")
    for number in (1, 2):
        assert run.main(["run", "toy", "--restart"]) == 0
        assert (folder / "sweeps.txt").read_text() == "1"
        names = [path.name for path in checkpoints_of(tmp_path)]
        assert names == [folder.name, *(f"{folder.name}.aside{n + 1}" for n in range(number))]
    assert (folder.with_name(names[1]) / "sweeps.txt").read_text() == "2"


def test_results_that_cannot_be_written_are_told_before_any_work(toy, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path / "file" / "results"))
    assert run.main(["run", "toy"]) == 2
    assert "set GDD_RESULTS" in capsys.readouterr().err
    assert toy == []


def test_every_experiment_keeps_the_contract():
    """The same names in every scale; parameters of kinds that the command can read."""
    for name, experiment in EXPERIMENTS.items():
        assert name == experiment.name and set(experiment.scales) <= set(experiments.SCALES)
        kinds = {tuple(sorted((key, type(value).__name__) for key, value in known.items()))
                 for known in experiment.scales.values()}
        assert len(kinds) == 1, f"{name}: scales differ in names or types"
        assert {kind for _, kind in kinds.pop()} <= {"int", "float", "str", "bool", "tuple"}
    with pytest.raises(GddError, match="is not known"):
        experiments.get("no-such-experiment")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_cannot_be_written_is_one_line():
    command = "import sys; from gdd_book.run import main; sys.exit(main(['data']))"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", command], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("gdd: output: cannot be written ([Errno 28]") and done.stderr.count("\n") == 1
