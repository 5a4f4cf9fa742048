"""Generative deep deconvolution: the model of Pu, Yuan & Carin (ICLR 2015), exact and reproducible."""

from gdd.base.checks import GddError
from gdd.estimator import DeepDeconvolution, load
from gdd.inference.deconvolution import infer
from gdd.inference.deformations import Deformations
from gdd.model.spec import (
    CALTECH101,
    FACES,
    FACES_INTERPOLATION,
    MNIST,
    ChainSpec,
    LayerSpec,
    ModelSpec,
    Precision,
    Pruning,
    RefinementSpec,
)
from gdd.one_step import OneStepFeatures, OneStepSettings, SecondLayer
from gdd.projection import project
from gdd.sampler.pretrain import Pretrained, pretrain
from gdd.sampler.refine import Refined, refine

__version__ = "0.1.0"
__all__ = [
    "CALTECH101", "FACES", "FACES_INTERPOLATION", "MNIST", "ChainSpec", "DeepDeconvolution", "Deformations",
    "GddError", "LayerSpec", "ModelSpec", "OneStepFeatures", "OneStepSettings", "Precision", "Pretrained", "Pruning",
    "Refined", "RefinementSpec", "SecondLayer", "__version__", "infer", "load", "pretrain", "project", "refine",
]
