"""Data sets, their files, contrast normalisation, planted images: values, labels, splits, and every bad input."""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pooch
import pytest
import xarray as xr
from PIL import Image
from scipy.ndimage import zoom
from scipy.signal import convolve2d
from scipy.stats import binom, chi2, chisquare, kstest
from sklearn.datasets import load_digits

from gdd.base.checks import GddError
from gdd.inference.contrast import normalise_contrast
from gdd_book.data import datasets, sources
from gdd_book.data.planted import planted
from gdd_book.data.subsets import balanced_subset


def have(name: str) -> bool:
    return all(found.path is not None for found in datasets.inventory() if found.dataset == name)


SPLIT_OF_RECORD = [1, 2, 9, 10, 13, 15, 17, 18]  # first test images of the digits
needs_mnist = pytest.mark.skipif(not have("mnist"), reason="MNIST is not in GDD_DATA or the cache (gdd data)")
needs_caltech = pytest.mark.skipif(not have("caltech101"), reason="Caltech 101 is not in GDD_DATA or the cache")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """An empty data folder, an empty cache, and no network."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("GDD_DATA", str(folder))
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")

    def no_network(*_, **__):
        raise ConnectionError("no network in tests")

    monkeypatch.setattr(pooch, "retrieve", no_network)
    return folder


@pytest.fixture
def tree(data):
    """A small tree of Caltech 256's form: three classes of four pictures and the clutter."""
    random = np.random.default_rng(0)
    for folder, kind in (("001.ak47", 0), ("002.american-flag", 1), ("011.billiards", 2), ("257.clutter", 3)):
        path = data / "caltech256" / "256_ObjectCategories" / folder
        (path / "greg").mkdir(parents=True)
        for i in range(1, 5):
            # a plain colour that tells class and picture, larger than wide; one of them is stored as grey
            colour = np.full((40, 30, 3), (60 * kind, 40 * i, 200), np.uint8)
            mode = "L" if (kind, i) == (0, 1) else "RGB"
            Image.fromarray(colour).convert(mode).save(path / f"{folder[:3]}_{i:04d}.jpg", quality=95)
        (path / "RENAME2").write_text("not a picture")
        Image.fromarray(random.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path / "greg" / "stray.jpg")
    return data / "caltech256" / "256_ObjectCategories"


class TestDigits:
    def test_pixels_are_the_original_digits_enlarged(self):
        images = datasets.load("digits", "all")
        original = load_digits()
        assert images.dims == ("image", "plane", "row", "col")
        assert images.shape == (1797, 1, 28, 28)
        assert images.dtype == np.float32
        assert float(images.min()) == 0
        assert float(images.max()) == 1
        np.testing.assert_array_equal(images.label, original.target)
        # 4 pixels of border; inside, means of 2.5 x 2.5 pixels come back as the original pixels, nearly
        border = images.values.copy()
        border[:, :, 4:24, 4:24] = 0
        assert not border.any()
        back = zoom(images.values[:, 0, 4:24, 4:24], (1, 0.4, 0.4), order=1, grid_mode=True, mode="nearest")
        correlation = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(back, original.images, strict=True)]
        assert min(correlation) > 0.95

    def test_split_is_fixed_disjoint_and_whole(self):
        train, test, whole = (datasets.load("digits", split) for split in ("train", "test", "all"))
        np.testing.assert_array_equal(np.bincount(test.label), np.full(10, 50))
        np.testing.assert_array_equal(np.sort(np.concatenate([train.number, test.number])), np.arange(1797))
        np.testing.assert_array_equal(whole.values[test.number], test.values)
        # the split of record: results on digits are comparable only while it stands
        assert test.number.values[:8].tolist() == SPLIT_OF_RECORD

    def test_subsets(self):
        train = datasets.load("digits")
        np.testing.assert_array_equal(datasets.load("digits", n=7).number, train.number[:7])
        drawn = datasets.load("digits", n=200, seed=3)
        np.testing.assert_array_equal(np.bincount(drawn.label), np.full(10, 20))
        assert drawn.identical(datasets.load("digits", n=200, seed=3))
        assert not np.array_equal(drawn.number, datasets.load("digits", n=200, seed=4).number)
        assert set(datasets.load("digits", classes=(3, "7")).label.values) == {3, 7}

    def test_other_size(self):
        images, small = (datasets.load("digits", n=5, size=size) for size in (None, (14, 21)))
        assert small.shape == (5, 1, 14, 21)
        assert small.dtype == np.float32
        assert 0 <= small.min() <= small.max() <= 1
        # resizing keeps the amount of ink
        np.testing.assert_allclose(small.mean(("row", "col")), images.mean(("row", "col")), rtol=0.02)


class TestSubset:
    def test_balance_with_a_remainder(self):
        labels = np.repeat([0, 1, 2], [10, 20, 30])
        chosen = balanced_subset(labels, 20, seed=1)
        assert np.unique(chosen).size == 20
        assert sorted(np.bincount(labels[chosen])) == [6, 7, 7]
        np.testing.assert_array_equal(chosen, np.sort(chosen))
        extra = {int(np.argmin(np.bincount(labels[balanced_subset(labels, 20, s)]))) for s in range(30)}
        assert extra == {0, 1, 2}

    def test_every_image_is_equally_likely(self):
        labels = np.repeat([0, 1], 10)
        draws = 2000
        counts = sum(np.bincount(balanced_subset(labels, 6, s), minlength=20) for s in range(draws))
        # 3 of 10 each time; the counts' variance is that of drawing without replacement
        statistic = ((counts - 0.3 * draws) ** 2).sum() / (draws * 0.3 * 0.7) * 0.9
        assert chi2(18).sf(statistic) > 1e-4

    def test_bad_numbers(self):
        labels = np.repeat([0, 1], [2, 10])
        np.testing.assert_array_equal(balanced_subset(labels, 12, 0), np.arange(12))
        np.testing.assert_array_equal(balanced_subset(labels, 3, None), [0, 1, 2])
        with pytest.raises(GddError, match="class 0, which has 2.*at most 4"):
            balanced_subset(labels, 6, 0)
        with pytest.raises(GddError, match="n: 13 images asked for, axis 'image' has 12"):
            balanced_subset(labels, 13, 0)


class TestMnist:
    @needs_mnist
    def test_known_images(self):
        train, test = datasets.load("mnist", n=100), datasets.load("mnist", "test")
        assert train.label.values[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
        assert test.label.values[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
        # published counts of the classes of the test images
        assert np.bincount(test.label).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
        assert test.shape == (10000, 1, 28, 28)
        assert (float(test.min()), float(test.max())) == (0, 1)
        # published mean of MNIST's pixels, all 60 000 of them (0.1307), known to 4 digits
        assert abs(float(datasets.load("mnist").mean(dtype=float)) - 0.1307) < 5e-5

    @needs_mnist
    def test_numbers_do_not_meet(self):
        train, test, whole = (datasets.load("mnist", split) for split in ("train", "test", "all"))
        assert (train.sizes["image"], test.sizes["image"], whole.sizes["image"]) == (60000, 10000, 70000)
        np.testing.assert_array_equal(np.concatenate([train.number, test.number]), whole.number)

    @needs_mnist
    @pytest.mark.parametrize("damage", ["cut", "altered", "not gzip"])
    def test_damaged_file(self, tmp_path, monkeypatch, damage):
        for found in datasets.inventory():
            if found.dataset == "mnist":
                (tmp_path / "mnist").mkdir(exist_ok=True)
                shutil.copyfile(found.path, tmp_path / "mnist" / found.name)
        victim = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
        content = victim.read_bytes()
        altered = bytearray(gzip.decompress(content))
        altered[100] += 1
        bad = {"cut": content[:-50], "altered": gzip.compress(bytes(altered)), "not gzip": b"<html>"}[damage]
        victim.write_bytes(bad)
        monkeypatch.setenv("GDD_DATA", str(tmp_path))
        with pytest.raises(GddError, match=f"{re.escape(str(victim))} is damaged.*delete it and fetch it again"):
            datasets.load("mnist", "test", n=1)
        assert victim.read_bytes() == bad


class TestCaltech101:
    @needs_caltech
    @pytest.mark.slow
    def test_all_classes_and_images(self):
        names = datasets.class_names("caltech101")
        assert len(names) == 102
        assert names[-1] == "BACKGROUND_Google"
        assert list(names[:-1]) == sorted(names[:-1])
        train = datasets.load("caltech101", size=(8, 8))
        assert np.bincount(train.label).tolist() == [30] * 101
        background = datasets.load("caltech101", "all", classes=["BACKGROUND_Google"], size=(8, 8))
        assert background.sizes["image"] == 467
        test = datasets.load("caltech101", "test", size=(8, 8))
        assert 3030 + test.sizes["image"] + 467 == 9144
        assert not np.isin(train.number, test.number).any()
        assert 101 not in test.label.values

    @needs_caltech
    def test_training_images_of_a_class_do_not_depend_on_the_others(self):
        pair, alone = (
            datasets.load("caltech101", classes=classes, size=(8, 8), seed=2)
            for classes in (["nautilus", "revolver"], ["revolver"])
        )
        revolver = datasets.class_names("caltech101").index("revolver")
        np.testing.assert_array_equal(pair.number[pair.label == revolver], alone.number)
        other = datasets.load("caltech101", classes=["revolver"], size=(8, 8), seed=3)
        assert not np.array_equal(other.number, alone.number)

    @needs_caltech
    def test_pixels_against_the_archive(self):
        image = datasets.load("caltech101", "all", classes=["Faces_easy"], n=1)
        assert image.shape == (1, 1, 128, 128)
        path = next(f.path for f in datasets.inventory() if f.dataset == "caltech101")
        ((_, picture),) = sources.pictures(path, {"Faces_easy/image_0001.jpg"})
        original = np.asarray(Image.open(io.BytesIO(picture))) @ [0.299, 0.587, 0.114]  # luma of Rec. 601
        np.testing.assert_allclose(image.mean() * 255, original.mean(), atol=1)


class TestCaltech256:
    def test_tree(self, tree):
        images = datasets.load("caltech256", "all", size=(10, 12))
        assert datasets.class_names("caltech256") == ("ak47", "american-flag", "billiards", "clutter")
        assert images.shape == (12, 1, 10, 12)
        assert images.label.values.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        # the colours that the tree was made of, as luma of Rec. 601, to JPEG's rounding
        made = np.array([[60 * kind, 40 * i, 200] for kind in range(3) for i in range(1, 5)]) @ [0.299, 0.587, 0.114]
        np.testing.assert_allclose(images.values.mean((1, 2, 3)) * 255, made, atol=3)
        assert datasets.load("caltech256", "all", classes=["clutter"], size=(4, 4)).sizes["image"] == 4

    def test_default_size_and_split(self, tree):
        train, test = (datasets.load("caltech256", split, per_class=3, seed=5) for split in ("train", "test"))
        assert train.shape == (9, 1, 128, 128)
        assert test.shape == (3, 1, 128, 128)
        np.testing.assert_array_equal(np.sort(np.concatenate([train.number, test.number])), np.arange(12))

    def test_archive_equals_folder(self, tree):
        folder = datasets.load("caltech256", "all", size=(9, 9))
        with tarfile.open(tree.parent / "256_ObjectCategories.tar", "w") as archive:
            archive.add(tree, "256_ObjectCategories")
        shutil.rmtree(tree)
        assert datasets.load("caltech256", "all", size=(9, 9)).identical(folder)

    def test_replaced_picture_is_seen(self, tree):
        before = datasets.load("caltech256", "all", size=(4, 4)).attrs["checksum"]
        with tarfile.open(tree.parent / "256_ObjectCategories.tar", "w") as archive:
            archive.add(tree / "001.ak47", "256_ObjectCategories/001.ak47")
        assert datasets.load("caltech256", "all", size=(4, 4)).attrs["checksum"] != before

    @pytest.mark.parametrize("place", [0, 100, 512, 700])
    def test_cut_archive(self, tree, place):
        """Cut between two blocks, within a header, within a picture: never a smaller data set."""
        path = tree.parent / "256_ObjectCategories.tar"
        with tarfile.open(path, "w") as archive:
            archive.add(tree, "256_ObjectCategories")
        shutil.rmtree(tree)
        content = path.read_bytes()
        second = content.index(b"001_0002.jpg") // 512 * 512
        path.write_bytes(content[: second + place])
        with pytest.raises(GddError, match=f"{re.escape(str(path))} is damaged"):
            datasets.load("caltech256", "all", size=(4, 4))

    def test_bad_picture(self, tree):
        bad = tree / "002.american-flag" / "002_0003.jpg"
        bad.write_bytes(bad.read_bytes()[:300])
        with pytest.raises(GddError, match=r"002_0003\.jpg is damaged"):
            datasets.load("caltech256", "all", size=(4, 4))

    def test_empty_tree(self, data):
        (data / "caltech256" / "256_ObjectCategories").mkdir(parents=True)
        with pytest.raises(GddError, match="no picture of the form"):
            datasets.load("caltech256")

    def test_class_too_small(self, tree):
        with pytest.raises(GddError, match="class 'ak47' of caltech256 has 4 images.*after 30.*at most 3"):
            datasets.load("caltech256")


class TestFiles:
    @pytest.mark.parametrize("name", ["mnist", "caltech101", "caltech256"])
    def test_missing_file_says_what_to_do(self, data, tmp_path, name):
        source = next(s for s in sources.SOURCES if s.dataset == name)
        with pytest.raises(GddError) as caught:
            datasets.load(name)
        message = str(caught.value)
        for part in (source.name, source.url, str(data), str(tmp_path / "cache" / name / source.name), "GDD_DATA"):
            assert part in message

    def test_own_folder_before_cache(self, tree, tmp_path):
        assert found("caltech256") == tree
        (tmp_path / "cache").mkdir()
        shutil.move(tree.parent, tmp_path / "cache" / "caltech256")
        assert found("caltech256") == tmp_path / "cache" / "caltech256" / tree.name
        assert datasets.load("caltech256", "all", size=(4, 4)).sizes["image"] == 12

    def test_fetched_into_cache(self, data, tmp_path, monkeypatch):
        """What pooch is asked for, and the one file that is kept of a zip archive."""
        asked = []

        def retrieve(url, known_hash, fname, path, processor, progressbar):
            asked.append((url, known_hash))
            path.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(path / fname, "w") as archive:
                archive.writestr("caltech-101/101_ObjectCategories.tar.gz", b"the archive")
                archive.writestr("caltech-101/Annotations.tar", b"another")
            return processor(str(path / fname), "download", None)

        monkeypatch.setattr(pooch, "retrieve", retrieve)
        (got,) = datasets.fetch("caltech101")
        assert got.path == tmp_path / "cache" / "caltech101" / "101_ObjectCategories.tar.gz"
        assert got.path.read_bytes() == b"the archive"
        assert [p.name for p in got.path.parent.rglob("*") if p.is_file()] == [got.name]
        ((url, known_hash),) = asked
        assert url.startswith("https://")
        assert re.fullmatch("md5:[0-9a-f]{32}", known_hash)
        with pytest.raises(GddError, match="is damaged"):
            datasets.load("caltech101")

    def test_inventory(self, tree):
        lines = {f.name: f.path for f in datasets.inventory()}
        assert lines["digits.csv.gz"].is_file()
        assert lines["train-images-idx3-ubyte.gz"] is None
        assert len(lines) == 7

    def test_unknown_name_is_not_fetched(self):
        with pytest.raises(GddError, match="name: 'cifar' given; one of 'digits', 'mnist'"):
            datasets.fetch("cifar")

    def test_data_folder_must_exist(self, monkeypatch, tmp_path):
        monkeypatch.setenv("GDD_DATA", str(tmp_path / "nowhere"))
        with pytest.raises(GddError, match="GDD_DATA: .*nowhere.* is no folder"):
            datasets.load("mnist")
        assert datasets.load("digits", n=1).sizes["image"] == 1


def found(name: str) -> Path:
    return next(f.path for f in datasets.inventory() if f.dataset == name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "cifar"}, "name: 'cifar' given; one of 'digits', 'mnist'"),
        ({"split": "valid"}, "split: 'valid' given; one of 'train', 'test', 'all'"),
        ({"n": 10**6}, "n: 1000000 images asked for, axis 'image' has 1297"),
        ({"n": 10, "seed": -1}, "seed: -1 given"),
        ({"n": 1290, "seed": 1}, "n: 1290 images over 10 classes takes 129 of class"),
        ({"size": (0, 28)}, "size, axis 'row': 0 given"),
        ({"classes": [11]}, "classes: digits has no class 11; its classes are 0, 1"),
        ({"classes": "12"}, "classes: '12' given; a sequence"),
        ({"per_class": 10}, "per_class: digits has a split of its own"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(GddError, match=message):
        datasets.load(**{"name": "digits"} | arguments)


class TestContrast:
    def direct(self, image, window, sigma):
        """The two sums as they are defined, one pixel at a time: (plane, row, col)."""
        planes, rows, cols = image.shape
        half = window // 2

        def mean(values):
            out = np.empty((rows, cols))
            for i in range(rows):
                for j in range(cols):
                    total = weight = 0.0
                    for a in range(max(0, i - half), min(rows, i + half + 1)):
                        for b in range(max(0, j - half), min(cols, j + half + 1)):
                            w = np.exp(-((a - i) ** 2 + (b - j) ** 2) / (2 * sigma**2))
                            total += w * values[:, a, b].sum()
                            weight += w * planes
                    out[i, j] = total / weight
            return out

        centred = image - mean(image)
        deviation = np.sqrt(mean(centred**2))
        return centred / np.maximum(deviation, deviation.mean())

    def test_against_the_definition(self):
        images = np.random.default_rng(1).random((2, 3, 11, 14))
        for image, ours in zip(images, normalise_contrast(images), strict=True):
            np.testing.assert_allclose(ours, self.direct(image, 9, 9 / 4), rtol=0, atol=1e-12)

    def test_brightness_and_contrast_go(self):
        images = datasets.load("digits", n=4).astype(float)
        found = normalise_contrast(images)
        np.testing.assert_allclose(normalise_contrast(0.2 * images + 0.5), found, atol=1e-9)
        assert found.dims == images.dims
        assert "local contrast" in found.attrs["scale"]
        assert found.attrs["checksum"] == images.attrs["checksum"]
        assert images.attrs["scale"] == "pixels, 0 to 1"
        np.testing.assert_array_equal(found.label, images.label)

    def test_axes_by_name_and_type(self):
        images = datasets.load("digits", n=3)
        turned = normalise_contrast(images.transpose("row", "col", "image", "plane"))
        xr.testing.assert_identical(turned, normalise_contrast(images))
        assert turned.dtype == np.float32

    def test_bad_input(self):
        with pytest.raises(GddError, match="image 0 is constant"):
            normalise_contrast(np.ones((2, 1, 5, 5)))


class TestPlanted:
    def test_shapes_norms_and_reproducibility(self):
        made = planted(seed=1)
        assert made.images.dims == ("image", "plane", "row", "col")
        assert made.images.shape == (300, 1, 28, 28)
        assert made.z.shape == made.w.shape == (300, 8, 7, 7)
        assert made.z.dtype == np.int16
        np.testing.assert_allclose((made.atoms**2).sum(("plane", "atom_row", "atom_col")), 1)
        assert made.identical(planted(seed=1))
        assert not np.array_equal(made.images, planted(seed=2).images)

    def test_rates(self):
        made = planted(seed=3)
        on = made.z.values >= 0
        # two-sided, each at 1e-4
        assert 5e-5 < binom(on.size, 0.05).cdf(on.sum()) < 1 - 5e-5
        assert chisquare(np.bincount(made.z.values[on], minlength=9)).pvalue > 1e-4
        assert kstest(made.w.values[on], "norm").pvalue > 1e-4
        assert not made.w.values[~on].any()

    @pytest.mark.parametrize("settings", [{}, {"size": (13, 16), "planes": 2, "atom_size": (4, 3), "pool": (3, 4)}])
    def test_residual_is_the_noise(self, settings):
        """Images minus atoms convolved with the maps, the maps built here from z and w, leave the noise."""
        made = planted(seed=4, images=40, active=0.3, noise_sd=0.2, **settings)
        _, planes, rows, cols = made.images.shape
        _, _, h, w = made.atoms.shape
        p, q = made.attrs["pool"]
        maps = np.zeros((40, 8, rows - h + 1, cols - w + 1))
        for place in np.argwhere(made.z.values >= 0):
            image, atom, i, j = place
            at = (image, atom, i * p + made.z.values[tuple(place)] // q, j * q + made.z.values[tuple(place)] % q)
            maps[at] = made.w.values[tuple(place)]  # an index error here: a position outside its ragged block
        assert np.count_nonzero(maps) == (made.z.values >= 0).sum()
        clean = np.zeros(made.images.shape)
        for n, c, k in np.ndindex(40, planes, 8):
            clean[n, c] += convolve2d(maps[n, k], made.atoms.values[k, c])
        assert kstest((made.images.values - clean).ravel() / 0.2, "norm").pvalue > 1e-4

    def test_ragged_positions_are_uniform(self):
        made = planted(seed=5, images=400, size=(10, 10), atom_size=(2, 2), pool=(4, 5), active=1.0, atoms=2)
        # map 9 x 9: block rows of 4, 4, 1 and columns of 5, 4
        corner = made.z.values[..., 2, 1].ravel()
        assert set(corner) == {0, 1, 2, 3}
        assert chisquare(np.bincount(corner)).pvalue > 1e-4
        edge = made.z.values[..., 0, 1].ravel()
        assert set(edge) == {r * 5 + c for r in range(4) for c in range(4)}

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"atoms": 1.5}, "atoms: 1.5"),
            ({"atom_size": (29, 8)}, "atom_size: axis 'atom_row' is 29, the image has 28"),
            ({"active": float("nan")}, "active: nan"),
        ],
    )
    def test_bad_input(self, change, message):
        with pytest.raises(GddError, match=message):
            planted(**{"seed": 0} | change)


def test_content_checksums_are_those_of_the_files(tmp_path):
    """The digest of a tree is of names and bytes, however they are packed."""
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "x.jpg").write_bytes(b"one")
    names, digest = sources.tree_index(tmp_path / "tree", os.stat(tmp_path / "tree").st_mtime_ns)
    assert names == ("a/x.jpg",)
    line = f"{hashlib.sha256(b'one').hexdigest()}  a/x.jpg\n"
    assert digest == hashlib.sha256(line.encode()).hexdigest()


def test_nothing_that_prints_in_a_notebook_is_imported():
    """pooch imports a progress bar that warns inside a kernel; a chapter with anything on stderr fails the build."""
    modules = "gdd, gdd_book.data.datasets, gdd_book.experiments, gdd_book.records"
    script = f"import sys, {modules}; print({{'pooch', 'tqdm.auto'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")
