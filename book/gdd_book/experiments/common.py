"""What all experiments have in common: how they are registered, what they return, and the steps that they share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from gdd.base.axes import IMAGE, LABEL
from gdd.inference.deconvolution import InferenceChain, deconvolve
from gdd_book.evaluate.classify import FIVE_FOLD, Copies, SvmProtocol, error
from gdd_book.progress import Run
from gdd_book.training import Learned, code_of

#: features from one test-time chain: the paper's, and the mean of its samples
KINDS = ("ml_sample", "mean")
#: images that are encoded, and kept on disk, together
BATCH = 1000
#: number of the first test image, from which its random numbers follow: training images have others
FIRST_TEST_IMAGE = 10**6


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


# ---- steps
def along(axis: str, parts: Mapping[Any, xr.Dataset]) -> xr.Dataset:
    """Join parts along a new axis, whose coordinate is their keys."""
    return xr.concat(list(parts.values()), axis).assign_coords({axis: list(parts)})


def encode(
    images: xr.DataArray, atoms: np.ndarray | xr.DataArray, stride: tuple[int, int], precisions: tuple[float, float],
    p: Mapping[str, Any], **more,
) -> xr.Dataset:
    """One-layer deconvolution with projected atoms, under gamma_e and gamma_w; ``more`` may name seed, first image."""
    first = 0 if images.attrs["split"] == "train" else FIRST_TEST_IMAGE
    chain = InferenceChain(p["test_burn_in"], p["test_collect"], more.pop("seed", p["seed"]),
                           more.pop("first_image", first))
    gamma_e, gamma_w = precisions
    return deconvolve(
        images, np.asarray(atoms, images.dtype), stride, gamma_e=gamma_e, gamma_w=gamma_w, chain=chain, **more
    )


def encode_kept(
    images: xr.DataArray, atoms: np.ndarray, stride: tuple[int, int], precisions: tuple[float, float],
    p: Mapping[str, Any], run: Run, label: str,
) -> xr.Dataset:
    """`KINDS` of `encode`, some images at a time, which an interrupted run finds again; ``label`` : of the bar."""
    begin, parts = 0 if images.attrs["split"] == "train" else FIRST_TEST_IMAGE, []
    settings = {name: p[name] for name in ("seed", "test_burn_in", "test_collect")}
    with run.bar(len(images), label) as bar:
        for low in range(0, len(images), BATCH):
            some = images[low : low + BATCH]
            more = {"first_image": begin + low, "progress": bar.step, "device": run.device}
            parts.append(run.kept(
                "codes", lambda some=some, more=more: encode(some, atoms, stride, precisions, p, **more)[[*KINDS]],
                images=some, first=begin + low, atoms=atoms, stride=stride, precisions=precisions, settings=settings,
                code=code_of("inference"),
            ))
    return xr.concat(parts, IMAGE)


def classify(
    pair: Sequence[xr.DataArray | np.ndarray], train: xr.DataArray, test: xr.DataArray, seed: int,
    protocol: SvmProtocol = FIVE_FOLD, copies: Copies | None = None,
) -> xr.Dataset:
    """Tune and train on the first features of ``pair``, predict from the second: `gdd_book.evaluate.classify.error`."""
    return error(pair[0], train[LABEL].values, pair[1], test[LABEL].values, protocol, seed, copies)


def error_of(
    pair: Sequence[xr.DataArray | np.ndarray], train: xr.DataArray, test: xr.DataArray, p: Mapping[str, Any]
) -> float:
    """Error in % of `classify` with the usual protocol."""
    return float(classify(pair, train, test, p["seed"]).error)


def repeated(sizes: Sequence[int], trials: int, trials_above: int) -> list[tuple[int, int]]:
    """Every size with the numbers of its subsets, from 0: ``trials`` of the first size, ``trials_above`` of others."""
    return [(size, trial) for place, size in enumerate(sizes) for trial in range(trials_above if place else trials)]


def by_size(parts: Mapping[tuple[int, int], xr.Dataset]) -> xr.Dataset:
    """Results by (size, trial, ...) of what `repeated` names, missing where a size has fewer trials."""
    places = {name: ("run", [key[number] for key in parts]) for number, name in enumerate(("size", "trial"))}
    table = xr.concat(list(parts.values()), "run", combine_attrs="drop").assign_coords(places).set_index(run=[*places])
    return table.unstack("run").transpose("size", "trial", ...)
