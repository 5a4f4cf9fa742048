"""The precisions of noise and weights at test, on which the paper's code depends: a surface of errors, and why.

The paper prints neither. A coefficient that is active takes ``1 / (1 + rho)`` of what it could explain, with
``rho = gamma_w / (gamma_e ||d||^2)``: nearly all where rho is small, and then it hides its rivals; a part where rho is
large, and then many are active at once. Page: book/mnist/coding.

The setting is chosen here, on training digits alone. The rule, committed before any test digit was coded: of all
settings the one with the least error of the paper's sample in the cross-validation of the paper's classifier, mean over
subsets, for each kind of atoms.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from gdd import project
from gdd.base import files
from gdd.base.axes import ATOM, DICTIONARY, LABEL
from gdd.base.checks import GddError
from gdd.inference.deconvolution import prior_odds
from gdd.model.spec import MNIST, Precision
from gdd_book import checkout, models, training
from gdd_book.data import datasets
from gdd_book.dictionaries import cut_atoms, placed_atoms
from gdd_book.evaluate.classify import FIVE_FOLD, fit_svm
from gdd_book.experiments.atoms import in_own_percents
from gdd_book.experiments.common import KINDS, Outcome, along, encode, encode_kept, error_of, experiment, outcome
from gdd_book.experiments.studies.depth import describe_depth, other_digits
from gdd_book.progress import Run

ATOMS = ("pretrained", "refined at 44", "refined at 2")
#: what stands in their place as a control: windows of the digits that they were learned from
WINDOWS = "windows of digits"
STRIDE = (3, 3)
#: the settings chosen by this rule, gamma_e and rho, on the first two subsets and, refined at 2, on the first; of equal
#: errors the smaller gamma_e
CHOSEN = {"pretrained": (10000.0, 20.0), "refined at 44": (10000.0, 20.0), "refined at 2": (1000.0, 20.0)}
#: that of the model which the book ships
AT_TEST = {"test_noise": 1000.0, "test_ratio": 20.0}
#: digits whose codes are described, and by how much the seed of a second chain of theirs differs
DESCRIBED, SECOND_CHAIN = 200, 1000


def learned_atoms(kind: str, seed: int = 0) -> np.ndarray:
    """Projected atoms (atom, plane, atom_row, atom_col) of the paper's MNIST model, learned from 1,000 digits.

    ``kind``: one of `ATOMS`, at the paper's lengths, from models of `mnist-generated` or records of `mnist-readings`;
    or `WINDOWS`
    """
    if kind == WINDOWS:
        images = datasets.load("mnist", "train", n=1000, seed=seed).values
        return np.asarray(cut_atoms(images, *(MNIST.layers[-1].atoms, MNIST.projected_size)))
    if kind == ATOMS[2]:
        try:
            return models.load("mnist-1000-refined" + (f"--seed-{seed}" if seed else "")).atoms_.values
        except GddError as missing:
            remedy = f"gdd run mnist-generated --scale paper -p seed {seed}"
            raise GddError(f"{missing}; {remedy} makes it") from missing
    path = checkout.results() / f"mnist-readings--paper--seeds-{seed}.nc"
    if not path.exists():
        raise GddError(f"atoms: no {path}; gdd run mnist-readings --scale paper -p seeds {seed} makes it")
    one = files.load(path).isel(subset=0).sel(stage=kind.split()[0])
    return one.projected_atoms.values / 100 * one.largest.values[:, None, None, None]


def precisions(atoms: np.ndarray, gamma_e: float, rho: float) -> tuple[float, float]:
    """gamma_e and gamma_w at which gamma_w is ``rho`` times gamma_e times the atoms' mean squared norm."""
    return gamma_e, rho * gamma_e * float((atoms.astype(float) ** 2).sum(axis=(1, 2, 3)).mean())


@experiment(
    "mnist-precisions", choices={"atoms": ATOMS}, atoms=ATOMS,
    demo={"seeds": (0,), "data": "digits", "n_train": 100, "noises": (44.0, 1000.0), "ratios": (0.004, 10.0),
          "test_burn_in": 10, "test_collect": 5},
    paper={"seeds": (0, 1, 2), "data": "mnist", "n_train": 1000,
           "noises": (10.0, 44.0, 100.0, 300.0, 1000.0, 10000.0, 100000.0),
           "ratios": (0.004, 0.1, 1.0, 4.0, 20.0, 100.0), "test_burn_in": 100, "test_collect": 50},
)
def mnist_precisions(p: dict, run: Run) -> Outcome:
    """Code training digits at every pair of precisions; what the classifier's cross-validation says, and why.

    (subset, atoms, noise, ratio): ``cross_validation`` error in % of the sample of highest likelihood and of the mean
    of the chain; of the sample what `describe_code` returns.
    """
    own = [p | {"seed": seed} for seed in p["seeds"]]
    atoms = {(kind, one["seed"]): learned_atoms(kind, one["seed"]).astype(np.float32)  # all, lest one lack later
             for one in own for kind in p["atoms"]}
    dataset = along("subset", {one["seed"]: along("atoms", {
        kind: _surface(kind, atoms[kind, one["seed"]], one, run) for kind in p["atoms"]
    }) for one in own})
    return outcome(dataset, p, training.digits(own[-1]), seeds=p["seeds"], protocol=FIVE_FOLD)


def _surface(kind: str, atoms: np.ndarray, p: Mapping, run: Run) -> xr.Dataset:
    """All settings of one subset and one kind of atoms, and these atoms."""
    images = training.digits(p)
    settings = {name: p[name] for name in ("seed", "test_burn_in", "test_collect")}
    with run.bar(len(p["noises"]) * len(p["ratios"]), f"coding, subset {p['seed']}, {kind}") as bar:

        def one_setting(gamma_e: float, rho: float) -> xr.Dataset:
            pair, some = precisions(atoms, gamma_e, rho), images[:DESCRIBED]
            codes = encode(images, atoms, STRIDE, pair, p)
            again = encode(some, atoms, STRIDE, pair, p, seed=p["seed"] + SECOND_CHAIN).ml_sample.values
            fits = [fit_svm(codes[kind], images[LABEL].values, seed=p["seed"]) for kind in KINDS]
            found = describe_code(some.values, atoms, codes.ml_sample.values[:DESCRIBED], again, pair)
            errors = "feature_kind", [float(fit.table.min()) for fit in fits]
            return found.assign(cross_validation=errors).assign_coords(feature_kind=list(KINDS))

        def cell(gamma_e: float, rho: float) -> xr.Dataset:
            bar.step()
            depends = {"images": images, "atoms": atoms, "precisions": (gamma_e, rho), "settings": settings}
            code = training.code_of("inference")
            return run.kept("mnist-precisions", lambda: one_setting(gamma_e, rho), **depends, code=code)

        table = along("noise", {
            gamma_e: along("ratio", {rho: cell(gamma_e, rho) for rho in p["ratios"]}) for gamma_e in p["noises"]
        })
    return table.assign({
        "projected_atoms": (DICTIONARY, in_own_percents(atoms)), "largest": (ATOM, np.abs(atoms).max(axis=(1, 2, 3))),
    })


def describe_code(
    images: np.ndarray, atoms: np.ndarray, code: np.ndarray, other: np.ndarray, pair: tuple[float, float]
) -> xr.Dataset:
    """What kind of a code it is; means over images.

    ``code``, ``other`` (image, atom, row, col) are samples of two chains that differ in their random numbers alone,
    ``pair`` is gamma_e and gamma_w. Returns ``active``: coefficients that are not 0; ``taken``: share of the image's
    energy that one of them draws; ``jaccard``: of the coefficients that either chain uses, the share that both use;
    ``detected``: of those of the first chain, the share that are among as many that would most probably be active if
    each were alone with the image.
    """
    flat, coded, twin = (one.reshape(len(images), -1) for one in (images, code, other))
    placed = placed_atoms(atoms, STRIDE, images.shape[2:])  # (coefficient, pixel), of unit norm
    norm = np.repeat((atoms.astype(float) ** 2).sum(axis=(1, 2, 3)), len(placed) // len(atoms))
    placed, energy = (placed * np.sqrt(norm)[:, None]).astype(np.float32), (flat.astype(float) ** 2).sum(axis=1)
    precision = pair[0] * norm + pair[1]
    log_odds = np.log(prior_odds(len(atoms))) + 0.5 * np.log(pair[1] / precision)
    alone = log_odds + (pair[0] * (flat @ placed.T)) ** 2 / (2 * precision)
    on, also = coded != 0, twin != 0
    active = on.sum(axis=1)
    order = np.argsort(np.argsort(-alone, axis=1), axis=1)
    used = active > 0
    return xr.Dataset({
        "active": active.mean(),
        "taken": ((coded**2 * norm).sum(axis=1)[used] / active[used] / energy[used]).mean(),
        "jaccard": ((on & also).sum(axis=1) / (on | also).sum(axis=1).clip(1)).mean(),
        "detected": ((on & (order < active[:, None])).sum(axis=1)[used] / active[used]).mean(),
    })


@experiment(
    "mnist-oracle", choices={"atoms": ATOMS}, seed=0, atoms=ATOMS[2],
    demo={"data": "digits", "n_train": 100, "n_test": 100, "noises": (1000.0,), "ratios": (1.0, 20.0),
          "test_burn_in": 10, "test_collect": 5},
    paper={"data": "mnist", "n_train": 1000, "n_test": 10000, "noises": (100.0, 300.0, 1000.0, 10000.0),
           "ratios": (1.0, 4.0, 20.0, 100.0), "test_burn_in": 100, "test_collect": 50},
)
def mnist_oracle(p: dict, run: Run) -> Outcome:
    """Test error at many pairs of precisions: the least is a bound for any choice among them, not a result.

    (noise, ratio, feature_kind): ``error`` on test digits and ``cross_validation`` error on training digits, in %.
    """
    train, test = training.digits(p), training.digits(p, "test")
    atoms = learned_atoms(p["atoms"], p["seed"]).astype(np.float32)
    with run.bar(len(p["noises"]) * len(p["ratios"]), "coding") as bar:

        def cell(gamma_e: float, rho: float) -> xr.Dataset:
            pair = precisions(atoms, gamma_e, rho)
            codes = [encode_kept(part, atoms, STRIDE, pair, p, run, part.attrs["split"]) for part in (train, test)]
            fits = {kind: fit_svm(codes[0][kind], train[LABEL].values, seed=p["seed"]) for kind in KINDS}
            wrong = [(fit.predict(codes[1][kind]) != test[LABEL].values).mean() for kind, fit in fits.items()]
            bar.step()
            return xr.Dataset({
                "error": ("feature_kind", 100 * np.array(wrong)),
                "cross_validation": ("feature_kind", [float(fit.table.min()) for fit in fits.values()]),
            }, {"feature_kind": list(KINDS)})

        table = along("noise", {
            gamma_e: along("ratio", {rho: cell(gamma_e, rho) for rho in p["ratios"]}) for gamma_e in p["noises"]
        })
    return outcome(table, p, test, protocol=FIVE_FOLD)


# ---- the weights' precision in learning
@experiment(
    "mnist-weights", seeds=(0, 1, 2), **training.HELD_DIGITS, learned_planes=True, dictionary_every=4,
    demo={"data": "digits", "n_train": 200, "n_others": 40, "noises": (2.0,), "ratios": (0.0, 1.0),
          **training.lengths((20, 10), refine=(20, 10), test=(20, 10))},
    paper={"data": "mnist", "n_train": 1000, "n_others": 1000, "noises": (2.0, 44.0), "ratios": (0.0, 0.1, 1.0, 10.0),
           **training.lengths((60, 20), refine=(100, 20), test=(40, 20))},
)
def mnist_weights(p: dict, run: Run) -> Outcome:
    """Learn with gamma_w of both layers held at ``ratios`` times gamma_e, in pretraining and in refinement.

    With atoms of unit norm a priori that is rho; as atoms grow where weights must be small, rho of what was learned,
    ``learned_ratio``, is another. A ratio of 0 leaves gamma_w as it is everywhere else: held at 0.1 in layer 1, learned
    in layer 2. For each (subset, noise of refinement, ratio): all of `describe_depth`, and the error of the paper's
    sample and of the chain's mean on other training digits when they are coded at `AT_TEST`.
    """
    subsets = {}
    for seed in p["seeds"]:
        one = p | {"seed": seed}
        train = training.digits(one)
        both = train, other_digits(one, train)
        subsets[seed] = along("noise", {noise: along("ratio", {
            ratio: _learned_at(one, both, noise, ratio, run) for ratio in p["ratios"]
        }) for noise in p["noises"]})
    return outcome(along("subset", subsets), p, train, model=training.digits_model(p))


def _learned_at(p: dict, both: tuple[xr.DataArray, xr.DataArray], noise: float, ratio: float, run: Run) -> xr.Dataset:
    """One cell of `mnist_weights`."""
    p = {name: value for name, value in p.items() if name not in ("seeds", "noises", "ratios")}
    p |= {"refine_noise": noise, "ratio": ratio}
    lower, upper = training.digits_model(p).layers
    if ratio:
        lower = replace(lower, gamma_w=Precision(fixed=ratio * p["noise_precision"]))
        upper = replace(upper, gamma_w=Precision(fixed=ratio * noise))
    model = replace(MNIST, layers=(lower, upper))
    label = f"subset {p['seed']}, noise {noise:g}, ratio {ratio:g}, "
    setup = training.Setup(both[0], model, p["seed"])

    def describe() -> xr.Dataset:
        one = training.refined_model(p, training.pretrained_model(p, run, setup, label), run, setup, label)
        atoms = project(one).values.astype(np.float32)
        norm = float((atoms.astype(float) ** 2).sum(axis=(1, 2, 3)).mean())
        pair = precisions(atoms, *AT_TEST.values())
        codes = [encode(images, atoms, STRIDE, pair, p) for images in both]
        errors = [error_of([code[kind] for code in codes], *both, p) for kind in KINDS]
        return describe_depth(one, both, p).assign({
            "error_at_test": ("feature_kind", errors),
            "learned_ratio": float(np.mean(one.state.shared.gamma_w)) / (noise * norm),
        }).assign_coords(feature_kind=list(KINDS))

    return run.kept("mnist-weights", describe, images=both[0], others=both[1], settings=p,
                    code=training.code_of("projection", "inference"))
