"""How kernels are compiled, where the compiled ones are kept, and how threads share their work.

Numba compiles a cached kernel again when the kernel's own file changes. It does not notice a change in another file
whose kernels were inlined, nor another level of optimisation (`NUMBA_OPT`). So ours are cached in a folder named after
a checksum of all files that hold kernels, and after that level. Folders of earlier kernels, ``kernels-*``, stay, as
another process may use them; they can be deleted at any time.

Kernels release the interpreter's lock, so plain threads of Python run them side by side (`share_out`), also after a
fork. Numba's own parallel loops compile every kernel twice. So does an argument that is a literal 0 in one call and a
variable in another: kernels write ``np.int64(0)``.

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
from functools import cache, reduce
from hashlib import sha256
from pathlib import Path

import numba
import platformdirs
from numba import types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic, lower_cast, models, register_jitable, register_model

#: lets sums of products use vector registers; keeps NaN and infinities honest
FAST = {"reassoc", "contract", "nsz", "arcp"}

PACKAGE = Path(__file__).parents[1]

#: threads at most: the cores that this process may use, unless the variable NUMBA_NUM_THREADS says fewer
MOST_THREADS: int = numba.config.NUMBA_NUM_THREADS
_THREADS = ContextVar("threads", default=MOST_THREADS)

#: how a line begins in a file with kernels, or with what numba puts in their place
_KERNELS = re.compile(rb"^(@(kernel|subkernel|subroutine)\(|(from|import) numba)", re.MULTILINE)


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
#: what reading a damaged file of the cache, or writing to a full disk, can raise
DAMAGED = (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError, KeyError, ValueError)


class KernelCache(FunctionCache):
    """Numba's cache of a function. Kernels that cannot be read or written are compiled again; a warning says so."""

    def load_overload(self, sig, target_context):  # noqa: D102
        with self._spared():
            return super().load_overload(sig, target_context)
        with self._spared():
            self.flush()

    def save_overload(self, sig, data) -> None:  # noqa: D102
        with self._spared():
            super().save_overload(sig, data)

    @contextmanager
    def _spared(self) -> Iterator[None]:
        try:
            yield
        except DAMAGED as error:
            warnings.warn(f"kernels in {FOLDER} cannot be used and are compiled again ({error!r})", stacklevel=4)


def kernel(**options):
    """Numba's ``njit`` that lets other threads run, the machine code kept until any kernel of the package changes.

    Division by zero gives infinity or NaN, as in numpy; looking out for it takes a tenth of refinement's image pass.
    """

    def compiled(function):
        dispatcher = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)(function)
        user_folder = numba.config.CACHE_DIR  # for functions that are not ours
        try:
            numba.config.CACHE_DIR = str(FOLDER)
            if FOLDER is not None:
                dispatcher._cache = KernelCache(function)
        except RuntimeError:  # gdd is here without its source files, by which numba keeps a function
            pass
        finally:
            numba.config.CACHE_DIR = user_folder
        return dispatcher

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
    """Call ``run(batch, thread)`` for batches of consecutive tasks, each on a thread of its own, numbered from 0.

    Returns when all have ended.
    """
    threads = max(1, min(thread_count(), tasks))
    first, *batches = (slice(tasks * t // threads, tasks * (t + 1) // threads) for t in range(threads))
    futures = [_helpers().submit(run, batch, thread) for thread, batch in enumerate(batches, 1)]
    try:
        run(first, 0)
    finally:
        wait(futures)
    for future in futures:
        future.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    """The threads besides a caller's own, which wait for work. What they share out in turn stays on them."""
    return ThreadPoolExecutor(MOST_THREADS - 1, initializer=lambda: _THREADS.set(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)


class Borrowed(types.Array):
    """A contiguous array of a kernel's caller: uncounted, and as an argument only its address and shape."""

    def __init__(self, array: types.Array):
        name = f"Borrowed({array.dtype}, {array.ndim})"
        super().__init__(array.dtype, array.ndim, "C", not array.mutable, name, array.aligned)


@register_model(Borrowed)
class BorrowedModel(models.ArrayModel):
    """How numba passes `Borrowed` to functions; everything but address and shape is a constant there, or computed."""

    def traverse(self, builder):  # noqa: D102
        return []  # parts that are counted

    def get_argument_type(self):  # noqa: D102
        return super().get_argument_type()[4:6]

    def as_argument(self, builder, value):  # noqa: D102
        return super().as_argument(builder, value)[4:6]

    def from_argument(self, builder, value):  # noqa: D102
        (data, shape), (owner, parent, size, *_) = value, super().get_argument_type()
        steps = [size(getattr(self.fe_type.dtype, "bitwidth", 8) // 8)]  # a boolean is a byte
        for length in reversed(shape):
            steps.append(builder.mul(steps[-1], length))
        items = reduce(builder.mul, shape, size(1))
        parts = owner(None), parent(None), items, steps[0], data, shape, tuple(steps[-2::-1])
        return super().from_argument(builder, parts)


@intrinsic
def borrowed(typing_context, arguments):
    """Arrays, or a tuple of tuples of them, as `Borrowed`, to be used while the caller of a kernel holds them.

    Counting, and long arguments, took half of an image pass of refinement.
    """
    kind = _borrowed(arguments)

    def codegen(context, builder, signature, args):
        model = context.data_model_manager[kind]
        return model.from_argument(builder, model.as_argument(builder, args[0]))

    return kind(arguments), codegen


@lower_cast(Borrowed, types.Array)
def _same_parts(context, builder, kind, target, array):
    return array  # where a variable is borrowed in one branch and a view in another


def _borrowed(kind):
    if isinstance(kind, types.Array) and kind.layout == "C":
        return Borrowed(kind)
    if isinstance(kind, types.BaseTuple):
        return types.BaseTuple.from_types([_borrowed(each) for each in kind], getattr(kind, "instance_class", None))
    return kind


def subkernel(**options):
    """Part of a kernel, compiled into every kernel that calls it; called from Python it runs in the interpreter.

    Without a ``fastmath`` and an error model of its own it would get those of the kernel that is compiled first.
    """
    own = {"error_model": "numpy", "fastmath": FAST, "forceinline": True, "no_cfunc_wrapper": True}
    return register_jitable(**(own | options))


def subroutine(**options):
    """`subkernel` that is called unless the compiler finds that inlining pays, and whose sums keep their order."""
    return subkernel(**({"fastmath": False, "forceinline": False} | options))
