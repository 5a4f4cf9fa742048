"""Files written whole: the old one stays until the new one is there; what killed processes leave is removed."""

import os
import subprocess
import sys

import pytest

from gdd.base.files import written_whole


def write(path, text, previous=None):
    with written_whole(path, previous) as part:
        part.write_text(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_made_and_nothing_else_is_left(tmp_path):
    write(tmp_path / "a" / "b" / "f.txt", "one")
    assert names(tmp_path / "a" / "b") == ["f.txt"]


def test_the_one_before_is_kept_where_asked_for(tmp_path):
    path, before = tmp_path / "f.txt", tmp_path / "f.previous.txt"
    write(path, "one", before)
    assert names(tmp_path) == ["f.txt"]
    write(path, "two", before)
    write(path, "three", before)
    assert (path.read_text(), before.read_text()) == ("three", "two")


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt(), ValueError("no")])
def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path, error):
    path = tmp_path / "f.txt"
    write(path, "one")
    with pytest.raises(type(error)), written_whole(path) as part:
        part.write_text("half")
        raise error
    assert names(tmp_path) == ["f.txt"]
    assert path.read_text() == "one"


def test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for process in (dead.pid, os.getppid(), "xyz"):
        (tmp_path / f".f.txt.{process}.part").write_text("left")
    (tmp_path / f".other.txt.{dead.pid}.part").write_text("left")
    write(tmp_path / "f.txt", "one")
    assert names(tmp_path) == sorted([f".f.txt.{os.getppid()}.part", f".other.txt.{dead.pid}.part", "f.txt"])
