"""Experiments: the paper's figures and tables, a file for each family, and our own studies; how they are found and run.

An experiment is a function of its parameters and of a `gdd_book.progress.Run`, registered with the defaults of every
scale. It computes and returns an `Outcome`; the caller writes the record.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gdd.base.checks import LARGEST_PRECISION, GddError, check_choice, check_kind, check_real, check_whole, shown
from gdd_book import parameters
from gdd_book.experiments.common import EXPERIMENTS, Experiment, Outcome
from gdd_book.progress import Run

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)  # registers its experiments

SCALES = ("demo", "paper")
DATA = ("digits", "mnist")
#: endings of the names of counts that may be 0
FROM_NOTHING = ("burn_in", "warm_up", "copies")
LARGEST_SEED = 2**31 - 1  # an experiment makes other seeds from it, and scikit-learn takes 32 bits


def names() -> list[str]:
    """Names of all experiments, in alphabetical order."""
    return sorted(EXPERIMENTS)


def get(name: str) -> Experiment:
    """One experiment; GddError, listing those that exist, if there is none of that name."""
    if not isinstance(name, str) or name not in EXPERIMENTS:
        raise GddError(f"experiment {shown(name)} is not known; choose from {', '.join(names())}")
    return EXPERIMENTS[name]


def described(name: str | None = None) -> str:
    """All experiments, a line each; or one, and its parameters: kind, value at every scale, words that it may be."""
    if name is None:
        return "\n".join(f"{one:24}{inspect.getdoc(EXPERIMENTS[one].run).splitlines()[0]}" for one in names())
    experiment, choices = get(name), _choices(name)
    rows = [("parameter", "", *experiment.scales)]
    for key, default in defaults(name, "demo").items():
        values = [parameters.written(known[key]) for known in experiment.scales.values()]
        words = ", ".join(choices.get(key, ()))
        rows.append((key, parameters.kind_of(default) + (words and f": {words}"), *values))
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    lines = ["".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([inspect.getdoc(experiment.run), "", *lines])


def run(name: str, changes: Mapping[str, Any] | None = None, scale: str = "demo", within: Run | None = None) -> Outcome:
    """Run an experiment with these changes to its defaults; by default nothing is kept on disk."""
    return get(name).run(merge(name, scale, changes or {}), within or Run())


def defaults(name: str, scale: str) -> dict[str, Any]:
    """Parameters of an experiment at one scale; GddError for an unknown scale."""
    known = get(name).scales
    if not isinstance(scale, str) or scale not in known:
        raise GddError(f"scale {shown(scale)} is not known to {name}; choose from {', '.join(known)}")
    return dict(known[scale])


def merge(name: str, scale: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults with these changes; GddError that lists the known names if one is unknown, or for a value of no use."""
    known = defaults(name, scale)
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise GddError(f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(known)}")
    choices = _choices(name)
    return known | {key: _checked(key, value, known[key], choices.get(key)) for key, value in changes.items()}


def _choices(name: str) -> Mapping[str, tuple[str, ...]]:
    return {"data": DATA, **get(name).choices}


def parse(name: str, scale: str, given: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Every parameter, those ``given`` as words of a command line: `gdd_book.parameters.parse`."""
    return merge(name, scale, parameters.parse(name, defaults(name, scale), given))


def _checked(key: str, value: Any, default: Any, choices: tuple[str, ...] | None) -> Any:
    """A value of its default's kind: a count, a seed, a number from 0, a word; or several of them, none twice."""
    argument = f"parameter {key}"
    if isinstance(default, tuple):
        check_kind(argument, value, (tuple, list))
        values = tuple(_checked(key, one, default[0], choices) for one in value)
        if not values or len(set(values)) < len(values):
            raise GddError(f"{argument}: {shown(value)} given; one or more different values are needed")
        return values
    if isinstance(default, bool):
        check_kind(argument, value, bool)
    elif isinstance(default, int) and key in ("seed", "seeds") and default == 0:
        return check_whole(argument, value, 0, LARGEST_SEED)
    elif isinstance(default, int):
        return check_whole(argument, value, 0 if key.endswith(FROM_NOTHING) else 1)
    elif isinstance(default, float):
        return check_real(argument, value, 0, LARGEST_PRECISION)
    else:
        check_choice(argument, value, choices) if choices else check_kind(argument, value, str)
    return value
