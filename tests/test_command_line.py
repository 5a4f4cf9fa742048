"""The command ``gdd`` where its lines go somewhere unusual: a full disk, a closed pipe, a terminal of ASCII only."""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gdd_book.data import datasets, sources

COMMAND = [sys.executable, "-c", "import sys; from gdd_book.run import main; sys.exit(main())"]
full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")


def call(*words, stdout=subprocess.PIPE, **environment):
    return subprocess.run(
        [*COMMAND, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, env=os.environ | environment, check=False
    )


@full_disk
@pytest.mark.parametrize("words", [["data"], ["run", "--help"]], ids=" ".join)
def test_output_that_cannot_be_written_is_one_line(words):
    with open("/dev/full", "w") as full:
        done = call(*words, stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("gdd: output: cannot be written ([Errno 28]") and done.stderr.count("\n") == 1


def test_a_reader_that_has_gone_is_one_line():
    read, write = os.pipe()
    os.close(read)
    done = call("data", stdout=write)
    os.close(write)
    assert done.returncode == 2
    assert done.stderr.startswith("gdd: output: cannot be written ([Errno 32]") and done.stderr.count("\n") == 1


def test_a_terminal_of_ascii_only(tmp_path):
    (folder := tmp_path / "größe" / "caltech101").mkdir(parents=True)
    (folder / "101_ObjectCategories.tar.gz").touch()
    environment = {"PYTHONIOENCODING": "ascii", "GDD_DATA": str(folder.parent)}
    done = call("data", **environment)
    assert (done.returncode, done.stderr) == (0, "") and "gr\\xf6\\xdfe" in done.stdout
    done = call("data", **environment | {"GDD_DATA": f"{folder}ö"})
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "is no folder" in done.stderr


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


@pytest.mark.parametrize("way", ["packed", "unpacked", "unpacked under its old name"])
def test_mnist_may_be_unpacked(tmp_path, monkeypatch, way):
    (tmp_path / "mnist").mkdir()
    changed = []
    for source in sources.SOURCES:
        if source.dataset == "mnist":
            shape = (20, 28, 28) if "images" in source.name else (20,)
            content = idx((np.indices(shape).sum(0) % 10).astype(np.uint8))
            name = source.name.removesuffix(".gz") if way == "unpacked" else source.name
            (tmp_path / "mnist" / name).write_bytes(gzip.compress(content) if way == "packed" else content)
            source = source._replace(content=hashlib.sha256(content).hexdigest())
        changed.append(source)
    monkeypatch.setattr(sources, "SOURCES", tuple(changed))
    monkeypatch.setenv("GDD_DATA", str(tmp_path))
    monkeypatch.setattr(sources, "_fetch", None)  # nothing may be fetched
    assert datasets.load("mnist", n=5).label.values.tolist() == [0, 1, 2, 3, 4]


def test_an_archive_may_be_half_unpacked(pictures):
    """A tar archive without its compression, where one with it is expected."""
    whole = pictures / "caltech256" / "256_ObjectCategories"
    (pictures / "caltech101").mkdir()
    shutil.make_archive(str(pictures / "caltech101" / "101_ObjectCategories"), "tar", whole.parent, whole.name)
    (source,) = sources.files_of("caltech101")
    assert source.path.name == "101_ObjectCategories.tar"
    assert len([*sources.pictures(source.path)]) == 40
