"""Checkpoints of a chain: written whole or not at all, read only by the chain they belong to.

A chain has no hidden random state. Its state, its best sample, its traces and the number of its sweeps are all that a
continuation needs to equal the uninterrupted run bit for bit.

Where several processes hold the images, the one at which they meet reads and writes the checkpoint of all. It is the
file of a single process.

A checkpoint belongs to a model, to data by their content, and to the code that made it. Another chain refuses it. The
file has a digest of what follows, the owner as a line of JSON, and the chain as joblib writes it: a pickle, to be read
from one's own folders alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cache, partial
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

import joblib
import numpy as np

import gdd
from gdd.base.checks import GddError
from gdd.base.files import written_whole
from gdd.model.state import JointState, LayerData, LayerState, map_local
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
    fields = {f"{type(spec).__name__}.{name}": value for spec in specs for name, value in asdict(spec).items()}
    start = digest_of_images(data, local) + digest_of(shared)
    content = {"data": digest_of_images(data, (data.images, data.mask)), "start": start}
    return fields | content | {"layer": layer, "code": code_checksum()}


def digest_of_images(data: LayerData, arrays: Iterable[np.ndarray | None]) -> str:
    """SHA-256 over the content of arrays (image, ...) of all shards."""
    known = [array for array in arrays if array is not None]
    digests = [digest_of(array[where] for array in known) for _, where in batches(data.shard, len(data.images))]
    return hashlib.sha256("".join(sum(data.shard.reduce(list, digests), [])).encode()).hexdigest()


def digest_of(arrays: Iterable[np.ndarray | None]) -> str:
    """SHA-256 over the content, the shapes and the types of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def write(path: Path, owner: dict, chain: ChainState, data: LayerData) -> None:
    """Write a checkpoint; the last one stays until this one is whole. GddError if it cannot be written."""
    data.shard.reduce(partial(_write_joined, path, owner), chain)


def read(path: Path, owner: dict, data: LayerData) -> ChainState | None:
    """Read a checkpoint, None if there is none; GddError if it is damaged, or belongs to another chain. It stays."""
    return data.shard.exchange(partial(_read_parts, path, owner), len(data.images))


def _read_parts(path: Path, owner: dict, counts: list[int]) -> list[ChainState | None]:
    """What every shard has of the checkpoint of a chain; ``counts`` : numbers of their images."""
    chain = _load(path, owner)
    if chain is None or len(counts) == 1:
        return [chain] * len(counts)
    return [_map_images(itemgetter(slice(*edges)), chain) for edges in pairwise(accumulate(counts, initial=0))]


def _map_images(function: Callable[..., np.ndarray], *shards: ChainState) -> ChainState:
    """Return the first of ``shards`` with ``function(array, ...)``, of all of them, for what images own."""
    best = shards[0].best and map_local(function, *(chain.best for chain in shards))
    return shards[0]._replace(state=map_local(function, *(chain.state for chain in shards)), best=best)


def _write_joined(path: Path, owner: dict, shards: list[ChainState]) -> None:
    """Write the checkpoint of a chain from what every shard has of it."""
    chain = shards[0] if len(shards) == 1 else _map_images(lambda *arrays: np.concatenate(arrays), *shards)
    try:
        with written_whole(path) as part, open(part, "wb+") as file:
            file.write(bytes(DIGEST) + json.dumps(owner).encode() + b"\n")
            joblib.dump(chain, file)
            digest = _digest(file)
            file.seek(0)
            file.write(digest)
    except OSError as error:
        raise GddError(
            f"checkpoint: cannot write {path} ({error}); what was there before is kept; "
            "free space or name another folder, and run again"
        ) from error


def _load(path: Path, owner: dict) -> ChainState | None:
    """What a file has of a chain, None if there is none; GddError if it is damaged, or not that owner's."""
    try:
        with open(path, "rb") as file:
            if file.read(DIGEST) != _digest(file):
                raise GddError(f"checkpoint: {path} is not a whole checkpoint of this version; {ASIDE}")
            file.seek(DIGEST)
            _check_owner(path, json.loads(file.readline()), owner)
            return joblib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise GddError(f"checkpoint: {path} cannot be read ({error}); make it readable, or {ASIDE}") from error


def _digest(file: BinaryIO) -> bytes:
    """SHA-256 of all that follows the digest."""
    file.seek(DIGEST)
    return hashlib.file_digest(file, "sha256").digest()


def _check_owner(path: Path, written: dict, owner: dict) -> None:
    """GddError that says what differs unless the checkpoint is this owner's."""
    owner = json.loads(json.dumps(owner))
    differing = [name for name in sorted(written | owner) if written.get(name) != owner.get(name)]
    if differing == ["code"]:
        raise GddError(
            f"checkpoint: {path} was made by other code: gdd/model, gdd/reference or gdd/sampler have changed since "
            f"({written['code']:.12} there, {owner['code']:.12} here); {ASIDE}"
        )
    if differing:
        parts = [f"{name} is {written.get(name)!s:.40} there, {owner.get(name)!s:.40} here" for name in differing[:3]]
        raise GddError(
            f"checkpoint: {path} was written by another chain: {'; '.join(parts)}; name another folder, or {ASIDE}"
        )
