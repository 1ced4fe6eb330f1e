"""Tiles of the reduced axes: up to four are read, then combined into the accumulator, lane by lane. Nothing is folded here."""

from .compat import jit, tl
from .language import update
from .tiles import aligned_tile, from_first_tile, multiple_of, reduced_tile, unravel_outer


@jit
def read_tile(
    t, x_ptr, where_ptr, x_row, where_row, live, reach, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0, inner_tiles,
    OP: tl.constexpr, HOW: tl.constexpr, R0_BLOCK: tl.constexpr, R1_BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Reduced tile `t` of the rows: (values, which are contributions, their positions where the op wants them). WHOLE: it lies within the
    rows.
    """
    DEEP: tl.constexpr = HOW.deep_reduced
    outer, inner = reduced_tile(t, inner_tiles, R0_BLOCK, R1_BLOCK, HOW.reduced, HOW.wide)
    outer, inner = outer[None, :], inner[None, :]
    start = outer * 0
    if HOW.reduced > 1:
        start = unravel_outer(outer, x_r1, HOW.reduced, DEEP, 0)
    if HOW.slanted > 1:  # rows of every tile start as those of the first
        offsets = x_row + from_first_tile(t, start, inner_tiles, x_r0, HOW, R0_BLOCK)
        readable, valid = inner < R0, inner < R0
    elif HOW.vec > 1:
        offsets, readable, valid, inner = aligned_tile(x_row + start, inner, R0, HOW.vec, HOW.head)
    else:
        offsets = x_row + multiple_of(start + inner * x_r0, HOW.column_vec)
        if HOW.tail:
            readable, valid = inner < R0[0], inner < R0[1]
        else:
            readable, valid = inner < R0, inner < R0
    if HOW.full_r or WHOLE:
        readable, valid = reach, live[:, None]
    else:
        if R1_BLOCK > 1:
            readable, valid = readable & (outer < R1), valid & (outer < R1)
        readable &= reach
        if HOW.masked:
            valid &= live[:, None]
    if HOW.masked:
        where_offsets = where_row[:, None] + inner * w_r0
        if HOW.reduced > 1:
            where_offsets += unravel_outer(outer, w_r1, HOW.reduced, DEEP, 1)
        valid &= tl.load(where_ptr + where_offsets, mask=valid, other=0) != 0
    index = inner
    if OP.lift_extra == "index":
        index = inner * i_r0
        if HOW.reduced > 1:
            index += unravel_outer(outer, i_r1, HOW.reduced, DEEP, 2)
    return tl.load(x_ptr + offsets, mask=readable, other=0, eviction_policy="evict_first"), valid, index


@jit
def prepared(value, origin, OP: tl.constexpr, HOW: tl.constexpr):
    """What is lifted of values that were read."""
    if HOW.precast is not None:
        value = value.to(HOW.precast)
    if OP.shifted:
        value = value.to(OP.cast) - origin[:, None]
    return value


@jit
def take_tile(acc, value, valid, index, origin, OP: tl.constexpr, HOW: tl.constexpr, WHOLE: tl.constexpr):
    """Combine a tile that was read into the accumulator. What it makes of outputs that do not exist is never stored."""
    value = prepared(value, origin, OP, HOW)
    if (HOW.full_r or WHOLE) and not HOW.masked:
        if OP.lift_extra == "index":
            return update(acc, value, OP, index=index)
        else:
            return update(acc, value, OP)
    elif OP.lift_extra == "index":
        return update(acc, value, OP, mask=valid, index=index)
    else:
        return update(acc, value, OP, mask=valid)


@jit
def update_tiles(
    acc, t, x_ptr, where_ptr, x_row, where_row, live, reach, origin, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0, inner_tiles,
    OP: tl.constexpr, HOW: tl.constexpr, R0_BLOCK: tl.constexpr, R1_BLOCK: tl.constexpr, COUNT: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Read COUNT tiles (four at most), from reduced tile `t` on, and only then combine them: their loads are in flight together. WHOLE: a
    bit for each of them, set where it lies within the rows.
    """
    v0, m0, i0 = read_tile(t, x_ptr, where_ptr, x_row, where_row, live, reach, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0,
                           inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, WHOLE >> 0 & 1)  # fmt: skip
    if COUNT > 1:
        v1, m1, i1 = read_tile(t + 1, x_ptr, where_ptr, x_row, where_row, live, reach, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1,
                               i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, WHOLE >> 1 & 1)  # fmt: skip
    if COUNT > 2:
        v2, m2, i2 = read_tile(t + 2, x_ptr, where_ptr, x_row, where_row, live, reach, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1,
                               i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, WHOLE >> 2 & 1)  # fmt: skip
    if COUNT > 3:
        v3, m3, i3 = read_tile(t + 3, x_ptr, where_ptr, x_row, where_row, live, reach, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1,
                               i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, WHOLE >> 3 & 1)  # fmt: skip
    if COUNT > 3 and OP.four is not None and (HOW.full_r or WHOLE == 15) and not HOW.masked:
        v0, v1 = prepared(v0, origin, OP, HOW).to(OP.cast), prepared(v1, origin, OP, HOW).to(OP.cast)
        v2, v3 = prepared(v2, origin, OP, HOW).to(OP.cast), prepared(v3, origin, OP, HOW).to(OP.cast)
        return update(acc, OP.four(v0, v1, v2, v3), OP, partial=True)
    acc = take_tile(acc, v0, m0, i0, origin, OP, HOW, WHOLE >> 0 & 1)
    if COUNT > 1:
        acc = take_tile(acc, v1, m1, i1, origin, OP, HOW, WHOLE >> 1 & 1)
    if COUNT > 2:
        acc = take_tile(acc, v2, m2, i2, origin, OP, HOW, WHOLE >> 2 & 1)
    if COUNT > 3:
        acc = take_tile(acc, v3, m3, i3, origin, OP, HOW, WHOLE >> 3 & 1)
    return acc


@jit
def update_within(
    acc, t, x_ptr, where_ptr, x_row, where_row, live, reach, origin, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0, inner_tiles,
    OP: tl.constexpr, HOW: tl.constexpr, R0_BLOCK: tl.constexpr, R1_BLOCK: tl.constexpr, COUNT: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """`update_tiles`; where there are outer axes and ends alone shall be masked, a row ends somewhere among the tiles: WHOLE is found."""
    if HOW.peel and HOW.reduced > 1:
        at = t % inner_tiles
        if (at + COUNT <= R0 // R0_BLOCK) & ((at > 0) | (not HOW.head)):
            acc = update_tiles(acc, t, x_ptr, where_ptr, x_row, where_row, live, reach, origin, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1,
                               i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, COUNT, 15)  # fmt: skip
        else:
            acc = update_tiles(acc, t, x_ptr, where_ptr, x_row, where_row, live, reach, origin, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1,
                               i_r0, inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, COUNT, 0)  # fmt: skip
    else:
        acc = update_tiles(acc, t, x_ptr, where_ptr, x_row, where_row, live, reach, origin, R1, R0, x_r1, x_r0, w_r1, w_r0, i_r1, i_r0,
                           inner_tiles, OP, HOW, R0_BLOCK, R1_BLOCK, COUNT, WHOLE)  # fmt: skip
    return acc
