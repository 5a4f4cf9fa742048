"""How kernels are compiled, where the compiled ones are kept, and how threads share their work.

Numba compiles a cached kernel again when the kernel's own file changes. It does not notice a change in another file
whose kernels were inlined, nor another level of optimisation (`NUMBA_OPT`). So ours are cached in a folder named after
a checksum of all files that hold kernels, and after that level. Folders of earlier kernels, ``kernels-*``, stay, as
another process may use them; they can be deleted at any time. What is damaged there is compiled again.
A kernel that cannot be written, as the disk is full, is used all the same. A warning says so once.

Numba compiles one version of ``f`` for a call ``f(0)`` and another for ``f(i)``. Where a variable starts as a literal 0
and changes later, it also compiles the version for the literal, which is never used. ``np.int64(0)`` avoids both.

Kernels release the interpreter's lock, so plain threads of Python run them side by side (`share_out`). They need no
threading library, wait for more work when they have ended theirs, as starting one anew costs up to half a millisecond,
and a forked process starts its own. Numba's own parallel loops compile every kernel twice.

*Checked:* tests/test_compiling.py.
"""

from __future__ import annotations

import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import sha256
from pathlib import Path

import numba
import platformdirs
from numba import types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic, register_jitable

#: lets sums of products use vector registers; keeps NaN and infinities honest
FAST = {"reassoc", "contract", "nsz", "arcp"}

PACKAGE = Path(__file__).parents[1]

#: threads at most: the cores that this process may use, unless the variable NUMBA_NUM_THREADS says fewer
MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS
_THREADS = ContextVar("threads", default=MOST_THREADS)


#: how a line begins in a file with kernels, or with what numba puts in their place
_KERNELS = re.compile(rb"^(@(sub)?kernel\(|(from|import) numba)", re.MULTILINE)


def kernel_files(package: Path) -> list[Path]:
    """Every file of a package with kernels, and of `gdd.reference`, whose constants are compiled into them."""
    files = sorted(package.rglob("*.py"))
    return [path for path in files if path.parent.name == "reference" or _KERNELS.search(path.read_bytes())]


def checksum(package: Path) -> str:
    """Of the names and the contents of all files with kernels."""
    digest = sha256()
    for path in kernel_files(package):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def first_writable(folders: Iterable[Path]) -> Path | None:
    """Make the first folder that can be made and written to, with its whole path; None if there is none."""
    for folder in folders:
        try:
            place = folder.absolute()
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    return None


_BASES = (*filter(None, [numba.config.CACHE_DIR]), PACKAGE / "__pycache__", platformdirs.user_cache_dir("gdd"))
#: where compiled kernels are kept; None: nowhere, they are compiled in every process
FOLDER = first_writable(Path(base) / f"kernels-{checksum(PACKAGE)}-O{int(numba.config.OPT)}" for base in _BASES)


#: what reading a damaged file of the cache can raise
DAMAGED = (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError, KeyError, ValueError)


@cache
def warn_once(message: str) -> None:
    """Warn of this the first time."""
    warnings.warn(message, stacklevel=2)


class KernelCache(FunctionCache):
    """Numba's cache of a function, in which nothing that is wrong with its files stops the caller."""

    def load_overload(self, sig, target_context):
        """What was kept for a signature; None to compile it."""
        try:
            return super().load_overload(sig, target_context)
        except DAMAGED as error:
            warn_once(f"damaged kernels in {FOLDER} are compiled again ({type(error).__name__})")
            self.save(self.flush)

    def save_overload(self, sig, data) -> None:
        """Keep what was compiled, if that can be."""
        self.save(lambda: super(KernelCache, self).save_overload(sig, data))

    def save(self, write: Callable[[], None]) -> None:
        """Write to the cache, or do without."""
        try:
            write()
        except DAMAGED as error:
            warn_once(f"kernels cannot be kept in {FOLDER} and are compiled again in every process ({error})")


def kernel(**options):
    """Numba's ``njit`` that lets other threads run, the machine code kept until any kernel of the package changes.

    Division by zero gives infinity or NaN, as in numpy; looking out for it takes a tenth of refinement's image pass.
    """

    def compiled(function):
        before = numba.config.CACHE_DIR  # the user's, for functions that are not ours; numba asks when it decorates
        try:
            numba.config.CACHE_DIR = str(FOLDER or "")
            made = numba.njit(nogil=True, error_model="numpy", **options)(function)
            if FOLDER is not None:
                try:
                    made._cache = KernelCache(function)
                except RuntimeError:  # numba keeps a function by its source file
                    warn_once("gdd is here without its source files; kernels are compiled again in every process")
            return made
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
    runs = {t: slice(tasks * t // threads, tasks * (t + 1) // threads) for t in range(threads)}
    mine, others = [0], []

    def run_once(thread: int) -> None:
        if (some := runs.pop(thread, None)) is not None:  # a thread that failed to start may have left it to another
            run(some, thread)

    try:
        for thread in range(1, threads):
            others.append(_helpers().submit(run_once, thread))
    except RuntimeError:  # none can be started, as the interpreter is ending
        mine = range(threads)
    try:
        for thread in mine:
            run_once(thread)
    finally:
        wait(others)
    for other in others:
        other.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    """The threads besides a caller's own. What they share out in turn stays on them, lest they wait for each other."""
    return ThreadPoolExecutor(MOST_THREADS - 1, initializer=lambda: _THREADS.set(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)


@intrinsic
def borrowed(typing_context, arguments):
    """Arrays, or a tuple of tuples of them, that are not counted: to be used while the caller of a kernel holds them.

    Else each array is counted in and out of every function that is called with it and is not part of its caller, which
    took half of an image pass of refinement.
    """
    return arguments(arguments), lambda context, builder, signature, args: _uncounted(
        context, builder, signature.args[0], args[0]
    )


def _uncounted(context, builder, kind, value):
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo, array.parent = (cgutils.get_null_value(part.type) for part in (array.meminfo, array.parent))
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        parts = [(each, builder.extract_value(value, number)) for number, each in enumerate(kind)]
        return context.make_tuple(builder, kind, [_uncounted(context, builder, *part) for part in parts])
    return value


def subkernel(**options):
    """Part of a kernel, compiled into every kernel that calls it; called from Python it runs in the interpreter.

    Code that takes tuples of arrays from Python can take longer to compile than the work on them, so there is none. A
    function without a ``fastmath`` and an error model of its own gets those of the kernel that is compiled first, so
    both are always set here.
    """
    return register_jitable(**({"error_model": "numpy", "fastmath": FAST, "forceinline": True} | options))
