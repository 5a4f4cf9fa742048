"""What the pooling costs: digits classified after probabilistic, max and average pooling, layer by layer.

With max pooling the first layer is that of the model's predecessor, the hierarchical beta process (HBP in Table 1):
every element of a map has a Bernoulli of its own, under a Beta(1/K, 1 - 1/K), and maps are pooled afterwards. Both
layers' features are classified, as there. If it errs as probabilistic pooling does, the gap to the printed numbers
is not the pooling's. Page: book/mnist/error.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import xarray as xr

from gdd import project
from gdd.base.axes import BLOCKS, IMAGE
from gdd.inference.features import stack_features
from gdd.inference.fixed_dictionary import infer_layers
from gdd.inference.infer import precisions_of
from gdd.sampler.pretrain import Pretrained, pool_up
from gdd_book.experiments.atoms import with_pooling
from gdd_book.experiments.mnist import KINDS, tuned
from gdd_book.experiments.path import encode
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.progress import Run
from gdd_book.training import (
    DIGITS_CHAIN,
    HELD_DIGITS,
    STAGES,
    digits,
    digits_model,
    learned,
    pretrained_model,
    setup_of,
)

POOLINGS = ("probabilistic", "max", "average")
#: what is classified: the pooled maps of layer 1, the maps of layer 2, both, and the code by projected atoms
FEATURES = ("layer 1, pooled", "layer 2", "both layers", "one deconvolution")


@experiment(
    "mnist-pooling", choices={"poolings": POOLINGS}, seed=0, poolings=POOLINGS, learned_planes=True, **HELD_DIGITS,
    demo={"data": "digits", "n_train": 200, "n_test": 200, "burn_in": 20, "collect": 10, "test_burn_in": 20,
          "test_collect": 10},
    paper={"data": "mnist", "n_train": 10000, "n_test": 10000, "burn_in": 60, "collect": 20, "test_burn_in": 60,
           "test_collect": 20},
)
def mnist_pooling(p: dict, run: Run) -> Outcome:
    """Pretrain with each pooling, infer layer by layer and in one deconvolution, classify the sample and the mean."""
    train, test = digits(p), digits(p, "test")
    found, models = [], {}
    for pooling in p["poolings"]:
        setup = setup_of(p, run, train)
        depends = {name: p[name] for name in (*DIGITS_CHAIN, "learned_planes")} | {"pooling": pooling}
        folder = run.folder("mnist-pooling", depends)
        setup = setup._replace(model=with_pooling(setup.model, pooling), folders=(folder, None))
        fitted = pretrained_model(p, run, setup, f"{pooling} pooling, ")
        models |= learned(f"mnist-{pooling}", {STAGES[0]: fitted}, setup, p)
        both, errors = [_features(fitted, images, p, run) for images in (train, test)], []
        for part, kind in product(both, KINDS):
            part[FEATURES[2], kind] = stack_features(*([one[f, kind] for f in FEATURES[:2]] for one in (part, both[0])))
        with run.bar(len(both[0]), f"{pooling} pooling, classifying") as bar:
            for key in product(FEATURES, KINDS):
                errors.append(tuned([part[key] for part in both], train, test, p["seed"]).error.item())
                bar.step()
        found.append(np.reshape(errors, (len(FEATURES), len(KINDS))))
    dataset = xr.Dataset(
        {"error": (("pooling", "feature", "feature_kind"), found),
         "error_of_pixels": tuned([train, test], train, test, p["seed"]).error},
        {"pooling": list(p["poolings"]), "feature": list(FEATURES), "feature_kind": list(KINDS)},
    )
    return outcome(dataset, p, train, models, model=digits_model(p))


def _features(fitted: Pretrained, images: xr.DataArray, p: dict, run: Run) -> dict[tuple[str, str], xr.DataArray]:
    """Features of these digits by `FEATURES` and kind, but for both layers' together."""
    number = 0 if images.attrs["split"] == "train" else 1  # training and test digits have different random numbers
    lengths = {"burn_in": p["test_burn_in"], "collect": p["test_collect"]}
    with run.bar(2 * sum(lengths.values()) * images.sizes[IMAGE], f"inferring {images.attrs['split']}") as bar:
        layers = infer_layers(fitted, images, **lengths, seed=2 * p["seed"] + number, progress=bar.step)
    found, spec = {}, fitted.layers[0].spec
    for kind in KINDS:
        pooled = pool_up(layers[0][kind].values, spec)
        found[FEATURES[0], kind] = xr.DataArray(pooled, layers[1][kind].coords, BLOCKS)
        found[FEATURES[1], kind] = layers[1][kind]
    code = encode(images, project(fitted), fitted.model.stride, precisions_of(fitted), p)
    return found | {(FEATURES[3], kind): code[kind] for kind in KINDS}
