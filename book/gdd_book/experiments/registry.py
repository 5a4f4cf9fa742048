"""What an experiment is, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import xarray as xr

from gdd_book.progress import Run
from gdd_book.training import Learned


class Outcome(NamedTuple):
    """What an experiment returns: its results, what a record must say about them, and what it has learned."""

    dataset: xr.Dataset
    spec: Any  # dataclass, or mapping or sequence of them
    data_name: str
    data_checksum: str
    seed: int
    learned: Mapping[str, Learned] = {}  # by name, see `gdd_book.models`


def outcome(
    dataset: xr.Dataset, p: Mapping[str, Any], images: xr.DataArray, learned: Mapping[str, Learned] | None = None,
    **spec,
) -> Outcome:
    """Results on the data set ``p["data"]``, from which ``images`` come, with the (first) seed of these parameters."""
    seed = p["seed"] if "seed" in p else p["seeds"][0]
    return Outcome(dataset, spec, p["data"], images.attrs["checksum"], seed, learned or {})


class Experiment(NamedTuple):
    """A function of parameters and of a run, and the parameters' defaults."""

    name: str
    run: Callable[[dict, Run], Outcome]
    scales: dict[str, dict[str, Any]]  # the same names in every scale
    choices: Mapping[str, tuple[str, ...]]  # of a parameter that is a word or words
    in_parallel: bool  # has parts to run side by side; the result does not depend on the number of processes


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    name: str, demo: dict, paper: dict | None = None, choices: Mapping[str, tuple[str, ...]] | None = None,
    in_parallel: bool = False, **both,
) -> Callable:
    """Register the function below under a name, with the defaults of each scale and those of ``both``."""
    scales = {"demo": demo | both} | ({} if paper is None else {"paper": paper | both})

    def register(run: Callable[[dict, Run], Outcome]) -> Callable[[dict, Run], Outcome]:
        EXPERIMENTS[name] = Experiment(name, run, scales, choices or {}, in_parallel)
        return run

    return register
