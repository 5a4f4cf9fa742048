"""Damaged and foreign files, and odd command lines: one of our own errors, and the files are left as they were."""

import gzip
import io
import tarfile
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
import xarray as xr
from abuse_values import GIVEN, answer_of
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gdd.base.checks import GddError
from gdd_book import experiments, records, run
from gdd_book.data import datasets, sources

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


def abused(strategy, call, examples):
    """Try generated cases on one call; some must be refused."""
    answers = []

    @GIVEN(max_examples=examples)
    @given(strategy)
    def run(case):
        answers.append(answer_of(lambda: call(case), may_be_nan=True))

    run()
    assert "own error" in answers


def abused_file(path, read, examples):
    """Read a file in many damaged states; the reading must not change it."""

    def call(content):
        path.write_bytes(content)
        try:
            read()
        finally:
            assert path.read_bytes() == content

    whole = path.read_bytes()
    call(whole)
    abused(damaged(whole), call, examples)


def idx_file(folder):
    """A file in the place of MNIST's first."""
    path = folder / "mnist" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"\0\0\x08\x03" + b"\0\0\0\x01" * 3 + b"\x07"))
    return path, lambda: datasets.load("mnist")


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


FILES = {"idx file": idx_file, "archive": tar_file, "record": record_file}


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(name, examples, tmp_path, monkeypatch):
    monkeypatch.setenv("GDD_DATA", str(tmp_path))
    monkeypatch.setattr(sources, "_fetch", _nothing_fetched)
    if name == "idx file":  # the right content would be MNIST's
        path, read = FILES[name](tmp_path)
        with pytest.raises(GddError, match="published"):
            read()
        abused(damaged(path.read_bytes()), lambda content: (path.write_bytes(content), read()), examples)
    else:
        abused_file(*FILES[name](tmp_path), examples)


def _nothing_fetched(source):
    raise GddError(f"{source.dataset}: not here")


RECORD = {"experiment": "planted", "scale": "demo", "spec": {}, "parameters": {"n": 1}, "seed": 0,
          "data_name": "digits", "data_checksum": "ab", "seconds": 1.0}


texts = st.sampled_from(
    ["0", "-1", "1", "7", "nan", "inf", "1e400", "1e-3", "1_0", "\u0663", "", "true", "a,b", "1,1", "1,2", "digits",
     "mnist", "shift", "mean", "ml_sample,mean", "caltech101", "9" * 5000, "0x10", "None", "..", "/", "a" * 300,
     "\udcff", "--help"]
) | st.text(max_size=6)


@st.composite
def command_lines(draw):
    """Words after ``gdd``; nothing that would build the book or ask the network."""
    name = draw(st.sampled_from([*experiments.names(), "nothing", ""]))
    known = list(experiments.defaults(name, "demo")) if name in experiments.names() else ["n"]
    pairs = draw(st.lists(st.tuples(st.sampled_from([*known, "odd"]), texts), max_size=2))
    line = ["run", name, *(word for pair in pairs for word in ("-p", *pair))]
    scale = draw(st.sampled_from([None, "demo", "paper", "large", ""]))
    line += [] if scale is None else ["--scale", scale]
    other = st.sampled_from([["data"], ["data", "fetch"], ["bench", "now"], ["run"], [], ["data", "fetch", "imagenet"]])
    return draw(st.just(line) | other | st.lists(texts.filter("book".__ne__), max_size=2))


def test_command_lines(examples, tmp_path, monkeypatch):
    """Experiments do nothing here: what is refused must be refused before they begin."""
    monkeypatch.setenv("GDD_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("GDD_CACHE", str(tmp_path / "cache"))
    outcome = experiments.Outcome(xr.Dataset({"total": 1.0}), {}, "digits", "ab", 0)
    for name in experiments.names():
        idle = experiments.get(name)._replace(run=lambda parameters, run: outcome)
        monkeypatch.setitem(experiments.EXPERIMENTS, name, idle)

    def call(line):
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
            try:
                code = run.main(line)
            except SystemExit as stopped:  # argparse, which has said why
                code = stopped.code
        assert code in (0, 2)
        if code:
            assert said.getvalue().strip()
            raise GddError(f"gdd: {said.getvalue()[:500]}")

    abused(command_lines(), call, examples)
