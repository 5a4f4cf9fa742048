"""Records: one NetCDF file for each run, results and provenance together.

A chapter shows a record or says that there is none; it never shows a number typed by hand. Records lie in
``book/results/`` of the checkout; the environment variable ``GDD_RESULTS`` names another folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import xarray as xr

from gdd.base.checks import GddError
from gdd_book import experiments
from gdd_book.record_files import PROVENANCE, as_json, code_checksum, read, write

__all__ = [
    "PROVENANCE", "as_json", "code_checksum", "every", "find", "folder", "path_for", "provenance", "read",
    "settings", "write",
]  # fmt: skip

LONGEST_NAME = 200  # letters: file systems take 255, of which a temporary file needs some more


def folder() -> Path:
    """Folder of the records: ``GDD_RESULTS``, else ``book/results`` beside the package."""
    chosen = os.environ.get("GDD_RESULTS")
    return Path(chosen) if chosen else Path(__file__).resolve().parents[1] / "results"


def path_for(experiment: str, scale: str, parameters: Mapping | None = None) -> Path:
    """Where the record of this run lies: ``<experiment>--<scale>[--<parameter>-<value>...].nc``.

    Only parameters that differ from the defaults of that scale appear, in alphabetical order, so equal runs have
    equal names.

    Raises
    ------
    GddError
        Unknown experiment, scale or parameter.
    """
    defaults = experiments.defaults(experiment, scale)
    given = experiments.merge(experiment, scale, parameters or {})
    changed = [f"{name}-{_in_file_name(given[name])}" for name in sorted(given) if given[name] != defaults[name]]
    name = "--".join([experiment, scale, *changed]) + ".nc"
    if len(name) > LONGEST_NAME:
        raise GddError(f"parameters: the record's name would have {len(name)} letters; {LONGEST_NAME} are allowed")
    return folder() / name


def find(experiment: str, scale: str, **parameters) -> xr.Dataset | None:
    """Record of this run, or None if it was never made; parameters left out have their defaults."""
    path = path_for(experiment, scale, parameters)
    return read(path) if path.exists() else None


def every(experiment: str) -> list[xr.Dataset]:
    """All records of one experiment that were ever made, whatever their scale and parameters, in order of file name."""
    experiments.get(experiment)
    found = sorted(folder().glob(f"{experiment}--*.nc"))
    return [record for record in map(read, found) if record.attrs["experiment"] == experiment]


def settings(record: xr.Dataset) -> dict:
    """Parameters of the run of a record."""
    return json.loads(record.attrs["parameters"])


def provenance(record: xr.Dataset) -> str:
    """One line that says where a record comes from, for display under a table or a figure."""
    known = record.attrs
    checksum = known["data_checksum"].removeprefix("sha256:")
    spoken = ", ".join(f"{name} {value}" for name, value in json.loads(known["parameters"]).items())
    return (
        f"Record {known['experiment']}, {known['scale']} scale ({spoken}); data {known['data_name']} "
        f"(sha256 {checksum[:12]}), seed {known['seed']}; {known['date']}, {known['seconds']:.0f} s, "
        f"{known['peak_memory_bytes'] / 1e6:.0f} MB; gdd {known['code_version']} ({known['code_sha256'][:12]}) "
        f"on {known['machine']}"
    )


def _in_file_name(value) -> str:
    return re.sub(r"[^A-Za-z0-9.+_]+", "_", str(value)).strip("_")
