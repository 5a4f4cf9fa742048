"""An atom against one window of an image, in vector registers: the innermost operations of the joint sampler.

Arrays are flat. A window starts at ``start`` of an image whose rows are ``width`` numbers long (plane last); an atom of
``rows`` x ``length`` numbers starts at ``first`` of the dictionary. ``size`` = ((0,) * rows, (0,) * length): tuples
whose *lengths* are known when a kernel is compiled, so that all rows are written out. ((), ()) means sizes known at run
time only. Either way a row is taken in pieces of `WIDEST` numbers, then in smaller ones.

*Checked:* tests/test_windows.py.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

#: rows of more numbers than this gain nothing from a size known in advance
LONGEST = 64
#: rows of fewer numbers are not worth the seconds of compiling for their very size
SHORTEST = 6
#: numbers in the largest piece of a row: four registers of 256 bits in single precision
WIDEST = 32
MAY_REORDER = ("reassoc", "contract")


def window_size(rows: int, length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return ``size`` as the kernels take it."""
    return ((0,) * rows, (0,) * length) if SHORTEST <= length <= LONGEST else ((), ())


def pieces(length: int):
    """Yield offset and width of the pieces of a row: powers of two, the largest first."""
    offset, width = 0, WIDEST
    while offset < length:
        while width > length - offset:
            width //= 2
        yield offset, width
        offset += width


class Rows:
    """Emits code for the pieces of an atom and of the window that it lies on."""

    def __init__(self, context, builder, arrays, kind):
        self.context, self.builder, self.kind = context, builder, kind
        self.number = context.get_value_type(kind)
        self.data = [context.make_array(type_)(context, builder, value).data for type_, value in arrays]

    def vector(self, width):
        """Type of a vector of so many numbers."""
        return ir.VectorType(self.number, width)

    def address(self, which, offset, width):
        """Address of a piece of array ``which`` (0: the image, 1: the atom)."""
        return self.builder.bitcast(self.builder.gep(self.data[which], [offset]), self.vector(width).as_pointer())

    def load(self, address):
        """Load a vector that need not be aligned."""
        return self.builder.load(address, align=self.kind.bitwidth // 8)

    def dot(self, total, here, there, width):
        """``total`` + the product of a piece of both, number by number."""
        one, other = (self.load(self.address(*place, width)) for place in ((0, here), (1, there)))
        return self.builder.fadd(total, self.builder.fmul(one, other, flags=MAY_REORDER), flags=MAY_REORDER)

    def add(self, value, here, there, width, onto=0):
        """Add a piece of one array times ``value``, a vector, to the piece of the other, which is array ``onto``."""
        places = [self.address(*place, width) for place in ((0, here), (1, there))]
        place, product = places[onto], self.builder.fmul(value, self.load(places[1 - onto]), flags=MAY_REORDER)
        total = self.builder.fadd(self.load(place), product, flags=MAY_REORDER)
        self.builder.store(total, place, align=self.kind.bitwidth // 8)

    def sum(self, vector):
        """Sum of a vector's numbers."""
        width = vector.type.count
        name = f"llvm.vector.reduce.fadd.v{width}f{self.kind.bitwidth}"
        kernel = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(self.number, [self.number, vector.type]), name
        )
        return self.builder.call(kernel, [ir.Constant(self.number, 0.0), vector], fastmath=("reassoc",))

    def sum_all(self, vectors):
        """Sum of the numbers of several vectors."""
        parts = [self.sum(vector) for vector in vectors]
        return functools.reduce(lambda one, other: self.builder.fadd(one, other, flags=MAY_REORDER), parts)

    def repeat(self, value, width):
        """Vector of one number."""
        lanes, nothing = ir.VectorType(ir.IntType(32), width), ir.Constant(self.vector(1), ir.Undefined)
        one = self.builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(one, nothing, ir.Constant(lanes, [0] * width))

    def zeros(self, width):
        """Vector of zeros, a constant."""
        return ir.Constant(self.vector(width), [0.0] * width)


def written_out(rows, size, start, width, first):
    """Yield (offset in the image, offset in the atom, width) of every piece, sizes known."""
    (height, length), builder = (len(part) for part in size), rows.builder
    for row in range(height):
        line = builder.add(start, builder.mul(width, ir.Constant(start.type, row)))
        for offset, piece in pieces(length):
            here = builder.add(line, ir.Constant(start.type, offset))
            yield here, builder.add(first, ir.Constant(start.type, row * length + offset)), piece


def looped(rows, height, length, start, width, first, visit):
    """Emit loops over rows and their pieces, sizes known when run; ``visit(here, there, piece)`` emits the inside."""
    builder = rows.builder
    with cgutils.for_range(builder, height) as row:
        line = builder.add(start, builder.mul(width, row.index))
        atom, done = builder.add(first, builder.mul(length, row.index)), ir.Constant(start.type, 0)
        for piece in (WIDEST, 8, 1):
            left = builder.sdiv(builder.sub(length, done), ir.Constant(start.type, piece))
            with cgutils.for_range(builder, left) as step:
                offset = builder.add(done, builder.mul(step.index, ir.Constant(start.type, piece)))
                visit(builder.add(line, offset), builder.add(atom, offset), piece)
            done = builder.add(done, builder.mul(left, ir.Constant(start.type, piece)))


@intrinsic
def _written_dot(typing_context, left, start, width, atom, first, size):
    kind = left.dtype
    signature = kind(left, types.intp, types.intp, atom, types.intp, size)

    def codegen(context, builder, signature, args):
        rows = Rows(context, builder, [(signature.args[t], args[t]) for t in (0, 3)], kind)
        totals = {}
        for here, there, piece in written_out(rows, size, args[1], args[2], args[4]):
            totals[piece] = rows.dot(totals.get(piece, rows.zeros(piece)), here, there, piece)
        return rows.sum_all(totals.values())

    return signature, codegen


def _written_onto(onto):
    """Intrinsic that adds one side times a value to the other, sizes known."""

    @intrinsic
    def written(typing_context, left, start, width, atom, first, value, size):
        kind = left.dtype
        signature = types.none(left, types.intp, types.intp, atom, types.intp, kind, size)

        def codegen(context, builder, signature, args):
            rows = Rows(context, builder, [(signature.args[t], args[t]) for t in (0, 3)], kind)
            values = {piece: rows.repeat(args[5], piece) for _, piece in pieces(len(size[1]))}
            for here, there, piece in written_out(rows, size, args[1], args[2], args[4]):
                rows.add(values[piece], here, there, piece, onto)
            return context.get_dummy_value()

        return signature, codegen

    return written


_written_add, _written_take = _written_onto(0), _written_onto(1)


@intrinsic
def _looped_dot(typing_context, left, start, width, atom, first, rows, length):
    kind = left.dtype
    signature = kind(left, types.intp, types.intp, atom, types.intp, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        rows = Rows(context, builder, [(signature.args[t], args[t]) for t in (0, 3)], kind)
        totals = {piece: cgutils.alloca_once_value(builder, rows.zeros(piece)) for piece in (WIDEST, 8, 1)}
        for piece, total in totals.items():  # the place is made once for a function; the zero is set at every call
            builder.store(rows.zeros(piece), total)

        def visit(here, there, piece):
            builder.store(rows.dot(builder.load(totals[piece]), here, there, piece), totals[piece])

        looped(rows, args[5], args[6], args[1], args[2], args[4], visit)
        return rows.sum_all(builder.load(total) for total in totals.values())

    return signature, codegen


def _looped_onto(onto):
    """Intrinsic that adds one side times a value to the other, sizes known at run time."""

    @intrinsic
    def looped_rows(typing_context, left, start, width, atom, first, value, rows, length):
        kind = left.dtype
        signature = types.none(left, types.intp, types.intp, atom, types.intp, kind, types.intp, types.intp)

        def codegen(context, builder, signature, args):
            rows = Rows(context, builder, [(signature.args[t], args[t]) for t in (0, 3)], kind)
            values = {piece: rows.repeat(args[5], piece) for piece in (WIDEST, 8, 1)}
            looped(
                rows, args[6], args[7], args[1], args[2], args[4],
                lambda here, there, piece: rows.add(values[piece], here, there, piece, onto),
            )  # fmt: skip
            return context.get_dummy_value()

        return signature, codegen

    return looped_rows


_looped_add, _looped_take = _looped_onto(0), _looped_onto(1)


def window_dot(left, start, width, atom, first, rows, length, size):
    """Inner product of an atom with a window."""
    raise NotImplementedError("compiled code only")


def window_add(left, start, width, atom, first, value, rows, length, size):
    """Add ``value`` times an atom to a window. Changes ``left``."""
    raise NotImplementedError("compiled code only")


def window_take(left, start, width, atom, first, value, rows, length, size):
    """Add ``value`` times a window to an atom. Changes ``atom``."""
    raise NotImplementedError("compiled code only")


@overload(window_dot, inline="always")
def _window_dot(left, start, width, atom, first, rows, length, size):
    if len(size[0]):
        return lambda left, start, width, atom, first, rows, length, size: _written_dot(
            left, start, width, atom, first, size
        )
    return lambda left, start, width, atom, first, rows, length, size: _looped_dot(
        left, start, width, atom, first, rows, length
    )


@overload(window_add, inline="always")
def _window_add(left, start, width, atom, first, value, rows, length, size):
    if len(size[0]):
        return lambda left, start, width, atom, first, value, rows, length, size: _written_add(
            left, start, width, atom, first, value, size
        )
    return lambda left, start, width, atom, first, value, rows, length, size: _looped_add(
        left, start, width, atom, first, value, rows, length
    )


@overload(window_take, inline="always")
def _window_take(left, start, width, atom, first, value, rows, length, size):
    if len(size[0]):
        return lambda left, start, width, atom, first, value, rows, length, size: _written_take(
            left, start, width, atom, first, value, size
        )
    return lambda left, start, width, atom, first, value, rows, length, size: _looped_take(
        left, start, width, atom, first, value, rows, length
    )
