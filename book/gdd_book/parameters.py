"""Parameters as people write them on a command line: ``-p NAME VALUE``, each once, in the form of its default."""

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import yaml

from gdd.base.checks import GddError, shown

#: what one value is called, and what several are
KINDS = {bool: ("true or false", "true or false each"), int: ("a whole number", "whole numbers"),
         float: ("a number", "numbers"), str: ("a word", "words")}


def parse(what: str, known: Mapping[str, Any], given: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Values of the parameters that are given, by name, each of the kind of its default in ``known``.

    ``what`` : whose parameters they are, for messages; ``given`` : the words behind each ``-p``: a name and its value
    or values, or NAME=VALUE; several with spaces or commas, in brackets or without
    """
    values = {}
    for first, *others in given:
        name, _, value = first.partition("=")
        if name not in known:
            near = "".join(f" (nearest: {one})" for one in get_close_matches(name.lower(), known, 1))
            raise GddError(f"{what} has no parameter {name or first}{near}; it has {', '.join(known) or 'none'}")
        if name in values:
            raise GddError(f"parameter {name}: given twice; write each -p NAME once")
        values[name] = _read(name, [word for word in (value, *others) if word not in ("", "=")], known[name])
    return values


def from_yaml(texts: Iterable[str]) -> list[list[str]]:
    """Parameters that are given as YAML, such as ``pool: [2, 2]``, in the words of `parse`; GddError for other text."""
    given = []
    for text in texts:
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError:
            values = None
        if not isinstance(values, dict):
            raise GddError(f"-y: {shown(text)} given, names and values needed, such as -y 'pool: [2, 2]'")
        for name, value in values.items():
            given.append([str(name), *map(str, value if isinstance(value, list) else [value])])
    return given


def written(value: Any) -> str:
    """A value as it is to be typed behind its name."""
    return shlex.join(map(str, value)) if isinstance(value, tuple | list) else shlex.quote(str(value))


def kind_of(default: Any) -> str:
    """What is to be typed for a parameter of this default, in words."""
    several = isinstance(default, tuple | list)
    return KINDS[type(default[0] if several else default)][several]


def _read(name: str, words: Sequence[str], default: Any) -> Any:
    """A value of the kind of its default."""
    with suppress(ValueError, KeyError, yaml.YAMLError):
        if not isinstance(default, tuple | list):
            return _one(" ".join(words), type(default))
        kind = type(default[0])
        if values := type(default)(_one(part, kind) for part in _parts(words, kind)):
            return values
    text = shown(" ".join(words)) if words else "no value"
    raise GddError(f"parameter {name}: {text} given, {kind_of(default)} needed, such as -p {name} {written(default)}")


def _parts(words: Sequence[str], kind: type) -> list[str]:
    """Texts of several values."""
    text = (", " if kind is str else " ").join(word.rstrip(", ") for word in words).strip()
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1].strip().rstrip(", ")
    if kind is str:
        return [str(part) for part in yaml.load(f"[{text}]", yaml.BaseLoader)]
    return re.split(r"\s*,\s*|\s+", text)


def _one(text: str, kind: type) -> Any:
    """One value; ValueError or KeyError if the text has none of this kind."""
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind is str and text:
        return text
    if kind is int:
        with suppress(ValueError):
            return int(text)
    number = float(text)  # of a count, too: 1e4
    if kind is str or not math.isfinite(number) or kind(number) != number:
        raise ValueError(text)
    return kind(number)
