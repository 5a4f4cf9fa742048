"""Planted data: are the atoms that made the images found again from random initial atoms?

Another chain starts at the truth: its fit and log joint say whether the first found better or got stuck.
"""

import hashlib

import numpy as np
import xarray as xr

from gdd.base.axes import ATOM, ATOM_COL, ATOM_ROW, CHAIN, PLANE
from gdd.model.spec import ChainSpec, LayerShape, LayerSpec, layer_shape
from gdd.model.state import LayerData, LayerState, Local, Shared, precision_shapes
from gdd.sampler.pretrain import fit_layer
from gdd_book.data import datasets
from gdd_book.evaluate.atoms import match_atoms
from gdd_book.experiments.common import Outcome, experiment
from gdd_book.progress import Run

SETTING = "setting"
ENOUGH = 0.95  # correlation from which an atom counts as recovered

#: name of the one setting; records of e9be132 and earlier have others, of moves that the library no longer makes
NO_MOVES = "no moves"
#: as planted, under the printed priors (gamma_e by image; everything learned)
LAYER = LayerSpec(8, (8, 8), (3, 3))
#: what is kept of the chain that starts at the truth
FROM_TRUTH = ("recovered", "log_joint", "log_likelihood")


@experiment(
    "planted", demo={"images": 100, "seeds": 2, "burn_in": 120, "collect": 30},
    paper={"images": 300, "seeds": 10, "burn_in": 250, "collect": 50},
)
def planted(p: dict, run: Run) -> Outcome:
    """Images of known atoms, learned by a usual chain and by one from the truth, whose results begin with truth_."""
    digest, of_seeds = hashlib.sha256(), []
    with run.bar(p["seeds"] * 2 * (p["burn_in"] + p["collect"]), "planted") as bar:
        for seed in range(p["seeds"]):
            truth = datasets.planted(seed, images=p["images"])
            digest.update(truth.images.values.tobytes())
            learned = learn(truth, p, seed, folder=run.folder("planted", p | {"chain": seed}), progress=bar)
            known = learn(truth, p, seed, start=planted_state(truth), progress=bar)[[*FROM_TRUTH]]
            known = known.rename({name: f"truth_{name}" for name in FROM_TRUTH})
            of_seeds.append(learned.expand_dims(SETTING).merge(known.assign(true_atoms=truth.atoms.astype("f4"))))
    dataset = xr.concat(of_seeds, CHAIN).assign_coords({SETTING: [NO_MOVES], CHAIN: np.arange(p["seeds"])})
    return Outcome(dataset, {"layer": LAYER}, "planted", digest.hexdigest(), 0)


def learn(truth: xr.Dataset, p: dict, seed: int, **more) -> xr.Dataset:
    """What one chain (``more`` goes to `fit_layer`) found: matched atoms, how many are recovered, fit and log joint."""
    chain = ChainSpec(p["burn_in"], p["collect"], seed, start="random")
    fitted = fit_layer(data_of(truth), LAYER, shape_of(truth), chain, **more)
    match = match_atoms(fitted.state.shared.dictionary, truth.atoms)
    last = fitted.traces.isel(chain=0, draw=slice(-p["collect"], None))
    sign = np.sign(match.correlation.values)[:, None, None, None]
    learned = sign * fitted.state.shared.dictionary[match.partner.values]
    return xr.Dataset({
        "correlation": np.abs(match.correlation),
        "recovered": (np.abs(match.correlation) >= ENOUGH).sum(),
        "offset": ((ATOM, "axis"), np.stack([match.row, match.col], axis=1)),
        "learned": ((ATOM, PLANE, ATOM_ROW, ATOM_COL), learned.astype("f4")),
        "log_joint": last.log_joint.mean(), "log_likelihood": last.log_likelihood.mean(),
    })


def planted_state(truth: xr.Dataset) -> LayerState:
    """The planted unknowns as a state; precisions at the values that made the data (gamma_d: of unit-norm atoms)."""
    images, atoms = truth.images, truth.atoms
    pixels = float(np.prod(atoms.shape[1:]))
    gamma_e, gamma_d, gamma_w = (
        np.full(shape, value)
        for shape, value in zip(
            precision_shapes(LAYER, images.sizes["image"], 1), (truth.attrs["noise_sd"] ** -2, pixels, 1.0), strict=True
        )
    )
    local = Local(truth.z.values.astype(np.int16), truth.w.values.astype(np.float32), gamma_e)
    return LayerState(local, Shared(atoms.values.astype(float), gamma_d, gamma_w))


def data_of(truth: xr.Dataset) -> LayerData:
    """The planted images as a layer sees them."""
    return LayerData(truth.images.values.astype(np.float32))


def shape_of(truth: xr.Dataset) -> LayerShape:
    """Sizes of the layer over the planted images."""
    return layer_shape(LAYER, truth.images.shape[2:], truth.images.shape[1])
