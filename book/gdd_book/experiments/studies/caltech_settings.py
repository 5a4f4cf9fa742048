"""Numbers of learning that the paper does not report, one at a time, on Caltech. Page: caltech/accuracy."""

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.inference.block_magnitudes import unfold
from gdd.inference.contrast import WIDTH
from gdd_book import training
from gdd_book.experiments import caltech
from gdd_book.experiments.common import KINDS, Outcome, experiment
from gdd_book.progress import Run

#: the sample and the mean, the sample without its signs, and pixels of images normalised alike, which need no model
FEATURES = (*KINDS, "magnitudes", "normalised pixels")
#: what is set: the width of the window, and the parameters of the two precisions
NUMBERS = ("width", "noise_precision", "weight_precision")


@experiment(
    "caltech-settings", choices=caltech.CHOICES, in_parallel=True, data="caltech101", model="two layers", seed=0,
    **training.HELD_CALTECH,
    demo={"widths": (5,), "noises": (30.0,), "weights": (1.0,), "n_classes": 2, "per_class": 10, "n_test": 5,
          **training.lengths((15, 5), test=(30, 10))},
    paper={"widths": (5, 17, 65), "noises": (0.3, 30.0), "weights": (0.01, 1.0), "n_classes": 6, "per_class": 30,
           "n_test": 30, **training.lengths((150, 50), test=(100, 50))},
)
def caltech_settings(p: dict, run: Run) -> Outcome:
    """Learn every class with one number changed, the others as everywhere; deconvolve and classify at the same numbers.

    ``widths`` of the window of contrast normalisation, ``noises`` and ``weights``: precisions of pretraining. By
    setting, the first as everywhere: ``right`` (setting, feature_kind, image), ``active`` coefficients of a test image.
    ``number`` and ``value``, of the setting, say what was changed.
    """
    caltech.check_enough(p)
    usual = {"width": WIDTH} | {name: p[name] for name in NUMBERS[1:]}
    tried = zip(NUMBERS, ("widths", "noises", "weights"), strict=True)
    changes = [("", 0.0), *((number, value) for number, values in tried for value in p[values])]
    right, active = [], []
    for number, value in changes:
        own = usual | ({number: value} if number else {})
        learned = caltech.learn(p | {"refined": False, **own}, run, own["width"])
        codes = caltech.encode_all(learned, training.STAGES[0], run)
        for code, images in zip(codes, learned.both, strict=True):
            code |= {FEATURES[2]: np.abs(code[KINDS[0]]), FEATURES[3]: unfold(caltech.shrink(images)).values}
        truth = learned.test[LABEL].values
        right.append([learned.predict([code[kind] for code in codes]) == truth for kind in FEATURES])
        active.append((codes[1][KINDS[0]] != 0).sum(axis=1).mean())
    numbers, values = zip(*changes, strict=True)
    return learned.outcome(xr.Dataset(
        {"right": (("setting", "feature_kind", IMAGE), right), "active": ("setting", active), LABEL: (IMAGE, truth),
         "number": ("setting", list(numbers)), "value": ("setting", np.array(values, float))},
        {"feature_kind": list(FEATURES), "class": list(learned.p["classes"])},
    ))
