"""Checkpoints of a chain: written whole or not at all, read only by the chain they belong to.

A chain has no hidden random state. Its state, its best sample, its traces and the number of its sweeps are all that a
continuation needs to equal the uninterrupted run bit for bit. The checkpoint before the last one is kept: should the
last one be damaged, the chain goes on from there to the same bits.

Where several processes hold the images, each writes what belongs to its own to a file apart, and the first one, when
all have, the checkpoint that names them. It is read by any number of processes.

A checkpoint belongs to a model, to data by their content, and to the code that made it. Another chain refuses it. The
file has a digest of what follows, the owner as a line of JSON, and the chain as joblib writes it: a pickle, to be read
from one's own folders alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import joblib
import numpy as np

import gdd
from gdd.base.checks import GddError
from gdd.base.files import written_whole
from gdd.model.state import JointLocal, JointState, LayerData, LayerState, Local
from gdd.sampler.sums import batches

#: bytes of the digest
DIGEST = 32
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
    shard = data.shard
    if shard.allreduce is None:
        return _save(path, owner, (at, None), previous(path))
    _save(shard_path(path, at.done, shard.first), owner, _local_parts(at))
    shards = shard.reduce(list, (shard.first, len(data.images)))  # all have written theirs
    if shard.first == 0:
        _save(path, owner, (_with_local_parts(at, (None, None)), shards), previous(path))
        valid = [_load(place) for place in (path, previous(path))]
        named = [(at.done, first) for at, shards in filter(None, valid) for first, _ in shards or ()]
        kept = {shard_path(path, *one) for one in named}
        for other in set(path.parent.glob(f"{path.stem}.sweep*.image*{path.suffix}")) - kept:
            other.unlink(missing_ok=True)
    shard.reduce(len, None)  # none goes on before the checkpoint is valid


def read(path: Path, owner: dict, data: LayerData) -> ChainState | None:
    """Read a checkpoint, or the one before it if there is no last one; None if there is neither.

    Of what belongs to the images only that of these.

    Raises
    ------
    GddError
        It is damaged, cannot be read, or belongs to another chain. It stays as it is.
    """
    for place in (path, previous(path)):
        if (stored := _load(place, owner)) is not None:
            at, shards = stored
            first, last = data.shard.first, data.shard.first + len(data.images)
            parts = [(0, data.count, _local_parts(at))]
            if shards is not None:
                there = [(start, images) for start, images in shards if start < last and first < start + images]
                parts = [(start, images, _shard(path, at.done, start)) for start, images in there]
            return _with_local_parts(at, _own_images(first, last, parts))
    return None


def _local_parts(at: ChainState) -> tuple[Local | JointLocal, Local | JointLocal | None]:
    """What belongs to the images: of the state, and of the best sample."""
    return at.state.local, at.best and at.best.local


def _with_local_parts(at: ChainState, parts: tuple) -> ChainState:
    state, best = parts
    return at._replace(state=at.state._replace(local=state), best=at.best and at.best._replace(local=best))


def _own_images(first: int, last: int, parts: list[tuple[int, int, tuple]]) -> tuple:
    """Local parts of images ``first`` to ``last``; ``parts``: of others, with their first image and how many."""

    def join(*values):
        if isinstance(values[0], tuple):
            joined = map(join, *values)
            return values[0]._make(joined) if hasattr(values[0], "_make") else tuple(joined)
        if values[0] is None:
            return None
        cuts = [
            value[max(first - start, 0) : last - start] if len(value) == images else value
            for value, (start, images, _) in zip(values, parts, strict=True)
        ]
        return np.concatenate(cuts) if sum(map(len, cuts)) == last - first else cuts[0]

    return join(*(local for _, _, local in parts))


def _shard(path: Path, done: int, first: int) -> tuple:
    stored = _load(place := shard_path(path, done, first))
    if stored is None:
        raise GddError(f"checkpoint: {path} names {place.name}, which is not there; {ASIDE}")
    return stored


def _save(path: Path, owner: dict, content: tuple, kept: Path | None = None) -> None:
    try:
        with written_whole(path, kept) as part, open(part, "wb+") as file:
            file.write(bytes(DIGEST) + json.dumps(owner).encode() + b"\n")
            joblib.dump(content, file)
            digest = _digest(file)
            file.seek(0)
            file.write(digest)
    except OSError as error:
        raise GddError(
            f"checkpoint: cannot write {path} ({error}); what was there before is kept; "
            "free space or name another folder, and run again"
        ) from error


def _load(path: Path, owner: dict | None = None) -> tuple | None:
    """Content of a file, None if there is none; GddError if it is damaged, or not that owner's."""
    try:
        with open(path, "rb") as file:
            if file.read(DIGEST) != _digest(file):
                before = previous(path)
                remedy = f"delete it to go on from the one before, {before.name}" if before.exists() else ASIDE
                raise GddError(f"checkpoint: {path} is not a whole checkpoint of this version; {remedy}")
            file.seek(DIGEST)
            there = json.loads(file.readline())
            if owner is not None:
                _check_owner(path, there, owner)
            return joblib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise GddError(f"checkpoint: {path} cannot be read ({error}); make it readable, or {ASIDE}") from error


def _digest(file: BinaryIO) -> bytes:
    """SHA-256 of all that follows the digest."""
    file.seek(DIGEST)
    return hashlib.file_digest(file, "sha256").digest()


def _check_owner(path: Path, there: dict, owner: dict) -> None:
    there, here = dict(_entries(there)), dict(_entries(owner))
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
