"""Checkpoints of a chain: written whole or not at all, read only by the chain they belong to.

A chain has no hidden random state. Its state, its best sample, its traces and the number of its sweeps are all that a
continuation needs to equal the uninterrupted run bit for bit. The checkpoint before the last one is kept: should the
last one be damaged, the chain goes on from there to the same bits.

Where several processes hold the images, each writes what belongs to its own to a file apart, and the first one, when
all have, the checkpoint that names them. It is read by any number of processes.

A checkpoint belongs to a model, to data by their content, and to the code that made it. Another chain refuses it.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import gdd
from gdd.base.checks import GddError
from gdd.base.files import written_whole
from gdd.model.state import JointLocal, JointShared, JointState, LayerData, LayerState, Local, Shared
from gdd.sampler.sums import batches

FORMAT = "gdd checkpoint 4"
#: what reading a damaged archive raises, by the place of the damage
DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
           MemoryError, OverflowError, SyntaxError, TypeError)
#: how to start afresh and keep what is there
ASIDE = "move it away to start afresh (gdd run --restart does)"


class ChainState(NamedTuple):
    """A chain after some sweeps."""

    done: int  # sweeps
    state: LayerState | JointState
    best: LayerState | JointState | None
    best_likelihood: float
    traces: dict[str, np.ndarray]  # by name, (sweep, ...)
    seconds: float = 0.0  # spent on the sweeps done, over all runs
    cpu_seconds: float = 0.0  # of all threads of the process, likewise


@cache
def code_checksum() -> str:
    """SHA-256 over every Python file of gdd/model, gdd/reference, gdd/sampler: what a chain's numbers depend on."""
    root, digest = Path(gdd.__file__).parent, hashlib.sha256()
    files = sorted(path for folder in ("model", "reference", "sampler") for path in (root / folder).rglob("*.py"))
    if not files:
        raise GddError("checkpoint: gdd is here without its source files, which say what code made one; leave it out")
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def describe_chain(
    data: LayerData, specs: Iterable, layer: int, local: Iterable[np.ndarray] = (), shared: Iterable[np.ndarray] = ()
) -> dict:
    """What a checkpoint belongs to: specs (dataclasses), layer, code, digests of data and of a start from outside.

    local, shared : what the start knows of the images, (image, ...), and of all
    """
    content = {"data": digest_of_images(data, (data.images, data.mask))}
    content["start"] = digest_of_images(data, local) + digest_of(shared)
    return {type(spec).__name__: asdict(spec) for spec in specs} | content | {"layer": layer, "code": code_checksum()}


def digest_of_images(data: LayerData, arrays: Iterable[np.ndarray | None]) -> str:
    """SHA-256 over the content of arrays (image, ...) of all shards."""
    there = [array for array in arrays if array is not None]
    own = [digest_of(array[where] for array in there) for _, where in batches(data.shard, len(data.images))]
    return hashlib.sha256("".join(sum(data.shard.reduce(list, own), [])).encode()).hexdigest()


def digest_of(arrays: Iterable[np.ndarray | None]) -> str:
    """SHA-256 over the content, the shapes and the types of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def previous(path: Path) -> Path:
    """Where the checkpoint before the one at ``path`` is kept."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def shard_path(path: Path, done: int, first: int) -> Path:
    """File of what belongs to the images from ``first`` on, after ``done`` sweeps."""
    return path.with_name(f"{path.stem}.sweep{done}.image{first}{path.suffix}")


def write(path: Path, owner: dict, at: ChainState, data: LayerData) -> None:
    """Write a checkpoint; the last one stays whole until this one is, and is kept as `previous`.

    Raises
    ------
    GddError
        It cannot be written: a full disk, a folder that cannot be written.
    """
    arrays = {"format": FORMAT, "owner": json.dumps(owner)}
    arrays |= {name: getattr(at, name) for name in ("done", "best_likelihood", "seconds", "cpu_seconds")}
    arrays |= {f"traces.{name}": values for name, values in at.traces.items()}
    local, shard = {"format": FORMAT}, data.shard
    for name, state in (("state", at.state), ("best", at.best)):
        if state is not None:
            arrays |= _pack(f"shared.{name}", state.shared)
            local |= _pack(f"local.{name}", state.local)
    if shard.allreduce is None:
        return _save(path, arrays | local, previous(path))
    own = shard_path(path, at.done, shard.first)
    _save(own, local)
    arrays["shards"] = shard.reduce(list, (shard.first, len(data.images)))  # all have written theirs
    if shard.first == 0:
        _save(path, arrays, previous(path))
        valid = [_load(place) for place in (path, previous(path))]
        kept = {shard_path(path, int(one["done"]), first) for one in valid if one for first, _ in one.get("shards", ())}
        for other in set(path.parent.glob(f"{path.stem}.sweep*.image*{path.suffix}")) - kept:
            other.unlink(missing_ok=True)
    shard.reduce(len, None)  # none goes on before the checkpoint is valid


def _save(path: Path, arrays: dict[str, np.ndarray], kept: Path | None = None) -> None:
    try:
        with written_whole(path, kept) as part, open(part, "wb") as file:
            np.savez(file, count=len(arrays) + 1, **arrays)
    except OSError as error:
        raise GddError(
            f"checkpoint: cannot write {path} ({error}); what was there before is kept; "
            "free space or name another folder, and run again"
        ) from error


def read(path: Path, owner: dict, data: LayerData) -> ChainState | None:
    """Read a checkpoint, or the one before it if there is no last one; None if there is neither.

    Of what belongs to the images only that of these.

    Raises
    ------
    GddError
        It is damaged, cannot be read, is in another format, or belongs to another chain. It stays as it is.
    """
    for place in (path, previous(path)):
        arrays = _load(place)
        if arrays is not None:
            _check_owner(place, arrays, owner)
            arrays = _own_images(path, arrays, data)
            traces = {name.removeprefix("traces."): arrays[name] for name in arrays if name.startswith("traces.")}
            likelihood, *seconds = (float(arrays[name]) for name in ("best_likelihood", "seconds", "cpu_seconds"))
            best = _unpack("best", arrays) if "local.best.z" in arrays else None
            return ChainState(int(arrays["done"]), _unpack("state", arrays), best, likelihood, traces, *seconds)
    return None


def _own_images(path: Path, arrays: dict[str, np.ndarray], data: LayerData) -> dict[str, np.ndarray]:
    """Arrays of a checkpoint, of what belongs to the images that of these: from it, or from the files that it names."""
    first, last = data.shard.first, data.shard.first + len(data.images)
    stored = [(0, data.count, arrays)]
    if "shards" in arrays:
        there = [(at, images) for at, images in arrays["shards"].tolist() if at < last and first < at + images]
        stored = [(at, images, _shard(path, int(arrays["done"]), at)) for at, images in there]
    found: dict[str, list[np.ndarray]] = {}
    for at, images, local in stored:
        own = slice(max(first - at, 0), last - at)
        for name in (name for name in local if name.startswith("local.")):
            found.setdefault(name, []).append(local[name][own] if len(local[name]) == images else local[name])
    whole = dict(arrays)
    for name, cuts in found.items():
        by_image = sum(map(len, cuts)) == last - first
        whole[name] = np.concatenate(cuts) if by_image else cuts[0]
    return whole


def _shard(path: Path, done: int, first: int) -> dict[str, np.ndarray]:
    place = shard_path(path, done, first)
    arrays = _load(place)
    if arrays is None:
        raise GddError(f"checkpoint: {path} names {place.name}, which is not there; {ASIDE}")
    return arrays


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


def _check_owner(path: Path, arrays: dict[str, np.ndarray], owner: dict) -> None:
    stored = str(arrays.get("format", "an older one" if "owner" in arrays else "none of ours"))
    if stored != FORMAT:
        raise GddError(f"checkpoint: {path} is in another format ({stored}; '{FORMAT}' is needed); {ASIDE}")
    there, here = dict(_entries(json.loads(str(arrays["owner"])))), dict(_entries(owner))
    differing = [name for name in sorted(there | here) if there.get(name) != here.get(name)]
    if differing == ["code"]:
        raise GddError(
            f"checkpoint: {path} was made by other code: gdd/model, gdd/reference or gdd/sampler have changed since "
            f"({there['code']:.12} there, {here['code']:.12} here); {ASIDE}"
        )
    if differing:
        parts = [f"{name} is {there.get(name)!s:.12} there, {here.get(name)!s:.12} here" for name in differing[:3]]
        raise GddError(
            f"checkpoint: {path} was written by another chain: {'; '.join(parts)}; name another folder, or {ASIDE}"
        )


def _entries(value, name: str = "") -> Iterator[tuple[str, object]]:
    """Entries of nested mappings and sequences with their dotted names."""
    if isinstance(value, dict | list | tuple):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _entries(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _pack(name: str, part: Local | Shared | JointLocal | JointShared) -> dict[str, np.ndarray]:
    """Every array of a part of a state by name; the arrays of a tuple, one a layer, are numbered."""
    out = {}
    for field, value in part._asdict().items():
        several = {f".{i}": array for i, array in enumerate(value)} if isinstance(value, tuple) else {"": value}
        out |= {f"{name}.{field}{number}": array for number, array in several.items()}
    return out


def _unpack(name: str, arrays: dict[str, np.ndarray]) -> LayerState | JointState:
    joint = f"shared.{name}.dictionaries.0" in arrays
    state, local, shared = (JointState, JointLocal, JointShared) if joint else (LayerState, Local, Shared)

    def find(field: str) -> np.ndarray | tuple[np.ndarray, ...]:
        if field in arrays:
            return arrays[field]
        return tuple(arrays[f"{field}.{i}"] for i in range(sum(key.startswith(f"{field}.") for key in arrays)))

    return state(
        local(*(find(f"local.{name}.{field}") for field in local._fields)),
        shared(*(find(f"shared.{name}.{field}") for field in shared._fields)),
    )
