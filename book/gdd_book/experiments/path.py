"""What experiments that classify have in common: images are encoded by given atoms, codes go to the classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from gdd.base.axes import LABEL
from gdd.inference.deconvolution import deconvolve
from gdd_book.evaluate.classify import FIVE_FOLD, Copies, SvmProtocol, error

#: number of the first test image, from which its random numbers follow: training images have others
FIRST_TEST_IMAGE = 10**6


def encode(
    images: xr.DataArray, atoms: np.ndarray | xr.DataArray, stride: tuple[int, int], precisions: tuple[float, float],
    p: Mapping[str, Any], **more,
) -> xr.Dataset:
    """One-layer deconvolution with projected atoms, chain lengths ``test_burn_in`` and ``test_collect``.

    ``precisions`` : gamma_e and gamma_w. ``more`` : other arguments of `gdd.inference.deconvolution.deconvolve`
    """
    settings = {
        "gamma_e": precisions[0], "gamma_w": precisions[1], "burn_in": p["test_burn_in"], "collect": p["test_collect"],
        "seed": p["seed"], "first_image": 0 if images.attrs["split"] == "train" else FIRST_TEST_IMAGE,
    }
    return deconvolve(images, np.asarray(atoms, images.dtype), stride, **settings | more)


def classify(
    pair: Sequence[xr.DataArray | np.ndarray], train: xr.DataArray, test: xr.DataArray, seed: int,
    protocol: SvmProtocol = FIVE_FOLD, copies: Copies | None = None,
) -> xr.Dataset:
    """Tune and train on the first features of ``pair``, predict from the second: `gdd_book.evaluate.classify.error`."""
    return error(pair[0], train[LABEL].values, pair[1], test[LABEL].values, protocol, seed, copies)


def error_of(
    pair: Sequence[xr.DataArray | np.ndarray], train: xr.DataArray, test: xr.DataArray, p: Mapping[str, Any]
) -> float:
    """Error in % of `classify` with the usual protocol."""
    return float(classify(pair, train, test, p["seed"]).error)


def repeated(sizes: Sequence[int], trials: int, trials_above: int) -> list[tuple[int, int]]:
    """Every size with the numbers of its subsets, from 0: ``trials`` of the first size, ``trials_above`` of others."""
    return [(size, trial) for place, size in enumerate(sizes) for trial in range(trials_above if place else trials)]
