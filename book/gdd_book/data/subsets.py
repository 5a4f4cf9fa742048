"""Which images of a data set to use: the first ones, or as many of every class."""

import numpy as np

from gdd.base.axes import IMAGE
from gdd.base.checks import GddError, check_seed, check_whole


def generator(seed: int) -> np.random.Generator:
    """Random numbers from a whole-number seed (Philox, the generator used everywhere in this package)."""
    return np.random.Generator(np.random.Philox(check_seed(seed)))


def balanced_subset(labels: np.ndarray, n: int, seed: int | None) -> np.ndarray:
    """Draw ``n`` images, equally many of every class: (n,), ascending; the first ones without a seed, or all.

    Where n is no multiple of the number of classes, the classes that give one image more are drawn too.
    """
    labels, n = np.asarray(labels), check_whole("n", n, 1)
    if n > labels.size:
        raise GddError(f"n: {n} images asked for, axis '{IMAGE}' has {labels.size}; ask for at most {labels.size}")
    if seed is None or n == labels.size:
        return np.arange(n)
    random, (classes, counts) = generator(seed), np.unique(labels, return_counts=True)
    share = np.full(classes.size, n // classes.size)
    share[random.permutation(classes.size)[: n % classes.size]] += 1
    if (share > counts).any():
        k = int(np.argmax(share > counts))
        raise GddError(
            f"n: {n} images over {classes.size} classes takes {share[k]} of class {classes[k]!s}, which has "
            f"{counts[k]}; ask for at most {counts.min() * classes.size}, or take the first n (seed=None)"
        )
    chosen = [random.permutation(np.flatnonzero(labels == k))[:m] for k, m in zip(classes, share, strict=True)]
    return np.sort(np.concatenate(chosen))
