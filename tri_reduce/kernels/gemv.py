"""Matrix-vector products: alpha * (a @ x) + beta * y, batched. The sum of products over tiles of [XBLOCK rows, R0_BLOCK columns]."""

from .combine import constant, fold_partials, fold_slanted, store_state
from .compat import jit, tl
from .language import finalize, init, update
from .meeting import arrive, exchange, fold_words, leave_word, restore
from .tiles import aligned_tile, from_first_tile, kept_offsets, multiple_of, program_rows, reduced_tile, tile_rows


@jit
def read_tile(
    t, a_ptr, v_ptr, a_row, v_row, live, reach, R0, a_r0, v_r0,
    OP: tl.constexpr, HOW: tl.constexpr, R0_BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Tile `t` of the rows: (values, the vector's part, which are contributions). WHOLE: it lies within the rows."""
    position = reduced_tile(t, 1, R0_BLOCK, 1, 1, HOW.wide)[1]
    column = position[None, :]
    if HOW.slanted > 1:
        offsets = a_row + from_first_tile(t, 0, 1, a_r0, HOW, R0_BLOCK)
        readable, valid, inner = column < R0, column < R0, column
    elif HOW.vec > 1:
        offsets, readable, valid, inner = aligned_tile(a_row, column, R0, HOW.vec, HOW.head)
    else:
        offsets, readable, valid, inner = a_row + multiple_of(column * a_r0, HOW.column_vec), column < R0, column < R0, column
    mine = reach if HOW.slanted > 1 else live[:, None]  # lanes of slanted columns are not those of outputs yet
    if HOW.full_r or WHOLE:
        readable, valid = reach, mine
    else:
        readable, valid = readable & reach, valid & mine
    a = tl.load(a_ptr + offsets, mask=readable, other=0, eviction_policy="evict_first")
    if HOW.vector_2d and HOW.head and (HOW.peel or HOW.whole > 0):  # by single elements, whose addresses differ by constants in a thread
        begin = v_ptr + tl.cast(t, tl.int64) * R0_BLOCK * v_r0
        first = v_row[:, None] - a_row % HOW.vec * v_r0
        x = tl.load(begin + first + tl.arange(0, R0_BLOCK)[None, :] * v_r0, mask=valid, other=0)
    elif HOW.vector_2d:  # laid out as the matrix is: no exchange between threads, repeated reads hit the first-level cache
        x = tl.load(v_ptr + v_row[:, None] + inner * v_r0, mask=valid, other=0)
    elif HOW.full_r or WHOLE:
        x = tl.load(v_ptr + position * v_r0)[None, :]
    else:
        x = tl.load(v_ptr + position * v_r0, mask=position < R0, other=0)[None, :]
    return a, x, valid


@jit
def update_tiles(
    acc, t, a_ptr, v_ptr, a_row, v_row, live, reach, R0, a_r0, v_r0,
    OP: tl.constexpr, HOW: tl.constexpr, R0_BLOCK: tl.constexpr, COUNT: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Read COUNT tiles (four at most), from tile `t` on, and only then combine their products: their loads are in flight together."""
    a0, x0, m0 = read_tile(t, a_ptr, v_ptr, a_row, v_row, live, reach, R0, a_r0, v_r0, OP, HOW, R0_BLOCK, WHOLE >> 0 & 1)
    if COUNT > 1:
        a1, x1, m1 = read_tile(t + 1, a_ptr, v_ptr, a_row, v_row, live, reach, R0, a_r0, v_r0, OP, HOW, R0_BLOCK, WHOLE >> 1 & 1)
    if COUNT > 2:
        a2, x2, m2 = read_tile(t + 2, a_ptr, v_ptr, a_row, v_row, live, reach, R0, a_r0, v_r0, OP, HOW, R0_BLOCK, WHOLE >> 2 & 1)
    if COUNT > 3:
        a3, x3, m3 = read_tile(t + 3, a_ptr, v_ptr, a_row, v_row, live, reach, R0, a_r0, v_r0, OP, HOW, R0_BLOCK, WHOLE >> 3 & 1)
    acc = update(acc, a0.to(OP.cast) * x0.to(OP.cast), OP, mask=m0)
    if COUNT > 1:
        acc = update(acc, a1.to(OP.cast) * x1.to(OP.cast), OP, mask=m1)
    if COUNT > 2:
        acc = update(acc, a2.to(OP.cast) * x2.to(OP.cast), OP, mask=m2)
    if COUNT > 3:
        acc = update(acc, a3.to(OP.cast) * x3.to(OP.cast), OP, mask=m3)
    return acc


@jit
def gemv_kernel(
    a_ptr, v_ptr, y_ptr, out_ptr, p0, ticket_ptr, alpha, beta, shift, K, K0, R0, a_k1, a_k0, v_k1, v_k0, y_k1, y_k0, o_k1, o_k0, a_r0, v_r0,
    tiles, chunk, slots, OP: tl.constexpr, HOW: tl.constexpr, SINK: tl.constexpr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, SBLOCK:
    tl.constexpr,
):  # fmt: skip
    """Outputs are the rows of all batches. `HOW` is a `walk.Walk`."""
    DEEP: tl.constexpr = HOW.deep_kept
    TILES: tl.constexpr = HOW.tiles
    if HOW.kept > 1 and HOW.slanted == 0:
        K0 = multiple_of(K0, HOW.column_vec)
    tile, slot, k, live, reach, a_row = program_rows(slots, shift, K, K0, a_k1, a_k0, SINK != "own", HOW, XBLOCK)
    of_vector = k
    if HOW.slanted > 1:  # lanes are not those of outputs yet, but all of one batch
        of_vector = k - tl.arange(0, XBLOCK)
    v_row = kept_offsets(of_vector, K0, v_k1, v_k0, HOW.kept, DEEP, 1)
    rows, reach = tile_rows(a_row, reach, a_r0, HOW, XBLOCK, R0_BLOCK, 1)
    acc = init(OP, (XBLOCK, R0_BLOCK), OP.dtypes[0])
    begin, end = slot * chunk, tl.minimum(slot * chunk + chunk, tiles)
    if TILES > 0:
        for n in tl.static_range(0, TILES, 4):
            acc = update_tiles(acc, begin + n, a_ptr, v_ptr, rows, v_row, live, reach, R0, a_r0, v_r0, OP, HOW, R0_BLOCK, TILES - n,
                               HOW.whole >> n & 15)  # fmt: skip
    else:
        if HOW.peel and HOW.head:  # rows start within their first tile
            for t in range(begin, tl.minimum(end, 1)):
                acc = update_tiles(acc, t, a_ptr, v_ptr, rows, v_row, live, reach, R0, a_r0, v_r0, OP, HOW, R0_BLOCK, 1, 0)
            begin = tl.maximum(begin, 1)
        if HOW.peel or HOW.ahead > 1:
            BITS: tl.constexpr = 15 if HOW.peel else 0
            whole = end
            if HOW.peel:  # and end within their last
                whole = tl.minimum(end, R0 // R0_BLOCK)
            for t in range(begin, whole - (HOW.ahead - 1), HOW.ahead):
                acc = update_tiles(acc, t, a_ptr, v_ptr, rows, v_row, live, reach, R0, a_r0, v_r0, OP, HOW, R0_BLOCK, HOW.ahead,
                                   BITS)  # fmt: skip
            begin += tl.maximum(whole - begin, 0) // HOW.ahead * HOW.ahead
        for t in tl.range(begin, end, loop_unroll_factor=1):
            acc = update_tiles(acc, t, a_ptr, v_ptr, rows, v_row, live, reach, R0, a_r0, v_r0, OP, HOW, R0_BLOCK, 1, 0)
    if HOW.slanted > 1:
        total = fold_slanted(acc, a_row, a_r0, OP, HOW, XBLOCK, R0_BLOCK)
    else:
        total = finalize(acc, OP, axis=1)
    if SINK == "pair":
        total, live = exchange(p0, k, slot, total, live, OP)
    if SINK == "own" or SINK == "pair":
        write_row(out_ptr, y_ptr, k, total, alpha, beta, K0, y_k1, y_k0, o_k1, o_k0, live, OP, HOW)
    else:
        k_stride, slot_stride = slots if HOW.slot_fast else 1, 1 if HOW.slot_fast else K
        offsets = k * k_stride + slot * slot_stride
        if SINK == "words":
            leave_word(p0, offsets, total, live)
            if arrive(ticket_ptr + tile, slots, False):
                total, words, left = fold_words(p0, k, slots, k_stride, slot_stride, live, OP, SBLOCK)
                write_row(out_ptr, y_ptr, k, total, alpha, beta, K0, y_k1, y_k0, o_k1, o_k0, live, OP, HOW)
                restore(words, left)
        else:
            store_state(p0, p0, p0, offsets, total, live, OP)
        if SINK == "split" and arrive(ticket_ptr + tile, slots, True):
            total = fold_partials(p0, p0, p0, k, slots, k_stride, slot_stride, live, OP, XBLOCK, SBLOCK, HOW.brief > 0)
            write_row(out_ptr, y_ptr, k, total, alpha, beta, K0, y_k1, y_k0, o_k1, o_k0, live, OP, HOW)


@jit
def write_row(
    out_ptr, y_ptr, k, total, alpha, beta, K0, y_k1, y_k0, o_k1, o_k0, live, OP: tl.constexpr, HOW: tl.constexpr
):  # fmt: skip
    """Scale, add y where beta is not 0 (it is read only then), and store."""
    DEEP: tl.constexpr = HOW.deep_kept
    if HOW.scaled:
        total *= constant(alpha, OP.dtypes[0])
    if HOW.adds:
        y = tl.load(y_ptr + kept_offsets(k, K0, y_k1, y_k0, HOW.kept, DEEP, 2), mask=live, other=0)
        total += constant(beta, OP.dtypes[0]) * y.to(OP.dtypes[0])
    tl.store(out_ptr + kept_offsets(k, K0, o_k1, o_k0, HOW.kept, DEEP, 3), total.to(out_ptr.dtype.element_ty), mask=live)
