"""A chain of sweeps over one layer: burn-in, pruning, collection; the sample of highest likelihood is kept.

The chain keeps traces, the best collected sample, and nothing else. It can be stopped at any moment and resumed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import CHAIN, DRAW
from gdd.model.spec import ChainSpec, LayerShape, LayerSpec, Pruning
from gdd.model.state import EMPTY, LayerData, LayerState, Local, Shared, precision_shapes
from gdd.sampler import checkpoint
from gdd.sampler.checkpoint import Progressed
from gdd.sampler.moves import shift_atom
from gdd.sampler.random import PRETRAIN, START, Key, shared_generator
from gdd.sampler.stretch import run_to_end
from gdd.sampler.sweep import Info, sweep, within_range

TRACES = ("log_likelihood", "log_joint", "residual", "active", "atoms", "gamma_e", "gamma_d", "gamma_w", "shifts")


class Fitted(NamedTuple):
    """One layer after its chain."""

    spec: LayerSpec  # as pruned
    shape: LayerShape
    state: LayerState  # the collected sample of highest likelihood
    traces: xr.Dataset  # dims (chain, draw); attributes: seconds and cpu_seconds of all its stretches


def run_chain(
    data: LayerData, spec: LayerSpec, shape: LayerShape, chain: ChainSpec, layer: int = 0,
    folder: Path | None = None, progress=None,
) -> Fitted:  # fmt: skip
    """Run one layer's chain from its start, or from where a checkpoint in ``folder`` left it.

    Parameters
    ----------
    data : images (image, plane, row, col) and mask
    spec, shape : of the layer
    chain : lengths, seed, moves
    layer : number of the layer from 0; part of the random numbers' names
    folder : of checkpoints; None for none
    progress : `gdd_book.progress.Bar`, optional

    Returns
    -------
    Fitted

    Raises
    ------
    GddError
        If a checkpoint in ``folder`` is damaged, belongs to other data or settings, or cannot be written.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 3. *Departs:* none. *Checked:* tests/test_chain.py (stop and resume).
    """
    owner = checkpoint.fingerprint(data, (spec, chain), layer) if folder else ""
    path = Path(folder) / f"layer{layer + 1}.npz" if folder else None

    def begin() -> Progressed:
        kept = np.arange(spec.atoms)
        return Progressed(
            0, start(data, spec, shape, chain, layer), None, -np.inf, kept, kept, np.empty((0, len(TRACES)))
        )

    at = run_to_end(
        begin, lambda at: advance(at, data, spec, shape, chain, layer), chain.sweeps, f"layer {layer + 1}", path, owner,
        progress,
    )  # fmt: skip
    spec, shape = with_atoms(spec, shape, len(at.best_kept))
    traces = label_traces(at.traces).assign_attrs(seconds=at.seconds, cpu_seconds=at.cpu_seconds)
    return Fitted(spec, shape, at.best, traces)


def advance(
    at: Progressed, data: LayerData, spec: LayerSpec, shape: LayerShape, chain: ChainSpec, layer: int
) -> Progressed:
    """One sweep, with the moves and the pruning that are due at it."""
    number = at.done
    spec, shape = with_atoms(spec, shape, len(at.kept))
    key = Key(chain.seed, PRETRAIN, layer, number)
    state, kept, shifts = at.state, at.kept, 0.0
    if chain.shift_every and number % chain.shift_every == chain.shift_every - 1:
        state, moved = shift_atom(state, data, spec, shape, key)
        shifts = float(moved)
    scale = bool(chain.scale_every) and number % chain.scale_every == 0
    with within_range(f"layer {layer + 1}, sweep {number}") as check:
        state, info = sweep(state, data, spec, shape, key, scale)
        check(info.log_likelihood)
    row = trace_row(state, info, len(data.images), shifts)
    best, best_likelihood, best_kept = at.best, at.best_likelihood, at.best_kept
    if number >= chain.burn_in and (best is None or info.log_likelihood > best_likelihood):
        best, best_likelihood, best_kept = state, info.log_likelihood, kept
    if chain.pruning and prune_due(number, chain.pruning, chain.burn_in):
        keep = used_atoms(info.active, chain.pruning)
        state, kept = take_atoms(state, keep), kept[keep]
    return Progressed(number + 1, state, best, best_likelihood, kept, best_kept, np.vstack([at.traces, row]))


def trace_row(state: LayerState, info: Info, images: int, shifts: float) -> np.ndarray:
    """Values of `TRACES` after a sweep."""
    local, shared = state
    return np.array([
        info.log_likelihood, info.log_joint, info.residual, info.active.sum() / images, len(shared.dictionary),
        local.gamma_e.mean(), shared.gamma_d.mean(), shared.gamma_w.mean(), shifts,
    ])  # fmt: skip


def label_traces(traces: np.ndarray) -> xr.Dataset:
    """Traces as a Dataset with dims (chain, draw), one chain."""
    return xr.Dataset({name: ((CHAIN, DRAW), traces[None, :, i]) for i, name in enumerate(TRACES)})


def start(data: LayerData, spec: LayerSpec, shape: LayerShape, chain: ChainSpec, layer: int) -> LayerState:
    """Empty maps, and atoms of unit norm: patches of the data where it is not blank, or Gaussian noise."""
    images = data.images if data.mask is None else np.where(data.mask, data.images, 0.0)
    dtype = np.float32 if chain.single_precision else np.float64
    generator = shared_generator(chain.seed, START, layer, 0)
    atoms = generator.standard_normal(shape.dictionary)
    if chain.start == "patches":
        (h, w), (rows, cols) = shape.atom_size, shape.map_size
        for k in range(shape.atoms):
            n, i, j = (generator.integers(0, size, 20) for size in (len(images), rows, cols))
            patches = [images[a, :, b : b + h, c : c + w] for a, b, c in zip(n, i, j, strict=True)]
            best = max(patches, key=lambda patch: float((patch**2).sum()))
            atoms[k] = best + 1e-3 * max(float(np.abs(best).max()), 1e-6) * atoms[k]
    atoms /= np.sqrt((atoms**2).sum(axis=(1, 2, 3), keepdims=True))
    sizes = precision_shapes(spec, len(images), shape.planes)
    first = (1 / images.var(), shape.atom_size[0] * shape.atom_size[1] * shape.planes, 1.0)
    gamma_e, gamma_d, gamma_w = (
        np.full(size, value if prior.fixed is None else prior.fixed, float)
        for size, value, prior in zip(sizes, first, (spec.gamma_e, spec.gamma_d, spec.gamma_w), strict=True)
    )
    z = np.full((len(images), shape.atoms, *shape.grid), EMPTY, np.int16)
    return LayerState(Local(z, np.zeros(z.shape, dtype), gamma_e), Shared(atoms, gamma_d, gamma_w))


def prune_due(number: int, pruning: Pruning, burn_in: int) -> bool:
    """Whether atoms are pruned after sweep ``number``: in burn-in only, from the start sweep on."""
    return pruning.start <= number < burn_in and (number - pruning.start) % pruning.every == 0


def used_atoms(active: np.ndarray, pruning: Pruning) -> np.ndarray:
    """Indices of the atoms used at least ``share`` times as often as the mean atom; at least two stay."""
    keep = np.flatnonzero(active >= pruning.share * active.mean())
    return keep if len(keep) > 1 else np.sort(np.argsort(active)[-2:])


def take_atoms(state: LayerState, keep: np.ndarray) -> LayerState:
    """Return the state with only these atoms."""
    local, shared = state
    pick = lambda array: array[keep] if len(array) > 1 else array  # noqa: E731
    return LayerState(
        local._replace(z=local.z[:, keep].copy(), w=local.w[:, keep].copy()),
        Shared(shared.dictionary[keep], pick(shared.gamma_d), pick(shared.gamma_w)),
    )


def with_atoms(spec: LayerSpec, shape: LayerShape, atoms: int) -> tuple[LayerSpec, LayerShape]:
    """Spec and shape of the same layer with another number of atoms."""
    return replace(spec, atoms=atoms), replace(shape, atoms=atoms)
