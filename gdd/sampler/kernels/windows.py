"""Inner product of an atom with a window of a level, and its addition to one: the innermost operations of every kernel.

Arrays are flat. A window starts at ``start`` of a level whose rows are ``width`` numbers long (plane last), an atom at
``first`` of its dictionary. The loops serve atoms of any size. For the bottom layer, which takes most of a sweep,
`static_dot` and `static_add` unroll all rows in vector registers: ``rows`` and ``columns`` are tuples whose *lengths*
are known at compile time. The compiler alone does not keep sums over such short rows in registers: with loops over
static lengths an image pass of refinement takes 1.5 times as long at MNIST's sizes and a whole sweep 1.1 to 1.25 times;
without static sizes a sweep takes 1.75 times as long.

*Checked:* tests/test_windows.py.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gdd.base.compiling import FAST, kernel, subkernel

#: longer rows gain nothing from a static size
LONGEST = 64
#: shorter rows are not worth the compile time of a static size
SHORTEST = 6
#: numbers in the largest piece of a row: four registers of 256 bits in single precision
WIDEST = 32
MAY_REORDER = ("reassoc", "contract")


class Static(NamedTuple):
    """Size of an atom as types: tuples as long as it has rows and numbers in a row; empty without a static size.

    Their elements are empty tuples, which cost nothing as arguments.
    """

    rows: tuple[tuple[()], ...]
    columns: tuple[tuple[()], ...]


def static_size(rows: int, length: int) -> Static:
    """`Static` of atoms with rows of ``length`` numbers; empty where it would not pay."""
    return Static(((),) * rows, ((),) * length) if SHORTEST <= length <= LONGEST else Static((), ())


@kernel(fastmath=FAST)
def window_dot(level, start, source, first, layer):
    """Inner product of a window with an atom of the size of those of ``layer``."""
    total, p, q = level[0] * 0, np.uintp(start), np.uintp(first)  # unsigned: no check for negative indices
    width, length = np.uintp(layer.width), np.uintp(layer.length)
    for _ in range(layer.height // 2):  # two rows at once, as summing a register takes time
        below, beyond = p + width, q + length
        for t in range(length):
            total += level[p + t] * source[q + t] + level[below + t] * source[beyond + t]
        p, q = below + width, beyond + length
    if layer.height % 2:
        for t in range(length):
            total += level[p + t] * source[q + t]
    return total


@kernel(fastmath=FAST)
def window_add(onto, start, width, source, first, stride, amount, layer):
    """Add ``amount`` times one window to another, rows ``width`` and ``stride`` apart, both of the size of an atom.

    Changes ``onto``.
    """
    for a in range(layer.height):
        p, q = np.uintp(start + a * width), np.uintp(first + a * stride)
        for t in range(np.uintp(layer.length)):
            onto[p + t] += amount * source[q + t]


@subkernel()
def add_observed(onto, mask, start, source, first, amount, layer):
    """Add ``amount`` times an atom to a window where its pixels are observed. Changes ``onto``."""
    for a in range(layer.height):
        p, q = np.uintp(start + a * layer.width), np.uintp(first + a * layer.length)
        for t in range(np.uintp(layer.length)):
            onto[p + t] += amount * mask[p + t] * source[q + t]


def pieces(rows: types.BaseTuple, columns: types.BaseTuple):
    """Yield row, first column and width of the vectors of an atom; widths are powers of two, largest first."""
    for row in range(len(rows)):
        column, width = 0, WIDEST
        while column < len(columns):
            while width > len(columns) - column:
                width //= 2
            yield row, column, width
            column += width


class Emitter:
    """Emits loads and stores of vectors of an array's rows."""

    def __init__(self, context, builder, array_type, array, start, stride):
        self.builder, self.start, self.stride = builder, start, stride
        self.number, self.align = context.get_value_type(array_type.dtype), array_type.dtype.bitwidth // 8
        self.data = context.make_array(array_type)(context, builder, array).data

    def place(self, row, column, width):
        """Address of a vector."""
        line = self.builder.add(self.start, self.builder.mul(self.stride, self.stride.type(row)))
        number = self.builder.gep(self.data, [self.builder.add(line, line.type(column))])
        return self.builder.bitcast(number, ir.VectorType(self.number, width).as_pointer())

    def load(self, *piece):
        """Load a vector, which need not be aligned."""
        return self.builder.load(self.place(*piece), align=self.align)

    def store(self, vector, *piece):
        """Store a vector."""
        self.builder.store(vector, self.place(*piece), align=self.align)


def sum_of(builder, vector):
    """Sum of a vector's numbers."""
    kind, width = vector.type.element, vector.type.count
    name = f"llvm.vector.reduce.fadd.v{width}{kind.intrinsic_name}"
    reduce = builder.module.declare_intrinsic(name, (), ir.FunctionType(kind, [kind, vector.type]))
    return builder.call(reduce, [kind(0.0), vector], fastmath=("reassoc",))


@intrinsic
def static_dot(typing_context, level, start, width, atoms, first, rows, columns):
    """`window_dot` for a static size."""

    def codegen(context, builder, signature, args):
        window = Emitter(context, builder, signature.args[0], args[0], args[1], args[2])
        atom = Emitter(context, builder, signature.args[3], args[3], args[4], args[4].type(len(columns)))
        totals = {}
        for piece in pieces(rows, columns):
            product = builder.fmul(window.load(*piece), atom.load(*piece), flags=MAY_REORDER)
            vector = totals.get(piece[2], ir.Constant(product.type, [0.0] * piece[2]))
            totals[piece[2]] = builder.fadd(vector, product, flags=MAY_REORDER)
        parts = [sum_of(builder, vector) for vector in totals.values()] or [window.number(0.0)]
        return functools.reduce(lambda a, b: builder.fadd(a, b, flags=MAY_REORDER), parts)

    return level.dtype(level, types.intp, types.intp, atoms, types.intp, rows, columns), codegen


@intrinsic
def static_add(typing_context, onto, start, width, source, first, stride, value, rows, columns):
    """`window_add` for a static size. Changes ``onto``."""

    def codegen(context, builder, signature, args):
        target = Emitter(context, builder, signature.args[0], *args[:3])
        window = Emitter(context, builder, signature.args[3], *args[3:6])
        for piece in pieces(rows, columns):
            undefined = ir.Constant(ir.VectorType(window.number, piece[2]), ir.Undefined)
            vector = builder.insert_element(undefined, args[6], ir.IntType(32)(0))
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), piece[2]), [0] * piece[2])
            values = builder.shuffle_vector(vector, undefined, lanes)
            product = builder.fmul(values, window.load(*piece), flags=MAY_REORDER)
            target.store(builder.fadd(target.load(*piece), product, flags=MAY_REORDER), *piece)
        return context.get_dummy_value()

    intp = types.intp
    return types.none(onto, intp, intp, source, intp, intp, onto.dtype, rows, columns), codegen
