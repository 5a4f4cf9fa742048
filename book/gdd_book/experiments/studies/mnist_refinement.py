"""Sec. 2.3 on digits: what refinement does, whether its start matters; and whether pruning finds how many atoms."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import xarray as xr

from gdd import project
from gdd.base.axes import ATOM, DRAW, PLANE
from gdd.base.checks import GddError
from gdd.model.joint import joint_residual
from gdd.model.spec import ChainSpec, ModelSpec, Pruning, RefinementSpec
from gdd.model.state import EMPTY, JointLocal, JointState, LayerData
from gdd.reference.random import REFINE, TEST, Key
from gdd.sampler.joint_sweep import STRENGTHS, joint_sweep, local_pass
from gdd.sampler.pretrain import pretrain
from gdd.sampler.refine import Refined, fresh_start, start_from
from gdd_book import training
from gdd_book.data import datasets
from gdd_book.dictionaries import projection_error
from gdd_book.experiments.atoms import SHARPNESS, describe_projection
from gdd_book.experiments.common import Outcome, along, experiment, outcome
from gdd_book.progress import Run

# ---- what refinement does to a pretrained model, and what the noise precision has to do with it
BEFORE = "pretrained"
REFINE_DRAW = "refine_draw"  # sweeps of a refinement; ``draw`` counts those of pretraining
#: what is kept of every sweep
PER_SWEEP = ("log_joint", "residual", "active", "gamma_e", "switched_on", "switched_off", "visited", "moved")


@experiment(
    "mnist-refinement", seed=0, noises=(44.0, 0.0), **training.HELD_DIGITS,
    demo={"data": "digits", "n_train": 200, **training.lengths((60, 20), refine=(60, 20), learned=(60, 20))},
    paper={"data": "mnist", "n_train": 1000, **training.lengths((1500, 500), refine=(1500, 500), learned=(60, 20))},
)
def mnist_refinement(p: dict, run: Run) -> Outcome:
    """One pretrained model refined twice: with the noise precision fixed, and learned under the printed flat prior.

    The second has lengths of its own, as it need not run long to show where it goes. The record holds every sweep of
    both, how freely positions and coefficients move, and the kept dictionaries before and after.
    """
    refined = {}
    for noise in p["noises"]:
        lengths = {f"refine_{part}": p[f"{'refine' if noise else 'learned'}_{part}"] for part in ("burn_in", "collect")}
        name = f"noise fixed at {noise:g}" if noise else "noise learned"
        fitted, refined[name] = training.trained_models(p | {"refine_noise": noise} | lengths, run).values()
    first = next(iter(refined.values()))
    begun = start_from(fitted, first.refinement, ChainSpec(seed=p["seed"]))
    models = {BEFORE: _describe(project(fitted), begun, first.data, fitted.model)}
    models |= {name: _describe(project(one), one.state, one.data, one.model) for name, one in refined.items()}
    dataset = along("model", models).merge(_refinement_traces(refined))
    dataset["numbers_explained"] = "layer", [data.images.size for data in fitted.inputs]
    specs = {name: one.refinement for name, one in refined.items()}
    return outcome(dataset, p, training.digits(p), model=fitted.model, **specs)


def _describe(atoms: xr.DataArray, state: JointState, data: LayerData, model: ModelSpec) -> xr.Dataset:
    """`describe_projection`, dictionary of layer 1, how sharp projected atoms are, and the residual."""
    return describe_projection(atoms, state, model).assign({
        measure.__name__: (ATOM, measure(atoms).values) for measure in SHARPNESS
    } | {
        "bottom_dictionary": (("bottom_atom", PLANE, "bottom_row", "bottom_col"),
                              np.float32(state.shared.dictionaries[0])),
        "rms": float(np.sqrt((joint_residual(state, data, model) ** 2).mean())),
    })


def _refinement_traces(refined: dict[str, Refined]) -> xr.Dataset:
    """Every sweep of each refinement, (noise, refine_draw), NaN behind its end; blocks that it visited and moved."""
    every = [one.traces.isel(chain=0).rename({DRAW: REFINE_DRAW}) for one in refined.values()]
    longest = max(one.sizes[REFINE_DRAW] for one in every)
    padded = [one[[*PER_SWEEP]].pad({REFINE_DRAW: (0, longest - one.sizes[REFINE_DRAW])}) for one in every]
    found = along("noise", dict(zip(refined, padded, strict=True))).assign_coords(strength=list(STRENGTHS))
    return found.rename({"visited": "blocks_visited", "moved": "blocks_moved"})


# ---- what keeps layer 1 alive
@experiment(
    "mnist-planes", seed=0, dictionary_every=4, learned=(False, True), empty=(False, True), **training.HEALTHY_DIGITS,
    demo={"data": "digits", "n_train": 60, **training.lengths((30, 10), refine=(20, 5))},
    paper={"data": "mnist", "n_train": 400, **training.lengths((150, 50), refine=(150, 50))},
)
def mnist_planes(p: dict, run: Run) -> Outcome:
    """Refinement under four settings: is the precision of each plane learned, may blocks be empty?

    For each, (learned, empty): norms of layer 1's atoms, the share of a top atom's planes that have vanished (below a
    thousandth of its energy), the share of blocks left empty, error of the projection in shares of the energy, share of
    weight at the winning positions, and the last residual and number of active coefficients.
    """
    rows = {}
    for learned, empty in product(p["learned"], p["empty"]):
        name = f"one for {'each plane' if learned else 'all planes'}, {'may be' if empty else 'never'} empty"
        one = training.trained_models(p | {"learned_planes": learned, "empty_blocks": empty}, run)[training.STAGES[1]]
        atoms, energy = project(one), (one.state.shared.dictionaries[1] ** 2).sum(axis=(2, 3))
        last, bottom = one.traces.isel({"chain": 0, DRAW: -1}), one.state.shared.dictionaries[0]
        rows[name] = xr.Dataset({
            "norms": ("bottom_atom", np.sqrt((bottom**2).sum(axis=(1, 2, 3)))),
            "vanished_planes": float((energy < 1e-3 * energy.sum(axis=1, keepdims=True)).mean()),
            "empty_share": float((one.state.local.positions[0] == EMPTY).mean()),
            "projection_error": float(projection_error(one.state, one.model, atoms).mean()),
            "winning_share": atoms.attrs["winning_share"][0],
            "residual": float(last.residual), "active": float(last.active),
        })
    return outcome(along("setting", rows), p, training.digits(p), model=one.model, refinement=one.refinement)


# ---- is pretraining the key?
STARTS = ("pretrained", "patches", "random")
TRACES = ("log_joint", "residual", "active", "held_out")


@experiment(
    "mnist-starts", seeds=(0, 1, 2), **training.HEALTHY_DIGITS,
    demo={"data": "digits", "n_train": 60, "n_held_out": 30, "burn_in": 60, "collect": 20, "sweeps": 60},
    paper={"data": "mnist", "n_train": 200, "n_held_out": 60, "burn_in": 300, "collect": 100, "sweeps": 100},
)
def mnist_starts(p: dict, run: Run) -> Outcome:
    """Refinement from pretrained layers, from patches of the data, and from random atoms.

    Same digits, same fixed noise precision, as many sweeps; only the start differs. Beside the chain's own traces
    stands the error on digits that no dictionary was fitted to: their positions and coefficients are drawn along after
    each sweep, under the dictionaries of that sweep. The pretrained start has cost its own sweeps before, which the
    curves leave out.
    """
    if p["refine_noise"] <= 0:
        raise GddError(f"refine_noise: {p['refine_noise']} given; starts are compared at a fixed positive precision")
    fitted = {seed: training.pretrained_model(p | {"seed": seed}, run) for seed in p["seeds"]}
    model, refinement = training.digits_model(p), training.refinement_for(p["refine_noise"])
    held_out = {seed: datasets.load(p["data"], "test", n=p["n_held_out"], seed=seed) for seed in p["seeds"]}

    def one(start: str, seed: int, bar) -> xr.Dataset:
        images, unseen = training.digits(p | {"seed": seed}), held_out[seed]

        def compute() -> xr.Dataset:
            chain = ChainSpec(p["sweeps"], 1, seed, start=start if start != STARTS[0] else "patches")
            data = LayerData(images.values)
            begun = (
                start_from(fitted[seed], refinement, chain) if start == STARTS[0]
                else fresh_start(data, model, chain, refinement)
            )
            bar.begin(f"{start}, seed {seed}", p["sweeps"])
            return _run_both(begun, data, LayerData(unseen.values), model, refinement, chain, bar)

        return run.kept(
            "mnist-starts", compute, images=images, held_out=unseen, model=model, refinement=refinement, p=p,
            start=start, seed=seed, code=training.code_of(),
        )

    with run.bar(len(STARTS) * len(p["seeds"]) * p["sweeps"], "mnist-starts") as bar:
        dataset = along("start", {
            start: along("seed", {seed: one(start, seed, bar) for seed in p["seeds"]}) for start in STARTS
        })
    return outcome(dataset, p, held_out[p["seeds"][-1]], model=model, refinement=refinement)


def _run_both(
    state: JointState, data: LayerData, unseen: LayerData, model: ModelSpec, refinement: RefinementSpec,
    chain: ChainSpec, bar,
) -> xr.Dataset:
    """Values of `TRACES` after each of the chain's burn-in sweeps, (draw,)."""
    *below, top = [np.full((len(unseen.images), s.atoms, *s.grid), EMPTY, np.int16) for s in model.shapes()]
    other = JointLocal(tuple(map(np.zeros_like, below)), top, np.zeros(top.shape, np.float32),
                       np.array([refinement.noise.fixed]))  # nothing is active, every block at its first position
    rows = []
    for sweep in range(chain.burn_in):
        state, info = joint_sweep(state, data, model, refinement, Key(chain.seed, REFINE, 0, sweep))
        held = JointState(other, state.shared)
        other, seen = local_pass(held, unseen, model, refinement, Key(chain.seed, TEST, 0, sweep))
        active = info.active.sum() / len(data.images)
        rows.append([info.log_joint, info.residual, active, seen.residual])
        bar.step(residual=info.residual, active=active)
    return xr.Dataset({name: (DRAW, values) for name, values in zip(TRACES, np.transpose(rows), strict=True)})


# ---- are the numbers of atoms inferred?
@experiment(
    "mnist-atoms", seeds=(0,), **training.HELD_DIGITS,
    demo={"data": "digits", "n_train": 60, "starts_1": (16, 32), "starts_2": (20, 40), "shares": (0.01, 0.2),
          "burn_in": 20, "collect": 5, "prune_from": 8, "prune_every": 4},
    paper={"data": "mnist", "n_train": 300, "starts_1": (32, 64, 128), "starts_2": (160, 320),
           "shares": (0.01, 0.05, 0.2), "burn_in": 200, "collect": 20, "prune_from": 60, "prune_every": 20},
)
def mnist_atoms(p: dict, run: Run) -> Outcome:
    """Chains that start with many atoms and drop those seldom used, from several starts, for each layer.

    If pruning finds how many atoms the digits need, chains that start with more end with as many, and so do chains that
    call other atoms seldom used. The upper layer is always on one and the same lower layer, not pruned.

    ``starts_1``, ``starts_2`` are numbers of atoms of the two layers; atoms used less than one of ``shares`` times as
    often as the mean atom are dropped every ``prune_every`` sweeps from sweep ``prune_from`` on, in burn-in only. The
    record holds for each layer ``atoms_1`` and ``residual_1`` (seed, start_1, share, draw), before the pruning that is
    due in a sweep, and ``uses_1`` (seed, start_1, share, rank_1), the share of blocks in which an atom of the kept
    sample is active, the most used atom first, NaN behind the last.
    """
    if p["prune_from"] >= p["burn_in"]:
        raise GddError(f"prune_from: {p['prune_from']} given; below burn_in, {p['burn_in']}, is needed")
    model, starts = training.digits_model(p), (p["starts_1"], p["starts_2"])
    models = [{start: ModelSpec((replace(layer, atoms=start),), shape.input_size, shape.planes) for start in of_layer}
              for layer, shape, of_layer in zip(model.layers, model.shapes(), starts, strict=True)]
    sweeps = len(p["seeds"]) * (1 + sum(map(len, starts)) * len(p["shares"])) * (p["burn_in"] + p["collect"])
    subsets = {}
    with run.bar(sweeps, "mnist-atoms") as bar:
        for seed in p["seeds"]:
            images, plain = training.digits(p | {"seed": seed}), training.chain_of(p, seed=seed)
            lower = replace(model, layers=model.layers[:1])
            folder = run.folder("mnist-atoms", {"images": images, "model": lower, "chain": plain})
            below = pretrain(images, lower, plain, None, folder, bar).layers[0]
            tables = []
            for layer, inputs in enumerate((images.values, below.state.local.w)):
                found = {start: {} for start in starts[layer]}
                for start, share in product(found, p["shares"]):
                    alone = models[layer][start]
                    chain = replace(plain, pruning=Pruning(p["prune_from"], p["prune_every"], share))
                    folder = run.folder("mnist-atoms", {"images": inputs, "model": alone, "chain": chain})
                    fitted = pretrain(inputs, alone, chain, None, folder, bar).layers[0]
                    traces, z, number = fitted.traces.isel(chain=0), fitted.state.local.z, layer + 1
                    uses = np.full(max(starts[layer]), np.nan)
                    uses[: z.shape[1]] = np.sort((z >= 0).sum(axis=(0, 2, 3)))[::-1] / (len(z) * prod(z.shape[2:]))
                    found[start][share] = xr.Dataset({f"uses_{number}": (f"rank_{number}", uses)} | {
                        f"{name}_{number}": (DRAW, traces[name].values) for name in ("atoms", "residual")})
                tables.append(along(f"start_{layer + 1}", {start: along("share", one) for start, one in found.items()}))
            subsets[seed] = xr.merge(tables)
    return outcome(along("seed", subsets), p, images, model=model)
