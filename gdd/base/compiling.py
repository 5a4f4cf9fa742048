"""How kernels are compiled, where the compiled ones are kept, and how threads share their work.

Numba compiles a cached kernel again when the kernel's own file changes. It does not notice a change in another file
whose kernels were inlined, nor another level of optimisation (`NUMBA_OPT`). So ours are cached in a folder named after
a checksum of all files that hold kernels, and after that level. Folders of earlier kernels, ``kernels-*``, stay, as
another process may use them; they can be deleted at any time.

Numba compiles one version of ``f`` for a call ``f(0)`` and another for ``f(i)``. Where a variable starts as a literal 0
and changes later, it also compiles the version for the literal, which is never used. ``np.int64(0)`` avoids both.

Kernels release the interpreter's lock, so plain threads of Python run them side by side (`share_out`). They begin and
end with the work, need no threading library, and leave nothing behind that a forked process would wait for. Numba's own
parallel loops compile every kernel twice.

*Checked:* tests/test_compiling.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path

import numba
import platformdirs
from numba.extending import register_jitable

#: lets sums of products use vector registers; keeps NaN and infinities honest
FAST = {"reassoc", "contract", "nsz", "arcp"}

PACKAGE = Path(__file__).parents[1]

#: threads at most: the cores that this process may use, unless the variable NUMBA_NUM_THREADS says fewer
MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS
_THREADS = ContextVar("threads", default=MOST_THREADS)


def kernel_files(package: Path) -> list[Path]:
    """Every file of a package with kernels, or with what numba puts in their place."""
    names = (b"gdd.base.compiling", b"numba")
    return [path for path in sorted(package.rglob("*.py")) if any(name in path.read_bytes() for name in names)]


def checksum(package: Path) -> str:
    """Of the names and the contents of all files with kernels."""
    digest = sha256()
    for path in kernel_files(package):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def first_writable(folders: Iterable[Path]) -> Path | None:
    """Make the first folder that can be made and written to; None if there is none."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None


_BASES = (*filter(None, [numba.config.CACHE_DIR]), PACKAGE / "__pycache__", platformdirs.user_cache_dir("gdd"))
#: where compiled kernels are kept; None: nowhere, they are compiled in every process
FOLDER = first_writable(Path(base) / f"kernels-{checksum(PACKAGE)}-O{int(numba.config.OPT)}" for base in _BASES)


def kernel(**options):
    """Numba's ``njit`` that lets other threads run, the machine code kept until any kernel of the package changes."""

    def compiled(function):
        before = numba.config.CACHE_DIR  # the user's, for functions that are not ours; numba asks when it decorates
        try:
            numba.config.CACHE_DIR = str(FOLDER or "")
            return numba.njit(cache=FOLDER is not None, nogil=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = before

    return compiled


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Within, work is shared out to so many threads, or to `MOST_THREADS`; afterwards to as many as before."""
    before = _THREADS.set(max(1, min(number, MOST_THREADS)))
    try:
        yield
    finally:
        _THREADS.reset(before)


def thread_count() -> int:
    """How many threads `share_out` uses at most, where it is called."""
    return _THREADS.get()


def share_out(tasks: int, run: Callable[[slice, int], None]) -> None:
    """Call ``run(some, thread)`` for runs of consecutive tasks, ``some``, each on a thread of its own, numbered from 0.

    Returns when all have ended.
    """
    threads = min(thread_count(), tasks)
    if threads < 2:
        run(slice(0, tasks), 0)
        return
    runs = [slice(tasks * t // threads, tasks * (t + 1) // threads) for t in range(threads)]
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(run, some, thread) for thread, some in enumerate(runs[1:], 1)]
        run(runs[0], 0)
        for other in others:
            other.result()


def subkernel(**options):
    """Part of a kernel, compiled into every kernel that calls it; called from Python it runs in the interpreter.

    Code that takes tuples of arrays from Python can take longer to compile than the work on them, so there is none. A
    function without a ``fastmath`` and an error model of its own gets those of the kernel that is compiled first, so
    both are always set here.
    """
    return register_jitable(**({"error_model": "numpy", "fastmath": FAST, "forceinline": True} | options))
