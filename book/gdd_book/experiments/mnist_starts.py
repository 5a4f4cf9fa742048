"""Is pretraining the key? Refinement from pretrained layers, from patches of the data, and from random atoms.

Same digits, same fixed noise precision, as many sweeps; only the start differs. Beside the chain's own traces stands
the error on digits that no dictionary was fitted to: their positions and coefficients are drawn along after each sweep,
under the dictionaries of that sweep. The pretrained start has cost its own sweeps before, which the curves leave out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from gdd.base.axes import DRAW, GddError
from gdd.base.files import written_whole
from gdd.data import datasets
from gdd.model.spec import ChainSpec, ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointLocal, JointState, LayerData
from gdd.sampler.contract import Key
from gdd.sampler.joint_sweep import joint_sweep, local_pass
from gdd.sampler.random import REFINE, TEST
from gdd.sampler.refine import fresh_start, start_from
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.training.training import HEALTHY, digits, model_for, pretrained_model, refinement_for

NAME = "mnist-starts"
STARTS = ("pretrained", "patches", "random")
PARAMETERS = {
    "demo": {
        "data": "digits", "n_train": 60, "n_held_out": 30, "seeds": (0, 1, 2), "burn_in": 60, "collect": 20,
        "sweeps": 60, **HEALTHY,
    },
    "paper": {
        "data": "mnist", "n_train": 200, "n_held_out": 60, "seeds": (0, 1, 2), "burn_in": 300, "collect": 100,
        "sweeps": 100, **HEALTHY,
    },
}  # fmt: skip
TRACES = ("log_joint", "residual", "active", "held_out", "held_out_active")


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """One chain from every start for every seed; see the module.

    ``resumable``: keep each finished chain, and leave out those that an earlier call has finished.
    """
    p = parameters
    if p["refine_noise"] <= 0:
        raise GddError(f"refine_noise: {p['refine_noise']} given; starts are compared at a fixed positive precision")
    folder = checkpoint_folder(NAME, p) if resumable else None
    fitted = {seed: pretrained_model(p | {"seed": seed}, progress, resumable) for seed in p["seeds"]}
    model, refinement = model_for(p["noise_precision"], p["weight_precision"]), refinement_for(p["refine_noise"])
    found = []
    with progress(len(STARTS) * len(p["seeds"]) * p["sweeps"], NAME) as bar:
        for start in STARTS:
            for seed in p["seeds"]:
                chain = ChainSpec(p["sweeps"], 1, seed, start=start if start != "pretrained" else "patches")
                data = LayerData(digits(p | {"seed": seed}).values)
                begun = (
                    start_from(fitted[seed], refinement, chain) if start == "pretrained"
                    else fresh_start(data, model, chain, refinement)
                )  # fmt: skip
                unseen = LayerData(datasets.load(p["data"], "test", n=p["n_held_out"], seed=seed).values)
                path = folder / f"{start}{seed}.npy" if folder else None
                stage, lengths = f"{start}, seed {seed}", (seed, p["sweeps"])
                found.append(kept_or(path, stage, traces_of, begun, data, unseen, model, refinement, lengths, bar))
    values = np.reshape(found, (len(STARTS), len(p["seeds"]), p["sweeps"], len(TRACES)))
    dataset = xr.Dataset(
        {name: (("start", "seed", DRAW), values[..., i]) for i, name in enumerate(TRACES)},
        {"start": list(STARTS), "seed": list(p["seeds"])},
    )
    checksum = digits(p | {"seed": p["seeds"][0]}).attrs["checksum"]
    return Outcome(dataset, {"model": model, "refinement": refinement}, p["data"], checksum, p["seeds"][0])


def traces_of(
    state: JointState, data: LayerData, unseen: LayerData, model: ModelSpec, refinement: RefinementSpec,
    run: tuple[int, int], bar,
) -> np.ndarray:  # fmt: skip
    """Values of `TRACES` after every sweep of a chain; ``run`` is its seed and its number of sweeps."""
    seed, sweeps = run
    other, rows = blank(len(unseen.images), model, refinement), []
    for sweep in range(sweeps):
        state, info = joint_sweep(state, data, model, refinement, Key(seed, REFINE, 0, sweep))
        held = JointState(other, state.shared)
        other, seen = local_pass(held, unseen, model, refinement, Key(seed, TEST, 0, sweep))
        active = [one.active.sum() / len(part.images) for one, part in ((info, data), (seen, unseen))]
        rows.append([info.log_joint, info.residual, active[0], seen.residual, active[1]])
        bar.step(residual=info.residual, active=active[0])
    return np.array(rows)


def blank(images: int, model: ModelSpec, refinement: RefinementSpec) -> JointLocal:
    """Local part of images that nothing is known about: no coefficient active, every block at its first position."""
    shapes = model.shapes()
    positions = tuple(np.zeros((images, s.atoms, *s.grid), np.int16) for s in shapes[:-1])
    z = np.full((images, shapes[-1].atoms, *shapes[-1].grid), EMPTY, np.int16)
    return JointLocal(positions, z, np.zeros(z.shape, np.float32), np.array([refinement.noise.fixed]))


def kept_or(path: Path | None, stage: str, compute, *arguments) -> np.ndarray:
    """What an earlier call has left at ``path``, else compute it and leave it there.

    The last two arguments are a seed with a number of sweeps, and the bar.
    """
    (_, sweeps), bar = arguments[-2:]
    if path is not None and path.exists():
        values = np.load(path)
        bar.begin(stage, sweeps, len(values))
        return values
    bar.begin(stage, sweeps)
    values = compute(*arguments)
    if path is not None:
        with written_whole(path) as part, open(part, "wb") as file:
            np.save(file, values)
    return values
