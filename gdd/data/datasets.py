"""Labelled images: embedded digits, MNIST, Caltech 101, Caltech 256; images drawn from the model itself.

``load`` returns them with their axes named; where the files lie is the matter of ``gdd.data.sources``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, IMAGES, LABEL
from gdd.base.checks import GddError, check_memory, check_pair, check_seed, check_whole, shown
from gdd.data.formats import OPENERS, Opened
from gdd.data.planted import planted
from gdd.data.sources import fetch, inventory
from gdd.data.subsets import balanced_subset, first, generator

__all__ = ["NAMES", "balanced_subset", "class_names", "fetch", "first", "inventory", "load", "planted"]

NUMBER = "number"  # coordinate: position of an image in the whole data set, the same in every split
SPLITS = ("train", "test", "all")
NAMES = tuple(OPENERS)


def load(
    name: str,
    split: str = "train",
    *,
    n: int | None = None,
    seed: int | None = None,
    classes: Sequence[str | int] | None = None,
    per_class: int | None = None,
    size: tuple[int, int] | None = None,
    colour: bool = False,
) -> xr.DataArray:
    """Load labelled images.

    Parameters
    ----------
    name : "digits", "mnist", "caltech101" or "caltech256"
        ``digits`` are scikit-learn's 1797 handwritten digits, enlarged; they come with the package and are not MNIST.
        The others are looked for in ``GDD_DATA``, then in the user's cache, then fetched.
    split : "train", "test" or "all"
        MNIST's own; of digits, 500 fixed test images. Of the Caltech sets, "train" is ``per_class`` images of every
        class drawn with ``seed`` (None: 0), "test" the others.
    n : int, optional
        How many: the first n if ``seed`` is None, else n drawn with it, equally many of every class.
    seed : int, optional
    classes : names, optional
        Default: all but the background (``BACKGROUND_Google``, ``clutter``), which is taken when named.
    per_class : int, optional
        Training images per class of the Caltech sets, 30 unless told.
    size : (rows, columns), optional
        Default 28 x 28, Caltech 128 x 128. Pictures are resized by bicubic interpolation, their shape not kept.
    colour : bool
        Three planes (red, green, blue) instead of a grey one; Caltech only.

    Returns
    -------
    DataArray (image, plane, row, col) of float32, pixels 0 to 1
        Coordinates on ``image``: ``label``, index into ``class_names(name)``; ``number``, place in the whole data
        set. Attributes: name, split, scale, checksum (sha256 of the content), label_names (comma between).

    Raises
    ------
    GddError
        An unknown name, split or class, a size or number that cannot be had, a class with too few images, a file
        that is missing or damaged.

    Notes
    -----
    Source: the data sets of Pu, Yuan & Carin 2015, Sec. 5; embedded digits: UCI Optical Recognition of Handwritten
    Digits, test part.
    Checked: tests/test_datasets.py.
    """
    _check_choice("name", name, NAMES)
    _check_choice("split", split, SPLITS)
    if per_class is not None:
        per_class = check_whole("per_class", per_class, least=1)
    if seed is not None:
        check_seed(seed)
    opened = OPENERS[name]()
    size = opened.size if size is None else check_pair("size", size)
    if colour and not opened.has_colour:
        raise GddError(f"colour: True given, but {name} has axis 'plane' of size 1; leave colour out")
    chosen = _choose_split(opened, name, split, _choose_classes(opened, name, classes), per_class, seed)
    if n is not None:
        labels = opened.labels[chosen]
        chosen = chosen[first(labels, n) if seed is None else balanced_subset(labels, n, seed)]
    check_memory("size", len(chosen) * (3 if colour else 1) * size[0] * size[1], 4)
    pixels = opened.read(chosen, size, colour)
    return xr.DataArray(
        pixels,
        dims=IMAGES,
        name="images",
        coords={LABEL: (IMAGE, opened.labels[chosen]), NUMBER: (IMAGE, chosen)},
        attrs={
            "name": name,
            "split": split,
            "scale": "pixels, 0 to 1",
            "checksum": opened.checksum,
            "label_names": ",".join(opened.class_names),
        },
    )


def class_names(name: str) -> tuple[str, ...]:
    """Names of all classes of a data set, in the order of the labels; a background class comes last.

    Raises
    ------
    GddError
        An unknown name; a file that is missing or damaged.
    """
    _check_choice("name", name, NAMES)
    return OPENERS[name]().class_names


def _check_choice(argument: str, value: object, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        also = "; images from the model itself: gdd.data.datasets.planted" if argument == "name" else ""
        raise GddError(f"{argument}: {shown(value)} given; one of {', '.join(choices)} is needed{also}")


def _choose_classes(opened: Opened, name: str, classes: Sequence[str | int] | None) -> np.ndarray:
    """Return the numbers of the images of these classes."""
    if classes is None:
        classes = [c for c in opened.class_names if c not in opened.left_out]
    classes = classes.tolist() if isinstance(classes, np.ndarray) else classes
    if isinstance(classes, str) or not isinstance(classes, Sequence) or len(classes) == 0:
        raise GddError(f"classes: {shown(classes)} given; a sequence of one or more names of classes is needed")
    for one in classes:
        if str(one) not in opened.class_names:
            known = ', '.join(opened.class_names)
            raise GddError(f"classes: {name} has no class {shown(one)}; its classes are {known}")
    wanted = [opened.class_names.index(str(one)) for one in classes]
    return np.flatnonzero(np.isin(opened.labels, wanted))


def _choose_split(
    opened: Opened, name: str, split: str, chosen: np.ndarray, per_class: int | None, seed: int | None
) -> np.ndarray:
    if opened.is_test is not None:
        if per_class is not None:
            raise GddError(f"per_class: {name} has a split of its own; leave per_class out, or use n")
        return chosen if split == "all" else chosen[opened.is_test[chosen] == (split == "test")]
    if split == "all":
        return chosen
    per_class = 30 if per_class is None else per_class
    labels, counts = np.unique(opened.labels[chosen], return_counts=True)
    for label, have in zip(labels, counts, strict=True):
        if have <= per_class:
            raise GddError(
                f"per_class: class {opened.class_names[label]!r} of {name} has {have} images: none is left to test "
                f"after {per_class}; ask for at most {have - 1}, or leave that class out"
            )
    random = generator(0 if seed is None else seed)
    # every class of the data set is shuffled, chosen or not: a class's training images do not depend on the others
    order = random.permutation(opened.labels.size)
    train = [order[opened.labels[order] == label][:per_class] for label in labels]
    return np.sort(np.concatenate(train)) if split == "train" else np.setdiff1d(chosen, np.concatenate(train))
