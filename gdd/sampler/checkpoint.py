"""Checkpoints of a chain: written whole or not at all, read only by the chain they belong to.

A chain has no hidden random state, so the state, the best sample so far, the traces and the number of sweeps done are
all that a continuation needs to equal the uninterrupted run bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gdd.axes import GddError
from gdd.state import JointLocal, JointShared, JointState, LayerData, LayerState, Local, Shared

VERSION = 1


class Progressed(NamedTuple):
    """How far a chain has come."""

    done: int  # sweeps
    state: LayerState | JointState
    best: LayerState | JointState | None
    best_likelihood: float
    kept: np.ndarray  # indices of the starting atoms that pruning has left; of a joint chain empty
    best_kept: np.ndarray
    traces: np.ndarray  # (sweep, trace)
    sums: tuple[np.ndarray, ...] = ()  # of a joint chain: dictionaries added up over the collected sweeps


def fingerprint(data: LayerData, specs: Iterable, layer: int, first: Iterable[np.ndarray] = ()) -> str:
    """Name of a chain: a digest of its data, its specs (dataclasses), its layer and a first state from outside."""
    digest = hashlib.sha256(json.dumps([VERSION, layer, *map(asdict, specs)], sort_keys=True).encode())
    for array in (data.images, data.mask, *first):
        if array is not None:
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def write(path: Path, owner: str, progressed: Progressed) -> None:
    """Write a checkpoint through a temporary file in the same folder; the old one stays whole until the new one is."""
    arrays = {
        "owner": np.array(owner), "done": np.array(progressed.done), "kept": progressed.kept,
        "best_kept": progressed.best_kept, "best_likelihood": np.array(progressed.best_likelihood),
        "traces": progressed.traces, **_pack("state", progressed.state),
    }  # fmt: skip
    if progressed.best is not None:
        arrays |= _pack("best", progressed.best)
    arrays |= {f"sums.{number}": array for number, array in enumerate(progressed.sums)}
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise GddError(f"checkpoint: cannot write {path} ({error}); free space or name another folder") from error


def read(path: Path, owner: str) -> Progressed | None:
    """Read a checkpoint; None if there is none; GddError if it is broken or belongs to another chain."""
    if not path.exists():
        return None
    try:
        with np.load(path) as stored:
            arrays = {name: stored[name] for name in stored.files}
        found = str(arrays["owner"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise GddError(f"checkpoint: {path} is not a whole checkpoint ({error}); delete it to start afresh") from error
    if found != owner:
        raise GddError(
            f"checkpoint: {path} was written by another chain (other data, spec, seed or version); "
            "name another folder, or delete it to start afresh"
        )
    best = _unpack("best", arrays) if "best.z" in arrays else None
    return Progressed(
        int(arrays["done"]), _unpack("state", arrays), best, float(arrays["best_likelihood"]), arrays["kept"],
        arrays["best_kept"], arrays["traces"], _numbered("sums", arrays),
    )  # fmt: skip


def _pack(name: str, state: LayerState | JointState) -> dict[str, np.ndarray]:
    """Every array of a state by name; the arrays of a tuple, one a layer, are numbered."""
    fields = {f"{name}.{field}": value for part in state for field, value in part._asdict().items()}
    out = {}
    for field, value in fields.items():
        out |= {f"{field}.{i}": array for i, array in enumerate(value)} if isinstance(value, tuple) else {field: value}
    return out


def _unpack(name: str, arrays: dict[str, np.ndarray]) -> LayerState | JointState:
    joint = f"{name}.dictionaries.0" in arrays
    state, parts = (JointState, (JointLocal, JointShared)) if joint else (LayerState, (Local, Shared))
    find = lambda field: arrays[field] if field in arrays else _numbered(field, arrays)  # noqa: E731
    return state(*(type_(*(find(f"{name}.{field}") for field in type_._fields)) for type_ in parts))


def _numbered(name: str, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    count = sum(key.startswith(f"{name}.") for key in arrays)
    return tuple(arrays[f"{name}.{number}"] for number in range(count))
