"""The log beside a record: what it says, what it never says, and what happens when it cannot be written."""

import errno
import re

import pytest

from gdd.base.checks import GddError
from gdd_book.runlog import RunLog


def lines(path):
    """Lines without their times."""
    found = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  \S", line) for line in found)
    return [line[25:] for line in found]


def test_stages_of_this_run_and_of_earlier_ones(tmp_path, clock, capsys):
    path = tmp_path / "r.log"
    with RunLog(path, ["start: r"]) as log:
        log.stage("pretraining, layer 1", 80, 80, 600.0, "a")
        log.stage("pretraining, layer 2", 80, 30, 200.0, "b")
        log.stage("refinement, all layers", 50, 0, 0.0, "c")
        clock[0] = 1000.0
        log.stage("pretraining, layer 1", 80, 80, 600.0, "a")  # read once more
        log.stage("pretraining, layer 2", 80, 80, 700.0, "b")  # finished by this very run
        assert log.seconds == 1800.0
        log.end(tmp_path / "r.nc")
    assert lines(path)[:-1] == [
        "start: r",
        "pretraining, layer 1: 80 sweeps found finished (10 min in earlier runs)",
        "pretraining, layer 2: resumed after sweep 30 of 80 (3 min in earlier runs)",
        "refinement, all layers: 50 sweeps",
    ]
    assert lines(path)[-1].startswith("end: r.nc, 30 min, 13 min of them in earlier runs, peak memory ")
    said = capsys.readouterr().err
    assert "gdd: pretraining, layer 2: resumed after sweep 30 of 80" in said
    assert "refinement" not in said


def test_a_second_run_adds_its_lines(tmp_path):
    for text in ("one", "two"):
        with RunLog(tmp_path / "r.log", [text]):
            pass
    assert lines(tmp_path / "r.log") == ["one", "two"]


def test_an_error_is_the_last_line_without_folders(tmp_path):
    path = tmp_path / "r.log"
    with pytest.raises(GddError), RunLog(path, []):
        raise GddError(f"checkpoint: {tmp_path}/a/layer1.npz and '{tmp_path}/b.npz' are at 3/4 of 5 sweeps/s")
    (line,) = lines(path)
    assert line.startswith("stopped: checkpoint: layer1.npz and 'b.npz' are at 3/4 of 5 sweeps/s, peak memory")
    assert str(tmp_path) not in path.read_text()


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GddError, match="run log .*cannot be written.*GDD_RESULTS"):
        RunLog(tmp_path / "file" / "r.log", ["start"])


def test_a_disk_that_fills_up_later_costs_lines_only(tmp_path, monkeypatch, capsys):
    log = RunLog(tmp_path / "r.log", ["start"])

    def full(text):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log, "_add", full)
    log.write("one")
    log.write("two")
    assert capsys.readouterr().err.count("No space left on device") == 1
