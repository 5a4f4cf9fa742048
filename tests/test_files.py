"""Files written whole: the old one stays until the new one is there; what killed processes leave is removed."""

import os
import stat
import time
from pathlib import Path

import pytest

import gdd
from gdd.base import files
from gdd.base.checks import GddError
from gdd.base.files import written_whole
from gdd_book import checkout, progress, records
from gdd_book.data import sources


def write(path, text):
    with written_whole(path) as part:
        part.write_text(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt(), ValueError("no")])
def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path, error):
    path = tmp_path / "f.txt"
    write(path, "one")
    with pytest.raises(type(error)), written_whole(path) as part:
        part.write_text("half")
        raise error
    assert names(tmp_path) == ["f.txt"]
    assert path.read_text() == "one"


def test_what_killed_processes_left_goes_after_an_hour(tmp_path):
    """Until then it may be what a living one is writing, here or on another machine."""
    for name, age in {".f.txt.old.part": 2, ".f.txt.new.part": 0.5, ".other.txt.old.part": 2}.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age * files.HOUR,) * 2)
    write(tmp_path / "f.txt", "one")
    assert names(tmp_path) == [".f.txt.new.part", ".other.txt.old.part", "f.txt"]


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


def test_a_tilde_is_the_home_folder_wherever_a_path_is_given(home, fitted, digits, monkeypatch):
    fitted.save("~/m.nc")
    assert gdd.load("~/m.nc").n_features_in_ == fitted.n_features_in_
    gdd.DeepDeconvolution(**fitted.get_params() | {"checkpoint": "~/ck"}).fit(digits)
    for name in ("GDD_RESULTS", "GDD_CACHE", "GDD_DATA"):
        monkeypatch.setenv(name, "~")
    assert checkout.results() == home and progress.checkpoints() == home / "checkpoints" and sources._roots()[0] == home
    assert names(home) == ["ck", "m.nc"] and names(Path.cwd()) == []


@pytest.mark.parametrize("path", [
    "", "a\0b", b"m.nc", None, "\udcff", "~nobody-of-this-name/m.nc", "s3://bucket/m.nc",
])
def test_wrong_paths_are_refused_before_any_work(home, fitted, digits, path, monkeypatch):
    monkeypatch.setattr(gdd.DeepDeconvolution, "to_dataset", None)  # would be the first work
    monkeypatch.setattr(gdd.estimator, "pretrain_layers", None)
    calls = [lambda: fitted.save(path), lambda: gdd.load(path), lambda: records.read(path)]
    calls += [lambda: gdd.DeepDeconvolution(checkpoint=path).fit(digits)] if path is not None else []
    for call in calls:
        with pytest.raises(GddError, match="^(path|checkpoint): .* (given|needed)"):
            call()
    assert names(Path.cwd()) == []
