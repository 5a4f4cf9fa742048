"""Damaged and foreign files: one of our own errors, and the files are left as they were."""

import gzip
import io
import tarfile

import numpy as np
import pytest
import xarray as xr
from abuse_values import GIVEN, answer_of
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gdd_book import records
from gdd_book.data import sources

FEW, MANY = 10, 250


@pytest.fixture(params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def examples(request):
    return request.param


#: what may lie at a path in place of the right file
STRANGERS = (
    b"", b"\0", b"\0" * 3000, b"CDF\x01" + b"\0" * 40, b"\x89HDF\r\n\x1a\n" + b"\xff" * 200, b"PK\x03\x04",
    b"BZh91AY&SY\0", b"\xfd7zXZ\0\0\0", gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12), gzip.compress(b"\0" * 10**7),
    b"\x1f\x8b", b"\x93NUMPY\x01\0",
)


@st.composite
def damaged(draw, whole):
    """Bytes of a file cut short, with bytes changed, with a part doubled or left out; or of another kind of file."""
    kind = draw(st.sampled_from(["cut", "changed", "changed", "moved", "stranger"]))
    if kind == "stranger":
        return draw(st.sampled_from(STRANGERS) | st.binary(max_size=200))
    place = draw(st.integers(0, len(whole) - 1))
    if kind == "cut":
        return whole[:place]
    if kind == "moved":
        return whole[:place] + whole[draw(st.integers(0, len(whole) - 1)) :]
    out = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        out[draw(st.integers(0, min(len(out), 2000) - 1) | st.integers(0, len(out) - 1))] = draw(st.integers(0, 255))
    return bytes(out)


def tar_file(folder):
    """A small archive of pictures in the form of Caltech 256."""
    path = folder / "caltech256" / "256_ObjectCategories.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        for name in ("001.ak47/1.jpg", "001.ak47/2.jpg", "002.bear/1.jpg"):
            picture = io.BytesIO()
            Image.new("L", (9, 9), 50).save(picture, "JPEG")
            entry = tarfile.TarInfo(f"256_ObjectCategories/{name}")
            entry.size = picture.tell()
            archive.addfile(entry, io.BytesIO(picture.getvalue()))
    return path, lambda: [*sources.pictures(path)]  # an archive of unknown content is read only if its MD5 is right


def record_file(folder):
    """A small record."""
    dataset = xr.Dataset({"total": ("atom", np.arange(3.0))})
    path = records.write(folder / "one.nc", dataset, **RECORD)
    return path, lambda: records.provenance(records.read(path))


RECORD = {"experiment": "planted", "scale": "demo", "spec": {}, "parameters": {"n": 1}, "seed": 0,
          "data_name": "digits", "data_checksum": "ab", "seconds": 1.0}


@pytest.mark.parametrize("file", [tar_file, record_file])
def test_damaged_files(file, examples, tmp_path):
    """Some must be refused, and the reading must not change any."""
    (path, read), answers = file(tmp_path), []
    whole = path.read_bytes()
    read()

    @GIVEN(max_examples=examples)
    @given(damaged(whole))
    def run(content):
        path.write_bytes(content)
        answers.append(answer_of(read, may_be_nan=True))
        assert path.read_bytes() == content

    run()
    assert "own error" in answers
