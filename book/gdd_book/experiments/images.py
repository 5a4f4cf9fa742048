"""Images that the models fill in or make up: Fig. 2b, the top of 2c, Fig. 4, and the supplement's generated digits."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from sklearn.metrics import pairwise_distances_argmin_min

from gdd.base.axes import COL, DICTIONARY, IMAGE, LABEL, ROW
from gdd.inference.contrast import normalise_contrast
from gdd.inference.fixed_dictionary import shared_of
from gdd.inference.generation import positions_of_one_image, resample_top
from gdd.model.joint import draw_joint_local, layer_values
from gdd.model.spec import ChainSpec, LayerSpec, ModelSpec
from gdd.model.state import JointState
from gdd.sampler.pretrain import pretrain
from gdd.sampler.refine import Refined, start_from
from gdd_book import training
from gdd_book.data import datasets
from gdd_book.dictionaries import rounded
from gdd_book.evaluate.baselines import choose_components, fill_by_neighbour, fill_by_pca
from gdd_book.evaluate.classify import Svm, error, fit_svm
from gdd_book.evaluate.interpolation import hidden_error, interpolate_joint, interpolate_one_layer
from gdd_book.experiments.atoms import in_own_percents, most_used, uses_of
from gdd_book.experiments.common import Outcome, along, experiment, outcome
from gdd_book.progress import Run

# ---- half of every image hidden and filled in
MODELS = ("one layer", "two layers, pretrained", "two layers, refined")
NEIGHBOURS = 10


def hide_at_random(shape: tuple[int, ...], seed: int, share: float = 0.5) -> np.ndarray:
    """Mask (image, plane, row, col) that hides this share of each image's pixels, the same ones in all planes."""
    images, planes, rows, cols = shape
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(rows * cols), (images, 1)), axis=1)
    return np.repeat((order >= int(share * rows * cols)).reshape(images, 1, rows, cols), planes, axis=1)


def hide_halves(shape: tuple[int, ...]) -> np.ndarray:
    """Mask that hides one half of each image: left, right, top and bottom in turn."""
    mask = np.ones(shape, bool)
    rows, cols = (n // 2 for n in shape[2:])
    mask[0::4, :, :, :cols] = False
    mask[1::4, :, :, cols:] = False
    mask[2::4, :, :rows] = False
    mask[3::4, :, rows:] = False
    return mask


def hide_but_a_strip(shape: tuple[int, ...]) -> np.ndarray:
    """Mask that shows the middle quarter of each image's columns, or of its rows, in turn."""
    mask = np.zeros(shape, bool)
    down, across = ((n - n // 4) // 2 for n in shape[2:])
    mask[0::2, :, :, across : across + shape[3] // 4] = True
    mask[1::2, :, down : down + shape[2] // 4] = True
    return mask


#: ways of hiding half of the pixels; of halves the left, right, upper and lower one in turn
HIDING = {"at random": hide_at_random, "half as a block": lambda shape, _: hide_halves(shape)}
#: ways that hide three quarters, from which few digits can be recognised (Fig. 2c, top)
HARDER = {
    "three quarters at random": lambda shape, seed: hide_at_random(shape, seed, 0.75),
    "all but a strip": lambda shape, _: hide_but_a_strip(shape),
}


def baselines(word: str) -> tuple[str, ...]:
    """Names of the methods that know no layers; ``word`` is what the images show, for instance "digit"."""
    return ("left blank", f"mean training {word}", f"nearest training {word}", "10 nearest", "principal components")


def complete(
    test: xr.DataArray, train: xr.DataArray, trained: dict, p: dict, run: Run, word: str, hiding: Sequence[str],
    examples: int, svm: Svm | None = None,
) -> xr.Dataset:
    """Hide, fill in by every method from the same training images, compare on what was hidden.

    ``trained`` has a model for each of `gdd_book.training.STAGES`. Returns along ``hiding`` ``hidden_error`` (way,
    image): squared error on hidden pixels; ``filled`` (way, example, row, col), ``mask``, ``components`` of the
    principal components, ``truth``; with a classifier ``wrong`` (way,), see `wrong_share`.
    """
    (fitted, refined), chain, parts = trained.values(), training.chain_of(p, "test_"), {}
    noise = float(refined.state.local.gamma_e.mean())  # of both, as the pretrained layers have no common one
    for name in hiding:
        mask = (HIDING | HARDER)[name](test.shape, p["seed"])
        components = choose_components(train, mask)
        filled, found = fill_plainly(test, mask, train, components, word), []
        with run.bar(len(MODELS) * test.sizes[IMAGE] * chain.sweeps, f"filling in, hidden {name}") as bar:
            found.append(interpolate_one_layer(test, mask, fitted.layers[0], chain, bar.step))
            for shared in (shared_of(fitted), refined.state.shared):
                more_of = fitted.model, shared, refined.refinement, chain, noise, bar.step
                found.append(interpolate_joint(test, mask, *more_of))
        filled |= {way: one.values for way, one in zip(MODELS, found, strict=True)}
        errors = [hidden_error(pixels, test, mask) for pixels in filled.values()]
        shown = [part[:examples, 0] for part in filled.values()]
        parts[name] = xr.Dataset({
            "hidden_error": (("way", IMAGE), np.array(errors, "f4")),
            "filled": (("way", "example", ROW, COL), rounded(np.array(shown))),
            "mask": (("example", ROW, COL), mask[:examples, 0]),
        }, {"way": list(filled)}).assign(components=components)
        if svm is not None:
            parts[name]["wrong"] = "way", [wrong_share(svm, test, one, mask) for one in filled.values()]
    return along("hiding", parts).assign(truth=(("example", ROW, COL), rounded(test.values[:examples, 0])))


def wrong_share(svm: Svm, test: xr.DataArray, filled: np.ndarray, mask: np.ndarray | bool) -> float:
    """Share in % of test images, hidden pixels filled in, observed ones as they were, that get a wrong label."""
    return 100 * float((svm.predict(np.where(mask, test.values, filled)) != test[LABEL].values).mean())


def fill_plainly(
    test: xr.DataArray, mask: np.ndarray, train: xr.DataArray, components: int, word: str
) -> dict[str, np.ndarray]:
    """Images (image, plane, row, col) of every one of `baselines`; 0 where left blank, True in ``mask`` is observed."""
    filled = (
        np.zeros(test.shape), np.broadcast_to(train.values.mean(axis=0), test.shape),
        fill_by_neighbour(test, mask, train), fill_by_neighbour(test, mask, train, min(NEIGHBOURS, len(train))),
        fill_by_pca(test, mask, train, components),
    )
    return dict(zip(baselines(word), filled, strict=True))


@experiment(
    "mnist-interpolation", seed=0, **training.DEEP_DIGITS, learned_planes=True, dictionary_every=4,
    demo={"data": "digits", "n_train": 200, "n_test": 40, **training.lengths((60, 20), refine=(60, 20), test=(60, 30))},
    paper={"data": "mnist", "n_train": 1000, "n_test": 500,
           **training.lengths((1500, 500), refine=(1500, 500), test=(100, 100))},
)
def mnist_interpolation(p: dict, run: Run) -> Outcome:
    """Half of every test digit hidden, or three quarters, and filled in by one layer, by two, and by plain methods.

    Each is judged by the squared error on what it did not see, and by how often a classifier trained on whole digits
    recognises the digit once the hidden half is filled in; observed pixels are put back as they were.
    """
    train, test = training.digits(p), training.digits(p, "test")
    svm = fit_svm(train, train[LABEL].values, seed=p["seed"])
    trained = training.trained_models(p, run)
    dataset = complete(test, train, trained, p, run, "digit", tuple(HIDING | HARDER), 12, svm)
    dataset["wrong_whole"] = wrong_share(svm, test, test.values, True)
    one = trained[training.STAGES[1]]
    return outcome(dataset, p, train, model=one.model, refinement=one.refinement)


@experiment(
    "mnist-large-atoms", seed=0, noise_precision=2.0, weight_precision=0.1, atoms=160, atom_size=25,
    demo={"data": "digits", "n_train": 200, "n_test": 40, **training.lengths((20, 10), test=(20, 10))},
    paper={"data": "mnist", "n_train": 1000, "n_test": 500, **training.lengths((300, 100), test=(100, 100))},
)
def mnist_large_atoms(p: dict, run: Run) -> Outcome:
    """Fill in the digits of `mnist_interpolation` by one layer whose atoms are as many and as large as two layers' are.

    Is it depth that completes a digit, or reach? The atoms of the paper's layer 1 have 8 pixels, those of its layer 2
    have 25 in the image plane. The noise precision is that of the refined model.
    """
    train, test = training.digits(p), training.digits(p, "test")
    svm = fit_svm(train, train[LABEL].values, seed=p["seed"])
    layer = LayerSpec(p["atoms"], (p["atom_size"],) * 2)
    model = ModelSpec((layer,), train.shape[2:]).with_fixed_precisions(p["noise_precision"], p["weight_precision"])
    chain = training.chain_of(p)
    folder = run.folder("mnist-large-atoms", {"images": train, "model": model, "chain": chain})
    with run.bar(chain.sweeps, "learning") as bar:
        fitted = pretrain(train, model, chain, folder=folder, progress=bar)
    parts = {}
    for name, hide in (HIDING | HARDER).items():
        mask, chain = hide(test.shape, p["seed"]), training.chain_of(p, "test_")
        with run.bar(len(test) * chain.sweeps, f"filling in, hidden {name}") as bar:
            filled = interpolate_one_layer(test, mask, fitted.layers[0], chain, bar.step).values
        parts[name] = xr.Dataset({
            "hidden_error": (IMAGE, np.float32(hidden_error(filled, test, mask))),
            "filled": (("example", ROW, COL), rounded(filled[:12, 0])), "wrong": wrong_share(svm, test, filled, mask),
        })
    dataset, atoms = along("hiding", parts), fitted.layers[0].state.shared.dictionary
    dataset["most_used"] = ("shown", *DICTIONARY[1:]), in_own_percents(most_used(atoms, uses_of(fitted)))
    return outcome(dataset, p, train, model=model)


@experiment(
    "caltech-interpolation", choices={"data": ("digits", *training.CALTECH)}, seed=0, **training.HEALTHY_CALTECH,
    demo={"data": "digits", "class_name": "0", "n_train": 10, "n_test": 2,
          **training.lengths((6, 2), refine=(2, 1), test=(2, 2))},
    paper={"data": "caltech101", "class_name": "Faces_easy", "n_train": 64, "n_test": 16,
           **training.lengths((60, 20), refine=(15, 5), test=(20, 10))},
)
def caltech_interpolation(p: dict, run: Run) -> Outcome:
    """Half of every face hidden and filled in; the faces are others than those of training."""
    which = p, (p["class_name"],), p["n_train"]
    train, test = (normalise_contrast(training.pictures(*which, held_out)) for held_out in (0, p["n_test"]))
    model = training.caltech_model("faces, interpolation", p)
    trained = training.trained_models(p, run, training.Setup(train, model, p["seed"]), "faces, ")
    dataset = complete(test, train, trained, p, run, "face", tuple(HIDING)[::-1], 4)
    fitted, refined = trained.values()
    return outcome(dataset, p, train, model=fitted.model, refinement=refined.refinement)


# ---- digits drawn from the model
SOURCES = ("prior", "coefficients of training digits", "positions of one digit too")
REAL = "real digits"
EXAMPLES = 30


@experiment(
    "mnist-generated", seed=0, **training.DEEP_DIGITS, learned_planes=True, dictionary_every=4,
    demo={"data": "digits", "n_train": 200, "n_generated": 200, **training.lengths((60, 20), refine=(60, 20))},
    paper={"data": "mnist", "n_train": 1000, "n_generated": 1000, **training.lengths((1500, 500), refine=(1500, 500))},
)
def mnist_generated(p: dict, run: Run) -> Outcome:
    """Digits drawn from the model, and whether a classifier can tell them from real ones.

    The paper does not say which of its random numbers are drawn from what. So there are three sources: everything from
    its prior; the top coefficients as often and as strong as in the training digits; and, besides, positions from the
    theta of one training digit. Real digits that training never saw stand beside them.
    """
    setup, number = training.setup_of(p), p["n_generated"]
    train = setup.images
    real = datasets.load(p["data"], "test", n=2 * number, seed=p["seed"]).values
    trained = training.trained_models(p, run, setup)
    fitted, refined = trained.values()
    begun = start_from(fitted, refined.refinement, ChainSpec(seed=p["seed"]))
    states = begun._replace(shared=shared_of(fitted)), refined.state
    kinds = {(stage, source): made for stage, state in zip(training.STAGES, states, strict=True)
             for source, made in generate(state, refined, number, p["seed"]).items()} | {(REAL, REAL): real[1::2]}
    parts = [describe(made, real[::2], train.values, p["seed"]) for made in kinds.values()]
    dataset = xr.concat(parts, "kind").assign_coords(
        model=("kind", [model for model, _ in kinds]), source=("kind", [source for _, source in kinds])
    )
    models = training.learned(f"mnist-{p['n_train']}", trained, setup, p)
    return outcome(dataset, p, train, models, model=fitted.model, refinement=refined.refinement)


def generate(state: JointState, refined: Refined, number: int, seed: int) -> dict[str, np.ndarray]:
    """Pictures (image, plane, row, col) of every source, from one state of the joint model."""
    model, refinement, generator = refined.model, refined.refinement, np.random.default_rng(seed)
    prior = draw_joint_local(number, model, refinement, state.shared.gamma_w, generator)
    resampled = resample_top(prior, state.local, generator)
    borrowed = positions_of_one_image(resampled, state.local, model, refinement, generator)
    locals_ = zip(SOURCES, (prior, resampled, borrowed), strict=True)
    dictionaries, shapes = state.shared.dictionaries, model.shapes()
    return {source: layer_values(local, dictionaries, shapes)[0] for source, local in locals_}


def describe(made: np.ndarray, real: np.ndarray, train: np.ndarray, seed: int) -> xr.Dataset:
    """Judge one kind of pictures.

    ``told_apart``: share in % of held-back pictures that a classifier of this kind and real digits puts right; 50 is
    guessing. ``nearest`` (image,): distance to the nearest training digit, root mean square over pixels. ``rms`` of a
    pixel, ``negative``: share of the energy below zero.
    """
    both = np.concatenate([made, real]).astype(np.float32)
    is_made, held = np.arange(len(both)) < len(made), np.arange(len(both)) % 2 == 1
    wrong = error(both[~held], is_made[~held], both[held], is_made[held], seed=seed)
    flat, known = made.reshape(len(made), -1), train.reshape(len(train), -1)
    distance = pairwise_distances_argmin_min(flat, known)[1] / np.sqrt(flat.shape[1])
    return xr.Dataset({
        "told_apart": 100.0 - float(wrong.error),
        "nearest": (IMAGE, distance.astype("f4")),
        "rms": float(np.sqrt((flat**2).mean())),
        "negative": float((np.minimum(flat, 0) ** 2).sum() / (flat**2).sum()),
        "pictures": (("example", ROW, COL), rounded(made[:EXAMPLES, 0])),
    })
