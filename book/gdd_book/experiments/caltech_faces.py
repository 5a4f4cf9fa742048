"""Fig. 3: atoms of three layers learned from faces, in the image plane, after pretraining and after refinement.

Both models are trained twice, on disjoint sets of faces. Beside the two measures of sharpness of
`gdd.evaluate.atoms` stand
two judges: how well the atoms of one set match those of the other, and how well faces that training never saw are put
together from the top atoms, every kind under the same precisions. A yardstick are training faces, cut to the atoms'
sizes and taken as atoms.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from gdd.base.axes import DRAW, IMAGE
from gdd.data.contrast import normalise_contrast
from gdd.evaluate.atoms import gradient_kurtosis, high_frequency_share
from gdd.inference.held import Chain
from gdd.projection import project_layers
from gdd.sampler.pretrain import Pretrained
from gdd.sampler.refine import Refined
from gdd_book.experiments import Outcome, checkpoint_folder
from gdd_book.training.caltech import DATA, HEALTHY, STAGES, model_for, pictures, train_on
from gdd_book.training.dictionaries import cut_atoms, join_layers, match_layers, pack, reaches_of, rebuild
from gdd_book.training.training import refinement_for

NAME = "caltech-faces"
CHOICES = {"data": ("digits", *DATA), "stages": STAGES}
PARAMETERS = {
    "demo": {
        "data": "digits", "class_name": "0", "n_train": 4, "n_held_out": 2, "burn_in": 6, "collect": 2,
        "refine_burn_in": 2, "refine_collect": 1, "test_burn_in": 10, "test_collect": 5, "voters": 1, "seed": 0,
        "stages": STAGES, **HEALTHY,
    },
    "paper": {
        "data": "caltech101", "class_name": "Faces_easy", "n_train": 64, "n_held_out": 30, "burn_in": 60,
        "collect": 20, "refine_burn_in": 15, "refine_collect": 5, "test_burn_in": 200, "test_collect": 50,
        "voters": 8, "seed": 0, "stages": STAGES, **HEALTHY,
    },
}  # fmt: skip
YARDSTICK = "training faces"
TEST_GAMMA_W = 1e-3  # precision of the weights for the second judge: atoms of unit norm need weights of some tens
EXAMPLES = 8


def run(parameters: dict, progress, resumable: bool = True) -> Outcome:
    """Train on each set, project every layer, measure, judge; see the module.

    ``n_train`` faces make one set; ``voters`` of them decide where the pixels of a refined model's atoms go.
    ``resumable``: keep checkpoints, and go on from those of an earlier call.
    """
    p = parameters
    which = (p, (p["class_name"],), 2 * p["n_train"])
    raw, held_out = pictures(*which), normalise_contrast(pictures(*which, p["n_held_out"]))
    train = normalise_contrast(raw)
    model = model_for("faces", p["noise_precision"], p["weight_precision"])
    stacks, chains = {}, []
    for half in (0, 1):
        images = train.isel(image=slice(half, None, 2))
        folder = checkpoint_folder(NAME, p) / f"set{half}" if resumable else None
        chains.append(train_on(images, model, p, 2 * p["seed"] + half, folder, progress, f"set {half + 1}"))
        add_layers(stacks, chains[-1], images, p["voters"])
    dataset = measure(stacks, reaches_of(model)).merge(judge(stacks, held_out, model.stride, p)).merge(traces(chains))
    dataset["raw"] = (IMAGE, "row", "col"), np.rint(255 * raw.values[:EXAMPLES, 0]).astype(np.uint8)
    spec = {"model": model, "refinement": refinement_for(p["refine_noise"])}
    return Outcome(dataset, spec, p["data"], raw.attrs["checksum"], p["seed"])


def add_layers(stacks: dict, trained: dict[str, Pretrained | Refined], images: xr.DataArray, voters: int) -> None:
    """Add the layers of a model at each stage to the lists of their kinds, and faces cut to the same sizes."""
    found = {stage: project_layers(one, min(voters, len(images))) for stage, one in trained.items()}
    sizes = [(len(atoms), atoms.shape[2:]) for atoms in found[STAGES[0]]]
    found[YARDSTICK] = [cut_atoms(images.values, count, size) for count, size in sizes]
    for kind, layers in found.items():
        stacks.setdefault(kind, []).append(layers)


def measure(stacks: dict, reaches: list[int]) -> xr.Dataset:
    """Atoms of the first set; of every atom, sharpness (kind, set, atom) and its match in the other set (kind, atom).

    The axis ``atom`` runs over all layers, with the coordinate ``layer``. ``winning_share`` (stage, set, pooled):
    share of the weight that the chosen positions hold, see `gdd.projection.project_model`.
    """
    stages = [kind for kind in stacks if kind != YARDSTICK]
    out = pack([stacks[stage][0] for stage in stages], "stage").assign_coords(stage=stages)
    for f in (high_frequency_share, gradient_kurtosis):
        values = [[join_layers([f(atoms) for atoms in one]) for one in sets] for sets in stacks.values()]
        out[f.__name__] = xr.concat([xr.concat(part, "set") for part in values], "kind")
    matches = [match_layers(second, first, reaches) for first, second in stacks.values()]
    out["correlation"] = xr.concat(matches, "kind")
    shares = [[one[-1].attrs["winning_share"] for one in stacks[stage]] for stage in stages]
    out["winning_share"] = ("stage", "set", "pooled"), shares
    return out.assign_coords(kind=list(stacks))


def judge(stacks: dict, held_out: xr.DataArray, stride: tuple[int, int], p: dict) -> xr.Dataset:
    """Put held-out faces together from the top atoms of every kind: what is left of a pixel, (kind, set).

    ``active``: coefficients per image; ``rms_of_images``: of the faces themselves.
    """
    chain = Chain(p["test_burn_in"], p["test_collect"], p["seed"])
    found = [
        [rebuild(held_out, layers[-1], stride, chain, p["noise_precision"], TEST_GAMMA_W) for layers in sets]
        for sets in stacks.values()
    ]
    rms, active = np.moveaxis(found, -1, 0)
    out = {"rms": (("kind", "set"), rms), "active": (("kind", "set"), active)}
    return xr.Dataset(out | {"rms_of_images": float(np.sqrt((held_out.values**2).mean()))})


def traces(chains: list[dict[str, Pretrained | Refined]]) -> xr.Dataset:
    """Residual and active coefficients at every sweep: (set, number, sweep) of pretraining, (set, draw) of refinement.

    ``number`` is that of the layer, from 0.
    """
    out = {}
    for name in ("residual", "active"):
        layers = [[layer.traces[name].values[0] for layer in trained[STAGES[0]].layers] for trained in chains]
        out[f"pretraining_{name}"] = ("set", "number", "sweep"), np.array(layers, "f4")
        refined = [trained[STAGES[1]].traces[name].values[0] for trained in chains if STAGES[1] in trained]
        if refined:
            out[f"refinement_{name}"] = ("set", DRAW), np.array(refined, "f4")
    return xr.Dataset(out)
