"""NetCDF files: read and written by one thread at a time, whole or not at all, with a checksum of what is in them."""

from __future__ import annotations

import gc
import json
import threading
from hashlib import sha256
from pathlib import Path

import numpy as np
import xarray as xr

from gdd.base.files import written_whole

#: attribute of a file: SHA-256 over everything else in it
CHECKSUM = "content_sha256"
#: bytes of an array from which on it becomes smaller when it is compressed
WORTHWHILE = 4096
#: what the libraries below raise for a file that is damaged, and for one that cannot be written, as on a full disk
UNREADABLE = (OSError, RuntimeError, ValueError, KeyError, TypeError, IndexError, AttributeError, MemoryError,
              OverflowError)
UNWRITABLE = (OSError, RuntimeError)


class SerializableRLock(type(threading.RLock())):
    """A reentrant lock; what is sent to another process becomes the lock of that process."""

    def __reduce__(self) -> str:
        return "_LOCK"


_LOCK = SerializableRLock()  # the libraries below end the process when several threads are in them, whatever the files


def write(data: xr.Dataset, path: Path) -> None:
    """Write a Dataset and its checksum, arrays of `WORTHWHILE` bytes compressed. Raises `UNWRITABLE`."""
    marked = data.drop_encoding().assign_attrs({CHECKSUM: checksum(data)})
    packed = {name: {"zlib": True, "complevel": 4} for name, array in marked.variables.items()
              if array.dtype.kind in "fiub" and array.nbytes >= WORTHWHILE}
    with _LOCK, written_whole(path) as part:
        marked.to_netcdf(part, engine="netcdf4", encoding=packed)


def load(path: Path) -> xr.Dataset:
    """Read a Dataset into memory. Raises `UNREADABLE`; `check` finds what the libraries do not notice."""
    with _LOCK:
        try:
            return xr.load_dataset(path.absolute(), engine="netcdf4")
        except UNREADABLE as error:
            message = str(error) or type(error).__name__
        gc.collect()  # closes what was left open of the damaged file: until then none at its path can be read
    raise ValueError(message)


def open_several(paths: list[str], along: str) -> xr.Dataset:
    """Datasets of several files along an axis, each after the other, read where used by one thread at a time."""
    how = {"combine": "nested", "concat_dim": along, "data_vars": "minimal", "coords": "minimal"}
    with _LOCK:
        found = xr.open_mfdataset(paths, engine="netcdf4", lock=_LOCK, **how)
    found.attrs.pop(CHECKSUM, None)  # of the first
    return found


def check(data: xr.Dataset) -> bool:
    """Take the checksum off what was loaded: ValueError if it is another's, False if there is none, as in old files."""
    stored = data.attrs.pop(CHECKSUM, None)
    if stored not in (None, checksum(data)):
        raise ValueError("its contents do not match their checksum")
    return stored is not None


def checksum(data: xr.Dataset) -> str:
    """SHA-256 over attributes, names, axes and values, the same before a Dataset is written and after it is read."""
    digest = sha256(_text(data.attrs))
    for name in sorted(data.variables, key=str):
        array, values = data.variables[name], data.variables[name].values
        digest.update(_text({"name": name, "axes": array.dims, "coordinate": name in data.coords}) + _text(array.attrs))
        if values.dtype.kind in "biufc":
            values = values.astype(values.dtype.newbyteorder("="))
            if values.dtype.kind == "f":
                values[np.isnan(values)] = np.nan  # of whatever bits
            digest.update(str((values.shape, values.dtype)).encode() + values.tobytes())
        else:
            digest.update(_text({"words": values.astype(str)}))
    return digest.hexdigest()


def _text(values: dict) -> bytes:
    """Values by name; a list of one number is the number, as NetCDF has it."""
    return json.dumps({str(name): np.ravel(value).tolist() for name, value in values.items()}, sort_keys=True).encode()
