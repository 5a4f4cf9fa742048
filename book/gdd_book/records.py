"""Records: one NetCDF file for each run, results and provenance together; written whole, read with checks.

A chapter shows a record or says that there is none; it never shows a number typed by hand. Records lie in
``book/results/`` of the checkout, and without one in the user's data folder; the environment variable ``GDD_RESULTS``
names another folder.
"""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import xarray as xr

import gdd
from gdd.base import files
from gdd.base.checks import GddError
from gdd.base.files import user_path
from gdd_book import checkout, experiments
from gdd_book.progress import peak_memory

FORMAT = "gdd record 1"
LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "xarray", "netCDF4")
LONGEST_NAME = 200  # letters: file systems take 255, of which a temporary file needs some more


def path_for(experiment: str, scale: str, parameters: Mapping | None = None) -> Path:
    """Where the record of this run lies: ``<experiment>--<scale>[--<parameter>-<value>...].nc``.

    Only what differs from the defaults of that scale is named, in alphabetical order. A GddError refuses an unknown
    experiment, scale or parameter, and a name that would be too long.
    """
    defaults = experiments.defaults(experiment, scale)
    given = experiments.merge(experiment, scale, parameters or {})
    changed = [f"{name}-{re.sub(r'[^A-Za-z0-9.+_]+', '_', str(value)).strip('_')}"
               for name, value in sorted(given.items()) if value != defaults[name]]
    if len(name := "--".join([experiment, scale, *changed]) + ".nc") > LONGEST_NAME:
        raise GddError(f"parameters: the record's name would have {len(name)} letters; {LONGEST_NAME} are allowed")
    return checkout.results() / name


def made_by(
    *, experiment: str, scale: str, parameters: Mapping, spec, seed: int, data_name: str, data_checksum: str,
    seconds: float, device: str = "cpu",
) -> dict:
    """Attributes of all that a run leaves: what it was, and with what code on which machine it was made."""
    libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {
        "gdd_format": FORMAT, "experiment": experiment, "scale": scale, "data_name": data_name,
        "data_checksum": data_checksum, "parameters": as_json(dict(parameters)), "spec": as_json(spec), "seed": seed,
        "seconds": seconds, "code_version": gdd.__version__, "code_sha256": code_checksum(),
        "libraries": as_json({"python": platform.python_version()} | libraries), "machine": machine(device),
        "peak_memory_bytes": peak_memory(), "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def write(path: str | Path, dataset: xr.Dataset, **run) -> Path:
    """Write results and provenance (``run``, see `made_by`) as one NetCDF file, whole or not at all, or a GddError."""
    path = user_path("path", path)
    with _writing(path):
        files.write(dataset.assign_attrs(made_by(**run)), path)
    return path


def check_writable(path: Path) -> None:
    """GddError if a record cannot be written there."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except files.UNWRITABLE as error:
        raise GddError(f"record {path}: cannot be written ({error}); free space or set GDD_RESULTS") from error


def read(path: str | Path) -> xr.Dataset:
    """Read a record into memory; a GddError names a file that is missing, damaged or no record of this package."""
    path = user_path("path", path)
    if not path.is_file():
        raise GddError(f"record {path.name}: no such file in {path.parent}; make it with `gdd run`")
    try:
        whole = files.check(record := files.load(path))
    except files.UNREADABLE as error:
        raise GddError(f"record {path}: cannot be read: {error}; or run it again") from error
    if not whole or record.attrs.get("gdd_format") != FORMAT:
        raise GddError(f"record {path}: a NetCDF file of another kind (gdd_format {FORMAT!r} and checksums are needed)")
    return record


def find(experiment: str, scale: str, **parameters) -> xr.Dataset | None:
    """Record of this run, or None if it was never made; parameters left out have their defaults."""
    path = path_for(experiment, scale, parameters)
    return read(path) if path.exists() else None


def by_parameter(experiment: str, parameter: str) -> dict[float, xr.Dataset]:
    """Runs of paper scale that have all defaults but for one parameter, by its value, the largest first."""
    usual = experiments.defaults(experiment, "paper")
    rest, runs = as_json(usual | {parameter: None}), {}
    for record in every(experiment):
        if record.attrs["scale"] == "paper" and as_json(settings(record) | {parameter: None}) == rest:
            runs[settings(record)[parameter]] = record
    return dict(sorted(runs.items(), reverse=True))


def fullest(experiment: str) -> xr.Dataset | None:
    """The run of paper scale with the most subsets, in one record or several, and the fewest changes; or None."""
    runs, usual = defaultdict(list), experiments.defaults(experiment, "paper")
    for record in every(experiment):
        if record.attrs["scale"] == "paper":
            runs[as_json(settings(record) | {"seeds": None})].append(record)

    def rank(run: xr.Dataset) -> tuple[int, int]:
        own = usual | settings(run)
        return run.sizes["subset"], -sum(as_json(own[name]) != as_json(value) for name, value in usual.items())

    whole = []
    for parts in runs.values():  # of a subset that is in several records, the first
        run = xr.concat(parts, "subset", combine_attrs="override").drop_duplicates("subset").sortby("subset")
        parameters = as_json(settings(parts[0]) | {"seeds": run.subset.values.tolist()})
        whole.append(run.assign_attrs(seconds=sum(one.attrs["seconds"] for one in parts), parameters=parameters))
    return max(whole, key=rank, default=None)


def every(experiment: str) -> list[xr.Dataset]:
    """All records of one experiment (its code may have left), in order of file name; a line names what is damaged."""
    found = []
    for path in sorted(checkout.results().glob(f"{experiment}--*.nc")):
        try:
            found.append(read(path))
        except GddError as error:
            print(f"left out: {str(error).replace(str(path), path.name)}")
    return found


def durations(experiment: str) -> list[str]:
    """Lines below a heading: of each record its name, the minutes of its run, the machine; no line without a record."""
    rows = [(Path(one.encoding["source"]).stem, one.attrs["seconds"] / 60, one.attrs["machine"])
            for one in every(experiment)]
    lines = [f"{name}: {minutes:.1f} min, {machine}" for name, minutes, machine in rows]
    return ["", "Runs on record, and what they took:", *lines] if lines else []


def settings(record: xr.Dataset) -> dict:
    """Parameters of the run of a record."""
    return json.loads(record.attrs["parameters"])


def provenance(record: xr.Dataset) -> str:
    """One line that says where a record comes from, for display under a table or a figure."""
    known = record.attrs
    checksum = known["data_checksum"].removeprefix("sha256:")
    spoken = ", ".join(f"{name} {value}" for name, value in settings(record).items())
    later = f"; later: {known['history']}" if "history" in known else ""  # done to a record after its run
    return (
        f"Record {known['experiment']}, {known['scale']} scale ({spoken}); data {known['data_name']} "
        f"(sha256 {checksum[:12]}), seed {known['seed']}; {known['date']}, {known['seconds']:.0f} s, "
        f"{known['peak_memory_bytes'] / 1e6:.0f} MB; gdd {known['code_version']} ({known['code_sha256'][:12]}) "
        f"on {known['machine']}{later}"
    )


def as_json(value) -> str:
    """Text of a spec or of parameters: dataclasses become mappings that name their type."""
    return json.dumps(value, default=_plain, sort_keys=True)


@cache
def code_checksum() -> str:
    """SHA-256 over every Python file of the library and of the book's own code, names included."""
    digest = hashlib.sha256()
    for root in (Path(gdd.__file__).resolve().parent, Path(__file__).resolve().parent):
        for path in sorted(root.rglob("*.py")):
            digest.update(path.relative_to(root.parent).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def machine(device: str = "cpu") -> str:
    """Processor, cores and system in words, and a graphics processor on which chains ran; no name of the machine."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else []
    model = models[0] if models else platform.processor() or platform.machine()
    words = f"{model}, {os.cpu_count()} cores, {platform.system()}"
    if device == "cuda":
        from gdd.cuda.device import name  # not before it is asked for

        words += f", chains on {name()}"
    return words


def _plain(value):
    if dataclasses.is_dataclass(value):
        return {"type": type(value).__name__} | {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON form for {type(value).__name__}")
