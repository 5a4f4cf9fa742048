"""Caltech images classified by the dictionaries of all classes side by side: Table 2, and what may limit it.

For each split a model is learned of every class on its own. The projected atoms of all classes together explain every
image in one layer of deconvolution, and the weights go to the classifier.
"""

import time
from typing import NamedTuple

import numpy as np
import xarray as xr
from skimage.feature import hog

from gdd.base.axes import ATOM, IMAGE, LABEL
from gdd.base.checks import check_whole
from gdd.inference.block_magnitudes import stack_features, unfold
from gdd.inference.contrast import WIDTH
from gdd.inference.deconvolution import make_problem, run_problem
from gdd.inference.fixed_dictionary import infer_layers
from gdd_book import training
from gdd_book.benchmarks.harness import on_threads
from gdd_book.data import datasets
from gdd_book.data.subsets import generator
from gdd_book.evaluate.baselines import learn_patches, patch_features
from gdd_book.evaluate.classify import SvmProtocol
from gdd_book.experiments.common import FIRST_TEST_IMAGE, KINDS, Outcome, classify, encode_kept, experiment, outcome
from gdd_book.progress import Run

CHOICES = {"data": training.CALTECH, "model": tuple(training.MODELS)}
#: all training images of the table are tuned on, as a class has too few to leave any out; the grid is short, as each of
#: its points takes 505 machines on 2,424 images; C is as in `gdd_book.experiments.studies.mnist_features`
PROTOCOL = SvmProtocol(costs=(10.0,), gammas=(0.1, 0.5, 2.0), tune_on=5000)
SMALL = 32  # rows and columns of images as raw pixels, and as what patches are cut from
REGIONS = 5  # along each side of an image, for sums of patches: as many as an atom has positions


# ---- what all three have in common
class Learned(NamedTuple):
    """Images, and the models of all classes."""

    p: dict  # parameters, ``classes`` among them
    train: xr.DataArray  # pixels as they are
    test: xr.DataArray
    both: list[xr.DataArray]  # training and test images, normalised
    classes: list[xr.Dataset]  # of `gdd_book.training.learn_classes`

    def together(self, stage: str) -> tuple[np.ndarray, tuple[float, float]]:
        """Projected atoms of all classes side by side, and the means of their noise and weight precisions."""
        atoms = np.concatenate([one.atoms.sel(stage=stage).values for one in self.classes])
        each = (np.array([one[name].sel(stage=stage) for one in self.classes]) for name in ("gamma_e", "gamma_w"))
        gamma_e, gamma_w = (float(values.mean()) for values in each)
        return atoms, (gamma_e, gamma_w)

    def baselines(self) -> dict[str, list[np.ndarray]]:
        """Of `baselines`, with as many patches as there are atoms."""
        return baselines(self.train, self.test, sum(one.sizes[ATOM] for one in self.classes), self.p["seed"])

    def predict(self, pair) -> np.ndarray:
        """Labels of the test images from features of training and test images; tuned on the training images alone."""
        return classify(pair, self.train, self.test, self.p["seed"], PROTOCOL).predicted.values

    def outcome(self, dataset: xr.Dataset) -> Outcome:
        """Of an experiment with one seed."""
        return outcome(dataset, self.p, self.train, model=training.caltech_model(self.p["model"], self.p))


def learn(p: dict, run: Run, width: int = WIDTH) -> Learned:
    """Load, normalise in windows of this width, learn every class."""
    p = p | {"classes": classes_of(p)}
    train, test = both = train_and_test(p)
    both = [training.normalised(part, width) for part in both]
    return Learned(p, train, test, both, training.learn_classes(p, both[0], run))


def check_enough(p: dict) -> None:
    """Refuse what no classifier can be tuned on, before the chains of hours."""
    for name, least in (("n_classes", 2), ("per_class", PROTOCOL.folds)):
        check_whole(f"parameter {name}", p[name], least)


def classes_of(p: dict) -> tuple[str, ...]:
    """``p["n_classes"]`` evenly spaced names of the alphabetical list, or all, without the background."""
    known = [name for name in datasets.class_names(p["data"]) if name not in ("BACKGROUND_Google", "clutter")]
    n = min(p["n_classes"], len(known))
    return tuple(known[round(i * (len(known) - 1) / max(1, n - 1))] for i in range(n))


def train_and_test(p: dict, size: tuple[int, int] | None = None) -> tuple[xr.DataArray, xr.DataArray]:
    """Training images, and at most ``p["n_test"]`` test images of each class, drawn by seed; of the model's size."""
    train, test = (training.caltech_images(p, split, size) for split in ("train", "test"))
    order = generator(p["seed"]).permutation(len(test))
    labels = test[LABEL].values[order]
    chosen = np.concatenate([order[labels == label][: p["n_test"]] for label in np.unique(labels)])
    return train, test.isel(image=np.sort(chosen))


def encode_all(learned: Learned, stage: str, run: Run) -> list[dict]:
    """Codes of training and of test images by the atoms of all classes, each of `KINDS` (image, feature)."""
    (atoms, precisions), found = learned.together(stage), []
    stride = training.MODELS[learned.p["model"]].stride
    for images in learned.both:
        codes = encode_kept(images, atoms, stride, precisions, learned.p, run, f"deconvolving, {stage}")
        found.append({kind: codes[kind].values.reshape(len(images), -1) for kind in KINDS})
    return found


def baselines(train: xr.DataArray, test: xr.DataArray, count: int, seed: int) -> dict[str, list[np.ndarray]]:
    """Features of training and test images, (image, feature), that owe nothing to the model; ``count`` patches."""
    both = train, test
    small = [shrink(part) for part in both]
    patches = learn_patches(small[0], count, seed=seed)
    return {
        "raw pixels": [unfold(part).values for part in small],
        "gradients": [np.stack([hog(image, cells_per_block=(2, 2)) for image in part.values[:, 0]]) for part in both],
        "k-means patches": [patch_features(part, patches, REGIONS).values for part in small],
    }


def shrink(images: xr.DataArray) -> xr.DataArray:
    """Means of squares of pixels, about `SMALL` of them along each side."""
    factor = max(1, images.sizes["row"] // SMALL)
    return images.coarsen(row=factor, col=factor, boundary="trim").mean()


# ---- Table 2
@experiment(
    "caltech-accuracy", choices=CHOICES, in_parallel=True, data="caltech101", model="three layers", refined=True,
    seeds=(0,), voters=10, **training.HEALTHY_CALTECH,
    demo={"n_classes": 3, "per_class": 10, "n_test": 10, **training.lengths((15, 5), refine=(6, 2), test=(30, 10))},
    paper={"n_classes": 101, "per_class": 30, "n_test": 1000,
           **training.lengths((1500, 500), refine=(1500, 500), test=(500, 200))},
)
def caltech_accuracy(p: dict, run: Run) -> Outcome:
    """Learn every class, deconvolve, classify, for each split.

    ``n_classes`` evenly spaced ones of the alphabetical list are taken, at most ``n_test`` test images of each. Three
    features that owe nothing to the model stand beside: raw pixels, gradients, k-means of patches.
    """
    check_enough(p)
    splits = []
    for seed in p["seeds"]:
        learned = learn(p | {"seed": seed}, run)
        splits.append(_one_split(learned, run))
    dataset = xr.concat(splits, "split", data_vars="all").assign_coords(split=list(p["seeds"]))
    return outcome(dataset, p, learned.train, model=training.caltech_model(p["model"], p), protocol=PROTOCOL)


def _one_split(learned: Learned, run: Run) -> xr.Dataset:
    """Accuracy in % of every feature on one split, over images and of every class; the background is left out."""
    truth, found = learned.test[LABEL].values, {}
    for stage in learned.classes[0].stage.values:
        codes = encode_all(learned, stage, run)
        found |= {f"{stage}, {kind}": learned.predict([part[kind] for part in codes]) for kind in KINDS}
        del codes
    found |= {name: learned.predict(pair) for name, pair in learned.baselines().items()}
    right = [predicted == truth for predicted in found.values()]
    own = [[100 * hit[truth == label].mean() for label in np.unique(truth)] for hit in right]
    return xr.Dataset({
        "accuracy": ("feature_kind", [100 * hit.mean() for hit in right]),
        "class_accuracy": (("feature_kind", "class"), own), "n_test_images": len(truth),
    }, {"feature_kind": list(found), "class": list(learned.p["classes"])})


# ---- one deconvolution or layer by layer
ONE_DECONVOLUTION, ALL_LAYERS = "one deconvolution, projected atoms", "layer by layer, all layers"


@experiment(
    "caltech-layerwise", choices=CHOICES, in_parallel=True, data="caltech101", model="three layers", seed=0,
    **training.HELD_CALTECH,
    demo={"n_classes": 2, "per_class": 10, "n_test": 5, **training.lengths((15, 5), test=(30, 10), layer=(6, 4))},
    paper={"n_classes": 6, "per_class": 30, "n_test": 15, **training.lengths((60, 20), test=(100, 50), layer=(20, 10))},
)
def caltech_layerwise(p: dict, run: Run) -> Outcome:
    """The supplement's second table of layer-by-layer classification: one deconvolution or layer by layer.

    Every image gets its features twice: by one deconvolution with the projected atoms of all classes side by side, and
    from each class's own layers, from the bottom up, the maps of all classes side by side. Layer by layer takes a chain
    for each class, layer and image, and its features are thousands of numbers for each class, so a few classes are
    compared, and the chains are short.
    """
    check_enough(p)
    learned = learn(p | {"refined": False}, run)
    codes = encode_all(learned, training.STAGES[0], run)
    features = {(ONE_DECONVOLUTION, kind): [part[kind] for part in codes] for kind in KINDS}
    layers = [_in_layers(learned, part, run) for part in learned.both]
    for kind in KINDS:
        parts = [part[kind] for part in layers]  # by class and layer, (image, feature)
        stacks = {ALL_LAYERS: [[each for own in part for each in own] for part in parts]}
        for number in range(len(parts[0][0])):
            stacks[f"layer by layer, layer {number + 1}"] = [[own[number] for own in part] for part in parts]
        features |= {(way, kind): [stack_features(part, both[0]) for part in both] for way, both in stacks.items()}
    ways, truth = list(dict.fromkeys(way for way, _ in features)), learned.test[LABEL].values
    right = {name: learned.predict(pair) == truth for name, pair in features.items()}
    without = {name: 100 * (learned.predict(pair) == truth).mean() for name, pair in learned.baselines().items()}
    return learned.outcome(xr.Dataset({
        "right": (("way", "feature_kind", IMAGE), [[right[way, kind] for kind in KINDS] for way in ways]),
        "n_features": ("way", [np.shape(features[way, KINDS[0]][0])[1] for way in ways]),
        "baseline_accuracy": ("baseline", list(without.values())),
    }, {"way": ways, "feature_kind": list(KINDS), "baseline": list(without), "class": list(learned.p["classes"])}))


def _in_layers(learned: Learned, images: xr.DataArray, run: Run) -> dict[str, list]:
    """Maps of images in the layers of every class: for each of `KINDS`, by class and layer, (image, feature)."""
    p, train, found = learned.p, learned.both[0], []
    names, first = train.attrs["label_names"].split(","), 0 if images.attrs["split"] == "train" else FIRST_TEST_IMAGE
    sweeps = (p["layer_burn_in"] + p["layer_collect"]) * len(training.MODELS[p["model"]].layers)
    with run.bar(len(images) * sweeps * len(p["classes"]), "layer by layer") as bar:
        for name in p["classes"]:
            one = p | {"classes": (name,)}
            setup = training.setup_of(one, train.isel(image=train[LABEL].values == names.index(name)))

            def compute(one=one, setup=setup, step=bar.step) -> xr.Dataset:
                fitted = training.pretrained_model(one, run, setup, f"{one['classes'][0]}, ")
                maps = infer_layers(fitted, images, p["layer_burn_in"], p["layer_collect"], p["seed"] + first, step)
                return xr.Dataset({
                    f"{kind} {number}": (
                        (IMAGE, f"feature_{number}"), layer[kind].values.reshape(len(images), -1).astype(np.float32)
                    )
                    for kind in KINDS for number, layer in enumerate(maps)
                })

            found.append(run.kept(
                "caltech-layers", compute, train=setup.images, images=images, first=first, settings=one,
                code=training.code_of("inference"),
            ))
    return {kind: [[v.values for n, v in one.items() if n.startswith(f"{kind} ")] for one in found] for kind in KINDS}


# ---- what one test image costs
@experiment(
    "caltech-testing", choices=CHOICES, in_parallel=True, data="caltech101", model="three layers", seed=0,
    **training.HELD_CALTECH,
    demo={"n_classes": 2, "per_class": 10, "n_images": 3, **training.lengths((15, 5), test=(30, 10))},
    paper={"n_classes": 101, "per_class": 30, "n_images": 40, **training.lengths((60, 20), test=(500, 200))},
)
def caltech_testing(p: dict, run: Run) -> Outcome:
    """What a test image costs: real images, the atoms of all classes, the paper's sweeps at test time.

    Evenly spaced test images are deconvolved one at a time, on one core; what they share, the atoms' Gram matrix, is
    timed by itself. The same shapes with stand-ins are in `gdd bench`.
    """
    learned = learn(p | {"refined": False, "n_test": 1}, run)
    atoms, (gamma_e, gamma_w) = learned.together(training.STAGES[0])
    count = len(learned.test)
    images = learned.both[1].isel(image=np.unique(np.linspace(0, count - 1, p["n_images"]).round().astype(int)))
    model = training.MODELS[p["model"]]
    with on_threads(1), run.bar(len(images), "deconvolving") as bar:
        begun = time.process_time()
        problem = make_problem(atoms, model.image_size, model.stride, gamma_e, gamma_w)
        shared = time.process_time() - begun
        scaled = images.values.astype(np.float32) * np.float32(gamma_e**0.5)
        run_problem(problem, scaled[:1], None, None, (p["seed"], 0, 1, 0, 1), False)  # compiles
        seconds, active, left = [], [], []
        for number, image in enumerate(scaled):
            begun = time.process_time()
            sample, *_, squared, _ = run_problem(
                problem, image[None], None, None, (p["seed"], number, 1, p["test_burn_in"], p["test_collect"]), False
            )
            seconds.append(time.process_time() - begun)
            active.append(int((sample != 0).sum()))
            left.append((float(squared[0]) / gamma_e / image.size) ** 0.5)
            bar.step()
    return learned.outcome(xr.Dataset({
        "cpu_seconds": (IMAGE, seconds), "active": (IMAGE, active), "residual": (IMAGE, left),
        "gram_cpu_seconds": shared, "gram_bytes": problem.gram.nbytes, "n_atoms": len(atoms),
        "n_positions": int(np.prod(problem.grid)),
    }, {LABEL: (IMAGE, images[LABEL].values)}))
