"""How kernels are compiled, and where the compiled ones are kept.

Numba counts who holds an array, with two locked instructions for every slice and many a call, in case it has to be
freed. A kernel that only works on arrays it was given frees none; counting took a quarter of the time of an image pass,
and two thirds of a random number. So only functions that allocate keep it. A kernel that allocates, or returns a part
of an array, by mistake, does not compile without it.

Numba compiles a kept kernel again when the kernel's own file has changed, but not when a file has whose kernels it
calls and has built in; nor does it ask how well the kept one was optimised (`NUMBA_OPT`). So ours are kept in a folder
named after a checksum of all files that hold kernels, and after that level, within `NUMBA_CACHE_DIR`, beside the
package or in the user's cache, whichever is the first that can be written to. Folders of earlier kernels,
``kernels-*``, stay, as another process may be at work with them; they can be deleted at any time.

A call ``f(0)`` gets a version of ``f`` of its own, beside that of ``f(i)``; so does a call with a variable that is a
written 0 at first and is changed later, and that version is never used. ``np.int64(0)`` in place of 0 avoids both.

Threads that wait for the end of a loop sleep instead of turning. Turning gains nothing at the sizes of the paper, and
takes the processor from whoever else is at work: two processes with small arrays on two cores, such as tests are, took
five times as long by it. `OMP_WAIT_POLICY` says so, of this process and its children, unless it is set already; it
comes too late where another package has loaded the same OpenMP library before.

*Checked:* tests/test_compiling.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numba
from numba.extending import register_jitable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when OpenMP is loaded

#: options of a kernel that is called by kernels: it neither allocates nor returns an array
INNER = {"_nrt": False}
#: options of a kernel that only kernels call: to take its arguments from Python can take as long to compile as the
#: kernel. Called from Python all the same, it ends the process.
BURIED = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
#: lets sums of products use vector registers; keeps NaN and infinities honest
FAST = {"reassoc", "contract", "nsz", "arcp"}


def kernel_files(package: Path) -> list[Path]:
    """Every file of a package with kernels, or with what numba puts in their place."""
    source = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    return [path for path, text in source.items() if "gdd.base.compiling" in text or "numba.extending" in text]


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


PACKAGE = Path(__file__).parents[1]
_BASES = (*filter(None, [numba.config.CACHE_DIR]), PACKAGE / "__pycache__", Path.home() / ".cache" / "gdd")
#: where compiled kernels are kept; None: nowhere, they are compiled in every process
FOLDER = first_writable(Path(base) / f"kernels-{checksum(PACKAGE)}-O{int(numba.config.OPT)}" for base in _BASES)


@contextmanager
def kept_in(folder: Path):
    """Functions decorated meanwhile are kept there; numba asks once, when it decorates."""
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def kernel(**options):
    """Numba's ``njit`` with these options, the machine code kept until any kernel of the package changes."""

    def compiled(function):
        if FOLDER is None:
            return numba.njit(**options)(function)
        with kept_in(FOLDER):
            return numba.njit(cache=True, **options)(function)

    return compiled


def subkernel(**options):
    """Part of a kernel that only kernels call, compiled into each of them; it neither allocates nor returns an array.

    To take tuples of arrays from Python can take longer to compile than the work on them, so this is compiled for
    kernels alone; called from Python it runs in the interpreter. Numba hands a caller's `FAST` and its way to divide
    down to what it calls, if that has none of its own, and keeps the first result: all have both here, whoever calls.
    """
    return register_jitable(**(INNER | {"error_model": "numpy", "fastmath": FAST, "forceinline": True} | options))
