"""Cached kernels: none outlives a change of a kernel that it calls. Threads share work, also after a fork."""

import ast
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from agreement import two_cores

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


def test_a_changed_kernel_is_compiled_again_into_its_callers(tmp_path):
    package, environment = tmp_path / "gdd", {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    assert compile_anew(tmp_path, **environment) == (1, 0)
    assert run_caller(tmp_path, **environment) == (1, 1)  # from the cache
    (package / "callee.py").write_text(CALLEE.format(value=22), encoding="utf-8")
    assert run_caller(tmp_path, **environment) == (22, 0)
    assert run_caller(tmp_path, **environment, NUMBA_OPT="1") == (22, 0)  # optimised less
    assert run_caller(tmp_path, **environment) == (22, 1)
    assert len(list((tmp_path / "kept").glob("kernels-*"))) == 3


def test_kernels_are_kept_in_the_first_folder_that_can_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    there, below = tmp_path / "there" / "kernels", tmp_path / "file" / "kernels"  # no folder fits below a file
    assert compiling.first_writable([below, there]) == there and there.is_dir()
    assert compiling.first_writable([below]) is None
    done = compile_anew(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert done == (1, 0) and len(list((tmp_path / "gdd" / "__pycache__").glob("kernels-*"))) == 1


def test_damaged_kernels_are_compiled_again(tmp_path):
    there = tmp_path / "kept"
    assert compile_anew(tmp_path, NUMBA_CACHE_DIR=str(there)) == (1, 0)
    for kept, size in (("*.nbi", 0), ("*.nbc", 20)):
        for path in there.rglob(kept):
            path.write_bytes(path.read_bytes()[:size])
        assert run_caller(tmp_path, NUMBA_CACHE_DIR=str(there)) == (1, 0)
    assert run_caller(tmp_path, NUMBA_CACHE_DIR=str(there)) == (1, 1)  # mended


def is_kernel(node):
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(d).startswith(("kernel(", "subkernel(", "subroutine(")) for d in node.decorator_list)


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


SHARED = """
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from gdd.base.compiling import kernel, on_threads, share_out
@kernel()
def loop(a):
    for i in range(a.size):
        a[i] = np.sqrt(i)
def work(_=None):
    a = np.zeros(100)
    with on_threads(2):
        share_out(len(a), lambda some, thread: loop(a[some]))
    return a.sum()
first = work()
child = os.fork()
if child == 0:
    os._exit(0 if work() == first else 1)
assert os.waitpid(child, 0)[1] == 0
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(work, range(4)).get(60) == [first] * 4
with ThreadPoolExecutor(4) as pool:
    assert set(pool.map(work, range(40))) == {first}
"""


def test_work_is_shared_out_after_a_fork_and_from_several_threads(tmp_path):
    """In a child, in a pool of processes, and in several threads at once."""
    script, env = tmp_path / "use.py", os.environ | {"PYTHONPATH": str(PACKAGE.parent), "NUMBA_NUM_THREADS": "2"}
    script.write_text(SHARED)
    env["NUMBA_CACHE_DIR"] = str(tmp_path)
    ran = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


@two_cores
def test_threads_share_all_tasks_once_and_pass_on_what_goes_wrong():
    for tasks in range(6):
        seen = np.zeros(tasks, int)
        with compiling.on_threads(2):
            compiling.share_out(tasks, lambda some, thread, seen=seen: np.add.at(seen, np.r_[some], 1))
        assert (seen == 1).all()
    counts = [0, 0]
    with compiling.on_threads(2):
        compiling.share_out(2, lambda some, thread: counts.__setitem__(thread, compiling.thread_count()))
    assert counts == [2, 1], "what a helper shares out stays on it"
    with compiling.on_threads(2), pytest.raises(ZeroDivisionError):
        compiling.share_out(2, lambda some, thread: 1 // (1 - some.start))


def test_number_of_threads_is_the_callers_own():
    with compiling.on_threads(1):
        assert compiling.thread_count() == 1
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(compiling.thread_count).result() == compiling.MOST_THREADS
    with compiling.on_threads(10**6):
        assert compiling.thread_count() == compiling.MOST_THREADS
