"""What the estimators of this package share: images as people have them, seeds, threads, a progress bar."""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from numbers import Integral

import numpy as np
import xarray as xr
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from tqdm import TqdmWarning

from gdd.base.checks import GddError, check_lengths, check_seed
from gdd.base.compiling import on_threads
from gdd.layout import as_images

#: where scikit-learn keeps what ``set_output`` has chosen
OUTPUT = "_sklearn_output_config"


class ImageTransformer(TransformerMixin, BaseEstimator):
    """Images in, features out.

    A subclass has the parameters ``random_state`` and ``n_jobs``, and once fitted ``layout_``.
    """

    def fit(self, X, y=None) -> ImageTransformer:
        """Learn from images; ``y`` is ignored. What was fitted before stays as it was unless this fit succeeds.

        Raises
        ------
        GddError
            Images, sizes or lengths that do not fit each other, a checkpoint of another fit: before any work.
        """
        fitted = copy(self)
        fitted._learn(X)
        self.__dict__ = fitted.__dict__  # in one step, which no Ctrl-C interrupts
        return self

    def _learn(self, X) -> None:
        """Set what is learned from images."""
        raise NotImplementedError

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _checked(self, X, reset: bool) -> np.ndarray:
        """Images as an array: tables by scikit-learn's own checks, arrays of more axes by ours."""
        if isinstance(X, xr.DataArray):
            return as_images(X) if reset else self.layout_.from_labelled(as_images(X))
        X = X if hasattr(X, "shape") else as_images(X)
        if not reset:
            self.layout_.check_several(X)
        if len(X.shape) > 2 or np.ma.isMaskedArray(X):
            return as_images(X)
        least = 2 if reset else 1
        return validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_features=least
        )

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        return check_seed(self.random_state, "random_state")

    def _threads(self) -> AbstractContextManager:
        if self.n_jobs is None:
            return nullcontext()
        if not isinstance(self.n_jobs, Integral) or self.n_jobs == 0:
            raise GddError(f"n_jobs: {self.n_jobs!r} given; a number of threads, -1 for all cores, or None is needed")
        return on_threads(effective_n_jobs(self.n_jobs))


def sweeps_of(name: str, pair: object) -> tuple[int, int]:
    """Sweeps of a chain, thrown away and kept, that a parameter gives."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise GddError(f"{name}: {pair!r} given; two numbers of sweeps, thrown away and kept, are needed")
    return check_lengths(*pair)


class Bar:
    """A progress bar with the `begin` and `step` that chains call."""

    def __init__(self, total: int, verbose: bool, unit: str = "sweeps"):
        with warnings.catch_warnings():  # of a notebook without widgets, which gets a bar of letters
            warnings.simplefilter("ignore", TqdmWarning)
            from tqdm.auto import tqdm  # here: which bar it is depends on where this runs, and is decided once
        in_notebook = "ipykernel.zmqshell" in sys.modules
        hidden = (False if in_notebook else None) if verbose else True  # None: unless there is a terminal
        self._bar = tqdm(total=total, unit=f" {unit}", disable=hidden, leave=False)

    def begin(self, stage: str, sweeps: int, done: int = 0, seconds: float = 0.0, chain: str = "") -> None:
        """Begin a stage, ``done`` sweeps of which were found at a checkpoint."""
        self._bar.set_description(stage)
        self._bar.update(done)

    def step(self, count: int = 1, **shown: float) -> None:
        """Count what is finished and show these numbers beside the bar."""
        self._bar.set_postfix({name: f"{value:.3g}" for name, value in shown.items()}, refresh=False)
        self._bar.update(count)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()
