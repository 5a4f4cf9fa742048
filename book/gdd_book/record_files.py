"""Files of records: results and provenance together in one NetCDF file, written whole, read with checks.

Where records of experiments lie and how they are found is the matter of `gdd_book.records`.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import xarray as xr

import gdd
from gdd.base.checks import LARGEST_COUNT, GddError, check_kind, check_real, check_seed
from gdd.base.files import written_whole
from gdd_book import machine

FORMAT = "gdd record 1"
LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "xarray", "netCDF4")
PROVENANCE = (
    "gdd_format", "experiment", "scale", "parameters", "spec", "seed", "data_name", "data_checksum", "code_version",
    "code_sha256", "libraries", "machine", "seconds", "peak_memory_bytes", "date",
)  # fmt: skip


def write(
    path: str | Path, dataset: xr.Dataset, *, experiment: str, scale: str, parameters: Mapping, spec, seed: int,
    data_name: str, data_checksum: str, seconds: float,
) -> Path:  # fmt: skip
    """Write results and provenance as one NetCDF file, whole or not at all.

    Parameters
    ----------
    dataset : results, axes named as in ``gdd.base.axes``
    parameters : every parameter of the run, defaults included
    spec : dataclass, or mapping or sequence of dataclasses; kept as JSON
    data_checksum : sha256 of the data set as read
    seconds : wall time of the run, with that of earlier runs that it went on from

    Raises
    ------
    GddError
        The file cannot be written (full disk, unwritable folder), or the dataset cannot be stored. A file that
        was there before stays as it was.
    """
    check_kind("dataset", dataset, xr.Dataset)
    check_kind("parameters", parameters, Mapping)
    seed, seconds = check_seed(seed), check_real("seconds", seconds, 0, LARGEST_COUNT)
    for name, text in (("experiment", experiment), ("scale", scale), ("data_name", data_name),
                       ("data_checksum", data_checksum)):  # fmt: skip
        check_kind(name, text, str)
    clash = sorted(set(PROVENANCE) & set(dataset.attrs))
    if clash:
        raise GddError(f"dataset: attributes {clash} are kept for provenance; rename them")
    known = {
        "gdd_format": FORMAT, "experiment": experiment, "scale": scale, "parameters": as_json(dict(parameters)),
        "spec": as_json(spec), "seed": seed, "data_name": data_name, "data_checksum": data_checksum,
        "seconds": seconds,
    }  # fmt: skip
    labelled = dataset.assign_attrs(known | _surroundings())
    packed = {name: {"zlib": True, "complevel": 4} for name, v in labelled.variables.items() if v.dtype.kind in "fiub"}
    _write_whole(Path(path), lambda part: labelled.to_netcdf(part, engine="netcdf4", encoding=packed))
    return Path(path)


def read(path: str | Path) -> xr.Dataset:
    """Read a record into memory.

    Raises
    ------
    GddError
        Missing file; truncated or damaged file; a file that is not a record of this package.
    """
    path = Path(path)
    if not path.is_file():
        raise GddError(f"record {path.name}: no such file in {path.parent}; make it with `gdd run`")
    try:
        record = xr.load_dataset(path, engine="netcdf4")
    except (AttributeError, OSError, RuntimeError, ValueError) as error:  # netCDF4: AttributeError
        raise GddError(f"record {path}: truncated, damaged or no NetCDF file ({error}); run it again") from error
    if record.attrs.get("gdd_format") != FORMAT:
        found = record.attrs.get("gdd_format", "none")
        raise GddError(f"record {path}: a NetCDF file of another kind (gdd_format is {found!r}, {FORMAT!r} needed)")
    missing = [name for name in PROVENANCE if name not in record.attrs]
    if missing:
        raise GddError(f"record {path}: no attribute {', '.join(missing)}; run it again")
    return record


def as_json(value) -> str:
    """Text of a spec or of parameters: dataclasses become mappings that name their type."""
    try:
        return json.dumps(value, default=_plain, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise GddError(f"spec, parameters: {error}; numbers, words, dataclasses and collections are needed") from error


@cache
def code_checksum() -> str:
    """SHA-256 over every Python file of the library and of the book's own code, names included."""
    digest = hashlib.sha256()
    for root in (Path(gdd.__file__).resolve().parent, Path(__file__).resolve().parent):
        for path in sorted(root.rglob("*.py")):
            name = path.relative_to(root.parent).as_posix()
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _surroundings() -> dict:
    """What is the same for every run in this process, and the peak memory so far."""
    return {
        "code_version": _version("gdd"),
        "code_sha256": code_checksum(),
        "libraries": as_json({"python": platform.python_version()} | {name: _version(name) for name in LIBRARIES}),
        "machine": machine.in_words(),
        "peak_memory_bytes": machine.peak_memory(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _plain(value):
    if dataclasses.is_dataclass(value):
        return {"type": type(value).__name__} | {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _write_whole(path: Path, write_to: Callable[[str], object]) -> None:
    """Write a file through a temporary one; say what is wrong if that cannot be."""
    try:
        with written_whole(path) as part:
            write_to(str(part))
    except (OSError, RuntimeError) as error:  # RuntimeError is what netCDF makes of a write that fails half way
        raise GddError(f"record {path}: cannot be written ({error}); free space or set GDD_RESULTS") from error
    except (TypeError, ValueError) as error:
        raise GddError(f"dataset: cannot be stored as NetCDF: {error}") from error
