"""The window of contrast normalisation on Caltech, whose width the paper does not report. Page: caltech/accuracy."""

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.inference.block_magnitudes import unfold
from gdd_book import training
from gdd_book.experiments import caltech
from gdd_book.experiments.common import KINDS, Outcome, experiment
from gdd_book.progress import Run

#: of images normalised alike, without a model
PIXELS = "normalised pixels"
FEATURES = (*KINDS, "magnitudes", PIXELS)


@experiment(
    "caltech-contrast", choices=caltech.CHOICES, in_parallel=True, data="caltech101", model="two layers", seed=0,
    **training.HELD_CALTECH,
    demo={"widths": (5, 9), "n_classes": 2, "per_class": 10, "n_test": 5, **training.lengths((15, 5), test=(30, 10))},
    paper={"widths": (5, 9, 17, 33, 65), "n_classes": 6, "per_class": 30, "n_test": 30,
           **training.lengths((300, 100), test=(100, 50))},
)
def caltech_contrast(p: dict, run: Run) -> Outcome:
    """Learn every class from images normalised in windows of each width; deconvolve and classify images of the same.

    ``right`` (width, feature_kind, image), ``active`` coefficients of a test image (width,), and what the images are
    like: ``rms`` of a training pixel (width,).
    """
    caltech.check_enough(p)
    right, active, rms = [], [], []
    for width in p["widths"]:
        learned = caltech.learn(p | {"refined": False}, run, width)
        codes = caltech.encode_all(learned, training.STAGES[0], run)
        for code, images in zip(codes, learned.both, strict=True):
            code |= {FEATURES[-2]: np.abs(code[KINDS[0]]), PIXELS: unfold(caltech.shrink(images)).values}
        truth = learned.test[LABEL].values
        right.append([learned.predict([code[kind] for code in codes]) == truth for kind in FEATURES])
        active.append((codes[1][KINDS[0]] != 0).sum(axis=1).mean())
        rms.append(float((learned.both[0].astype(float) ** 2).mean() ** 0.5))
    return learned.outcome(xr.Dataset(
        {"right": (("width", "feature_kind", IMAGE), right), "active": ("width", active), "rms": ("width", rms),
         LABEL: (IMAGE, truth)},
        {"width": list(p["widths"]), "feature_kind": list(FEATURES), "class": list(learned.p["classes"])},
    ))
