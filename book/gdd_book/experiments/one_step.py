"""What `gdd.OneStepFeatures` brings a user: errors with few labels, beside simple features; cost; and of chains, seeds.

Every feature sees the same images and the same classifier. No test image reaches a feature or the tuning.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr
from skimage import data
from skimage.color import rgb2gray
from sklearn.cluster import MiniBatchKMeans  # noqa: F401
from sklearn.datasets import load_digits, load_sample_image

from gdd import DeepDeconvolution, Deformations, OneStepFeatures
from gdd.base.axes import IMAGES, LABEL
from gdd_book.benchmarks.harness import on_threads
from gdd_book.data import datasets
from gdd_book.data.subsets import generator
from gdd_book.evaluate.baselines import learn_patches, patch_features, principal_components
from gdd_book.evaluate.classify import SvmProtocol, error
from gdd_book.experiments.mnist_features import PROTOCOL
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.progress import Run
