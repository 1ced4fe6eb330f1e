"""Matrix-vector products for devices with few programs and no threads: `gemv.py` as `persistent.py` is `reduce.py`."""

from .affine import along, inner_length, outer_and_start, outer_offset
from .combine import constant
from .compat import jit, tl
from .flat import flat_fold, flat_init, flat_update


@jit
def walk_products(
    first, last, a_ptr, v_ptr, a_row, v_row, live, R0, a_r0, v_r0, OP: tl.constexpr, AXIS: tl.constexpr, FULL: tl.constexpr, SPREAD:
    tl.constexpr, XBLOCK: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """The sum of products of reduced tiles `first` to `last`, lane by lane. Beyond the matrix both factors are 0."""
    a0, a1, a2 = flat_init(XBLOCK, PIECE, AXIS, first >= 0, OP)
    for t in range(first, last):
        inner = t * PIECE + tl.arange(0, PIECE)
        offsets = a_row + along(inner * a_r0, AXIS)
        exists = inner < R0
        readable = along(exists, AXIS) & live
        if FULL:
            a = tl.load(a_ptr + offsets)
        else:
            a = tl.load(a_ptr + offsets, mask=readable, other=0)
        if SPREAD:
            v = tl.load(v_ptr + v_row + along(inner * v_r0, AXIS), mask=readable, other=0).to(OP.cast)
        elif FULL:
            v = along(tl.load(v_ptr + v_row + inner * v_r0).to(OP.cast), AXIS)
        else:
            v = along(tl.load(v_ptr + v_row + inner * v_r0, mask=exists, other=0).to(OP.cast), AXIS)
        a0, a1, a2 = flat_update(a0, a1, a2, a.to(OP.cast) * v, 0, OP)
    return a0


@jit
def persistent_gemv_kernel(
    a_ptr, v_ptr, y_ptr, out_ptr, alpha, beta, K, K0, R0, a_k1, a_k0, v_k1, v_k0, y_k1, y_k0, o_k1, o_k0, a_r0, v_r0, tiles, OP:
    tl.constexpr, HOW: tl.constexpr, SINK: tl.constexpr, AXIS: tl.constexpr, FULL: tl.constexpr, SPREAD: tl.constexpr, GROUP:
    tl.constexpr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Outputs are the rows of all batches; the rows of a tile share a vector, or (SPREAD) each has its own."""
    DEEP: tl.constexpr = HOW.deep_kept
    length = inner_length(K, K0, HOW.kept)
    per_row = tl.cdiv(length, XBLOCK)
    for tile in range(tl.program_id(0), K // length * per_row, tl.num_programs(0)):
        if HOW.wide:
            tile = tl.cast(tile, tl.int64)
        outer, start = outer_and_start(tile, per_row, XBLOCK, HOW.kept)
        k = start + tl.arange(0, XBLOCK)
        live = k < length
        a_row = along(outer_offset(outer, a_k1, HOW.kept, DEEP, 0) + k * a_k0, 1 - AXIS)
        v_row = outer_offset(outer, v_k1, HOW.kept, DEEP, 1)
        if SPREAD:
            v_row = along(v_row + k * v_k0, 1 - AXIS)
        if GROUP == 0:
            acc = walk_products(0, tiles, a_ptr, v_ptr, a_row, v_row, along(live, 1 - AXIS), R0, a_r0, v_r0, OP, AXIS, FULL, SPREAD, XBLOCK,
                                PIECE)  # fmt: skip
        else:  # a sum of so many tiles one after another would lose digits
            acc, _, _ = flat_init(XBLOCK, PIECE, AXIS, tile >= 0, OP)
            for group in range(0, tiles, GROUP):
                acc += walk_products(group, tl.minimum(group + GROUP, tiles), a_ptr, v_ptr, a_row, v_row, along(live, 1 - AXIS), R0,
                                     a_r0, v_r0, OP, AXIS, FULL, SPREAD, XBLOCK, PIECE)  # fmt: skip
        total, _, _ = flat_fold(acc, 0, 0, AXIS, OP)
        if HOW.scaled:
            total *= constant(alpha, OP.dtypes[0])
        if HOW.adds:
            y = tl.load(y_ptr + outer_offset(outer, y_k1, HOW.kept, DEEP, 2) + k * y_k0, mask=live, other=0)
            total += constant(beta, OP.dtypes[0]) * y.to(OP.dtypes[0])
        out = outer_offset(outer, o_k1, HOW.kept, DEEP, 3) + k * o_k0
        tl.store(out_ptr + out, total.to(out_ptr.dtype.element_ty), mask=live)
