"""One model for each class of a Caltech set, learned in several processes; each leaves a record of its own.

A class's record holds its projected atoms and what classifying needs to know of its chains. It lies in the cache,
beside the checkpoints, in a folder named after what it depends on: a run that is killed goes on with the classes whose
record is missing, and runs that share those settings share the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gdd.base.axes import DICTIONARY, DRAW, LABEL
from gdd.projection import project_layers
from gdd_book import record_files
from gdd_book.processes import run_tasks
from gdd_book.training.caltech import MODELS, PRETRAINING, REFINEMENT, chain_seed, pretrained_model, trained_models
from gdd_book.training.training import folder_of

#: what a class's record depends on; without refinement only `PRETRAINING`
RECORD = (*REFINEMENT, "voters")


def class_record(p: Mapping[str, Any], name: str) -> Path:
    """Where the record of a class lies."""
    return folder_of("caltech-atoms", RECORD if p["refined"] else PRETRAINING, p | {"classes": (name,)}) / "atoms.nc"


def learn_classes(p: Mapping[str, Any], images: xr.DataArray, jobs: int, progress) -> list[xr.Dataset]:
    """Learn the model of every class whose record is missing; return the records of all, in the order of the classes.

    Parameters
    ----------
    p : holds ``refined`` and the names of `gdd_book.training.caltech.PRETRAINING`; where refined those of `RECORD`
    images : normalised training images of all classes, as of `gdd_book.training.caltech.images_of`
    jobs : processes
    progress : ``progress(total, label)`` opens a bar

    Returns
    -------
    list of Dataset
        ``atoms`` (stage, atom, plane, atom_row, atom_col) in the image plane; ``gamma_e``, ``gamma_w`` (stage,);
        ``winning_share`` (stage, pooled_layer); of each chain (chain,) the last ``residual`` and ``active`` and
        ``cpu_seconds`` over all stretches.

    Notes
    -----
    *Source:* Pu, Yuan & Carin 2015, Sec. 4, Caltech 101. *Departs:* as `gdd_book.training.caltech.trained_models`.
    *Checked:* tests/test_class_parallel.py (killed runs, numbers of processes).
    """
    names = images.attrs["label_names"].split(",")
    paths = {name: class_record(p, name) for name in p["classes"]}
    stages = {"caltech-pretrained": PRETRAINING} | ({"caltech-refined": REFINEMENT} if p["refined"] else {})
    for name in paths:  # a restart sets old folders aside here, in this process
        for stage, known in stages.items():
            folder_of(stage, known, p | {"classes": (name,)})
    tasks = {}
    for name, path in paths.items():
        if not path.exists():
            own = images.isel(image=images[LABEL].values == names.index(name))
            tasks[name] = (dict(p) | {"classes": (name,)}, own, path)
    sweeps = len(MODELS[p["model"]].layers) * (p["burn_in"] + p["collect"])
    sweeps += p["refine_burn_in"] + p["refine_collect"] if p["refined"] else 0
    with progress(sweeps * len(paths), "classes") as bar:
        bar.begin("sweeps", sweeps * len(paths), sweeps * (len(paths) - len(tasks)))
        run_tasks(learn_class, tasks, jobs, lambda _, message: bar.step(message[0], **message[1]))
    return [record_files.read(path) for path in paths.values()]


def learn_class(p: Mapping[str, Any], images: xr.DataArray, path: Path, say: Callable) -> None:
    """Train on the images of one class and write its record; ``say((sweeps, numbers))`` after every sweep."""

    def progress(total: int, label: str) -> Told:
        return Told(say)

    if p["refined"]:
        stages = dict(zip(("pretrained", "refined"), trained_models(p, progress, images=images), strict=True))
    else:
        stages = {"pretrained": pretrained_model(p, progress, images=images)}
    fitted = stages["pretrained"]
    voters = min(p["voters"], len(images)) if p["refined"] else None  # of a pretrained model all images vote
    atoms = [project_layers(one, voters)[-1] for one in stages.values()]
    bottom, top = fitted.layers[0].state, fitted.layers[-1].state
    gamma_e, gamma_w = [bottom.local.gamma_e.mean()], [top.shared.gamma_w.mean()]
    chains = {f"layer {number}": layer.traces for number, layer in enumerate(fitted.layers, 1)}
    if p["refined"]:
        state = stages["refined"].state
        gamma_e, gamma_w = [*gamma_e, state.local.gamma_e.mean()], [*gamma_w, state.shared.gamma_w.mean()]
        chains["refinement"] = stages["refined"].traces
    dataset = xr.Dataset({
        "atoms": (("stage", *DICTIONARY), np.stack([one.values for one in atoms]).astype(np.float32)),
        "gamma_e": ("stage", gamma_e), "gamma_w": ("stage", gamma_w),
        "winning_share": (("stage", "pooled_layer"), [one.attrs["winning_share"] for one in atoms]),
        "residual": ("chain", [one.residual.values[0, -1] for one in chains.values()]),
        "active": ("chain", [one.active.values[0, -1] for one in chains.values()]),
        "cpu_seconds": ("chain", [one.attrs["cpu_seconds"] for one in chains.values()]),
        "sweeps": ("chain", [one.sizes[DRAW] for one in chains.values()]),
    }, {"stage": list(stages), "chain": list(chains)})  # fmt: skip
    record_files.write(
        path, dataset, experiment="one class of caltech-accuracy", scale="paper", parameters=p, spec=fitted.model,
        seed=chain_seed(p), data_name=p["data"], data_checksum=images.attrs["checksum"],
        seconds=sum(one.attrs["seconds"] for one in chains.values()),
    )  # fmt: skip


class Told:
    """A bar that tells another process."""

    def __init__(self, say: Callable):
        self._say = say

    def begin(self, stage: str, sweeps: int, done: int = 0, seconds: float = 0.0, chain: str = "") -> None:
        """Begin a chain of which an earlier run has made ``done`` sweeps."""
        if done:
            self._say((done, {}))

    def step(self, count: int = 1, **shown: float) -> None:
        """Count what is finished."""
        self._say((count, shown))

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_) -> None:
        return None
