"""How a digit's code is read, and what that does to the error: pretrained and refined atoms on the same digits."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr
from sklearn.decomposition import SparseCoder

from gdd import project
from gdd.base.axes import ATOM, DICTIONARY, LABEL
from gdd.inference.deconvolution import make_problem, precisions_of, prior_odds, run_problem
from gdd.model.convolution import correlate
from gdd.model.spec import ChainSpec, ModelSpec
from gdd.model.state import JointState
from gdd.sampler.placement import placement_grid
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined, start_from
from gdd_book.data import datasets
from gdd_book.dictionaries import placed_atoms
from gdd_book.evaluate.atoms import stroke_share
from gdd_book.experiments.atoms import describe_projection, in_own_percents
from gdd_book.experiments.common import FIRST_TEST_IMAGE, Outcome, along, encode, error_of, experiment, outcome
from gdd_book.experiments.mnist import one_step
from gdd_book.progress import Run
from gdd_book.training import HEALTHY_DIGITS, STAGES, digits, lengths, refinement_for, trained_models

#: of the sparse coders: penalty of the lasso for atoms of unit norm and digits from 0 to 1; atoms of matching pursuit
PENALTY, PURSUED = 1.25, 10
#: noise precision at which a code has few enough coefficients to be stable, found on other digits
COARSE = 10.0
#: temperatures through which the posterior is cooled, and sweeps at each
TEMPERATURES, SWEEPS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02), 20


class Atoms(NamedTuple):
    """Projected atoms of one model."""

    values: np.ndarray  # (atom, plane, atom_row, atom_col)
    model: ModelSpec
    precisions: tuple[float, float]  # gamma_e, gamma_w


@experiment(
    "mnist-readings", **HEALTHY_DIGITS, learned_planes=True, dictionary_every=4,
    demo={"data": "digits", "n_train": 200, "n_test": 200, "seeds": (0, 1),
          **lengths((60, 20), refine=(60, 20), test=(60, 20)), "chains": 2},
    paper={"data": "mnist", "n_train": 1000, "n_test": 10000, "seeds": (0, 1, 2),
           **lengths((1500, 500), refine=(1500, 500), test=(500, 200)), "chains": 20},
)
def mnist_readings(p: dict, run: Run) -> Outcome:
    """Pretrain, refine, and read the code of the same digits in many ways with the atoms of either model.

    For each of several subsets: the paper's sample of highest likelihood; means over one chain and over several, which
    have a fifth of its sweeps each; the posterior cooled to a mode; convex and greedy codes; and the atoms as
    detectors, without any explaining away. The record has the errors, (subset, stage, reading), both dictionaries of
    layer 1, the projected atoms in percent of each one's ``largest`` magnitude, and a test digit of each class with its
    codes by two chains.
    """
    test = datasets.load(p["data"], "test", n=p["n_test"], seed=0)
    subsets = {seed: _read_subset(p | {"seed": seed}, test, run) for seed in p["seeds"]}
    return outcome(along("subset", subsets), p, test, seeds=p["seeds"])


def _read_subset(p: dict, test: xr.DataArray, run: Run) -> xr.Dataset:
    """Everything of one subset."""
    train = digits(p)
    trained = trained_models(p, run)
    begun = start_from(trained[STAGES[0]], refinement_for(p["refine_noise"]), ChainSpec(seed=p["seed"]))
    shown = test.isel(image=[int(np.argmax(test[LABEL].values == name)) for name in np.unique(test[LABEL])])
    with run.bar(len(STAGES), f"reading, subset {p['seed']}") as bar:
        stages = {}
        for stage, one in trained.items():
            state = one.state if isinstance(one, Refined) else begun
            errors = _errors(_readings(one, state, trained[STAGES[0]], (train, test), p), train, test, p)
            seeds = (1000 * (1 + chain) + p["seed"] for chain in (0, 1))  # two chains, of other random numbers
            codes = np.float32([_code(_atoms_of(one), shown, p, seed=seed).ml_sample.values for seed in seeds])
            stages[stage] = _describe(one, state).merge(errors)
            stages[stage]["example_code"] = ("chain", "digit", ATOM, "place_row", "place_col"), codes
            bar.step()
    out = along("stage", stages)
    out["example"] = ("digit", "plane", "row", "col"), np.int16(np.round(255 * shown.values))
    out["error_of_pixels"] = error_of((train, test), train, test, p)
    return out


def _describe(one: Pretrained | Refined, state: JointState) -> xr.Dataset:
    """Dictionaries of a model, and how well the projection speaks for its layers."""
    atoms = project(one)
    found = describe_projection(atoms, state, one.model)
    return found.assign({
        "projection_error": found.projection_error.mean(),
        "projected_atoms": (DICTIONARY, in_own_percents(atoms.values)),
        "bottom_dictionary": (("bottom_atom", "plane", "bottom_row", "bottom_col"),
                              state.shared.dictionaries[0].astype("f4")),
        "largest": (ATOM, np.abs(atoms.values).max(axis=(1, 2, 3))),
        "stroke_share": (ATOM, stroke_share(atoms.values).values),
    })


def _errors(readings: dict[str, list], train: xr.DataArray, test: xr.DataArray, p: dict) -> xr.Dataset:
    """Test error in % and mean number of coefficients that are not zero, by reading."""
    errors = [error_of(pair, train, test, p) for pair in readings.values()]
    active = [float((np.asarray(pair[1]).reshape(len(test), -1) != 0).sum(axis=1).mean()) for pair in readings.values()]
    return xr.Dataset({"error": ("reading", errors), "numbers": ("reading", active)}, {"reading": list(readings)})


def _atoms_of(one: Pretrained | Refined) -> Atoms:
    """Projected atoms, and what reads with them."""
    return Atoms(project(one).values.astype(np.float32), one.model, precisions_of(one))


# ---- readings
Pair = list[np.ndarray | xr.DataArray]  # of training and of test digits


def _readings(
    one: Pretrained | Refined, state: JointState, fitted: Pretrained, both: tuple, p: dict
) -> dict[str, Pair]:
    """Features of training and test digits by the name of the reading; layer 1 under the precisions of ``fitted``."""
    atoms, found, places = _atoms_of(one), {}, (2, 3)  # axes of a map

    def keep(name: str, make: Callable[[xr.DataArray], np.ndarray | xr.DataArray]) -> None:
        found[name] = [make(images) for images in both]

    stride, codes = atoms.model.stride, [_code(atoms, images, p) for images in both]
    for name, code in (("one sample, the paper's", "ml_sample"), ("mean of the chain", "mean")):
        found[name] = [part[code] for part in codes]
    found["one sample, training digits as trained"] = [state.local.w, codes[1].ml_sample]
    found["one sample, summed over its places"] = [part.ml_sample.values.sum(axis=places) for part in codes]
    keep("one sample at every pixel, summed over places", lambda images: encode(
        images, atoms.values, (1, 1), atoms.precisions, p).ml_sample.values.sum(axis=places))
    for gamma_e in (p["refine_noise"], COARSE):
        keep(f"one sample, noise precision {gamma_e:g}",
             lambda images, gamma_e=gamma_e: _code(atoms, images, p, gamma_e=gamma_e).ml_sample)
    short = p | {f"test_{part}": max(1, p[f"test_{part}"] // 5) for part in ("burn_in", "collect")}
    keep("mean of several chains", lambda images: sum(
        _code(atoms, images, short, seed=1000 * (1 + chain) + p["seed"])["mean"].values
        for chain in range(p["chains"])) / p["chains"])
    keep("cooled to a mode", lambda images: cooled(atoms, images, p["seed"]))
    placed, everywhere = (placed_atoms(atoms.values, one, atoms.model.image_size) for one in (stride, (1, 1)))
    keep("matching pursuit", lambda images: _sparse(placed, images, "omp", transform_n_nonzero_coefs=PURSUED))
    keep("lasso", lambda images: _sparse(placed, images, "lasso_cd", transform_alpha=PENALTY))
    keep("lasso, not negative", lambda images: _sparse(
        placed, images, "lasso_cd", transform_alpha=PENALTY, positive_code=True))
    keep("lasso at every pixel, summed over places", lambda images: _sparse(
        everywhere, images, "lasso_cd", transform_alpha=PENALTY
    ).reshape(len(images), len(atoms.values), -1).sum(axis=2))
    rows, cols = stride
    keep("correlations", lambda images: correlate(images.values, atoms.values)[:, :, ::rows, ::cols])
    keep("largest correlation over places", lambda images: correlate(images.values, atoms.values).max(axis=places))
    keep("the same, normalised", lambda images: normalised(images.values, atoms.values).max(axis=places))
    keep("layer 1 in one step", lambda images: one_step(fitted, images, state.shared.dictionaries[0]))
    return found


def _code(atoms: Atoms, images: xr.DataArray, p: dict, gamma_e: float = 0.0, **more) -> xr.Dataset:
    """One-layer deconvolution, under the model's own precisions unless ``gamma_e`` is given."""
    precisions = gamma_e or atoms.precisions[0], atoms.precisions[1]
    return encode(images, atoms.values, atoms.model.stride, precisions, p, **more)


def cooled(atoms: Atoms, images: xr.DataArray, seed: int) -> np.ndarray:
    r"""Cool the chain of one-layer deconvolution to a mode of its own posterior, (image, atom, row, col).

    At temperature T the density of positions and weights together is raised to 1/T. That is the same model with both
    precisions divided by T and with prior odds such that an active weight still costs what it did:
    :math:`\log o_T = \big(\log o + \tfrac12 \log \tfrac{\gamma_w}{2 \pi}\big) / T
    - \tfrac12 \log \tfrac{\gamma_w}{2 \pi T}`.
    """
    gamma_e, gamma_w = atoms.precisions
    first = 0 if images.attrs["split"] == "train" else FIRST_TEST_IMAGE
    values, part = atoms.values.astype(np.float32), 512
    size, stride = images.shape[2:], atoms.model.stride
    out = np.zeros((len(images), len(values), *placement_grid(size, values.shape[2:], stride)), np.float32)
    for number, cold in enumerate(TEMPERATURES):
        problem = make_problem(values, size, stride, gamma_e / cold, gamma_w / cold)
        odds = (math.log(prior_odds(len(values))) + 0.5 * math.log(gamma_w / (2 * math.pi))) / cold
        odds -= 0.5 * math.log(gamma_w / (2 * math.pi * cold)) + math.log(prior_odds(len(values)))
        problem = problem._replace(log_prior_odds=problem.log_prior_odds + odds)
        scaled = images.values.astype(np.float32) * np.float32((gamma_e / cold) ** 0.5)
        for low in range(0, len(images), part):
            run = (seed + 100 * (1 + number), first + low, 1, SWEEPS, 1)
            start = out[low : low + part] if number else None
            out[low : low + part] = run_problem(problem, scaled[low : low + part], None, start, run, False)[0]
    return out


def _sparse(placed: np.ndarray, images: xr.DataArray, way: str, **options) -> np.ndarray:
    """Code of scikit-learn's sparse coder, (image, atom * place)."""
    coder = SparseCoder(placed.astype(float), transform_algorithm=way, transform_max_iter=2000, n_jobs=1, **options)
    return coder.transform(images.values.reshape(len(images), -1).astype(float)).astype(np.float32)


def normalised(images: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Cosines of every atom and the window under it, (image, atom, row, col)."""
    sizes = np.sqrt((atoms**2).sum(axis=(1, 2, 3)))[:, None, None].clip(1e-12)
    window = np.ones((1, *atoms.shape[1:]), images.dtype)
    return correlate(images, atoms) / sizes / np.sqrt(correlate(images**2, window).clip(1e-6))
