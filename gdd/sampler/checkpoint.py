"""Checkpoints of a chain: written whole or not at all, read only by the chain they belong to.

A chain has no hidden random state, so the state, the best sample so far, the traces and the number of sweeps done are
all that a continuation needs to equal the uninterrupted run bit for bit. The checkpoint before the last one is kept: if
the last one is damaged, the chain can go on from there, to the same bits.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gdd.base.checks import GddError
from gdd.base.files import written_whole
from gdd.model.state import JointLocal, JointShared, JointState, LayerData, LayerState, Local, Shared

FORMAT = "gdd checkpoint 2"
#: what reading a damaged archive raises, by the place of the damage
DAMAGED = (
    OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
    MemoryError, OverflowError, SyntaxError, TypeError,
)  # fmt: skip


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
    seconds: float = 0.0  # spent on the sweeps done, over all runs
    cpu_seconds: float = 0.0  # of all threads of the process, likewise


def fingerprint(
    data: LayerData, specs: Iterable, layer: int, first: Iterable[np.ndarray] = (), traces: Iterable[str] = ()
) -> str:
    """Describe a chain as JSON: its specs (dataclasses), its layer, digests of its data and of a start from outside.

    ``traces``: names of what it notes, where versions differ in that; those of an earlier one cannot be gone on with
    """
    described = {type(spec).__name__: asdict(spec) for spec in specs}
    described |= {"traces": list(traces)} if traces else {}
    described |= {"layer": layer, "data": _digest((data.images, data.mask)), "start": _digest(first)}
    return json.dumps(described, sort_keys=True)


def _digest(arrays: Iterable[np.ndarray | None]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def previous(path: Path) -> Path:
    """Where the checkpoint before the one at ``path`` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def write(path: Path, owner: str, progressed: Progressed) -> None:
    """Write a checkpoint; the last one stays whole until this one is, and is kept as `previous`.

    Raises
    ------
    GddError
        It cannot be written: a full disk, a folder that cannot be written.
    """
    arrays = {
        "format": np.array(FORMAT), "owner": np.array(owner), "done": np.array(progressed.done),
        "kept": progressed.kept, "best_kept": progressed.best_kept, "traces": progressed.traces,
        "best_likelihood": np.array(progressed.best_likelihood), "seconds": np.array(progressed.seconds),
        "cpu_seconds": np.array(progressed.cpu_seconds),
        **_pack("state", progressed.state),
    }  # fmt: skip
    if progressed.best is not None:
        arrays |= _pack("best", progressed.best)
    arrays |= {f"sums.{number}": array for number, array in enumerate(progressed.sums)}
    arrays["count"] = np.array(len(arrays) + 1)
    try:
        with written_whole(path, previous(path)) as part, open(part, "wb") as file:
            np.savez(file, **arrays)
    except OSError as error:
        raise GddError(
            f"checkpoint: cannot write {path} ({error}); what was there before is kept; "
            "free space or name another folder, and run again"
        ) from error


def read(path: Path, owner: str) -> Progressed | None:
    """Read a checkpoint, or the one before it if there is no last one; None if there is neither.

    Raises
    ------
    GddError
        It is damaged, cannot be read, is in another format, or belongs to another chain. It stays as it is.
    """
    for place in (path, previous(path)):
        arrays = _load(place)
        if arrays is not None:
            _check_owner(place, arrays, owner)
            return _unpack_all(arrays)
    return None


def _load(path: Path) -> dict[str, np.ndarray] | None:
    try:
        with open(path, "rb") as file, np.lib.npyio.NpzFile(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if "format" in arrays and len(arrays) != arrays.get("count"):  # a damaged directory may list only a part
            raise ValueError(f"{len(arrays)} arrays of {arrays.get('count', 'more')}")
        return arrays
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (PermissionError, IsADirectoryError) as error:
        raise GddError(f"checkpoint: {path} cannot be read ({error}); make it readable, or {ASIDE}") from error
    except DAMAGED as error:
        before = previous(path)
        remedy = f"delete it to go on from the one before, {before.name}" if before.exists() else ASIDE
        raise GddError(f"checkpoint: {path} is not a whole checkpoint ({error}); {remedy}") from error


#: how to start afresh and keep what is there
ASIDE = "move it away to start afresh (gdd run --restart does)"


def _check_owner(path: Path, arrays: dict[str, np.ndarray], owner: str) -> None:
    found = str(arrays.get("format", "an older one" if "owner" in arrays else "none of ours"))
    if found != FORMAT:
        raise GddError(f"checkpoint: {path} is in another format ({found}; '{FORMAT}' is needed); {ASIDE}")
    there, here = (dict(_entries(json.loads(text))) for text in (str(arrays["owner"]), owner))
    differing = [name for name in sorted(there | here) if there.get(name) != here.get(name)]
    if differing:
        said = [f"{name} is {there.get(name)!s:.12} there, {here.get(name)!s:.12} here" for name in differing[:3]]
        raise GddError(
            f"checkpoint: {path} was written by another chain: {'; '.join(said)}; name another folder, or {ASIDE}"
        )


def _entries(value, name: str = "") -> Iterator[tuple[str, object]]:
    """Entries of nested JSON with their dotted names."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _entries(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _unpack_all(arrays: dict[str, np.ndarray]) -> Progressed:
    best = _unpack("best", arrays) if "best.z" in arrays else None
    return Progressed(
        int(arrays["done"]), _unpack("state", arrays), best, float(arrays["best_likelihood"]), arrays["kept"],
        arrays["best_kept"], arrays["traces"], _numbered("sums", arrays), float(arrays["seconds"]),
        float(arrays.get("cpu_seconds", 0.0)),
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
