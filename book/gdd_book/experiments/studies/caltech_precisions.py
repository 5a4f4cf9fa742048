"""The precisions of noise and weights at test on Caltech: does another choice mend the code, as it does on digits?

As in `gdd_book.experiments.studies.precisions` the setting is chosen on training images alone. Page: caltech/accuracy.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.inference.deconvolution import precisions_of
from gdd_book import models, training
from gdd_book.dictionaries import cut_atoms
from gdd_book.evaluate.classify import fit_svm
from gdd_book.experiments import caltech
from gdd_book.experiments.common import KINDS, Outcome, along, classify, encode, experiment, outcome
from gdd_book.experiments.studies.precisions import precisions
from gdd_book.progress import Run

#: classes of which models are shipped, each learned from 30 images
SHIPPED = ("ketch", "nautilus", "pyramid", "revolver", "stop_sign", "umbrella", "windsor_chair")
MODEL = "three layers"
#: what codes an image: the top atoms of a stage, or as many windows of the images that they were learned from
WINDOWS = "windows of images"
ATOMS = (*training.STAGES, WINDOWS)
#: what the classifier gets of a code: the paper's sample, the chain's mean, the sample without its signs
READINGS = (*KINDS, "magnitudes")
#: where test images are coded: at the precisions of training, and at those chosen for each reading
SETTINGS = ("as in training", "chosen")


@experiment(
    "caltech-precisions", choices={"data": training.CALTECH[:1], "classes": SHIPPED, "atoms": ATOMS}, data="caltech101",
    per_class=30, seed=0, atoms=ATOMS,
    demo={"classes": SHIPPED[:2], "n_test": 5, "noises": (3.0,), "ratios": (0.1, 1.0), "test_burn_in": 4,
          "test_collect": 2},
    paper={"classes": SHIPPED, "n_test": 1000, "noises": (0.3, 3.0, 30.0, 300.0, 3000.0, 30000.0),
           "ratios": (0.004, 0.1, 1.0, 10.0, 100.0, 1000.0), "test_burn_in": 40, "test_collect": 20},
)
def caltech_precisions(p: dict, run: Run) -> Outcome:
    """Code images by the top atoms of all shipped classes side by side, at every pair of precisions.

    (atoms, noise, ratio): ``active`` coefficients of a training image and, by reading, the ``cross_validation`` error
    in % on training images. At the precisions of training and at those with the least such error, of equal ones the
    first, test images are coded: ``right`` (atoms, setting, reading, image), ``coded_at`` (atoms, setting, reading,
    precision). Beside them ``baseline_right`` (baseline, image).
    """
    p = p | {"model": MODEL}
    train, test = caltech.train_and_test(p)
    both = [training.normalised(part) for part in (train, test)]
    found = along("atoms", {kind: _surface(class_atoms(kind, p, both[0]), kind, both, p, run) for kind in p["atoms"]})
    count = len(p["classes"]) * training.MODELS[MODEL].layers[-1].atoms
    plain = {name: _right(pair, both, p) for name, pair in caltech.baselines(train, test, count, p["seed"]).items()}
    return outcome(found.merge(xr.Dataset(
        {"baseline_right": (("baseline", IMAGE), list(plain.values())), LABEL: (IMAGE, test[LABEL].values)},
        {"baseline": list(plain), "precision": ["gamma_e", "gamma_w"]},
    )), p, train, protocol=caltech.PROTOCOL)


def class_atoms(kind: str, p: Mapping, train: xr.DataArray) -> tuple[np.ndarray, tuple[float, float]]:
    """Atoms of all classes side by side, and the means of their precisions; windows have the atoms' mean norm."""
    stage = training.STAGES[1] if kind == WINDOWS else kind
    trained = [models.load(f"caltech-{name}-{stage}") for name in p["classes"]]
    atoms = np.concatenate([one.atoms_.values for one in trained]).astype(np.float32)
    if kind == WINDOWS:
        size, names = atoms.shape[2:], train.attrs["label_names"].split(",")
        own = [train.values[train[LABEL].values == names.index(name)] for name in p["classes"]]
        windows = np.concatenate([cut_atoms(images, len(atoms) // len(own), size) for images in own])
        atoms = (windows * np.sqrt((atoms**2).sum() / (windows**2).sum())).astype(np.float32)
    gamma_e, gamma_w = np.mean([precisions_of(one.chain_) for one in trained], axis=0)
    return atoms, (float(gamma_e), float(gamma_w))


def _surface(
    with_precisions: tuple[np.ndarray, tuple[float, float]], kind: str, both: Sequence[xr.DataArray], p: Mapping,
    run: Run,
) -> xr.Dataset:
    """Everything of one kind of atoms."""
    (atoms, trained), labels = with_precisions, both[0][LABEL].values
    settings = {name: p[name] for name in ("seed", "test_burn_in", "test_collect")}

    def codes(images: xr.DataArray, pair: tuple[float, float]) -> xr.Dataset:
        code = run.kept(
            "caltech-precisions", lambda: encode(images, atoms, training.MODELS[MODEL].stride, pair, p)[[*KINDS]],
            images=images, atoms=atoms, precisions=pair, settings=settings, code=training.code_of("inference"))
        return code.assign({READINGS[-1]: np.abs(code[KINDS[0]])})

    cells = {}
    with run.bar(len(p["noises"]) * len(p["ratios"]), f"coding, {kind}") as bar:
        for noise in p["noises"]:
            for ratio in p["ratios"]:
                code = codes(both[0], pair := precisions(atoms, noise, ratio))
                fits = [fit_svm(code[name], labels, caltech.PROTOCOL, p["seed"]) for name in READINGS]
                cells[pair] = [float(fit.table.min()) for fit in fits], float((code[KINDS[0]] != 0).sum() / len(labels))
                bar.step()
    errors = np.array([error for error, _ in cells.values()])  # (setting, reading)
    chosen = [[*cells][best] for best in errors.argmin(axis=0)]
    at = {SETTINGS[0]: [trained] * len(READINGS), SETTINGS[1]: chosen}
    right = [[_right([codes(images, pair)[name] for images in both], both, p)
              for name, pair in zip(READINGS, pairs, strict=True)] for pairs in at.values()]
    shape = len(p["noises"]), len(p["ratios"])
    return xr.Dataset({
        "cross_validation": (("noise", "ratio", "reading"), errors.reshape(*shape, -1)),
        "active": (("noise", "ratio"), np.reshape([active for _, active in cells.values()], shape)),
        "coded_at": (("setting", "reading", "precision"), [*at.values()]),
        "right": (("setting", "reading", IMAGE), right),
    }, {"noise": list(p["noises"]), "ratio": list(p["ratios"]), "reading": list(READINGS), "setting": list(SETTINGS)})


def _right(pair: Sequence, both: Sequence[xr.DataArray], p: Mapping) -> np.ndarray:
    """Which test images are classified correctly, from features of training and of test images."""
    return classify(pair, *both, p["seed"], caltech.PROTOCOL).predicted.values == both[1][LABEL].values
