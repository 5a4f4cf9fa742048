"""Labelled images: embedded digits, MNIST, Caltech 101, Caltech 256; images drawn from the model itself."""

import gzip
import hashlib
import io
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import xarray as xr
from PIL import Image
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

from gdd.base.axes import IMAGE, IMAGES, LABEL
from gdd.base.checks import GddError, check_choice, check_memory, check_pair, check_seed, check_whole, shown
from gdd_book.data.planted import planted
from gdd_book.data.sources import Source, damaged, files_of, locate, pictures, tree_index
from gdd_book.data.subsets import balanced_subset, generator

__all__ = ["NAMES", "class_names", "load", "planted"]

NUMBER = "number"  # coordinate: position of an image in the whole data set, the same in every split
DIGITS_TEST, DIGITS_SEED = 500, 0  # how many of the 1797 digits are for testing, equally many of every class


def load(
    name: str, split: str = "train", *, n: int | None = None, seed: int | None = None,
    classes: Sequence[str | int] | None = None, per_class: int | None = None, size: tuple[int, int] | None = None,
) -> xr.DataArray:
    """Load labelled images.

    Parameters
    ----------
    name : "digits", "mnist", "caltech101" or "caltech256"
        ``digits`` are scikit-learn's 1797 handwritten digits (UCI, test part), enlarged: they are not MNIST.
        The others are looked for in ``GDD_DATA``, then in the user's cache, then fetched.
    split : "train", "test" or "all"
        MNIST's own; of digits, 500 fixed test images. Of the Caltech sets, "train" is ``per_class`` images of every
        class drawn with ``seed`` (None: 0), "test" the others.
    n : how many: the first n if ``seed`` is None, else n drawn with it, equally many of every class
    classes : names; all but the background (``BACKGROUND_Google``, ``clutter``) by default
    per_class : training images per class of the Caltech sets, 30 by default
    size : (rows, columns), default 28 x 28, Caltech 128 x 128; resized by bicubic interpolation, the shape not kept

    Returns
    -------
    DataArray (image, plane, row, col) of float32, pixels 0 to 1
        Coordinates on ``image``: ``label``, index into ``class_names(name)``; ``number``, place in the whole data
        set. Attributes: name, split, scale, checksum (sha256 of the content), label_names (comma between).
    """
    check_choice("name", name, NAMES)
    check_choice("split", split, ("train", "test", "all"))
    if per_class is not None:
        per_class = check_whole("per_class", per_class, 1)
    if seed is not None:
        check_seed(seed)
    opened = OPENERS[name]()
    size = opened.size if size is None else check_pair("size", size)
    chosen = _choose_split(opened, name, split, _choose_classes(opened, name, classes), per_class, seed)
    if n is not None:
        chosen = chosen[balanced_subset(opened.labels[chosen], n, seed)]
    check_memory("size", len(chosen) * size[0] * size[1], 4)
    return xr.DataArray(
        opened.read(chosen, size)[:, None], dims=IMAGES, name="images",
        coords={LABEL: (IMAGE, opened.labels[chosen]), NUMBER: (IMAGE, chosen)},
        attrs={"name": name, "split": split, "scale": "pixels, 0 to 1", "checksum": "sha256:" + opened.digest,
               "label_names": ",".join(opened.class_names)},
    )


def class_names(name: str) -> tuple[str, ...]:
    """Names of all classes of a data set, in the order of the labels; a background class comes last."""
    check_choice("name", name, NAMES)
    return OPENERS[name]().class_names


class Opened(NamedTuple):
    """A data set before any picture is decoded."""

    labels: np.ndarray  # (number,) index into class_names
    digest: str  # sha256 of the content
    read: Callable[[np.ndarray, tuple[int, int]], np.ndarray]  # numbers, size -> (image, row, col)
    is_test: np.ndarray | None  # (number,) of bool; None where nobody has fixed a split
    class_names: tuple[str, ...] = tuple("0123456789")
    background: str | None = None  # class that is included only when asked for by name
    size: tuple[int, int] = (28, 28)


def _choose_classes(opened: Opened, name: str, classes: Sequence[str | int] | None) -> np.ndarray:
    """Numbers of the images of these classes."""
    known = opened.class_names
    if classes is None:
        classes = [one for one in known if one != opened.background]
    classes = classes.tolist() if isinstance(classes, np.ndarray) else classes
    if isinstance(classes, str) or not isinstance(classes, Sequence) or len(classes) == 0:
        raise GddError(f"classes: {shown(classes)} given; a sequence of one or more names of classes is needed")
    for one in classes:
        if str(one) not in known:
            raise GddError(f"classes: {name} has no class {shown(one)}; its classes are {', '.join(known)}")
    return np.flatnonzero(np.isin(opened.labels, [known.index(str(one)) for one in classes]))


def _choose_split(
    opened: Opened, name: str, split: str, chosen: np.ndarray, per_class: int | None, seed: int | None
) -> np.ndarray:
    """Those of the chosen numbers that are in the split."""
    if opened.is_test is not None:
        if per_class is not None:
            raise GddError(f"per_class: {name} has a split of its own; leave per_class out, or use n")
        return chosen if split == "all" else chosen[opened.is_test[chosen] == (split == "test")]
    if split == "all":
        return chosen
    per_class, (labels, counts) = per_class or 30, np.unique(opened.labels[chosen], return_counts=True)
    if (least := counts.min()) <= per_class:
        raise GddError(
            f"per_class: class {opened.class_names[labels[counts.argmin()]]!r} of {name} has {least} images: none is "
            f"left to test after {per_class}; ask for at most {least - 1}, or leave that class out"
        )
    # every class of the data set is shuffled, chosen or not: a class's training images do not depend on the others
    order = generator(seed or 0).permutation(opened.labels.size)
    train = np.concatenate([order[opened.labels[order] == label][:per_class] for label in labels])
    return np.sort(train) if split == "train" else np.setdiff1d(chosen, train)


def _open_digits() -> Opened:
    """Scikit-learn's handwritten digits, 8 x 8, enlarged to MNIST's shape; 500 of them fixed as a test set."""
    bunch, (source,) = load_digits(), files_of("digits")
    labels = bunch.target.astype(np.int64)
    is_test = np.isin(np.arange(labels.size), balanced_subset(labels, DIGITS_TEST, DIGITS_SEED))

    def read(chosen: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        # 20 x 20 in the middle of 28 x 28, as MNIST's digits are; 16 is the largest grey value
        digits = zoom(bunch.images[chosen] / 16, (1, 2.5, 2.5), order=3, mode="grid-constant", grid_mode=True)
        return _resized(np.pad(digits.clip(0, 1), ((0, 0), (4, 4), (4, 4))).astype(np.float32), size)

    return Opened(labels, hashlib.sha256(source.path.read_bytes()).hexdigest(), read, is_test)


def _open_mnist() -> Opened:
    """MNIST's 60 000 training digits followed by its 10 000 test digits."""
    (train, train_labels, test, test_labels), digests = zip(*map(_read_idx, files_of("mnist")), strict=True)
    images, labels = np.concatenate([train, test]), np.concatenate([train_labels, test_labels]).astype(np.int64)
    read = lambda chosen, size: _resized(images[chosen] / np.float32(255), size)  # noqa: E731
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()
    return Opened(labels, digest, read, np.arange(labels.size) >= train_labels.size)


def _read_idx(source: Source) -> tuple[np.ndarray, str]:
    """Read an idx file of bytes: the array and the sha256 of the decompressed file."""
    path = locate(source)
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content  # or unpacked
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, error) from error
    digest = hashlib.sha256(content).hexdigest()
    source.check(path, digest)
    # two zeros, 8 for unsigned bytes, the number of axes; then the sizes, each in four bytes, the highest first
    axes = content[3]
    sizes = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 * (axes + 1)).reshape(sizes), digest


def _open_tree(dataset: str, background: str) -> Opened:
    """Open a folder, or an archive, of one folder of pictures per class; the background class goes last."""
    (source,) = files_of(dataset)
    path = locate(source)
    files, digest = tree_index(source, path, path.stat().st_mtime_ns)
    # Caltech 256 numbers its classes: 001.ak47
    folders = [file.partition("/")[0] for file in files]
    plain = {folder: folder.partition(".")[2] or folder for folder in sorted(set(folders))}
    names = sorted(plain.values(), key=background.__eq__)  # a stable sort
    labels = np.array([names.index(plain[folder]) for folder in folders])

    def read(chosen: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        places = {files[number]: place for place, number in enumerate(chosen)}
        pixels = np.empty((len(chosen), *size), np.float32)
        for file, data in islice(pictures(path, places), len(places)):
            try:
                picture = Image.open(io.BytesIO(data)).convert("L")
            except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:  # Pillow's
                raise damaged(path / file, error) from error
            pixels[places[file]] = _resize(picture, size) / np.float32(255)
        return pixels

    return Opened(labels, digest, read, None, tuple(names), background, (128, 128))


def _resize(picture: Image.Image, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(picture.resize(size[::-1], Image.Resampling.BICUBIC), np.float32)


def _resized(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    if images.shape[1:] == size:
        return images
    return np.stack([_resize(Image.fromarray(image), size) for image in images]).clip(0, 1)


OPENERS: dict[str, Callable[[], Opened]] = {
    "digits": _open_digits,
    "mnist": _open_mnist,
    "caltech101": lambda: _open_tree("caltech101", "BACKGROUND_Google"),
    "caltech256": lambda: _open_tree("caltech256", "clutter"),
}
NAMES = tuple(OPENERS)
