"""Inference in the joint model with all that images share held: what layers make of new images, or of hidden pixels.

One chain of image passes. What is wanted of it is taken from the collected sweeps as they come: the noise-free image
for interpolation, the top maps for codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, MAPS, GddError, as_pixels
from gdd.base.checks import REMEDY, check_kind, check_lengths, check_precision, check_seed
from gdd.model.distributions import LOG_TWO_PI
from gdd.model.joint import layer_values
from gdd.model.layer import draw_positions
from gdd.model.spec import ModelSpec, RefinementSpec
from gdd.model.state import EMPTY, JointLocal, JointShared, JointState, LayerData
from gdd.sampler.contract import Key
from gdd.sampler.joint_sweep import local_pass
from gdd.sampler.pretrain import Pretrained, check_fits
from gdd.sampler.random import TEST, shared_generator

#: share of the noise precision at which a warm-up begins
COLD = 1 / 11


class Draw(NamedTuple):
    """One collected sweep."""

    local: JointLocal
    clean: np.ndarray  # (image, plane, row, col): X^(1), the images without noise
    log_likelihood: np.ndarray  # (image,): of the observed pixels


class Chain(NamedTuple):
    """How long a chain with held dictionaries runs, and from where.

    ``warm_up`` of the ``burn_in`` sweeps go up to the noise precision by equal factors from `COLD` of it: positions and
    coefficients find each other while the image weighs little.
    """

    burn_in: int
    collect: int
    seed: int = 0
    warm_up: int = 0

    def check(self) -> Chain:
        """Refuse lengths that make no chain; return it in plain whole numbers."""
        burn_in, collect, warm_up = check_lengths(self.burn_in, self.collect, self.warm_up)
        return Chain(burn_in, collect, check_seed(self.seed), warm_up)


def infer_jointly(
    images: np.ndarray | xr.DataArray, model: ModelSpec, shared: JointShared, refinement: RefinementSpec, chain: Chain,
    gamma_e: float | None = None, progress: Callable[[int], None] | None = None,
) -> xr.Dataset:  # fmt: skip
    """Top maps of whole images under the joint model, dictionaries held: the joint inference codes.

    Parameters
    ----------
    images : (image, plane, row, col)      labels of a DataArray along ``image`` are kept
    model, shared, refinement : of a refined model
    chain : lengths, seed
    gamma_e : noise precision; None: the one at which the refinement holds it
    progress : called with a number of image-sweeps after each sweep

    Returns
    -------
    Dataset
        ``ml_sample`` (image, atom, row, col): the collected sample of highest log-likelihood, per image;
        ``mean``: average of the weights over the collected sweeps; ``log_likelihood`` (image,) of the former.

    Raises
    ------
    GddError
        Bad images, lengths that make no chain, a noise precision that is neither held nor given.

    Notes
    -----
    Source: Pu, Yuan & Carin 2015, Sec. 2.3, with the dictionaries known.
    Departs: at test the paper infers in one layer, with projected atoms.
    Checked: tests/test_joint_inference.py.
    """
    labels = images.coords if isinstance(images, xr.DataArray) else {}
    pixels = as_pixels(images, constant=True)
    check_kind("model", model, ModelSpec)
    check_kind("chain", chain, Chain)
    chain = chain.check()
    shape = (len(pixels), *model.shapes()[-1].dictionary[:1], *model.shapes()[-1].map_size)
    best, mean, highest = np.zeros(shape, np.float32), np.zeros(shape), np.full(len(pixels), -np.inf)
    for draw in joint_draws(LayerData(pixels), model, shared, refinement, chain, gamma_e, progress):
        better = draw.log_likelihood > highest
        best[better], highest[better] = draw.local.w[better], draw.log_likelihood[better]
        mean += draw.local.w / chain.collect
    out = {"ml_sample": (MAPS, best), "mean": (MAPS, mean.astype(np.float32)), "log_likelihood": (IMAGE, highest)}
    along = {name: c.variable for name, c in labels.items() if c.dims == (IMAGE,)}
    return xr.Dataset(out, along, chain._asdict())


def joint_draws(
    data: LayerData, model: ModelSpec, shared: JointShared, refinement: RefinementSpec, chain: Chain,
    gamma_e: float | None = None, progress: Callable[[int], None] | None = None,
) -> Iterator[Draw]:  # fmt: skip
    """Run the chain from empty maps and yield every collected sweep. Parameters as in `infer_jointly`."""
    check_kind("chain", chain, Chain)
    chain = chain.check()
    check_kind("refinement", refinement, RefinementSpec)
    refinement.check_model(model)
    check_fits(data.images, model)
    check_shared(shared, model)
    held = noise_of(refinement, gamma_e)
    drawn = refinement.noise.fixed is None and IMAGE in refinement.noise.axes
    local = start_empty(len(data.images), model, refinement, chain.seed, held, data.images.dtype)
    for sweep in range(chain.burn_in + chain.collect):
        if sweep <= chain.warm_up and not drawn:
            share = COLD ** (1 - sweep / chain.warm_up) if chain.warm_up else 1.0
            local = local._replace(gamma_e=np.array([held * share]))
        key = Key(chain.seed, TEST, 0, sweep)
        local, _ = local_pass(JointState(local, shared), data, model, refinement, key)
        if progress is not None:
            progress(len(data.images))
        if sweep >= chain.burn_in:
            clean = layer_values(local, shared.dictionaries, model.shapes())[0]
            log_likelihood = _log_likelihood(clean, local, data)
            if not np.isfinite(log_likelihood).all():
                n = int(np.isfinite(log_likelihood).argmin())
                raise GddError(f"images: the chain of image {n} left the range of numbers; {REMEDY}")
            yield Draw(local, clean, log_likelihood)


def start_empty(
    images: int, model: ModelSpec, refinement: RefinementSpec, seed: int, gamma_e: float, dtype=np.float32
) -> JointLocal:
    """No top coefficient active, every position from its prior, every image at this noise precision."""
    generator, shapes = shared_generator(seed, TEST, 0, 0), model.shapes()
    positions = tuple(
        draw_positions(images, spec, shape, generator, refinement.empty_blocks)
        for spec, shape in zip(model.layers[:-1], shapes[:-1], strict=True)
    )
    z = np.full((images, shapes[-1].atoms, *shapes[-1].grid), EMPTY, np.int16)
    entries = images if IMAGE in refinement.noise.axes else 1
    return JointLocal(positions, z, np.zeros(z.shape, dtype), np.full(entries, float(gamma_e)))


def noise_of(refinement: RefinementSpec, gamma_e: float | None) -> float:
    """Noise precision of a chain: as given, else as the refinement holds it; GddError if there is none."""
    gamma_e = refinement.noise.fixed if gamma_e is None else gamma_e
    if gamma_e is None:
        raise GddError("gamma_e: None given, and the refinement holds none; a positive finite number is needed")
    return check_precision("gamma_e", gamma_e)


def shared_of(fitted: Pretrained) -> JointShared:
    """Dictionaries and precisions of a pretrained model, read as those of a joint one: what refinement starts from."""
    parts = [layer.state.shared for layer in fitted.layers]
    return JointShared(
        tuple(part.dictionary for part in parts), tuple(part.gamma_d for part in parts), parts[-1].gamma_w
    )


def check_shared(shared: JointShared, model: ModelSpec) -> None:
    """Refuse dictionaries that are not the model's."""
    check_kind("shared", shared, JointShared)
    if len(shared.dictionaries) != len(model.layers):
        given = len(shared.dictionaries)
        raise GddError(f"shared: {given} dictionaries given, the model has {len(model.layers)} layers")
    for number, (atoms, shape) in enumerate(zip(shared.dictionaries, model.shapes(), strict=True), 1):
        if atoms.shape != shape.dictionary:
            raise GddError(f"shared: dictionary {number} of shape {atoms.shape}, the model is for {shape.dictionary}")


def _log_likelihood(clean: np.ndarray, local: JointLocal, data: LayerData) -> np.ndarray:
    seen = np.ones(clean.shape, bool) if data.mask is None else data.mask
    energy = np.where(seen, data.images - clean, 0.0)
    gamma_e = np.broadcast_to(local.gamma_e, len(clean))
    pixels = seen.sum(axis=(1, 2, 3))
    return 0.5 * pixels * (np.log(gamma_e) - LOG_TWO_PI) - 0.5 * gamma_e * (energy**2).sum(axis=(1, 2, 3))
