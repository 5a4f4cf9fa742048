"""An atom against one window of an image, in vector registers: the innermost two operations of the joint sampler.

Arrays are flat. A window starts at ``start`` of an image whose rows are ``width`` numbers long (plane last); an atom of
``rows`` x ``length`` numbers starts at ``first`` of the dictionary. ``size`` = ((0,) * rows, (0,) * length): tuples
whose *lengths* are known when a kernel is compiled, so that a whole atom row is one vector. ((), ()) means sizes known
at run time only: plain loops, which are as quick for rows of a hundred numbers.

*Checked:* tests/test_windows.py.
"""

from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from gdd.sampler.kernels_math import FAST

#: rows of more numbers than this gain nothing from a size known in advance
LONGEST = 64
#: rows of fewer numbers are not worth the seconds of compiling for their very size
SHORTEST = 6


def window_size(rows: int, length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return ``size`` as the kernels take it."""
    return ((0,) * rows, (0,) * length) if SHORTEST <= length <= LONGEST else ((), ())


def _rows_of(context, builder, array_type, array, start, step, vector, number):
    """Addresses of ``number`` vectors, ``step`` numbers apart."""
    data = context.make_array(array_type)(context, builder, array).data
    for row in range(number):
        offset = builder.add(start, builder.mul(step, ir.Constant(start.type, row)))
        yield builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())


@intrinsic
def _vector_dot(typing_context, left, start, width, atom, first, size):
    kind, (rows, length) = left.dtype, (len(part) for part in size)
    signature = kind(left, types.intp, types.intp, atom, types.intp, size)

    def codegen(context, builder, signature, args):
        number = context.get_value_type(kind)
        vector, align = ir.VectorType(number, length), kind.bitwidth // 8
        step = ir.Constant(args[4].type, length)
        here = _rows_of(context, builder, signature.args[0], args[0], args[1], args[2], vector, rows)
        there = _rows_of(context, builder, signature.args[3], args[3], args[4], step, vector, rows)
        total = ir.Constant(vector, [0.0] * length)
        for one, other in zip(here, there, strict=True):
            pair = (builder.load(part, align=align) for part in (one, other))
            total = builder.fadd(total, builder.fmul(*pair, flags=("contract",)), flags=("contract",))
        kernel = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(number, [number, vector]),
            f"llvm.vector.reduce.fadd.v{length}f{kind.bitwidth}",
        )  # fmt: skip
        return builder.call(kernel, [ir.Constant(number, 0.0), total], fastmath=("reassoc",))

    return signature, codegen


@intrinsic
def _vector_add(typing_context, left, start, width, atom, first, value, size):
    kind, (rows, length) = left.dtype, (len(part) for part in size)
    signature = types.none(left, types.intp, types.intp, atom, types.intp, kind, size)

    def codegen(context, builder, signature, args):
        vector, align = ir.VectorType(context.get_value_type(kind), length), kind.bitwidth // 8
        step = ir.Constant(args[4].type, length)
        here = _rows_of(context, builder, signature.args[0], args[0], args[1], args[2], vector, rows)
        there = _rows_of(context, builder, signature.args[3], args[3], args[4], step, vector, rows)
        value = ir.Constant(vector, ir.Undefined)
        for lane in range(length):
            value = builder.insert_element(value, args[5], ir.Constant(ir.IntType(32), lane))
        for one, other in zip(here, there, strict=True):
            product = builder.fmul(value, builder.load(other, align=align), flags=("contract",))
            total = builder.fadd(builder.load(one, align=align), product, flags=("contract",))
            builder.store(total, one, align=align)
        return context.get_dummy_value()

    return signature, codegen


def window_dot(left, start, width, atom, first, rows, length, size):
    """Inner product of an atom with a window."""
    raise NotImplementedError("compiled code only")


def window_add(left, start, width, atom, first, value, rows, length, size):
    """Add ``value`` times an atom to a window. Changes ``left``."""
    raise NotImplementedError("compiled code only")


@njit(cache=True, fastmath=FAST)
def _loop_dot(left, start, width, atom, first, rows, length):
    total = left[0] * 0
    for a in range(rows):
        here = left[start + a * width : start + a * width + length]
        line = atom[first + a * length : first + (a + 1) * length]
        for t in range(length):
            total += here[t] * line[t]
    return total


@njit(cache=True, fastmath=FAST)
def _loop_add(left, start, width, atom, first, value, rows, length):
    for a in range(rows):
        here = left[start + a * width : start + a * width + length]
        line = atom[first + a * length : first + (a + 1) * length]
        for t in range(length):
            here[t] += value * line[t]


@overload(window_dot, inline="always")
def _window_dot(left, start, width, atom, first, rows, length, size):
    if len(size[0]):
        return lambda left, start, width, atom, first, rows, length, size: _vector_dot(
            left, start, width, atom, first, size
        )
    return lambda left, start, width, atom, first, rows, length, size: _loop_dot(
        left, start, width, atom, first, rows, length
    )


@overload(window_add, inline="always")
def _window_add(left, start, width, atom, first, value, rows, length, size):
    if len(size[0]):
        return lambda left, start, width, atom, first, value, rows, length, size: _vector_add(
            left, start, width, atom, first, value, size
        )
    return lambda left, start, width, atom, first, value, rows, length, size: _loop_add(
        left, start, width, atom, first, value, rows, length
    )
