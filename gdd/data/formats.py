"""The data sets themselves: what is in their files, and how pixels are got out of them.

Every opener returns an ``Opened``: labels and names at once, pixels only of the images that are asked for.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

from gdd.data.sources import SOURCES, SourceFile, check_content, damaged, digits_file, locate, pictures, tree_index
from gdd.data.subsets import balanced_subset

DIGITS_TEST = 500  # of 1797, equally many of every class
DIGITS_SEED = 0
LARGEST_FILE = 2**26  # bytes of an unpacked idx file that are read: MNIST's have up to 47 million


class Opened(NamedTuple):
    """A data set before any picture is decoded."""

    labels: np.ndarray  # (number,) index into class_names
    class_names: tuple[str, ...]
    is_test: np.ndarray | None  # (number,) of bool; None where nobody has fixed a split
    left_out: tuple[str, ...]  # classes that are taken only when asked for by name
    size: tuple[int, int]
    has_colour: bool
    checksum: str
    read: Callable[[np.ndarray, tuple[int, int], bool], np.ndarray]  # -> (image, plane, row, col), 0 to 1


def open_digits() -> Opened:
    """Scikit-learn's handwritten digits, 8 x 8, enlarged to MNIST's shape; 500 of them fixed as a test set."""
    bunch = load_digits()
    labels = bunch.target.astype(np.int64)
    is_test = np.zeros(labels.size, bool)
    is_test[balanced_subset(labels, DIGITS_TEST, DIGITS_SEED)] = True

    def enlarged(chosen: np.ndarray) -> np.ndarray:
        # 20 x 20 in the middle of 28 x 28, as MNIST's digits are; 16 is the largest grey value
        digits = zoom(bunch.images[chosen] / 16, (1, 2.5, 2.5), order=3, mode="grid-constant", grid_mode=True)
        return np.pad(digits.clip(0, 1), ((0, 0), (4, 4), (4, 4)))

    checksum = "sha256:" + hashlib.sha256(digits_file().read_bytes()).hexdigest()
    names = tuple("0123456789")
    return Opened(labels, names, is_test, (), (28, 28), False, checksum, _grey_reader(enlarged))


def open_mnist() -> Opened:
    """MNIST's 60 000 training digits followed by its 10 000 test digits."""
    (train, a), (train_labels, b), (test, c), (test_labels, d) = (
        _read_idx(source, 3 if "images" in source.name else 1) for source in SOURCES if source.dataset == "mnist"
    )
    images = np.concatenate([train, test])
    labels = np.concatenate([train_labels, test_labels]).astype(np.int64)
    is_test = np.arange(labels.size) >= train_labels.size
    checksum = "sha256:" + hashlib.sha256("".join([a, b, c, d]).encode()).hexdigest()
    reader = _grey_reader(lambda chosen: images[chosen] / np.float32(255))
    return Opened(labels, tuple("0123456789"), is_test, (), (28, 28), False, checksum, reader)


def _read_idx(source: SourceFile, axes: int) -> tuple[np.ndarray, str]:
    """Read an idx file of bytes: the array and the sha256 of the decompressed file."""
    path = locate(source)
    try:
        with gzip.open(path) as packed:
            content = packed.read(LARGEST_FILE)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(source.dataset, path, str(error)) from error
    digest = hashlib.sha256(content).hexdigest()
    check_content(source, path, digest)
    # two zeros, 8 for unsigned bytes, the number of axes; then the sizes, each in four bytes, the highest first
    sizes = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 * (axes + 1)).reshape(sizes), digest


def _grey_reader(take: Callable[[np.ndarray], np.ndarray]) -> Callable:
    def read(chosen: np.ndarray, size: tuple[int, int], colour: bool) -> np.ndarray:
        pixels = take(chosen).astype(np.float32)
        if pixels.shape[1:] != size:
            pixels = np.stack([_resize(Image.fromarray(one), size) for one in pixels]).clip(0, 1)
        return pixels[:, None]

    return read


def open_caltech101() -> Opened:
    """Caltech 101: 101 classes, then the background."""
    return _open_tree("caltech101", background="BACKGROUND_Google")


def open_caltech256() -> Opened:
    """Caltech 256: 256 classes, then the clutter."""
    return _open_tree("caltech256", background="clutter")


def _open_tree(name: str, background: str) -> Opened:
    """Open a folder, or an archive, of one folder of pictures per class."""
    source = next(s for s in SOURCES if s.dataset == name)
    path = locate(source)
    files, digest = tree_index(path, path.stat().st_mtime_ns)
    if not files:
        raise damaged(name, path, "no picture of the form class/file.jpg is in it")
    check_content(source, path, digest)
    folders = [f.partition("/")[0] for f in files]
    # Caltech 256 numbers its classes: 001.ak47
    plain = {folder: folder.partition(".")[2] or folder for folder in sorted(set(folders))}
    names = sorted(plain.values(), key=background.__eq__)  # a stable sort: the background goes last
    labels = np.array([names.index(plain[folder]) for folder in folders])

    def read(chosen: np.ndarray, size: tuple[int, int], colour: bool) -> np.ndarray:
        wanted = {files[i]: place for place, i in enumerate(chosen)}
        pixels = np.empty((len(chosen), 3 if colour else 1, *size), np.float32)
        for file, data in pictures(path, wanted):
            pixels[wanted[file]] = _decode(name, path / file, data, size, colour)
        return pixels

    return Opened(labels, tuple(names), None, (background,), (128, 128), True, "sha256:" + digest, read)


def _decode(name: str, path: Path, data: bytes, size: tuple[int, int], colour: bool) -> np.ndarray:
    try:
        picture = Image.open(io.BytesIO(data)).convert("RGB" if colour else "L")
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:  # Pillow's
        raise damaged(name, path, str(error)) from error
    pixels = _resize(picture, size) / np.float32(255)
    return np.moveaxis(pixels, 2, 0) if colour else pixels[None]


def _resize(picture: Image.Image, size: tuple[int, int]) -> np.ndarray:
    rows, columns = size
    return np.asarray(picture.resize((columns, rows), Image.Resampling.BICUBIC), np.float32)


OPENERS = {
    "digits": open_digits,
    "mnist": open_mnist,
    "caltech101": open_caltech101,
    "caltech256": open_caltech256,
}
