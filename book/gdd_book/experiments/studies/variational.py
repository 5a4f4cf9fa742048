"""Digits coded by mean field, the paper's other inference, beside its chain: the same atoms, no random numbers.

All coefficients are moved together and damped, or one after another. The question is what the classifier gains where
explaining away has not come to its end. Page: book/inference/testing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from gdd import DeepDeconvolution
from gdd.base.axes import IMAGE, MAPS
from gdd.inference.features import place
from gdd.inference.infer import precisions_of
from gdd.inference.mean_field import bound_of, mean_field
from gdd.model.placement import sum_at_stride
from gdd_book import models
from gdd_book.experiments.path import encode, error_of
from gdd_book.experiments.registry import Outcome, experiment, outcome
from gdd_book.experiments.studies.depth import other_digits
from gdd_book.progress import Run
from gdd_book.training import STAGES, digits

#: where atoms may stand; and what is read of a coefficient
PLACES = "at the stride", "at every pixel"
#: of means from all places, and of an atom's largest magnitude over its places
READINGS = "every number", "largest of an atom"
MEANS = "damped_mean", "mean"
#: rounds in which the coefficients are moved one after another
ROUNDS = 20


@experiment(
    "mean-field", seed=0, model="mnist-1000",
    demo={"data": "digits", "n_train": 200, "n_others": 100, "n_test": 100, "steps": (0, 20), "test_burn_in": 20,
          "test_collect": 10},
    paper={"data": "mnist", "n_train": 1000, "n_others": 1000, "n_test": 2000, "steps": (0, 5, 20, 100, 300),
           "test_burn_in": 100, "test_collect": 50},
)
def mean_field_codes(p: dict, run: Run) -> Outcome:
    """Error of the paper's classifier by mean field, before its fixed point and at it, beside its chain.

    For the pretrained and the refined model that the book ships, (stage): ``error`` on ``n_others`` training digits
    that the classifier did not learn from, by number of steps, places, means and reading; the bound, the coefficients
    in use and the ``change`` that is left. The step, places, means and reading with the least error there are read
    from ``n_test`` test digits: ``test_error``, beside that of the chain. ``in_turn_error`` and its like are of
    coefficients moved one after another, on the other training digits.
    """
    train, test = digits(p), digits(p, "test")
    images = train, other_digits(p, train), test
    with run.bar(len(STAGES) * (len(PLACES) * len(p["steps"]) + 2), "coding") as bar:
        stages = [_of_stage(models.load(f"{p['model']}-{stage}"), images, p, bar) for stage in STAGES]
    return outcome(xr.concat(stages, "stage").assign_coords(stage=list(STAGES)), p, test)


def _of_stage(model: DeepDeconvolution, images: tuple[xr.DataArray, ...], p: Mapping, bar) -> xr.Dataset:
    """Everything of one model; ``images`` : to learn from, to choose by, to judge by."""
    train, others, test = images
    settings = dict(zip(("gamma_e", "gamma_w"), precisions_of(model.chains_[0]), strict=True))
    atoms, strides, rows = model.atoms_.values.astype(np.float32), (model.model_.stride, (1, 1)), []
    for stride in strides:
        for steps in p["steps"]:
            pair = [mean_field(one, atoms, stride, **settings, steps=steps) for one in (train, others)]
            errors = [[error_of([_read(one[mean], how) for one in pair], train, others, p) for how in READINGS]
                      if steps or mean == MEANS[1] else [np.nan] * len(READINGS) for mean in MEANS]
            rows.append(xr.Dataset({
                "error": (("means", "reading"), errors), "bound": float(pair[1].bound.mean()),
                "change": float(pair[1].change.mean()), "active": float(pair[1].inclusion.sum(MAPS[1:]).mean()),
            }))
            bar.step()
    columns = [xr.concat(rows[n : n + len(p["steps"])], "steps") for n in (0, len(p["steps"]))]
    out = xr.concat(columns, "places").assign_coords(
        places=list(PLACES), steps=list(p["steps"]), means=list(MEANS), reading=list(READINGS)
    )
    return out.merge(_judged(out.error, atoms, strides, settings, images, p, bar))


def _judged(error: xr.DataArray, atoms, strides, settings: dict, images, p: Mapping, bar) -> xr.Dataset:
    """Test errors of the reading chosen on training digits and of the chain; what moves one after another lead to."""
    train, others, test = images
    best = {name: index.item() for name, index in error.fillna(np.inf).argmin(error.dims).items()}
    chosen = {name: error[name].values[index].item() for name, index in best.items()}
    stride = strides[best["places"]]
    pair = [mean_field(one, atoms, stride, **settings, steps=chosen["steps"]) for one in (train, test)]
    found = {"mean field, chosen": [_read(one[chosen["means"]], chosen["reading"]) for one in pair]}
    bar.step()
    codes = [encode(one, atoms, strides[0], (settings["gamma_e"], settings["gamma_w"]), p) for one in (train, test)]
    found |= {"chain, sample": [one.ml_sample for one in codes], "chain, mean": [one["mean"] for one in codes]}
    moved = [one_after_another(one, atoms, strides[0], **settings) for one in (train, others)]
    bar.step()
    return xr.Dataset({
        "test_error": ("code", [error_of(pair, train, test, p) for pair in found.values()]),
        "chosen": str(chosen),
        "in_turn_error": error_of([one["mean"] for one in moved], train, others, p),
        "in_turn_bound": float(moved[1].bound.mean()), "in_turn_active": float(moved[1].active.mean()),
    }, {"code": list(found)})


def _read(mean: xr.DataArray, how: str) -> xr.DataArray:
    return mean if how == READINGS[0] else np.abs(mean).max(MAPS[2:])


def one_after_another(images: xr.DataArray, atoms: np.ndarray, stride, *, gamma_e: float, gamma_w: float) -> xr.Dataset:
    """Mean field with the coefficients moved whole, one after another, `ROUNDS` times: ``mean``, ``bound``, ``active``.

    The order is that of the atoms, place by place.
    """
    pixels, placed = place(images, atoms, stride, gamma_e, gamma_w, numbers=3)
    whole = np.ones_like(pixels[:1])
    norm = placed.norms(whole)[0]
    units = np.eye(norm.size, dtype=np.float32).reshape(-1, *norm.shape)
    pictures = sum_at_stride(units.transpose(0, 2, 3, 1), placed.atoms, stride, placed.image_size)
    gram = pictures.reshape(len(units), -1) @ pictures.reshape(len(units), -1).T
    left = placed.correlations(pixels).reshape(len(pixels), -1)  # of what no other explains, and of itself
    moments = np.zeros((3, *left.shape), np.float32)
    for _ in range(ROUNDS):
        for i in range(norm.size):
            pull = left[:, i] + gram[i, i] * moments[0, :, i]
            new = placed.moments(pull[:, None, None, None], gram[i, i].reshape(1, 1, 1))[..., 0, 0, 0]
            left -= np.outer(new[0] - moments[0, :, i], gram[i])
            moments[:, :, i] = new
    maps = moments.reshape(3, len(pixels), *norm.shape)
    return xr.Dataset({
        "mean": (MAPS, maps[0]), "bound": (IMAGE, bound_of(placed, pixels, whole, maps, norm, gamma_e)),
        "active": (IMAGE, maps[1].sum(axis=(1, 2, 3))),
    })
