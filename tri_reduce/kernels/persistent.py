"""The reduction for devices with few programs and no threads (Ascend): as many programs as cores, each walks output tiles.

What differs from `reduce.py`: offsets are affine in a tile's lanes (`affine.py`), lanes beyond an axis are loaded as PAD, which contributes
nothing, so that nothing is masked after the load, and states are written out (`flat.py`). Contributions lie along AXIS of a tile, outputs
along the other. FULL: tiles end where the axes do.
"""

from .affine import along, inner_length, outer_and_start, outer_offset
from .compat import jit, tl
from .flat import flat_fold, flat_init, flat_merge, flat_update
from .flat_slots import flat_add_to_slot, flat_write


@jit
def slot_count(slots, SINK: tl.constexpr):
    if SINK == "own":
        return 1
    else:
        return slots


@jit
def first_value(x_ptr, where_ptr, x_row, where_row, mine, tiles, OP: tl.constexpr, HOW: tl.constexpr):
    """Of each output, where its op is accurate only near zero: what to subtract. One that is not finite, or masked out, is of no use."""
    if OP.shifted:
        exists = mine & (tiles > 0)
        origin = tl.load(x_ptr + x_row, mask=exists, other=0).to(OP.cast)
        usable = tl.abs(origin) < float("inf")
        if HOW.masked:
            usable &= tl.load(where_ptr + where_row, mask=exists, other=0) != 0
        return tl.where(usable, origin, 0.0)
    else:
        return x_row


@jit
def walk(
    first, last, x_ptr, where_ptr, x_row, where_row, live, origin, R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0, inner_tiles,
    OP: tl.constexpr, HOW: tl.constexpr, AXIS: tl.constexpr, PAD: tl.constexpr, FULL: tl.constexpr, POSITION: tl.constexpr, XBLOCK:
    tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """The state of reduced tiles `first` to `last`, lane by lane."""
    DEEP: tl.constexpr = HOW.deep_reduced
    a0, a1, a2 = flat_init(XBLOCK, PIECE, AXIS, first >= 0, OP)
    for t in range(first, last):
        outer, start = outer_and_start(tl.cast(t, POSITION), inner_tiles, PIECE, HOW.reduced)
        inner = start.to(POSITION) + tl.arange(0, PIECE)
        position = outer_offset(outer, i_r1, HOW.reduced, DEEP, 2) + inner * i_r0
        if HOW.wide:
            outer, inner = outer.to(tl.int64), inner.to(tl.int64)
        offsets = x_row + along(outer_offset(outer, x_r1, HOW.reduced, DEEP, 0) + inner * x_r0, AXIS)
        exists = along(inner < R0, AXIS) & live
        if FULL:
            value = tl.load(x_ptr + offsets)
        elif PAD is None:
            value = tl.load(x_ptr + offsets, mask=exists, other=0)
        else:
            value = tl.load(x_ptr + offsets, mask=exists, other=PAD)
        if HOW.precast is not None:
            value = value.to(HOW.precast)
        contributes = exists
        if HOW.masked:  # known after the load: a mask from memory would make it a load of single elements
            where_offsets = where_row + along(outer_offset(outer, w_r1, HOW.reduced, DEEP, 1) + inner * w_r0, AXIS)
            contributes = tl.load(where_ptr + where_offsets, mask=exists, other=0).to(tl.float32) > 0.5
        if PAD is None:
            value = tl.where(contributes, value.to(OP.cast), OP.identity[0])
        elif HOW.masked:
            value = tl.where(contributes, value, PAD)
        if OP.shifted:
            value = value.to(OP.cast) - origin
        extra = 0
        if OP.lift_extra == "index":
            extra = along(position.to(OP.dtypes[1]), AXIS)
            if HOW.masked:
                extra = tl.where(contributes, extra, OP.identity[1])
        elif OP.lift_extra == "weight":
            if HOW.masked:
                extra = contributes.to(OP.cast)
            else:  # of outputs that do not exist the count is of no concern; integers are compared one by one
                left = tl.minimum(R0 - start, PIECE).to(tl.float32)
                extra = along((tl.arange(0, PIECE).to(tl.float32) < left).to(OP.cast), AXIS)
        a0, a1, a2 = flat_update(a0, a1, a2, value, extra, OP)
    return a0, a1, a2


@jit
def walk_in_groups(
    first, last, x_ptr, where_ptr, x_row, where_row, live, origin, R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0, inner_tiles,
    OP: tl.constexpr, HOW: tl.constexpr, AXIS: tl.constexpr, PAD: tl.constexpr, FULL: tl.constexpr, POSITION: tl.constexpr, GROUP:
    tl.constexpr, XBLOCK: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """`walk`, where it has so many tiles that a sum of one after another would lose digits: sums of GROUP tiles, and the sum of those."""
    if GROUP == 0:
        return walk(first, last, x_ptr, where_ptr, x_row, where_row, live, origin, R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0, inner_tiles, OP,
                    HOW, AXIS, PAD, FULL, POSITION, XBLOCK, PIECE)  # fmt: skip
    else:
        a0, a1, a2 = flat_init(XBLOCK, PIECE, AXIS, first >= 0, OP)
        for group in range(first, last, GROUP):
            b0, b1, b2 = walk(group, tl.minimum(group + GROUP, last), x_ptr, where_ptr, x_row, where_row, live, origin, R0, x_r1, x_r0,
                              w_r1, w_r0, i_r1, i_r0, inner_tiles, OP, HOW, AXIS, PAD, FULL, POSITION, XBLOCK, PIECE)  # fmt: skip
            a0, a1, a2 = flat_merge(a0, a1, a2, b0, b1, b2, OP)
        return a0, a1, a2


@jit
def persistent_reduce_kernel(
    x_ptr, where_ptr, out_ptr, p0, p1, p2, follows, seed, count, K, K0, R0, x_k1, x_k0, w_k1, w_k0, o_k1, o_k0, x_r1, x_r0, w_r1, w_r0,
    i_r1, i_r0, inner_tiles, tiles, chunk, slots, OP: tl.constexpr, HOW: tl.constexpr, SINK: tl.constexpr, AXIS: tl.constexpr, PAD:
    tl.constexpr, FULL: tl.constexpr, POSITION: tl.constexpr, GROUP: tl.constexpr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, PIECE:
    tl.constexpr,
):  # fmt: skip
    """SINK "own": a program owns the outputs of its tiles. "slot": states stay in slots, `slots` tiles for each tile of outputs.

    `follows` is not read: launches do not overlap here. R0_BLOCK is the configuration's, PIECE what is read of it at once.
    """
    DEEP: tl.constexpr = HOW.deep_kept
    SEED: tl.constexpr = HOW.seed
    ACCUMULATE: tl.constexpr = HOW.accumulate
    TRUTH: tl.constexpr = HOW.truth
    PARTIAL: tl.constexpr = OP.partial
    length = inner_length(K, K0, HOW.kept)
    per_row = tl.cdiv(length, XBLOCK)
    output_tiles = K // length * per_row
    for work in range(tl.program_id(0), output_tiles * slot_count(slots, SINK), tl.num_programs(0)):
        slot, tile = work // output_tiles, work % output_tiles
        if HOW.wide:
            slot, tile = slot.to(tl.int64), tile.to(tl.int64)
        outer, start = outer_and_start(tile, per_row, XBLOCK, HOW.kept)
        k = start + tl.arange(0, XBLOCK)
        mine = k < length
        x_row = outer_offset(outer, x_k1, HOW.kept, DEEP, 0) + k * x_k0
        where_row = outer_offset(outer, w_k1, HOW.kept, DEEP, 1) + k * w_k0
        origin = first_value(x_ptr, where_ptr, x_row, where_row, mine, tiles, OP, HOW)
        a0, a1, a2 = walk_in_groups(
            slot * chunk, tl.minimum(slot * chunk + chunk, tiles), x_ptr, where_ptr, along(x_row, 1 - AXIS), along(where_row, 1 - AXIS),
            along(mine, 1 - AXIS), along(origin, 1 - AXIS), R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0, inner_tiles, OP, HOW, AXIS, PAD, FULL,
            POSITION, GROUP, XBLOCK, PIECE,
        )  # fmt: skip
        a0, a1, a2 = flat_fold(a0, a1, a2, AXIS, OP)
        if OP.shifted:
            a0 = a0 + origin
        out = outer_offset(outer, o_k1, HOW.kept, DEEP, 2) + k * o_k0
        if SINK == "own":
            if OP.arity == 1:
                a0 = a0.to(PARTIAL.dtypes[0])
            flat_write(out_ptr, out, a0, a1, a2, seed, count, mine, PARTIAL, SEED, ACCUMULATE, TRUTH)
        else:
            flat_add_to_slot(p0, p1, p2, slot * K + out, a0, a1, a2, seed, mine, OP)
