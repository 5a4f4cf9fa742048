"""Cached kernels: none outlives a change of a kernel that it calls. Threads that wait sleep."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gdd.base import compiling

PACKAGE = Path(__file__).resolve().parents[1] / "gdd"


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
    compiling.kernel()(lambda: 0)
    assert before == compiling.numba.config.CACHE_DIR


def is_kernel(node):
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(d).startswith(("kernel(", "subkernel(")) for d in node.decorator_list)


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
