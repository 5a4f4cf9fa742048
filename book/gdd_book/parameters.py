"""Parameters as people write them on a command line: ``-p NAME VALUE``, each once, in the form of its default."""

from __future__ import annotations

import ast
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from gdd.base.checks import GddError, shown

#: what one value is called, and what several are
KINDS = {bool: ("true or false", "true or false each"), int: ("a whole number", "whole numbers"),
         float: ("a number", "numbers"), str: ("a word", "words")}


def parse(what: str, known: Mapping[str, Any], given: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Values of the parameters that are given, by name, each of the kind of its default in ``known``.

    Several values are written with spaces or commas, in brackets or without: ``0.3 1.0``, ``2,2``, ``[2, 2]``.

    Parameters
    ----------
    what : whose parameters they are, for messages
    known : defaults: numbers, true or false, words, or a list or tuple of one of these
    given : the words behind each ``-p``: a name and its value or values, or NAME=VALUE

    Raises
    ------
    GddError
        An unknown name, with those there are; a name given twice; a value that is missing or of another kind.
    """
    found = {}
    for first, *others in given:
        name, _, value = first.partition("=")
        if name not in known:
            near = "".join(f" (nearest: {one})" for one in get_close_matches(name.lower(), known, 1))
            raise GddError(f"{what} has no parameter {name or first}{near}; it has {', '.join(known) or 'none'}")
        if name in found:
            raise GddError(f"parameter {name}: given twice; write each -p NAME once")
        found[name] = _like(name, [word for word in (value, *others) if word not in ("", "=")], known[name])
    return found


def written(value: Any) -> str:
    """A value as it is to be typed behind its name."""
    return shlex.join(map(str, value)) if isinstance(value, tuple | list) else shlex.quote(str(value))


def _like(name: str, words: Sequence[str], default: Any) -> Any:
    several = isinstance(default, tuple | list)
    first = default[0] if several else default
    with suppress(ValueError, KeyError):
        if not several:
            return _one(" ".join(words), first)
        if found := type(default)(_one(part, first) for part in _parts(words, isinstance(first, str))):
            return found
    text, needed = shown(" ".join(words)) if words else "no value", KINDS[type(first)][several]
    raise GddError(f"parameter {name}: {text} given, {needed} needed, such as -p {name} {written(default)}")


def _parts(words: Sequence[str], of_words: bool) -> list[str]:
    """Texts of several values."""
    text = " ".join(words).strip()
    if text[:1] + text[-1:] in ("[]", "()"):
        with suppress(ValueError, SyntaxError):
            return list(map(str, ast.literal_eval(text)))
        words = [text := text[1:-1].strip()]
    if of_words:
        return [part.strip("\"' ") for word in words for part in word.rstrip(", ").split(",")]
    return re.split(r"\s*,\s*|\s+", text.rstrip(", "))


def _one(text: str, default: Any) -> Any:
    """A value of the kind of its default; ValueError or KeyError if it is none."""
    if isinstance(default, bool):
        return {"true": True, "false": False}[text.lower()]
    if isinstance(default, str):
        if not text:
            raise ValueError(text)
        return text
    if isinstance(default, int):
        with suppress(ValueError):
            return int(text)
    number = float(text)  # of a count, too: 1e4
    if not math.isfinite(number) or (isinstance(default, int) and not number.is_integer()):
        raise ValueError(text)
    return type(default)(number)
