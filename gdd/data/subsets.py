"""Which images of a data set to use: the first ones, or as many of every class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gdd.base.axes import IMAGE
from gdd.base.checks import GddError, check_seed, check_whole


def generator(seed: int) -> np.random.Generator:
    """Random numbers from a whole-number seed (Philox, the generator used everywhere in this package)."""
    return np.random.Generator(np.random.Philox(check_seed(seed)))


def first(labels: np.ndarray, n: int) -> np.ndarray:
    """Indices of the first ``n`` images: (n,)."""
    return np.arange(_check_count(labels, n))


def balanced_subset(labels: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Draw ``n`` images without replacement, equally many of every class: (n,), ascending.

    Where n is no multiple of the number of classes, the classes that give one image more are drawn too. If n is the
    number of images, all are returned, whatever the sizes of the classes.
    """
    labels = np.asarray(labels)
    n = _check_count(labels, n)
    if n == labels.size:
        return np.arange(n)
    random = generator(seed)
    classes, counts = np.unique(labels, return_counts=True)
    share = np.full(classes.size, n // classes.size)
    share[random.permutation(classes.size)[: n % classes.size]] += 1
    for label, have, want in zip(classes, counts, share, strict=True):
        if want > have:
            raise GddError(
                f"n: {n} images over {classes.size} classes takes {want} of class {label!s}, which has {have}; "
                f"ask for at most {counts.min() * classes.size}, or take the first n (seed=None)"
            )
    chosen = [random.permutation(np.flatnonzero(labels == k))[:m] for k, m in zip(classes, share, strict=True)]
    return np.sort(np.concatenate(chosen))


def _check_count(labels: np.ndarray, n: int) -> int:
    have, n = np.size(labels), check_whole("n", n, least=1)
    if n > have:
        raise GddError(f"n: {n} images asked for, axis '{IMAGE}' has {have}; ask for at most {have}")
    return n


def repeated(sizes: Sequence[int], trials: int, trials_above: int) -> list[tuple[int, int]]:
    """Every size with the numbers of its subsets, from 0: ``trials`` of the first size, ``trials_above`` of others."""
    return [(size, trial) for place, size in enumerate(sizes) for trial in range(trials_above if place else trials)]
