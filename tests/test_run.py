"""The command line: what it runs, what it prints, what its log says, and how it fails."""

import errno
import json
import os
import re
import shlex

import numpy as np
import pytest
import xarray as xr

from gdd.base.checks import GddError
from gdd_book import experiments, launch, records, run
from gdd_book.experiments.registry import EXPERIMENTS, Experiment
from gdd_book.progress import LOG, Run, checkpoints


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """An experiment of every kind of parameter, which counts its runs and keeps a checkpoint."""
    seen = []

    def work(parameters, run):
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


def toy_folder(**changes):
    """Where the toy keeps its checkpoint."""
    return Run(checkpoints()).folder("toy", experiments.defaults("toy", "demo") | changes)


def test_run_writes_a_record_and_prints_where(toy, capsys):
    assert run.main(["run", "toy", "-p", "n", "7", "-p", "sizes", "1", "2", "3", "-p", "noise=1e-2"]) == 0
    path = records.path_for("toy", "demo", {"n": 7, "sizes": (1, 2, 3), "noise": 0.01})
    assert capsys.readouterr().out.strip() == str(path)
    back = records.read(path)
    assert back.total.values.tolist() == [7, 7]
    assert json.loads(back.attrs["parameters"])["sizes"] == [1, 2, 3]
    assert toy == [{"n": 7, "seed": 0, "noise": 0.01, "stop": False, "sizes": (1, 2, 3), "data": "digits"}]


def test_parameters_are_listed_as_they_are_to_be_typed_and_no_work_is_done(toy, capsys):
    assert run.main(["run", "toy", "--scale", "paper", "-p", "noise", "1e-2", "--parameters"]) == 0
    assert capsys.readouterr().out.split("\n")[:5] == ["n 50", "seed 0", "noise 0.01", "stop False", "sizes 100 200"]
    assert toy == []


def test_names_are_not_broken_in_the_help(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        run.main(["run", "--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert set(experiments.names()) <= set(words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "experiment 'nothing' is not known; choose from bench, calibration,"),
        (["toy", "-p", "m", "1"], "has no parameter m; it has n, seed, noise, stop, sizes, data"),
        (["toy", "-p", "n", "1.5"], "parameter n: '1.5' given, a whole number needed, such as -p n 5"),
        (["toy", "-p", "sizes", "1", "b"], "parameter sizes: '1 b' given, whole numbers needed"),
        (["toy", "-p", "sizes", "1", "1"], "parameter sizes: (1, 1) given; one or more different values"),
        (["toy", "-p", "n", "1", "-p", "n", "2"], "parameter n: given twice"),
    ],
)
def test_errors_are_one_line_and_no_work_is_done(toy, capsys, arguments, message):
    assert run.main(["run", *arguments]) == 2
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
    assert run.main([*asked, "--restart"]) == 130
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].strip() == "gdd run toy --scale demo -p stop true -p sizes '1, 2'"
    assert run.main([*shlex.split(said[-1])[1:]]) == 130  # it goes on, and is interrupted again
    assert "gdd: toy, layer 1: resumed after sweep 1 of 3 (100 s in earlier runs)" in capsys.readouterr().err
    assert len(checkpoints_of(tmp_path)) == 1
    assert not list((tmp_path / "results").glob("*.nc"))


def test_seconds_of_earlier_runs_are_in_the_record_and_all_runs_in_the_log(toy, tmp_path):
    (folder := toy_folder()).mkdir(parents=True)
    (folder / "sweeps.txt").write_text("2")
    assert run.main(["run", "toy"]) == 0
    seconds = records.read(records.path_for("toy", "demo")).attrs["seconds"]
    assert 200 <= seconds < 260
    log = log_of("toy", "demo")
    for part in (
        "start: toy, demo scale", '"n": 5', "machine: ", "resumed after sweep 2 of 3", "toy: done in",
        "end: toy--demo.nc", "of them in earlier runs, peak memory",
    ):
        assert part in log
    assert str(tmp_path) not in log and os.uname().nodename not in log


def test_restart_sets_old_checkpoints_aside(toy, capsys, tmp_path):
    (folder := toy_folder()).mkdir(parents=True)
    (folder / "sweeps.txt").write_text("2")
    for number in (1, 2):
        assert run.main(["run", "toy", "--restart"]) == 0
        assert "resumed" not in log_of("toy", "demo")
        kept = [path.name for path in checkpoints_of(tmp_path)]
        assert kept == [f"{folder.name}.aside{n + 1}" for n in range(number)]
        folder.mkdir()
    assert (folder.with_name(kept[0]) / "sweeps.txt").read_text() == "2"
    assert f"set aside: {folder.with_name(kept[1])}" in capsys.readouterr().err


def test_results_that_cannot_be_written_are_told_before_any_work(toy, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path / "file" / "results"))
    assert run.main(["run", "toy"]) == 2
    assert "set GDD_RESULTS" in capsys.readouterr().err
    assert toy == []


def test_a_record_that_cannot_be_written_keeps_checkpoints_and_the_old_record(toy, capsys, tmp_path, monkeypatch):
    assert run.main(["run", "toy"]) == 0
    before = records.path_for("toy", "demo").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert run.main(["run", "toy"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert records.path_for("toy", "demo").read_bytes() == before
    assert len(checkpoints_of(tmp_path)) == 1
    assert "stopped: record toy--demo.nc: cannot be written" in log_of("toy", "demo")


def test_checkpoints_go_once_the_record_is_written(toy, tmp_path):
    assert run.main(["run", "toy"]) == 0
    assert list((tmp_path / "cache" / "checkpoints").iterdir()) == []


def test_checkpoint_folder_depends_on_every_parameter(toy):
    assert toy_folder(sizes=(1, 2)) == toy_folder(sizes=[1, 2])
    assert toy_folder() != toy_folder(n=6)
    assert toy_folder() != Run(checkpoints()).folder("bench", experiments.defaults("toy", "demo"))
    assert Run().folder("toy", {}) is None


def test_bench_prints_the_tables_of_its_record(toy, capsys, monkeypatch):
    from gdd_book.benchmarks.harness import as_dataset, single

    measured = as_dataset({"images": {"sweep of 9 images": single(1.25, "ms per image")}})
    outcome = experiments.Outcome(measured, {"layers": 1}, "digits", "cd" * 32, 0)
    idle = EXPERIMENTS["toy"]._replace(name="bench", run=lambda parameters, run: toy.append(parameters) or outcome)
    monkeypatch.setitem(EXPERIMENTS, "bench", idle)
    assert run.main(["bench", "-p", "n", "9"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"sweep of 9 images +1\.25 +1\.25 +ms per image", printed)
    assert "not measured" in printed
    assert toy[0]["n"] == 9


def test_data_says_what_is_here(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GDD_DATA", str(tmp_path))
    monkeypatch.setattr("gdd_book.data.sources.cache_folder", lambda: tmp_path)
    assert run.main(["data"]) == 0
    digits, *others = capsys.readouterr().out.splitlines()
    assert digits.startswith("digits") and len(others) == 6
    assert all("missing; from https://" in line for line in others)


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


def test_seconds_are_of_all_runs_of_a_command(toy, monkeypatch, clock):
    """Work that no chain counts, in a run that was stopped and in the one that made the record."""
    work = EXPERIMENTS["toy"].run

    def slow(parameters, run):
        clock[0] += 1000.0
        return work(parameters, run)

    monkeypatch.setitem(EXPERIMENTS, "toy", EXPERIMENTS["toy"]._replace(run=slow))
    stopped = ["run", "toy", "-p", "stop", "true"]
    assert run.main(stopped) == run.main(stopped) == 130
    monkeypatch.setitem(EXPERIMENTS, "toy", EXPERIMENTS["toy"]._replace(
        run=lambda parameters, run: slow(parameters | {"stop": False}, run)))
    assert run.main(stopped) == 0
    record = records.read(records.path_for("toy", "demo", {"stop": True}))
    assert record.attrs["seconds"] == 3000.0  # the toy's chain was begun by these runs: not counted again
    assert "50 min, 33 min of them in earlier runs" in log_of("toy", "demo", {"stop": True})


def test_seconds_of_a_killed_run_are_kept(toy, monkeypatch, clock):
    monkeypatch.setattr(launch, "SECONDS_BETWEEN_SAVES", 0.01)
    one = Run(checkpoints())
    one.count_seconds(toy_folder() / "seconds.json")
    clock[0] = 70.0
    with launch.saved_now_and_then(one):
        while not (toy_folder() / "seconds.json").exists():
            pass
        again = Run(checkpoints())
        again.count_seconds(toy_folder() / "seconds.json")
    assert again.before == 70.0


# the log


def lines(path):
    """Lines without their times."""
    found = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  \S", line) for line in found)
    return [line[25:] for line in found]


def test_stages_of_this_run_and_of_earlier_ones(tmp_path, clock, capsys):
    path, one = tmp_path / "r.log", Run()
    with launch.logged(path), one.bar(200, "pretraining") as bar:
        bar.begin("layer 1", 80, 80, 600.0, "a")
        bar.begin("layer 2", 80, 30, 200.0, "b")
        bar.begin("all layers", 50, 0, 0.0, "c")
        clock[0] = 1000.0
        bar.begin("layer 1", 80, 80, 600.0, "a")  # read once more
        bar.begin("layer 2", 80, 80, 700.0, "b")  # finished by this very run
        assert one.seconds == 1800.0
    assert lines(path) == [
        "pretraining, layer 1: 80 sweeps found finished (10 min)",
        "pretraining, layer 2: resumed after sweep 30 of 80 (3 min in earlier runs)",
        "pretraining, all layers: 50 sweeps", "pretraining: done in 17 min",
    ]
    said = capsys.readouterr().err
    assert "gdd: pretraining, layer 2: resumed after sweep 30 of 80" in said and "all layers" not in said


def test_a_second_run_adds_its_lines(tmp_path):
    for text in ("one", "two"):
        with launch.logged(tmp_path / "r.log"):
            LOG.info(text)
    assert lines(tmp_path / "r.log") == ["one", "two"]


def test_an_error_is_the_last_line_without_folders(tmp_path):
    path = tmp_path / "r.log"
    with pytest.raises(GddError), launch.logged(path):
        raise GddError(f"checkpoint: {tmp_path}/a/layer1.npz and '{tmp_path}/b.npz' are at 3/4 of 5 sweeps/s")
    (line,) = lines(path)
    assert line.startswith("stopped: checkpoint: layer1.npz and 'b.npz' are at 3/4 of 5 sweeps/s, peak memory")
    assert str(tmp_path) not in path.read_text()


def test_a_disk_that_fills_up_later_costs_lines_only(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with launch.logged(tmp_path / "r.log"):
        monkeypatch.setattr(LOG.handlers[0].stream, "write", full, raising=False)
        LOG.info("one")
        LOG.info("two")
    assert capsys.readouterr().err.count("No space left on device") == 1
