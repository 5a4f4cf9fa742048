"""Data sets, their files, planted images, local contrast: values, labels, splits, damaged files, bad arguments."""

import gzip
import hashlib
import re
import shutil
import tarfile
from unittest.mock import Mock

import numpy as np
import pooch
import pytest
import xarray as xr
from PIL import Image
from scipy.stats import binom, chisquare, kstest

from gdd.base.checks import GddError
from gdd.inference.contrast import normalise_contrast
from gdd_book.data import datasets, sources
from gdd_book.data.planted import planted
from gdd_book.data.subsets import balanced_subset

#: of what records name: arguments, and the first digits of sha256 of numbers, labels and pixels as bytes
OF_RECORD = [
    ("digits", "train", {}, "8fa21016"),
    ("digits", "test", {}, "aaeb3a5e"),
    ("digits", "train", {"n": 200, "seed": 3}, "b0406a20"),
    ("mnist", "train", {"n": 1000, "seed": 0}, "55cbdf7b"),
    ("mnist", "train", {"n": 10000, "seed": 1}, "f90db485"),
    ("mnist", "train", {"n": 60000, "seed": 1}, "a400b9d3"),
    ("mnist", "test", {"n": 1000, "seed": 0}, "ff1b6820"),
    ("caltech101", "train", {"classes": ["Faces_easy"]}, "c1ff14f2"),
    ("caltech101", "test", {"classes": ["Faces_easy", "stop_sign"], "per_class": 15, "seed": 2}, "3b1ffdc7"),
    pytest.param("caltech101", "train", {"size": (16, 16)}, "de0807fb", marks=pytest.mark.slow),
]
CHECKSUMS = {"digits": "09f66e6debdee2cd", "mnist": "c65580678af93f1e", "caltech101": "951b982f7e4f4cf1"}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """An empty data folder, an empty cache, and no network."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("GDD_DATA", str(folder))
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(pooch, "retrieve", Mock(side_effect=ConnectionError("no network in tests")))
    return folder


@pytest.fixture
def tree(data):
    """A small tree of Caltech 256's form: three classes of four pictures and the clutter."""
    for folder, kind in (("001.ak47", 0), ("002.american-flag", 1), ("011.billiards", 2), ("257.clutter", 3)):
        path = data / "caltech256" / "256_ObjectCategories" / folder
        (path / "greg").mkdir(parents=True)
        for i in range(1, 5):  # a plain colour that tells class and picture; one of them is stored as grey
            colour = np.full((40, 30, 3), (60 * kind, 40 * i, 200), np.uint8)
            mode = "L" if (kind, i) == (0, 1) else "RGB"
            Image.fromarray(colour).convert(mode).save(path / f"{folder[:3]}_{i:04d}.jpg", quality=95)
        shutil.copy(path / f"{folder[:3]}_0001.jpg", path / "greg" / "stray.jpg")
    return data / "caltech256" / "256_ObjectCategories"


def packed(tree, monkeypatch):
    """The tree as the archive that is published, in its place."""
    path = tree.with_suffix(".tar")
    with tarfile.open(path, "w") as archive:
        archive.add(tree, tree.name)
    shutil.rmtree(tree)
    digest = hashlib.md5(path.read_bytes()).hexdigest()
    changed = [one._replace(published=digest) if one.dataset == "caltech256" else one for one in sources.SOURCES]
    monkeypatch.setattr(sources, "SOURCES", tuple(changed))
    return path


@pytest.mark.parametrize(("name", "split", "arguments", "digest"), OF_RECORD)
def test_images_of_record(name, split, arguments, digest):
    """Results are comparable only while the same images stand behind the same arguments."""
    if not sources.is_here(name):
        pytest.skip(f"{name} is not in GDD_DATA or the cache (gdd data)")
    images = datasets.load(name, split, **arguments)
    assert images.attrs["checksum"].removeprefix("sha256:").startswith(CHECKSUMS[name])
    parts = [images.number.values.astype("<i8"), images.label.values.astype("<i8")]
    parts += [] if name == "digits" else [np.rint(images.values * 255).astype(np.uint8)]  # digits are interpolated
    assert hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest().startswith(digest)
    assert (images.dims, images.dtype) == (("image", "plane", "row", "col"), np.float32)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1


def test_balance_with_a_remainder():
    labels = np.repeat([0, 1, 2], [10, 20, 30])
    chosen = balanced_subset(labels, 20, seed=1)
    assert np.unique(chosen).size == 20
    assert sorted(np.bincount(labels[chosen])) == [6, 7, 7]
    extra = {int(np.argmin(np.bincount(labels[balanced_subset(labels, 20, s)]))) for s in range(30)}
    assert extra == {0, 1, 2}
    with pytest.raises(GddError, match="class 0, which has 10.*at most 30"):
        balanced_subset(labels, 33, 0)


# ---- folders of pictures
def test_a_tree_packed_or_not(tree, monkeypatch):
    images = datasets.load("caltech256", "all", size=(10, 12))
    assert datasets.class_names("caltech256") == ("ak47", "american-flag", "billiards", "clutter")
    assert images.label.values.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    # the colours that the tree was made of, as luma of Rec. 601, to JPEG's rounding
    made = np.array([[60 * kind, 40 * i, 200] for kind in range(3) for i in range(1, 5)]) @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(images.values.mean((1, 2, 3)) * 255, made, atol=3)
    assert datasets.load("caltech256", "all", classes=["clutter"], size=(4, 4)).sizes["image"] == 4
    packed(tree, monkeypatch)
    assert datasets.load("caltech256", "all", size=(10, 12)).identical(images)


def test_training_images_of_a_class_do_not_depend_on_the_others(tree):
    train, test, alone = (
        datasets.load("caltech256", split, per_class=2, seed=5, classes=classes)
        for split, classes in (("train", None), ("test", None), ("train", ["billiards"]))
    )
    assert train.shape == (6, 1, 128, 128)
    np.testing.assert_array_equal(np.sort(np.concatenate([train.number, test.number])), np.arange(12))
    np.testing.assert_array_equal(train.number[train.label == 2], alone.number)
    with pytest.raises(GddError, match="class 'ak47' of caltech256 has 4 images.*after 30.*at most 3"):
        datasets.load("caltech256")


def test_damaged_trees_are_named(tree, monkeypatch):
    bad = tree / "002.american-flag" / "002_0003.jpg"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:300])
    with pytest.raises(GddError, match=r"002_0003\.jpg is damaged"):
        datasets.load("caltech256", "all", size=(4, 4))
    bad.write_bytes(whole)
    path = packed(tree, monkeypatch)
    content = path.read_bytes()
    for place in (0, 100, 512, 700):  # cut between two blocks, within a header, within a picture
        path.write_bytes(content[: content.index(b"001_0002.jpg") // 512 * 512 + place])
        with pytest.raises(GddError, match=f"{re.escape(str(path))} is damaged"):
            datasets.load("caltech256", "all", size=(4, 4))
    path.unlink()
    tree.mkdir()
    with pytest.raises(GddError, match="no picture of the form"):
        datasets.load("caltech256")


# ---- files
@pytest.mark.parametrize("name", ["mnist", "caltech101"])
def test_a_missing_file_says_what_to_do(data, tmp_path, name):
    source = sources.files_of(name)[0]
    with pytest.raises(GddError) as caught:
        datasets.load(name)
    for part in (source.name, source.url, str(data), str(tmp_path / "cache" / name / source.name), "GDD_DATA"):
        assert part in str(caught.value)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"name": "cifar"}, "name: 'cifar' given; one of 'digits', 'mnist'"),
    ({"n": 10**6}, "n: 1000000 images asked for, axis 'image' has 1297"),
    ({"size": (28, 10**8)}, "size: an array of"),
    ({"classes": [11]}, "classes: digits has no class 11; its classes are 0, 1"),
    ({"per_class": 10}, "per_class: digits has a split of its own"),
])
def test_bad_arguments(arguments, message):
    with pytest.raises(GddError, match=message):
        datasets.load(**{"name": "digits"} | arguments)


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


# ---- planted images
def test_planted_rates():
    made = planted(seed=3)
    np.testing.assert_allclose((made.atoms**2).sum(("plane", "atom_row", "atom_col")), 1)
    on = made.z.values >= 0
    assert 5e-5 < binom(on.size, 0.05).cdf(on.sum()) < 1 - 5e-5  # two-sided, each at 1e-4
    assert chisquare(np.bincount(made.z.values[on], minlength=9)).pvalue > 1e-4
    assert kstest(made.w.values[on], "norm").pvalue > 1e-4 and not made.w.values[~on].any()
    ragged = planted(seed=5, images=400, size=(10, 10), atom_size=(2, 2), pool=(4, 5), active=1.0, atoms=2)
    corner = ragged.z.values[..., 2, 1].ravel()  # map 9 x 9: block rows of 4, 4, 1 and columns of 5, 4
    assert set(corner) == {0, 1, 2, 3} and chisquare(np.bincount(corner)).pvalue > 1e-4


def direct(image, window, sigma):
    """The two sums as they are defined, one pixel at a time: (plane, row, col)."""
    half, (_, rows, cols) = window // 2, image.shape

    def mean(values):
        out = np.empty((rows, cols))
        for i, j in np.ndindex(rows, cols):
            a, b = np.mgrid[max(0, i - half) : min(rows, i + half + 1), max(0, j - half) : min(cols, j + half + 1)]
            weight = np.exp(-((a - i) ** 2 + (b - j) ** 2) / (2 * sigma**2))
            out[i, j] = np.average(values[:, a, b].mean(axis=0), weights=weight)
        return out

    centred = image - mean(image)
    deviation = np.sqrt(mean(centred**2))
    return centred / np.maximum(deviation, deviation.mean())


@pytest.mark.parametrize("width", [3, 9, 17])
def test_against_the_definition(width):
    images = np.random.default_rng(1).random((2, 3, 11, 14))
    for image, ours in zip(images, normalise_contrast(images, width), strict=True):
        np.testing.assert_allclose(ours, direct(image, width, width / 4), rtol=0, atol=1e-12)


def test_a_window_has_a_middle_pixel():
    with pytest.raises(GddError, match="width: 8 is even.*take 7 or 9"):
        normalise_contrast(np.random.default_rng(0).random((2, 1, 5, 5)), 8)


def test_brightness_and_contrast_go_and_labels_stay():
    images = datasets.load("digits", n=4)
    found = normalise_contrast(images.astype(float))
    np.testing.assert_allclose(normalise_contrast(0.2 * images.astype(float) + 0.5), found, atol=1e-9)
    assert "local contrast" in found.attrs["scale"] and found.attrs["checksum"] == images.attrs["checksum"]
    turned = normalise_contrast(images.transpose("row", "col", "image", "plane"))
    xr.testing.assert_identical(turned, normalise_contrast(images))
    with pytest.raises(GddError, match="image 0 is constant"):
        normalise_contrast(np.ones((2, 1, 5, 5)))
