"""Generative deep deconvolution: the model of Pu, Yuan & Carin (ICLR 2015), exact and reproducible."""

from gdd.pipeline import infer, project_model
from gdd.sampler.pretrain import Pretrained, pretrain
from gdd.spec import CALTECH101, FACES, FACES_INTERPOLATION, MNIST, ChainSpec, LayerSpec, ModelSpec, Precision, Pruning

__version__ = "0.1.0"
__all__ = [
    "CALTECH101", "FACES", "FACES_INTERPOLATION", "MNIST", "ChainSpec", "LayerSpec", "ModelSpec", "Precision",
    "Pretrained", "Pruning", "__version__", "infer", "pretrain", "project_model",
]  # fmt: skip
