"""Peers and this package on the same digits: learning 32 atoms of 8 x 8, and coding with given atoms.

Settings of the peers are tuned on some of the digits, and tuning is not timed. Then each runs once on the digits that
ours ran on. Every outcome is a time per image, the error and the number of active coefficients that were had for it.
*Checked:* tests/test_peers.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.inference.deconvolution import infer
from gdd.model.placement import placement_grid
from gdd.model.spec import ChainSpec, ModelSpec
from gdd.model.state import LayerData
from gdd.projection import project_model, render_projected
from gdd.sampler.chain import run_chain, start
from gdd.sampler.pretrain import Pretrained, pretrain
from gdd_book.benchmarks import peers
from gdd_book.benchmarks.peers import Curve

#: our chains: sweeps of learning (burn-in, collected); of coding, the third is what peers are held to
LEARNING, CODING = (60, 20), ((0, 1), (10, 10), (60, 20), (500, 200))
HELD_TO = 2
#: iterations of sporco; digits on which its learning is tuned, and on half of which its slow coding is compared
ITERATIONS, TUNED_ON = 150, 20
#: sporco's lambda and rho that are tried
WEIGHTS, PENALTIES = (0.2, 0.3, 0.45), (1.0, 3.0)
#: sporco's rho in coding, and bounds of every coding method's lambda
CODING_PENALTY, RANGE = 5.0, (0.03, 3.0)


class Outcome(NamedTuple):
    """One method on one task. Its curve is empty where its package is missing."""

    task: str
    method: str
    curve: Curve
    at: int | None  # iteration at which it is compared; None: it never came to where it could be
    note: str


def contest(images: xr.DataArray, model: ModelSpec, seed: int, progress) -> xr.Dataset:
    """Run both tasks; the table that `as_dataset` makes of all outcomes."""
    pixels = images.values.astype(np.float32)
    run_chain(LayerData(pixels[:2]), model.layers[0], model.shapes()[0], ChainSpec(0, 1, seed))  # compiles
    with progress(9, "peers") as bar:
        outcomes = learning(pixels, model, seed, bar)
        fitted = pretrain(pixels, model, ChainSpec(*LEARNING, seed))
        outcomes += coding(images, fitted, seed, bar)
    return as_dataset(outcomes)


def learning(pixels: np.ndarray, model: ModelSpec, seed: int, bar) -> list[Outcome]:
    """Our chain of layer 1, and sporco from the same first atoms until it is as good in error and in sparsity."""
    task, data = "learning", LayerData(pixels)
    chain = ChainSpec(*LEARNING, seed)
    watch = _Laps()
    fitted = run_chain(data, model.layers[0], model.shapes()[0], chain, progress=watch)
    traces = fitted.traces.isel(chain=0)
    ours = Curve(np.array(watch.laps) / len(pixels), traces.residual.values, traces.active.values)
    found = [Outcome(task, "gdd", ours, len(ours.error) - 1, f"{chain.sweeps} sweeps")]
    bar.step()
    if not peers.installed("sporco"):
        return [*found, missing(task, "sporco", "sporco")]
    atoms = start(data, model.layers[0], model.shapes()[0], chain, 0).shared.dictionary[:, 0]
    goal = float(ours.error[-1]), float(ours.active[-1])
    few = pixels[:TUNED_ON, 0]
    tried = {
        (weight, penalty): peers.learn_sporco(few, atoms, weight, penalty, ITERATIONS)
        for weight in WEIGHTS for penalty in PENALTIES
    }  # fmt: skip
    weight, penalty = min(tried, key=lambda settings: _rank(tried[settings], *goal))
    curve = peers.learn_sporco(pixels[:, 0], atoms, weight, penalty, ITERATIONS)
    bar.step()
    note = f"lambda {weight:g}, rho {penalty:g}, at most {ITERATIONS} iterations"
    return [*found, Outcome(task, "sporco", curve, curve.first(*goal), note)]


def coding(images: xr.DataArray, fitted: Pretrained, seed: int, bar) -> list[Outcome]:
    """Our deconvolution, and the peers with the same projected atoms."""
    task, atoms, pixels = "coding", project_model(fitted), images.astype(np.float32)
    ours, goals = our_coding(fitted, atoms, pixels, seed)
    found = [Outcome(task, "gdd", ours, HELD_TO, "{} + {} sweeps".format(*CODING[HELD_TO]))]
    bar.step()
    unit = atoms.values[:, 0] / np.sqrt((atoms.values[:, 0] ** 2).sum(axis=(1, 2), keepdims=True))
    columns = placed(unit, images.shape[2:], fitted.model.stride)
    flat = np.asfortranarray(pixels.values.reshape(len(pixels), -1).T)
    on_columns = {"spams": peers.code_spams, "sklearn": peers.code_sklearn}
    for package, code in on_columns.items():
        name = f"{peers.PACKAGES[package]} lasso"
        if not peers.installed(package):
            found.append(missing(task, name, package))
            continue
        found += at_both_goals(task, name, lambda part, w, code=code: code(flat[:, part], columns, w), goals)
        bar.step()
    if peers.installed("spams"):
        greedy = peers.code_spams_greedy(flat, columns, ours.active[HELD_TO])
        found.append(Outcome(task, "spams-bin greedy (OMP)", greedy, 0, "equal active"))
    if peers.installed("sporco"):
        run = lambda part, w: peers.code_sporco(pixels.values[part, 0], unit, w, CODING_PENALTY, ITERATIONS)  # noqa: E731
        found += at_both_goals(task, "sporco", run, goals, slice(0, TUNED_ON // 2))
        bar.step()
    else:
        found.append(missing(task, "sporco", "sporco"))
    return found


def at_both_goals(
    task: str, name: str, run: Callable, goals: Callable[[slice], dict[str, float]], part: slice = slice(None)
) -> list[Outcome]:
    """One method twice on a part of the digits: tuned to ours there in active coefficients, and in error."""
    found = []
    for of, goal in goals(part).items():
        weight = peers.tuned(lambda w: run(part, w), goal, of, *RANGE)
        curve = run(part, weight)
        digits = f", {part.stop} digits" if part.stop else ""
        found.append(Outcome(task, name, curve, len(curve.error) - 1, f"equal {of}, lambda {weight:.3g}{digits}"))
    return found


def our_coding(
    fitted: Pretrained, atoms: xr.DataArray, images: xr.DataArray, seed: int
) -> tuple[Curve, Callable[[slice], dict[str, float]]]:
    """Time, error and active coefficients of the best sample of chains of several lengths.

    Then what peers are held to on a part of the images: ``active`` and ``error`` of one of those chains there.
    """
    infer(fitted, atoms, images[:2], burn_in=0, collect=1, seed=seed)  # compiles
    rows, squares, active = [], [], []
    for burn_in, collect in CODING:
        begun = time.process_time()
        codes = infer(fitted, atoms, images, burn_in=burn_in, collect=collect, seed=seed).ml_sample.values
        taken = time.process_time() - begun
        drawn = render_projected(atoms.values, codes, fitted.model.stride, images.shape[2:])
        squares.append(((images.values - drawn) ** 2).mean(axis=(1, 2, 3)))
        active.append((codes != 0).sum(axis=(1, 2, 3)))
        rows.append((taken / len(images), float(np.sqrt(squares[-1].mean())), float(active[-1].mean())))

    def goals(part: slice) -> dict[str, float]:
        return {"active": float(active[HELD_TO][part].mean()), "error": float(np.sqrt(squares[HELD_TO][part].mean()))}

    return Curve(*np.array(rows).T), goals


def placed(atoms: np.ndarray, size, stride) -> np.ndarray:
    """Every atom at every position of the grid as a column of unit norm, (pixel, coefficient)."""
    reach, columns = atoms.shape[1:], []
    rows, cols = placement_grid(size, reach, stride)
    for top in range(0, rows * stride[0], stride[0]):
        for left in range(0, cols * stride[1], stride[1]):
            canvas = np.zeros((len(atoms), size[0] + reach[0], size[1] + reach[1]), np.float32)
            canvas[:, top : top + reach[0], left : left + reach[1]] = atoms
            columns.append(canvas[:, : size[0], : size[1]].reshape(len(atoms), -1))
    columns = np.concatenate(columns)
    return np.asfortranarray((columns / np.sqrt((columns**2).sum(axis=1, keepdims=True))).T)


def missing(task: str, method: str, package: str) -> Outcome:
    """Return what is said of a peer that is not here."""
    note = f"not installed: pip install {peers.PACKAGES[package]}"
    return Outcome(task, method, Curve(*np.empty((3, 0))), None, note)


def as_dataset(outcomes: list[Outcome]) -> xr.Dataset:
    """Outcomes along ``entry``: where each is compared, its time over ours on that task, and its curve."""
    first = {}
    for one in outcomes:
        first.setdefault(one.task, one.curve.seconds[one.at])
    longest = max(len(one.curve.error) for one in outcomes)
    out = xr.Dataset({
        "peer_task": ("entry", [one.task for one in outcomes]), "peer_method": ("entry", [o.method for o in outcomes]),
        "peer_note": ("entry", [one.note for one in outcomes]),
    })  # fmt: skip
    for name in Curve._fields:
        curves = np.full((len(outcomes), longest), np.nan)
        for line, one in zip(curves, outcomes, strict=True):
            values = getattr(one.curve, name)
            line[: len(values)] = values
        out[f"curve_{name}"] = (("entry", "iteration"), curves)
        compared = [np.nan if o.at is None else line[o.at] for o, line in zip(outcomes, curves, strict=True)]
        out[f"peer_{name}"] = ("entry", compared)
    ours = np.array([first[one.task] for one in outcomes])
    return out.assign(peer_ratio=out.peer_seconds / ours)


def _rank(curve: Curve, error: float, active: float) -> tuple[float, float]:
    """Order of tried settings: soonest there; else the smallest error among those sparse enough."""
    there = curve.first(error, active)
    if there is not None:
        return (curve.seconds[there], 0.0)
    sparse = curve.error[curve.active <= active]
    return (np.inf, float(sparse.min()) if len(sparse) else np.inf)


class _Laps:
    """Stands in for a progress bar: processor time after every sweep."""

    def __init__(self):
        self.laps, self._begun = [], time.process_time()

    def begin(self, *_, **__) -> None:
        """A stage begins, which is nothing to this one."""

    def step(self, *_, **__) -> None:
        """One sweep is done."""
        self.laps.append(time.process_time() - self._begun)
