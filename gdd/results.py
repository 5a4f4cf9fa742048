"""Trained chains as one labelled Dataset, and back: what is saved, looked at, and given to ArviZ.

Names end in the number of their layer, from 1 at the bottom, and so do axes that differ between layers. The planes of
``dictionary_2`` are the atoms of layer 1: its axes are (atom_2, atom_1, atom_row_2, atom_col_2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from unicodedata import is_normalized

import numpy as np
import xarray as xr

from gdd.base import files
from gdd.base.axes import ATOM, DRAW, IMAGE, PLANE
from gdd.base.checks import GddError, as_array
from gdd.model.pooling import unpool
from gdd.model.spec import LayerSpec, ModelSpec, Precision, RefinementSpec
from gdd.model.state import JointLocal, JointShared, JointState, LayerData, LayerState, Local, Shared, map_local
from gdd.reference import joint_conditionals
from gdd.sampler.pretrain import Fitted, Pretrained, check_start
from gdd.sampler.refine import Refined

FORMAT, VERSION = "gdd model", 2
#: stage of the traces of all layers together; those of pretraining are called by the number of the layer
ALL = "all"
#: beginning of the names of what a refined chain goes on from, in files
LAST = "last_"
#: what the arrays of `to_dataset` are, by the first part of their names; the paper's symbols
LONG_NAMES = {
    "dictionary": "atoms, D", "position": "active position of each block, Z", "weight": "weight of each block, W",
    "map": "activations, S", "gamma_d": "precision of the atoms", "gamma_w": "precision of the weights",
    "gamma_e": "precision of the noise",
}

Trained = Pretrained | Refined


def to_dataset(trained: Trained, traces: Mapping[str, xr.Dataset], dense: bool = False) -> xr.Dataset:
    """Everything that a chain has learned, with names and coordinates, in the units of the model's input.

    traces : by stage, "1", "2" ... or "all", dims (chain, draw); added as ``trace_1_log_joint`` (chain, draw_1)
    dense : add the maps of every layer, ``map_1`` (image, atom_1, row_1, col_1) and so on

    For every layer, here the first: ``dictionary_1``; ``position_1`` (image, atom_1, block_row_1, block_col_1), the
    active position in each pooling block, row by row, -1 for none; ``weight_1``, its weight; ``gamma_d_1``,
    ``gamma_w_1``, ``gamma_e_1``, precisions of atoms, weights and noise. After refinement there is one ``gamma_e``, the
    top layer's gamma_w, and the weights of pooled layers follow from the layer above.
    """
    arrays = refined_arrays(trained) if isinstance(trained, Refined) else pretrained_arrays(trained)
    for level, shape in enumerate(trained.model.shapes(), 1) if dense else ():
        maps = unpool(arrays[f"position_{level}"][1], arrays[f"weight_{level}"][1], shape.map_size, shape.block)
        arrays[f"map_{level}"] = (IMAGE, f"{ATOM}_{level}", f"row_{level}", f"col_{level}"), maps
    dataset = xr.Dataset(arrays)
    for name, array in dataset.data_vars.items():
        array.attrs["long_name"] = LONG_NAMES[name.rpartition("_")[0] if name[-1].isdigit() else name]
    for stage, stage_traces in traces.items():
        names = {name: f"trace_{stage}_{name}" for name in stage_traces.data_vars} | {DRAW: f"{DRAW}_{stage}"}
        dataset = dataset.merge(stage_traces.rename(names))
    numbered = {d: np.arange(n) for d, n in dataset.sizes.items() if d not in dataset.coords and not d.startswith(DRAW)}
    attrs = {"spec": json.dumps(asdict(trained.model))}
    if isinstance(trained, Refined):
        attrs["refinement"] = json.dumps(asdict(trained.refinement))
    return dataset.assign_coords(numbered).assign_attrs(attrs)


def last_arrays(trained: Trained) -> xr.Dataset:
    """State that a refined chain goes on from, with names that begin with `LAST`; none if `to_dataset` has it."""
    if isinstance(trained, Pretrained) or trained.last is trained.state:
        return xr.Dataset()
    last = refined_arrays(trained._replace(state=trained.last))
    return xr.Dataset({f"{LAST}{name}": array for name, array in last.items()})


def from_dataset(data: xr.Dataset) -> tuple[Trained, dict[str, xr.Dataset]]:
    """Chain and traces of `to_dataset`; the chain has a digest of its images, where a file has, and not these."""
    model = spec_from(json.loads(data.attrs["spec"]))
    stages = [*map(str, range(1, len(model.layers) + 1)), ALL]
    traces = {}
    for stage in stages:
        prefix = f"trace_{stage}_"
        names = {name: name.removeprefix(prefix) for name in data.data_vars if name.startswith(prefix)}
        if names:
            stage_traces = data[list(names)].rename(names | {f"{DRAW}_{stage}": DRAW})
            stage_traces = stage_traces.drop_vars([name for name in stage_traces.coords if name != "strength"])
            traces[stage] = stage_traces.drop_attrs(deep=False)
    digest = data.attrs.get("images_sha256") or None
    if "refinement" in data.attrs:
        refinement = json.loads(data.attrs["refinement"])
        refinement = RefinementSpec(**refinement | {"noise": Precision(**refinement["noise"])})
        at_last = {name: name.removeprefix(LAST) for name in data.data_vars if name.startswith(LAST)}
        state = joint_state(data, model)
        last = joint_state(data[list(at_last)].rename(at_last), model) if at_last else state
        return Refined(model, refinement, state, last, traces[ALL], None, digest), traces
    layers = [
        Fitted(spec, shape, layer_state(data, level), traces[str(level)])
        for level, (spec, shape) in enumerate(zip(model.layers, model.shapes(), strict=True), 1)
    ]
    return Pretrained(model, tuple(layers), (), digest), traces


def spec_from(fields: dict) -> ModelSpec:
    """Model of the fields that `dataclasses.asdict` gave; files of earlier versions name two that had one value."""
    precisions = ("gamma_e", "gamma_d", "gamma_w")
    layers = [one | {name: Precision(**one[name]) for name in precisions} for one in fields["layers"]]
    for layer in layers:
        if layer.pop("pooling", "probabilistic") != "probabilistic" or layer.pop("two_steps", False):
            raise GddError("path: a model with max or average pooling or two_steps; use the gdd that saved it")
    return ModelSpec(**fields | {"layers": tuple(LayerSpec(**one) for one in layers)})


# ---- arrays of a chain, by name


def layer_arrays(level: int, shared: Shared, z: np.ndarray, w: np.ndarray) -> dict[str, tuple]:
    """Arrays of a layer by name, each with its axes; a precision has those along which it varies."""
    axes = f"{ATOM}_{level}", PLANE if level == 1 else f"{ATOM}_{level - 1}", f"atom_row_{level}", f"atom_col_{level}"
    blocks = IMAGE, axes[0], f"block_row_{level}", f"block_col_{level}"
    return {
        f"dictionary_{level}": (axes, shared.dictionary), f"gamma_d_{level}": varying(shared.gamma_d, axes[:2]),
        f"gamma_w_{level}": varying(shared.gamma_w, axes[:1]), f"position_{level}": (blocks, z),
        f"weight_{level}": (blocks, w),
    }


def varying(array: np.ndarray, axes: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Axes along which there is more than one entry, and the array with these alone."""
    return tuple(a for a, n in zip(axes, array.shape, strict=True) if n > 1), array.squeeze()


def pretrained_arrays(model: Pretrained) -> dict[str, tuple]:
    """Arrays of every layer by name, each with its axes."""
    out = {}
    for level, layer in enumerate(model.layers, 1):
        z, w, gamma_e = layer.state.local
        out |= layer_arrays(level, layer.state.shared, z, w) | {f"gamma_e_{level}": varying(gamma_e, (IMAGE,))}
    return out


def refined_arrays(model: Refined) -> dict[str, tuple]:
    """Arrays of the joint state by name, each with its axes; only the top layer has a gamma_w."""
    out, dtype = {}, model.state.local.w.dtype
    for level in range(1, len(model.model.layers) + 1):
        out.pop(f"gamma_w_{level - 1}", None)
        (z, w, gamma_e), shared = joint_conditionals.layer_state(model.state, model.model, level - 1)
        out |= layer_arrays(level, shared, z, w.astype(dtype))
    return out | {"gamma_e": varying(gamma_e, (IMAGE,))}


def shared_from(data: xr.Dataset, level: int, gamma_w: str) -> Shared:
    """Shared part of a layer, with the precision of the weights of that name."""
    dictionary, gamma_d = data[f"dictionary_{level}"], data[f"gamma_d_{level}"]
    sizes = [gamma_d.sizes.get(axis, 1) for axis in dictionary.dims[:2]]
    return Shared(dictionary.values, gamma_d.values.reshape(sizes), np.atleast_1d(data[gamma_w].values))


def layer_state(data: xr.Dataset, level: int) -> LayerState:
    """State of a pretrained layer."""
    z, w = data[f"position_{level}"].values, data[f"weight_{level}"].values
    gamma_e = np.atleast_1d(data[f"gamma_e_{level}"].values)
    return LayerState(Local(z, w, gamma_e), shared_from(data, level, f"gamma_w_{level}"))


def joint_state(data: xr.Dataset, model: ModelSpec) -> JointState:
    """State of all layers of a refined model."""
    top = len(model.layers)
    *positions, z = (data[f"position_{level}"].values for level in range(1, top + 1))
    shared = [shared_from(data, level, f"gamma_w_{top}") for level in range(1, top + 1)]
    local = JointLocal(tuple(positions), z, data[f"weight_{top}"].values, np.atleast_1d(data["gamma_e"].values))
    dictionaries, gamma_d = (tuple(getattr(part, name) for part in shared) for name in ("dictionary", "gamma_d"))
    return JointState(local, JointShared(dictionaries, gamma_d, shared[-1].gamma_w))


# ---- images of a chain


def map_images(function: Callable[..., np.ndarray], *models: Trained) -> Trained:
    """Return the first model with ``function(array, ...)``, of all models' arrays, in the place of what images own.

    These arrays (image, ...) are the local part of every state and the data; what images share stays the first model's.
    """
    first, joint = models[0], isinstance(models[0], Refined)

    def data_of(*data: LayerData | None) -> LayerData | None:
        if data[0] is None:
            return None
        mask = None if data[0].mask is None else function(*(part.mask for part in data))
        return LayerData(function(*(part.images for part in data)), mask)

    if joint:
        data, state, last = (tuple(getattr(one, name) for one in models) for name in ("data", "state", "last"))
        return first._replace(data=data_of(*data), state=map_local(function, *state), last=map_local(function, *last))
    layers = tuple(
        same[0]._replace(state=map_local(function, *(layer.state for layer in same)))
        for same in zip(*(one.layers for one in models), strict=True)
    )
    return first._replace(layers=layers, inputs=tuple(map(data_of, *(one.inputs for one in models))))


def select_images(trained: Trained, chosen: slice | np.ndarray) -> Trained:
    """Return a chain with what belongs to these of its images."""
    return map_images(lambda array: array[chosen].copy(), trained)


def with_images(trained: Trained, images: np.ndarray) -> Trained:
    """Return a chain that was read from a file with its images (image, plane, row, col); `gdd.project` needs them.

    GddError if they are not those whose digest the file has.
    """
    data = LayerData(np.ascontiguousarray(images, np.float32))
    check_start(trained, data, trained.model, "trained")
    if isinstance(trained, Refined):
        return trained._replace(data=data)
    pooled = [LayerData(one.state.local.w) for one in trained.layers[:-1]]
    return trained._replace(inputs=(data, *pooled))


# ---- files


def storable(name: str, values: np.ndarray) -> np.ndarray:
    """Values (image,) of a coordinate of images in a type that a file gives back: numbers, truth values, words, times.

    GddError for other values, and for a name that NetCDF does not have: the model could not be saved.
    """
    remedy = f"leave it out, such as by images.drop_vars({[name]})"
    if not (isinstance(name, str) and name.isprintable() and re.fullmatch(r"\w[^\s/]{0,60}", name)
            and is_normalized("NFC", name)):
        raise GddError(f"images: no file can hold a coordinate by the name {name!r}; rename it, or {remedy}")
    kinds = {type(value) for value in values.tolist()}
    if values.dtype.kind == "O" and len(kinds) == 1 and issubclass(*kinds, str | int | float | np.generic):
        values = np.array(values.tolist())
    match values.dtype.kind:
        case "U" | "T":
            stored, what = np.array(values.tolist(), str), "words with null characters or halves of characters"
            same = not any("\0" in word or word.encode(errors="replace").decode() != word for word in stored)
        case "M" | "m" as kind:
            stored, what = values.astype(f"{kind}8[ns]"), "times that have no nanoseconds in 64 bits"
            same = (np.isnat(values) | (stored.astype(values.dtype) == values)).all()
        case kind:
            stored, same = as_array(values, name) if kind in "biuf" else values, kind in "biuf"
            what = f"{' and '.join(sorted(kind.__name__ for kind in kinds))} ({values.dtype})"
    if not same:
        raise GddError(
            f"images: coordinate {name!r} holds {what}, which no file gives back; make it numbers, words or dates of"
            f" one type, or {remedy}"
        )
    return stored


def write(data: xr.Dataset, path: Path) -> None:
    """Write a Dataset whole or not at all, as a file of this version."""
    try:
        files.write(data.assign_attrs(format=FORMAT, version=VERSION), path)
    except (*files.UNWRITABLE, TypeError, ValueError) as error:
        raise GddError(f"path: cannot write {path} ({error}); what was there before is kept") from error


def read(path: Path) -> xr.Dataset:
    """Read a file of `write`; GddError if there is none, or it is open for writing, damaged, or something else."""
    if not path.is_file():
        raise GddError(f"path: no file {path}")
    try:
        data = files.load(path)
        kind, version = data.attrs.get("format"), data.attrs.get("version", 0)
        if kind == FORMAT and version == VERSION and not files.check(data):
            raise ValueError("it has no checksum")
    except files.UNREADABLE as error:
        raise GddError(f"path: {path} cannot be read: {error}") from error
    if kind != FORMAT:
        raise GddError(f"path: {path} is no saved model (format {kind!r}, '{FORMAT}' is needed)")
    if version != VERSION:
        raise GddError(f"path: {path} is of version {version}, this gdd reads {VERSION}; use the gdd that saved it")
    return data
