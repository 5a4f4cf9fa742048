"""Digits classified: Table 1, the bottom of Fig. 2c, and the supplement's comparison with layer-by-layer inference."""

import numpy as np
import xarray as xr

from gdd import project
from gdd.base.axes import IMAGE, LABEL
from gdd.inference.block_magnitudes import one_step_features, stack_features
from gdd.inference.deconvolution import precisions_of
from gdd.inference.fixed_dictionary import infer_jointly, infer_layers, shared_of
from gdd.sampler.pretrain import Pretrained
from gdd_book import training
from gdd_book.data import datasets
from gdd_book.evaluate.classify import FIVE_FOLD, tuning_subset
from gdd_book.experiments import common
from gdd_book.progress import Run

#: features from one test-time chain, and those that are compared everywhere
KINDS = common.KINDS
CODES = (*KINDS, "magnitude", "inclusion")


# ---- Table 1
@common.experiment(
    "mnist-error", choices={"codes": CODES}, data="mnist", seed=0, **training.HELD_DIGITS,
    demo={"n_train": 1000, "n_test": 10000, **training.lengths((60, 20), test=(60, 20)), "codes": CODES},
    paper={"n_train": 10000, "n_test": 10000, **training.lengths((1500, 500), test=(500, 200)), "codes": KINDS},
)
def mnist_error(p: dict, run: Run) -> common.Outcome:
    """Pretrain, project, deconvolve training and test digits in one layer, classify.

    Beside the paper's feature (the sample of highest likelihood) stand averages over the same chain, and what needs no
    dictionary of the second layer: raw pixels, and one-step features of the first layer.
    """
    train = training.digits(p)
    test = datasets.load(p["data"], "test", n=min(p["n_test"], datasets.load(p["data"], "test").sizes[IMAGE]))
    fitted = training.pretrained_model(p, run)
    features = features_of(fitted, train, test, p, run)
    results = {kind: common.classify(pair, train, test, p["seed"]) for kind, pair in features.items()}
    dataset = xr.Dataset({
        "error": ("feature_kind", [r.error.item() for r in results.values()]),
        "wrong": ("feature_kind", [r.wrong.item() for r in results.values()]),
    }, {"feature_kind": list(results)})
    return common.outcome(dataset, p, train, model=fitted.model, chain=training.chain_of(p))


def features_of(
    fitted: Pretrained, train: xr.DataArray, test: xr.DataArray, p: dict, run: Run
) -> dict[str, list[xr.DataArray]]:
    """Every feature of training and test digits that is compared, by its name."""
    atoms, codes, precisions = project(fitted), [], precisions_of(fitted)
    for images in (train, test):
        with run.bar(images.sizes[IMAGE], f"deconvolving {images.attrs['split']}") as bar:
            more = {"progress": bar.step, "device": run.device}
            codes.append(common.encode(images, atoms, fitted.model.stride, precisions, p, **more))
    return {kind: [part[kind] for part in codes] for kind in p["codes"]} | {
        "raw pixels": [train, test], "one-step, layer 1": [one_step(fitted, images) for images in (train, test)],
    }


def one_step(fitted: Pretrained, images: xr.DataArray, atoms: np.ndarray | None = None) -> xr.DataArray:
    """Expected magnitude in every block of layer 1, given the image alone; ``atoms``: of layer 1, if not its own."""
    bottom = fitted.layers[0]
    local, shared = bottom.state
    precisions = {"gamma_e": float(local.gamma_e.mean()), "gamma_w": float(shared.gamma_w.mean())}
    atoms = shared.dictionary if atoms is None else atoms
    return one_step_features(images, atoms.astype(np.float32), bottom.spec.pool, **precisions)


@common.experiment(
    "mnist-curve", choices={"codes": CODES}, codes=KINDS, **training.HELD_DIGITS,
    demo={"data": "digits", "sizes": (200, 400), "trials": 3, "trials_above": 2, "n_test": 500,
          **training.lengths((60, 20), test=(60, 20))},
    paper={"data": "mnist", "sizes": (1000, 2000, 5000), "trials": 10, "trials_above": 2, "n_test": 10000,
           **training.lengths((300, 100), test=(100, 50))},
)
def mnist_curve(p: dict, run: Run) -> common.Outcome:
    """Run `mnist_error` on several subsets of several sizes, of which only the errors are kept.

    Each subset's number is its seed. At paper scale the chains are shorter than the paper's, as there are many.
    """
    test = datasets.load(p["data"], "test", n=p["n_test"])
    runs = common.repeated(p["sizes"], p["trials"], p["trials_above"])
    for size, trial in runs:  # before any chain: are there so many digits, and enough of each to tune on?
        tuning_subset(training.digits(p | {"n_train": size, "seed": trial})[LABEL].values, FIVE_FOLD, trial)
    found = {}
    for size, trial in runs:
        one = p | {"n_train": size, "seed": trial}
        train = training.digits(one)
        features = features_of(training.pretrained_model(one, run), train, test, one, run)
        errors = [common.error_of(pair, train, test, one) for pair in features.values()]
        found[size, trial] = xr.Dataset({"error": ("feature_kind", errors)}, {"feature_kind": list(features)})
    specs = {"model": training.digits_model(p), "chain": training.chain_of(p, seed=0), "protocol": FIVE_FOLD}
    return common.outcome(common.by_size(found), p | {"seed": 0}, test, **specs)


# ---- one deconvolution or layer by layer
#: ways to a digit's features: what is classified
WAYS = (
    "one deconvolution, projected atoms", "layer by layer, all layers", "layer by layer, layer 1",
    "layer by layer, top layer", "all layers at once, top layer",
)


@common.experiment(
    "mnist-layerwise", seed=0, **training.HEALTHY_DIGITS,
    demo={"data": "digits", "n_train": 200, "n_test": 200,
          **training.lengths((60, 20), refine=(60, 20), test=(60, 20), joint=(30, 10))},
    paper={"data": "mnist", "n_train": 1000, "n_test": 1000,
           **training.lengths((1500, 500), refine=(150, 50), test=(100, 50), joint=(60, 30))},
)
def mnist_layerwise(p: dict, run: Run) -> common.Outcome:
    """Codes of the same digits in three ways, with pretrained and with refined dictionaries.

    One layer of deconvolution with the projected top atoms; layer by layer, each layer's maps from those below it; all
    layers at once under the joint model.
    """
    train, test = training.digits(p), training.digits(p, "test")
    trained = training.trained_models(p, run)
    both = [_in_every_way(trained, images, p, run) for images in (train, test)]
    for name, part in [(name, part) for name in training.STAGES for part in both]:
        part[name, WAYS[1]] = {
            kind: stack_features(*([one[name, way][kind] for way in WAYS[2:4]] for one in (part, both[0])))
            for kind in KINDS
        }
    errors = [
        [[common.error_of([part[name, way][kind] for part in both], train, test, p) for kind in KINDS] for way in WAYS]
        for name in training.STAGES
    ]
    out = {"error": (("model", "way", "feature_kind"), errors)}
    out["error_of_pixels"] = common.error_of([train, test], train, test, p)
    dataset = xr.Dataset(out, {"model": list(training.STAGES), "way": list(WAYS), "feature_kind": list(KINDS)})
    fitted, refined = trained.values()
    return common.outcome(dataset, p, train, model=fitted.model, refinement=refined.refinement)


def _in_every_way(trained: dict, images: xr.DataArray, p: dict, run: Run) -> dict:
    """Features of these images by model and way, but for all layers' together: each a Dataset with `KINDS`."""
    fitted, refined = trained.values()
    number = 0 if images.attrs["split"] == "train" else 1  # training and test digits have different random numbers
    chain = {"burn_in": p["test_burn_in"], "collect": p["test_collect"]}
    joint = training.chain_of(p, "joint_", 2 * p["seed"] + number)
    projected = {training.STAGES[0]: project(fitted), training.STAGES[1]: project(refined)}
    found = {
        (name, WAYS[0]): common.encode(
            images, atoms, fitted.model.stride, precisions_of(trained[name]), p, device=run.device
        ) for name, atoms in projected.items()
    }
    noise = float(refined.state.local.gamma_e.mean())
    shared = {training.STAGES[0]: shared_of(fitted), training.STAGES[1]: refined.state.shared}
    sweeps = len(training.STAGES) * images.sizes[IMAGE] * (2 * sum(chain.values()) + joint.sweeps)
    with run.bar(sweeps, f"inferring {images.attrs['split']}") as bar:
        models = fitted, training.with_dictionaries(fitted, refined.state.shared.dictionaries)
        for name, model in zip(training.STAGES, models, strict=True):
            bottom, top = infer_layers(model, images, **chain, seed=joint.seed, progress=bar.step)
            at_once = infer_jointly(images, fitted.model, shared[name], refined.refinement, joint, noise, bar.step)
            found |= zip(((name, way) for way in WAYS[2:]), (bottom, top, at_once), strict=True)
    return found
