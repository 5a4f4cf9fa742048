"""The command ``gdd`` where its lines go to a full disk; MNIST's files packed and unpacked."""

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gdd_book.data import datasets, sources

COMMAND = [sys.executable, "-c", "import sys; from gdd_book.run import main; sys.exit(main())"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "data"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("gdd: output: cannot be written ([Errno 28]") and done.stderr.count("\n") == 1


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
