"""Files that are written whole or not at all, whatever ends the process and whenever; datasets with checksums."""

from __future__ import annotations

import fcntl
import gc
import glob
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

import numpy as np
import xarray as xr

from gdd.base.checks import GddError, check_kind, shown

#: how an address of another machine begins, also after `pathlib.Path` has taken one of two slashes
URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:/")
#: seconds without a change after which a temporary file is what a killed process has left
HOUR = 3600.0
#: attribute of a file: checksums of everything else in it, by name; older files have one of all
CHECKSUMS, OLD = "content_checksums", "content_sha256"
#: how NetCDF files begin
MAGIC = (b"\x89HDF", b"CDF\x01", b"CDF\x02", b"CDF\x05")
#: bytes of an array from which on compression pays
WORTHWHILE = 4096
#: what the libraries below raise for a file that is damaged, and for one that cannot be written, as on a full disk
UNREADABLE = (OSError, RuntimeError, ValueError, KeyError, TypeError, IndexError, AttributeError, MemoryError,
              OverflowError)
UNWRITABLE = (OSError, RuntimeError)


def user_path(argument: str, path: str | os.PathLike, folder: bool = False) -> Path:
    """Path of a file, or of a folder, as a user gave it, with ``~`` as the home folder; it may not exist yet."""
    check_kind(argument, path, (str, os.PathLike))
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text or text != text.encode(errors="replace").decode():
        raise GddError(f"{argument}: {shown(text)} given; a path is needed, in text without null characters")
    if URL.match(text):
        raise GddError(f"{argument}: {text} given, an address; a path on this machine is needed")
    if (expanded := os.path.expanduser(text)).startswith("~"):
        raise GddError(f"{argument}: {text} given, and no such home folder is known; write it in full, or ./{text}")
    place = Path(expanded)
    if os.path.exists(place) and not (os.path.isdir if folder else os.path.isfile)(place):
        what = "no folder; name one" if folder else "a folder or a device, which we cannot write or read; name a file"
        raise GddError(f"{argument}: {place} is {what}")
    return place


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path; what the block has left there is synced, then takes the place of ``path``.

    What was at ``path`` stays until then; its permissions stay, and a symbolic link to it. A block that fails leaves
    nothing behind. One that is killed leaves its temporary file, which a later write removes once it is an hour old.

    *Checked:* tests/test_files.py, tests/test_killed.py.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > HOUR:
                leftover.unlink()
    part = path.with_name(f".{path.name}.{token_hex(8)}.part")  # no other writer's
    try:
        if path.is_file():
            part.touch()
            shutil.copymode(path, part)
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        with suppress(OSError):  # it is there only if something failed
            part.unlink()


# ---- datasets in NetCDF files


class SerializableRLock(type(threading.RLock())):
    """A reentrant lock; what is sent to another process becomes the lock of that process."""

    def __reduce__(self) -> str:
        return "_LOCK"


_LOCK = SerializableRLock()  # the libraries below end the process when several threads are in them, whatever the files


def write(data: xr.Dataset, path: Path) -> None:
    """Write a Dataset and its checksums, arrays of `WORTHWHILE` bytes compressed. Raises `UNWRITABLE`."""
    marked = data.drop_encoding().assign_attrs({CHECKSUMS: json.dumps(checksums(data))})
    packed = {name: {"zlib": True, "complevel": 4} for name, array in marked.variables.items()
              if array.dtype.kind in "fiub" and array.nbytes >= WORTHWHILE}
    with _LOCK, written_whole(path) as part:
        marked.to_netcdf(part, engine="netcdf4", encoding=packed)


def load(path: Path) -> xr.Dataset:
    """Read a Dataset into memory. Raises ValueError that says what is wrong; `check` finds what is not noticed here."""
    with _LOCK:
        try:
            return xr.load_dataset(path.absolute(), engine="netcdf4")
        except UNREADABLE as error:
            message = reason(path, str(error) or type(error).__name__)
        gc.collect()  # closes what was left open of the damaged file: until then none at its path can be read
    raise ValueError(message)


def open_several(paths: list[str], along: str) -> xr.Dataset:
    """Datasets of several files along an axis, each after the other, read where used by one thread at a time."""
    how = {"combine": "nested", "concat_dim": along, "data_vars": "minimal", "coords": "minimal"}
    with _LOCK:
        data = xr.open_mfdataset(paths, engine="netcdf4", lock=_LOCK, **how)
    data.attrs.pop(CHECKSUMS, None)  # those of the first
    return data


def reason(path: Path, error: str) -> str:
    """Why a file cannot be read, of which the library says ``error``."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            known = file.read(4) in MAGIC
    except BlockingIOError:
        return "it is open for writing elsewhere; close it there, and read it again"
    except OSError as other:
        return str(other)
    return f"it is damaged: {error}" if known else "it is no NetCDF file"


def check(data: xr.Dataset) -> bool:
    """Take the checksums off what was loaded. False if there are none; ValueError if a part is missing or another's."""
    one, stored = data.attrs.pop(OLD, None), json.loads(data.attrs.pop(CHECKSUMS, "{}"))
    computed = checksums(data) if stored else {}
    for name, digest in stored.items():
        if computed.get(name) != digest:
            raise ValueError(f"it is damaged: {name} does not match its checksum")
    if one not in (None, _old_checksum(data)):
        raise ValueError("it is damaged: its contents do not match their checksum")
    return bool(stored or one)


def checksums(data: xr.Dataset) -> dict[str, str]:
    """By name, of every attribute and array: the same before a Dataset is written and after it is read.

    Each has its own, so that what another tool adds to a file, such as its history, does no harm.
    """
    parts = {f"attribute {name}": _text(value) for name, value in data.attrs.items()}
    for name, array in data.variables.items():
        parts |= {f"attribute {name}:{one}": _text(value) for one, value in array.attrs.items()}
        values = array.values
        if values.dtype.kind in "mM":
            values = values.astype(f"{values.dtype.kind}8[ns]").astype(np.int64)
        content = _bits(values) if values.dtype.kind in "biufc" else _text(values.astype(str))
        parts[f"array {name}"] = str((array.dims, name in data.coords)).encode() + content
    return {name: sha256(part).hexdigest()[:16] for name, part in parts.items()}


def _old_checksum(data: xr.Dataset) -> str:
    """The one SHA-256 of older files, over attributes, names, axes and values."""
    digest = sha256(_words(data.attrs))
    for name in sorted(data.variables, key=str):
        array = data.variables[name]
        digest.update(_words({"name": name, "axes": array.dims, "coordinate": name in data.coords}))
        digest.update(_words(array.attrs))
        numbers = array.dtype.kind in "biufc"
        digest.update(_bits(array.values) if numbers else _words({"words": array.values.astype(str)}))
    return digest.hexdigest()


def _bits(values: np.ndarray) -> bytes:
    """Shape, type and values of numbers, in this machine's order of bytes."""
    values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind == "f":
        values[np.isnan(values)] = np.nan  # of whatever bits
    return str((values.shape, values.dtype)).encode() + values.tobytes()


def _words(values: dict) -> bytes:
    """Values by name, as `_old_checksum` has them."""
    return json.dumps({str(name): np.ravel(value).tolist() for name, value in values.items()}, sort_keys=True).encode()


def _text(value: object) -> bytes:
    """Value of an attribute; a list of one number is the number, as NetCDF has it."""
    return json.dumps(np.ravel(value).tolist()).encode()
