"""Files written whole: the old one stays until the new one is there; what killed processes leave is removed."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gdd
from gdd.base import files
from gdd.base.checks import GddError
from gdd.base.files import user_path, written_whole
from gdd_book import checkout, progress, records
from gdd_book.data import sources


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


def leave(folder, name, process, place=None, age=0.0):
    """What a writer of such a file has left; return its name."""
    part = folder / f".{name}.{place or files._here()}.{process}.0a1b2c3d.part"
    part.write_text("left")
    os.utime(part, (time.time() - age,) * 2)
    return part.name


def test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    leave(tmp_path, "f.txt", dead.pid)
    stay = [leave(tmp_path, "f.txt", os.getppid()), leave(tmp_path, "other.txt", dead.pid)]
    write(tmp_path / "f.txt", "one")
    assert names(tmp_path) == sorted([*stay, "f.txt"])


def test_a_writer_elsewhere_may_live_for_a_day(tmp_path):
    """On another host, or in another container, process numbers mean other processes."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    stay = leave(tmp_path, "f.txt", dead.pid, "elsewhere", age=3600)
    leave(tmp_path, "f.txt", dead.pid + 1, "elsewhere", age=2 * files.DAY)
    write(tmp_path / "f.txt", "one")
    assert names(tmp_path) == sorted([stay, "f.txt"])


def test_writers_of_one_number_do_not_share_a_temporary_file(tmp_path, monkeypatch):
    """As two containers have, or two threads."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with written_whole(tmp_path / "f.txt") as one, written_whole(tmp_path / "f.txt") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
        assert other.exists() and one.exists()
    assert names(tmp_path) == ["f.txt"]


@pytest.mark.parametrize("changed", ["node", "namespace"])
def test_containers_are_other_places(monkeypatch, changed):
    before = files._here()
    if changed == "node":
        monkeypatch.setattr(files.platform, "node", lambda: "other")
    else:
        monkeypatch.setattr(os, "readlink", lambda path: "pid:[1]")
    assert files._here() != before


def test_a_symbolic_link_and_permissions_stay(tmp_path):
    target, link = tmp_path / "there" / "f.txt", tmp_path / "f.txt"
    write(target, "one")
    target.chmod(0o600)
    link.symlink_to(target)
    with written_whole(link) as part:
        part.write_text("two")
        assert stat.S_IMODE(part.stat().st_mode) == 0o600  # at no time may others read it
    assert link.is_symlink() and target.read_text() == "two" and names(tmp_path) == ["f.txt", "there"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600 and names(target.parent) == ["f.txt"]
    (dangling := tmp_path / "g.txt").symlink_to(target.parent / "g.txt")
    write(dangling, "three")
    assert dangling.is_symlink() and (target.parent / "g.txt").read_text() == "three"


# ---- paths that users give


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, and another one to work in."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture(scope="module")
def fitted():
    images = np.random.default_rng(0).random((6, 11, 15)).astype(np.float32)
    return gdd.DeepDeconvolution(atoms=(4,), pretrain=(1, 2), infer=(1, 2), verbose=False).fit(images), images


def test_a_tilde_is_the_home_folder_wherever_a_path_is_given(home, fitted, monkeypatch):
    model, images = fitted
    model.save("~/m.nc")
    assert gdd.load("~/m.nc").n_features_in_ == model.n_features_in_
    gdd.DeepDeconvolution(**model.get_params() | {"checkpoint": "~/ck"}).fit(images)
    for name in ("GDD_RESULTS", "GDD_CACHE", "GDD_DATA"):
        monkeypatch.setenv(name, "~")
    assert checkout.results() == home and progress.checkpoints() == home / "checkpoints" and sources._roots()[0] == home
    assert names(home) == ["ck", "m.nc"] and names(Path.cwd()) == []


WRONG = ["", "a\0b", b"m.nc", None, 3, "\udcff", "~nobody-of-this-name/m.nc", Path("a\0b"), "s3://bucket/m.nc",
         Path("gs://bucket/m.nc"), "https://example.org/m.nc", "file:///tmp/m.nc", " S3:/b"]


@pytest.mark.parametrize("path", WRONG)
def test_wrong_paths_are_refused_before_any_work(home, fitted, path, monkeypatch):
    model, images = fitted
    monkeypatch.setattr(gdd.DeepDeconvolution, "to_dataset", None)  # would be the first work
    monkeypatch.setattr(gdd.estimator, "pretrain_layers", None)
    calls = [lambda: model.save(path), lambda: gdd.load(path), lambda: records.read(path)]
    calls += [lambda: gdd.DeepDeconvolution(checkpoint=path).fit(images)] if path is not None else []
    for call in calls:
        with pytest.raises(GddError, match="^(path|checkpoint): .* (given|needed)"):
            call()
    assert names(Path.cwd()) == []


def test_folders_and_devices_are_no_files_and_files_are_no_folders(home, fitted, monkeypatch):
    model, images = fitted
    for path in (home, "/dev/null"):
        with pytest.raises(GddError, match="path: .* is a folder or a device"):
            model.save(path)
    (home / "file").touch()
    with pytest.raises(GddError, match="checkpoint: .*file is no folder; name one"):
        gdd.DeepDeconvolution(checkpoint=home / "file").fit(images)
    for name, call in {"GDD_RESULTS": checkout.results, "GDD_CACHE": progress.checkpoints}.items():
        monkeypatch.setenv(name, str(home / "file"))
        with pytest.raises(GddError, match=f"{name}: .*file is no folder; name one"):
            call()


def test_a_path_may_be_named_as_people_do(home):
    for name in ("a b.nc", "größe.nc", "bild\u202f1.nc", "./~.nc"):
        assert user_path("path", name).name == name.removeprefix("./")


def test_a_result_that_cannot_be_kept_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GddError, match="cannot be written .*; free space, and run again"):
        progress.Run(tmp_path / "file").kept("a", lambda: gdd.estimator.xr.Dataset({"a": 1}))
