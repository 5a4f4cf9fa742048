"""What the estimators of this package share: images as people have them, seeds, threads, files, a progress bar."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from hashlib import sha256
from numbers import Integral
from pathlib import Path
from typing import Self

import numpy as np
import xarray as xr
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from tqdm import TqdmWarning

from gdd.base.checks import GddError, check_lengths, check_seed, shown
from gdd.base.compiling import on_threads
from gdd.base.files import user_path
from gdd.layout import ImageLayout, Scale, as_images, scaled_data
from gdd.model.state import LayerData
from gdd.sampler.checkpoint import digest_of

#: parameters that change no number of a fit beyond rounding, or do so as ``seed_``
IDLE = ("checkpoint", "device", "n_jobs", "random_state", "verbose")
#: where scikit-learn keeps what ``set_output`` has chosen
OUTPUT = "_sklearn_output_config"


class ImageTransformer(TransformerMixin, BaseEstimator):
    """Images in, features out. `_learn` sets ``layout_``, ``scale_``, ``seed_``, ``n_features_in_`` and more."""

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

    def _forget(self) -> None:
        """Remove what an earlier fit has learned."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

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
        if not hasattr(X, "shape") or (len(X.shape) == 1 and X.dtype == object):  # a column of pictures
            X = as_images([*X] if hasattr(X, "shape") else X)
        if not reset:
            self.layout_.reject_single_image(X)
        if len(X.shape) > 2 or np.ma.isMaskedArray(X):
            return as_images(X)
        least = 2 if reset else 1
        return validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_features=least
        )

    def _scaled(self, array: np.ndarray) -> LayerData:
        """Checked new images as the model has them."""
        return scaled_data(self.layout_.arrange(array), self.scale_, new=True)[0]

    def _one_image(self, image) -> np.ndarray:
        """One image that is to be shown, as an array of images."""
        if np.shape(image) != self.layout_.shape:
            raise GddError(f"image: shape {np.shape(image)} given; one image of shape {self.layout_.shape} is needed")
        return as_images(np.asarray(image)[None])

    def _folder(self) -> Path | None:
        return None if self.checkpoint is None else user_path("checkpoint", self.checkpoint, folder=True)

    @contextmanager
    def _unfinished(self, data: LayerData) -> Iterator[Path | None]:
        """Folder for chains of this fit, named after its images and parameters; removed once the block has ended."""
        if (folder := self._folder()) is None:
            yield None
            return
        asked = {name: value for name, value in self.get_params(deep=False).items() if name not in IDLE}
        fit = f"{type(self).__name__} {self.seed_} {asked} {digest_of([data.images, data.mask])}"
        yield (place := folder / f"fit-{sha256(fit.encode()).hexdigest()[:12]}")
        shutil.rmtree(place, ignore_errors=True)

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        return check_seed(self.random_state, "random_state")

    def _threads(self) -> AbstractContextManager:
        if self.n_jobs is not None and (not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise GddError(f"n_jobs: {self.n_jobs!r} given; a whole number, -1 for all cores, or None is needed")
        return nullcontext() if self.n_jobs is None else on_threads(effective_n_jobs(self.n_jobs))

    # ---- files

    def _attributes(self, **parameters) -> dict:
        """Attributes of a file of the fitted estimator; ``parameters`` stand in for those that JSON does not have."""
        parameters = self.get_params(deep=False) | {
            "checkpoint": self.checkpoint and str(self.checkpoint), "random_state": self.seed_,
        } | parameters
        return {
            "parameters": json.dumps(parameters, default=lambda value: value.tolist()),  # numbers of NumPy
            "layout": json.dumps(self.layout_), "centre": self.scale_.centre, "unit": self.scale_.unit,
            "seed": self.seed_, "n_features_in": self.n_features_in_, "output": json.dumps(getattr(self, OUTPUT, {})),
            "feature_names": json.dumps([*getattr(self, "feature_names_in_", [])]),
        }

    @classmethod
    def _from_attributes(cls, attrs: dict, parameters: dict) -> Self:
        """Estimator with these parameters, fitted so far as `_attributes` tells."""
        model = cls(**parameters)
        axes, planes, size = json.loads(attrs["layout"])
        model.layout_ = ImageLayout(axes, planes, tuple(size))
        model.scale_ = Scale(np.atleast_1d(attrs["centre"]), float(attrs["unit"]))
        model.seed_, model.n_features_in_ = int(attrs["seed"]), int(attrs["n_features_in"])
        if names := json.loads(attrs["feature_names"]):
            model.feature_names_in_ = np.array(names, object)
        if output := json.loads(attrs["output"]):
            setattr(model, OUTPUT, output)
        return model


def parameters_of(attrs: dict) -> dict:
    """Parameters in the attributes of a file, lists as tuples."""
    return {name: as_tuples(value) for name, value in json.loads(attrs["parameters"]).items()}


def as_tuples(value):
    """Lists, and lists in them, as tuples."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def sweeps_of(name: str, pair: object) -> tuple[int, int]:
    """Sweeps of a chain, thrown away and kept, that a parameter gives."""
    pair = pair.tolist() if isinstance(pair, np.ndarray) else pair
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise GddError(f"{name}: {shown(pair)} given; two numbers of sweeps, thrown away and kept, are needed")
    return check_lengths(*pair)


class Bar:
    """A progress bar with the `begin` and `step` that chains call."""

    def __init__(self, total: int, verbose: bool, unit: str = "sweeps"):
        with warnings.catch_warnings():  # of a notebook without widgets, which gets a bar of letters
            warnings.simplefilter("ignore", TqdmWarning)
            from tqdm.auto import tqdm  # here: which bar it is depends on where this runs, and is decided once
        hidden = False if "ipykernel.zmqshell" in sys.modules else None  # None: unless there is a terminal
        self._bar = tqdm(total=total, unit=f" {unit}", disable=hidden if verbose else True, leave=False)

    def begin(self, stage: str, sweeps: int, done: int = 0, *_) -> None:
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
