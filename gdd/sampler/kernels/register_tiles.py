"""A tile of correlations that stays in vector registers: four rows by three vectors of columns.

A loop over single outputs loads one number for every multiply-add, and so waits for the loads. Here each vector of the
residual that is loaded serves four rows, and each number of the atom three vectors. Compilers do not find this form by
themselves, so it is written out as instructions; how wide a vector the machine really has only matters for speed.

*Checked:* tests/test_register_tiles.py.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gdd.base.compiling import INNER, kernel

TILE_ROWS = 4
VECTORS = 3
VECTOR_BYTES = 32
FUSED = ("contract",)  # a product and a sum may round once
INDEX = ir.IntType(32)


@kernel(**INNER)
def fits_tiles(atom, rows, width, taps):
    """Whether `correlate_tiles` serves: a square atom, and ``rows`` of a map in rows of ``width`` that hold a tile."""
    return rows >= TILE_ROWS and VECTORS * VECTOR_BYTES // atom.itemsize <= width and len(taps) == atom.shape[0]


@kernel(**INNER)
def correlate_tiles(left, atom, out, rows, columns, width, taps):
    """Inner products of a one-plane square atom with every window, tile by tile. Changes ``out``.

    ``left`` and ``out`` are flat with ``width`` columns a row; ``left`` has len(taps) numbers to spare at its end. The
    last tiles are moved back to end where the map ends, so some outputs are made twice. If the map is narrower than a
    tile, those past its last column are made too, up to ``width``, from windows that go on in the next row.
    """
    tile = VECTORS * VECTOR_BYTES // left.itemsize
    for i in range(0, rows, TILE_ROWS):
        start = min(i, rows - TILE_ROWS) * width
        for j in range(0, columns, tile):
            correlate_tile(left, atom, out, start + max(0, min(j, columns - tile)), width, taps)


@intrinsic
def correlate_tile(typing_context, left, atom, out, place, width, taps):
    """Outputs of one tile, whose upper left corner is at ``place``. ``taps``: tuple whose length is the atom's side."""
    signature = types.void(left, atom, out, types.intp, types.intp, taps)
    return signature, lambda *parts: _Tile(*parts).write()


class _Tile:
    """Writer of the instructions: one loop over the atom's columns, everything else laid out flat."""

    def __init__(self, context, builder, signature, arguments):
        self.builder, self.side = builder, len(signature.args[-1])
        arrays = zip(signature.args[:3], arguments[:3], strict=True)
        self.left, self.atom, self.out = (context.make_array(kind)(context, builder, it).data for kind, it in arrays)
        self.place, self.width = arguments[3:5]
        number = context.get_data_type(signature.args[0].dtype)
        self.size = context.get_abi_sizeof(number)
        self.lanes = VECTOR_BYTES // self.size
        self.vector = ir.VectorType(number, self.lanes)
        self.nothing = context.get_dummy_value()

    def write(self):
        builder, before = self.builder, self.builder.block
        loop, after = builder.append_basic_block("column_of_atom"), builder.append_basic_block("tile_done")
        builder.branch(loop)
        builder.position_at_end(loop)
        column, step = builder.phi(self.place.type), self.whole(1)
        sums = [[builder.phi(self.vector) for _ in range(VECTORS)] for _ in range(TILE_ROWS)]
        column.add_incoming(self.whole(0), before)
        fresh, following = self.add_column(column, sums), builder.add(column, step)
        column.add_incoming(following, loop)
        for old, new in zip(sum(sums, []), sum(fresh, []), strict=True):
            old.add_incoming(ir.Constant(self.vector, [0.0] * self.lanes), before)
            old.add_incoming(new, loop)
        builder.cbranch(builder.icmp_signed("<", following, self.whole(self.side)), loop, after)
        builder.position_at_end(after)
        self.store(fresh)
        return self.nothing

    def add_column(self, column, sums):
        """Sums after one column of the atom: every row of the residual that the tile sees, against four of the atom."""
        builder, sums = self.builder, [list(row) for row in sums]
        start = builder.add(self.place, column)
        for line in range(self.side + TILE_ROWS - 1):
            seen = [builder.load(self.at(self.left, start, v), align=self.size) for v in range(VECTORS)]
            for row in range(max(0, line - self.side + 1), min(TILE_ROWS, line + 1)):
                tap = self.spread(builder.add(column, self.whole((line - row) * self.side)))
                products = [builder.fmul(one, tap, flags=FUSED) for one in seen]
                sums[row] = [builder.fadd(*pair, flags=FUSED) for pair in zip(sums[row], products, strict=True)]
            start = builder.add(start, self.width)
        return sums

    def store(self, sums):
        start = self.place
        for row in sums:
            for v, one in enumerate(row):
                self.builder.store(one, self.at(self.out, start, v), align=self.size)
            start = self.builder.add(start, self.width)

    def spread(self, index):
        """One number of the atom in every lane."""
        number = self.builder.load(self.builder.gep(self.atom, [index]))
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, number, INDEX(0))
        everywhere = ir.Constant(ir.VectorType(INDEX, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, everywhere)

    def at(self, data, start, vector):
        """Pointer to a vector of numbers."""
        index = self.builder.add(start, self.whole(vector * self.lanes))
        return self.builder.bitcast(self.builder.gep(data, [index]), self.vector.as_pointer())

    def whole(self, value):
        return ir.Constant(self.place.type, value)
