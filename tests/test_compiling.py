"""Kernels compiled without counting references: what would leak or be freed too early is refused or does not occur.
Kept kernels: none outlives a change of a kernel that it calls."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core.errors import NumbaError

from gdd.base import compiling
from gdd.base.compiling import INNER

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


CALLEE = "from gdd.base.compiling import kernel\n@kernel()\ndef called():\n    return {value}\n"
CALLER = """
from gdd.callee import called
from gdd.base.compiling import kernel
@kernel()
def caller():
    return called()
print(caller(), sum(caller.stats.cache_hits.values()))
"""


def run_caller(folder, **environment):
    ours = ("NUMBA_CACHE_DIR", "NUMBA_OPT", "PYTHONPATH")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run([sys.executable, "-c", "import gdd.caller"], cwd=folder, check=True, text=True,
                          capture_output=True, env={**clean, **environment})
    return tuple(int(word) for word in done.stdout.split())


def compile_anew(folder, **environment):
    """Write a package of one kernel that calls another, and run it."""
    package = folder / "gdd"
    (package / "base").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "base" / "__init__.py").touch()
    shutil.copy(PACKAGE / "base" / "compiling.py", package / "base")
    (package / "caller.py").write_text(CALLER, encoding="utf-8")
    (package / "callee.py").write_text(CALLEE.format(value=1), encoding="utf-8")
    return run_caller(folder, **environment)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_changed_kernel_is_compiled_again_into_its_callers(tmp_path, chosen):
    package, environment = tmp_path / "gdd", {"NUMBA_CACHE_DIR": str(tmp_path / "kept")} if chosen else {}
    assert compile_anew(tmp_path, **environment) == (1, 0)
    assert run_caller(tmp_path, **environment) == (1, 1)  # from the cache
    (package / "callee.py").write_text(CALLEE.format(value=22), encoding="utf-8")
    assert run_caller(tmp_path, **environment) == (22, 0)
    base = tmp_path / "kept" if chosen else package / "__pycache__"
    assert run_caller(tmp_path, **environment, NUMBA_OPT="1") == (22, 0)  # optimised less
    assert run_caller(tmp_path, **environment) == (22, 1)
    assert len(list(base.glob("kernels-*"))) == 3


def test_kernels_are_kept_in_the_first_folder_that_can_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    there, below = tmp_path / "there" / "kernels", tmp_path / "file" / "kernels"  # no folder fits below a file
    assert compiling.first_writable([below, there]) == there and there.is_dir()
    assert compiling.first_writable([below]) is None
    done = compile_anew(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert done == (1, 0) and len(list((tmp_path / "gdd" / "__pycache__").glob("kernels-*"))) == 1


def test_kernels_do_not_move_the_users_own_cache():
    before = compiling.numba.config.CACHE_DIR
    with pytest.raises(ZeroDivisionError), compiling.kept_in(Path("elsewhere")):
        assert compiling.numba.config.CACHE_DIR == "elsewhere"
        raise ZeroDivisionError
    assert before == compiling.numba.config.CACHE_DIR


def is_kernel(node):
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(d).startswith(("kernel(", "overload(", "intrinsic")) for d in node.decorator_list)


def test_every_kernel_is_kept_under_the_checksum():
    """None is decorated with numba's own, and what kernels take from other files of ours is in the checksum too."""
    files = compiling.kernel_files(PACKAGE)
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if path.name != "compiling.py":
            assert "njit" not in source and "numba.jit" not in source, path
        tree = ast.parse(source)
        used = {n.id for f in ast.walk(tree) if is_kernel(f) for n in ast.walk(f) if isinstance(n, ast.Name)}
        assert not used or path in files, path
        for node in ast.walk(tree):
            ours = isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gdd.")
            if ours and used & {alias.asname or alias.name for alias in node.names}:
                assert PACKAGE.parent / (node.module.replace(".", "/") + ".py") in files, (path, node.module)


def called_from_python(source, buried, module=""):
    """Names of ``buried`` (module, name) that a file, itself a module, uses outside its kernels."""
    tree, modules, found = ast.parse(source), {}, set()
    names = {name for home, name in buried if home == module}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (node.module, alias.name) in buried:
                    names.add(alias.asname or alias.name)
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    outside = [node for node in tree.body if not is_kernel(node)]
    for node in (inner for statement in outside for inner in ast.walk(statement)):
        if isinstance(node, ast.Name) and node.id in names:
            found.add(node.id)
        if isinstance(node, ast.Attribute):
            found |= {node.attr} if (modules.get(ast.unparse(node.value)), node.attr) in buried else set()
    return found


def module_of(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def test_python_calls_no_buried_kernel():
    """It would end the process."""
    buried = set()
    for path in PACKAGE.rglob("*.py"):
        module = module_of(path)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if is_kernel(node) and any("BURIED" in ast.unparse(d) for d in node.decorator_list):
                buried.add((module, node.name))
    assert len(buried) > 50
    for path in (*PACKAGE.rglob("*.py"), *Path(__file__).parent.rglob("*.py")):
        assert not called_from_python(path.read_text(encoding="utf-8"), buried, module_of(path)), path


USES = ("from gdd.a import f\nf(1)", "from gdd.a import f as g\ndef h():\n    g(1)", "from gdd import a\na.f(1)",
        "import gdd.a\ngdd.a.f(1)", "import gdd.a as b\nb.f(1)")


@pytest.mark.parametrize("use", USES)
def test_a_call_of_a_buried_kernel_would_be_seen(use):
    assert called_from_python(use, {("gdd.a", "f")})
    assert called_from_python("def h():\n    f(1)", {("gdd.a", "f")}, "gdd.a")
    assert not called_from_python("from gdd.a import f\n@kernel()\ndef h():\n    f(1)", {("gdd.a", "f")})


LOOPS = """
import numba, numpy as np, sklearn.cluster
from gdd.base.compiling import kernel
@kernel(parallel=True)
def loop(a):
    for i in numba.prange(a.size):
        a[i] = i
loop(np.zeros(8))
print(numba.threading_layer())
"""


@pytest.mark.parametrize("chosen", [None, "active"])
def test_waiting_threads_sleep_unless_told_otherwise(chosen, tmp_path):
    """Though scikit-learn is imported before, with an OpenMP of its own. Threads that sleep turn no time before."""
    script = tmp_path / "loops.py"
    script.write_text(LOOPS)
    env = os.environ | {"OMP_DISPLAY_ENV": "verbose", "NUMBA_THREADING_LAYER": "omp", "NUMBA_CACHE_DIR": str(tmp_path)}
    env = {name: value for name, value in env.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    env |= {"PYTHONPATH": str(PACKAGE.parent)} | ({"OMP_WAIT_POLICY": chosen} if chosen else {})
    ran = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    said = ran.stderr.replace(" ", "")
    if "Nothreadinglayer" in said or "GOMP_SPINCOUNT=" not in said:
        pytest.skip("numba has not GNU's OpenMP here")
    assert ran.returncode == 0 and ran.stdout.strip() == "omp", ran.stderr
    turns = said.rpartition("GOMP_SPINCOUNT='")[2].partition("'")[0]  # numba's, the last to be loaded
    assert (turns == "0") == (chosen is None)
