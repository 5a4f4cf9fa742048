"""Kernels compiled without counting references: what would leak or be freed too early is refused or does not occur."""

import ast
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core.errors import NumbaError

from gdd.compiling import INNER

PACKAGE = Path(__file__).resolve().parents[1] / "gdd"


def inner_functions(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any("INNER" in ast.unparse(d) for d in node.decorator_list):
            yield node


def returned_arguments(function):
    """Arguments, used as arrays, that a function hands back as they are. Numba refuses any other array, see below."""
    used = (n.value for n in ast.walk(function) if isinstance(n, ast.Subscript | ast.Attribute))
    arguments = {argument.arg for argument in function.args.args} & {ast.unparse(value) for value in used}
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            found |= arguments & {value.id for value in values if isinstance(value, ast.Name)}
    return found


def test_no_argument_is_returned():
    functions = [f for path in PACKAGE.rglob("*.py") for f in inner_functions(path.read_text(encoding="utf-8"))]
    assert len(functions) > 100
    assert not {f.name: returned_arguments(f) for f in functions if returned_arguments(f)}


def test_a_returned_argument_would_be_seen():
    for value in ("a", "(i, a)"):
        (function,) = inner_functions(f"@njit(**INNER)\ndef f(a, i):\n    a[i] = 1\n    return {value}")
        assert "a" in returned_arguments(function)


def allocates(a):
    return np.zeros(3).sum()


def copies(a):
    a[:2] = a[1:]


def returns_a_part(a):
    return a[1:]


@pytest.mark.parametrize("function", [allocates, copies, returns_a_part])
def test_numba_refuses(function):
    with pytest.raises(NumbaError, match=r"NRT required|Only accept returning of array passed into the function"):
        njit(_nrt=INNER["_nrt"])(function)(np.zeros(3))
