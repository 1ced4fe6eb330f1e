"""Reduction of any strided tensor: tiles of [XBLOCK outputs, reduced lanes], accumulated lane by lane and folded once.

One body serves every regime: which axis is contiguous, how long it is and how many programs share an output only change the tile.
"""

from .accumulate import update_tiles, update_within
from .combine import fold_partials, fold_slanted, store_state, write_parts, write_result
from .compat import gdc_launch_dependents, gdc_wait, jit, tl
from .language import finalize, init
from .meeting import arrive, exchange, fold_words, leave_word, restore
from .slots import add_to_slot
from .tiles import kept_offsets, multiple_of, program_rows, tile_rows


@jit
def reduce_kernel(
    x_ptr, where_ptr, out_ptr, p0, p1, p2, ticket_ptr, follows, seed, shift, count, K, K0, R1, R0, tail, x_k1, x_k0, w_k1, w_k0, o_k1,
    o_k0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0, inner_tiles, tiles, chunk, slots,
    OP: tl.constexpr, HOW: tl.constexpr, SINK: tl.constexpr,
    XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, R1_BLOCK: tl.constexpr, SBLOCK: tl.constexpr,
):  # fmt: skip
    """SINK "own": a program owns its outputs. "split": `slots` programs share them, the last to arrive folds; "words": states that say
    themselves that they are there; "pair": two programs that exchange them. "apart": another launch folds, over outputs and over rows that
    are read as one here. "slot": states stay in slots.
    """
    PARTIAL: tl.constexpr = OP.partial
    DEEP: tl.constexpr = HOW.deep_kept
    TILES: tl.constexpr = HOW.tiles
    SEED: tl.constexpr = HOW.seed
    if HOW.early:
        if SINK == "slot":
            if follows == 0:
                gdc_wait()  # what ran before may have written the values
        gdc_launch_dependents()
    if HOW.kept > 1 and HOW.slanted == 0:
        K0 = multiple_of(K0, HOW.column_vec)
    tile, slot, k, live, reach, x_row = program_rows(slots, shift, K, K0, x_k1, x_k0, SINK != "own", HOW, XBLOCK)
    where_row = x_row
    if HOW.masked:
        where_row = kept_offsets(k, K0, w_k1, w_k0, HOW.kept, DEEP, 1)
    origin = x_row
    if OP.shifted:  # by the first value of each output, or by 0 where that is not finite
        exists = live & (k * 0 < tiles)
        origin = tl.load(x_ptr + x_row, mask=exists, other=0).to(OP.cast)
        usable = tl.abs(origin) < float("inf")
        if HOW.masked:  # what is masked out may be anything, far from every contribution
            usable &= tl.load(where_ptr + where_row, mask=exists, other=0) != 0
        origin = tl.where(usable, origin, 0.0)
    rows, reach = tile_rows(x_row, reach, x_r0, HOW, XBLOCK, R0_BLOCK, R1_BLOCK)
    ends = R0
    if HOW.tail:  # of what may be read, in whole vectors, and of contributions
        ends = R0 + (k // HOW.column_vec * HOW.column_vec < tail)[:, None], R0 + (k < tail)[:, None]
    acc = init(OP, (XBLOCK, R0_BLOCK * R1_BLOCK), OP.dtypes[0])
    begin, end = slot * chunk, tl.minimum(slot * chunk + chunk, tiles)
    if TILES > 0:
        for n in tl.static_range(0, TILES, 4):
            acc = update_tiles(acc, begin + n, x_ptr, where_ptr, rows, where_row, live, reach, origin, R1, ends, x_r1, x_r0, w_r1,
                               w_r0, i_r1, i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, TILES - n, HOW.whole >> n & 15)  # fmt: skip
    else:
        if HOW.peel and HOW.head and HOW.reduced == 1:  # rows start within their first tile
            for t in range(begin, tl.minimum(end, 1)):
                acc = update_tiles(acc, t, x_ptr, where_ptr, rows, where_row, live, reach, origin, R1, ends, x_r1, x_r0, w_r1,
                                   w_r0, i_r1, i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, 1, 0)  # fmt: skip
            begin = tl.maximum(begin, 1)
        if HOW.peel or HOW.ahead > 1:
            BITS: tl.constexpr = 15 if HOW.peel else 0
            whole = end
            if HOW.peel and HOW.reduced == 1:  # and end within their last
                whole = tl.minimum(end, R0 // R0_BLOCK)
            for t in tl.range(begin, whole - (HOW.ahead - 1), HOW.ahead, loop_unroll_factor=1 if HOW.ahead == 1 else None):
                acc = update_within(acc, t, x_ptr, where_ptr, rows, where_row, live, reach, origin, R1, ends, x_r1, x_r0, w_r1,
                                   w_r0, i_r1, i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, HOW.ahead, BITS)  # fmt: skip
            begin += tl.maximum(whole - begin, 0) // HOW.ahead * HOW.ahead
        for t in tl.range(begin, end, loop_unroll_factor=1):
            acc = update_within(acc, t, x_ptr, where_ptr, rows, where_row, live, reach, origin, R1, ends, x_r1, x_r0, w_r1, w_r0,
                               i_r1, i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, 1, 0)  # fmt: skip
    if HOW.slanted > 1:
        state = fold_slanted(acc, x_row, x_r0, OP, HOW, XBLOCK, R0_BLOCK * R1_BLOCK)
    else:
        state = finalize(acc, OP, axis=1, partial=True)
    if HOW.abreast > 0 and OP.lift_extra == "index":  # of the row, in what was read as one, to that of its part
        state = state[0], state[1] * HOW.abreast + (k // (x_r0 // HOW.abreast)).to(state[1].dtype)
    if OP.shifted:  # kept in full precision from here on: the mean is no longer small
        wide: tl.constexpr = PARTIAL.dtypes[0]
        state = state[0].to(wide) + origin.to(wide), state[1].to(wide), state[2].to(wide)
    elif OP.many == 0 and OP.arity == 1:
        if OP.dtypes[0] == tl.int32 and PARTIAL.dtypes[0] == tl.int64:
            state = tl.maximum(state, -0x7FFFFFFF - tl.minimum(K, 1))  # changes nothing, but without it the compiler folds in 64 bits
        state = state.to(PARTIAL.dtypes[0])
    out_offsets = kept_offsets(k, K0, o_k1, o_k0, HOW.kept, DEEP, 2)
    if SINK == "pair":
        state, live = exchange(p0, k, slot, state, live, PARTIAL)
    if SINK == "own" or SINK == "pair":
        if OP.many > 0:
            write_parts(out_ptr, K, out_offsets, state, count, live, OP, HOW)
        else:
            write_result(out_ptr, out_offsets, state, seed, count, live, PARTIAL, SEED, HOW.accumulate, HOW.truth)
    elif SINK == "slot":  # [slot, output] whatever the layout and the tile
        if HOW.early:
            gdc_wait()  # the update before this one may still be in its slots
        add_to_slot(p0, p1, p2, slot * K + out_offsets, state, seed, live, OP)
    else:
        k_stride, slot_stride = slots if HOW.slot_fast else 1, 1 if HOW.slot_fast else K
        offsets = k * k_stride + slot * slot_stride
        if SINK == "words":
            leave_word(p0, offsets, state, live)
            if arrive(ticket_ptr + tile, slots, False):
                state, words, left = fold_words(p0, k, slots, k_stride, slot_stride, live, PARTIAL, SBLOCK)
                write_result(out_ptr, out_offsets, state, seed, count, live, PARTIAL, SEED, HOW.accumulate, HOW.truth)
                restore(words, left)
        else:
            store_state(p0, p1, p2, offsets, state, live, PARTIAL)
        if SINK == "split":
            if arrive(ticket_ptr + tile, slots, True):
                state = fold_partials(p0, p1, p2, k, slots, k_stride, slot_stride, live, PARTIAL, XBLOCK, SBLOCK, HOW.brief > 0)
                if OP.many > 0:
                    write_parts(out_ptr, K, out_offsets, state, count, live, OP, HOW)
                else:
                    write_result(out_ptr, out_offsets, state, seed, count, live, PARTIAL, SEED, HOW.accumulate, HOW.truth)
