"""Where things are: offsets of kept outputs and of tiles of the reduced axes, in elements from a base pointer.

Kept outputs are numbered flat, `k`; the innermost kept axis has size `K0`, strides beyond it come as (outer, inner) pairs. Reduced
positions are (outer, inner) pairs too. `DEEP` lists further axes as constants, innermost first: (size, stride of operand 0, of operand 1,
...).
"""

from .compat import jit, tl


@jit
def unravel_outer(outer, stride, NAXES: tl.constexpr, DEEP: tl.constexpr, OPERAND: tl.constexpr):
    """Offset of flat position `outer` over all axes but the innermost: one axis with a run-time stride, or those of DEEP."""
    if NAXES == 2:
        return outer * stride
    else:
        offset = outer * 0
        for axis in tl.static_range(len(DEEP)):
            offset += (outer % DEEP[axis][0]) * DEEP[axis][1 + OPERAND]
            outer = outer // DEEP[axis][0]
        return offset


@jit
def kept_offsets(k, K0, outer_stride, inner_stride, NAXES: tl.constexpr, DEEP: tl.constexpr, OPERAND: tl.constexpr):
    """Offsets of the outputs `k` in one operand."""
    if NAXES == 1:
        return k * inner_stride
    else:
        return unravel_outer(k // K0, outer_stride, NAXES, DEEP, OPERAND) + (k % K0) * inner_stride


@jit
def columns(k, K, VEC: tl.constexpr, FULL: tl.constexpr):
    """(outputs that exist, outputs that may be read): the last vector of contiguous outputs is read whole.

    FULL: tiles end where outputs do.
    """
    if FULL:
        return tl.full(k.shape, True, tl.int1), tl.full(k.shape, True, tl.int1)
    else:
        return k < K, k < (K + (VEC - 1)) // VEC * VEC


@jit
def reduced_tile(t, inner_tiles, R0_BLOCK: tl.constexpr, R1_BLOCK: tl.constexpr, NAXES: tl.constexpr, WIDE: tl.constexpr):
    """(outer, inner) positions of the lanes of reduced tile `t`; tiles of the inner axis come first."""
    lane = tl.arange(0, R0_BLOCK * R1_BLOCK)
    if WIDE:
        lane = lane.to(tl.int64)
        t = lane * 0 + t
    if NAXES == 1:
        return lane * 0, t * R0_BLOCK + lane
    elif R1_BLOCK == 1:
        return lane * 0 + t // inner_tiles, (t % inner_tiles) * R0_BLOCK + lane
    else:
        return (t // inner_tiles) * R1_BLOCK + lane // R0_BLOCK, (t % inner_tiles) * R0_BLOCK + lane % R0_BLOCK


@jit
def multiple_of(x, VEC: tl.constexpr):
    """`x`, which is a multiple of VEC, in a form in which the compiler knows it: whole vectors are then read at once."""
    if VEC > 1:
        return x // VEC * VEC
    else:
        return x


@jit
def aligned_tile(start, column, R0, VEC: tl.constexpr, HEAD: tl.constexpr):
    """A tile of contiguous rows read in whole vectors of VEC elements: (offsets, may be read, is a contribution, position in the row).

    A row that does not start on a vector is read from the vector it starts in, and one that does not end on a vector to that vector's end:
    what is read beyond the row lies in the same aligned 16 bytes as an element of it. Masks that change only between vectors keep the loads
    whole.
    """
    if HEAD:
        head = start % VEC
        end = (R0 + head + (VEC - 1)) // VEC * VEC
        readable = tl.max_constancy(column < end, (1, VEC))  # which the compiler does not see where `start` differs between lanes
        return start // VEC * VEC + column, readable, (column >= head) & (column < R0 + head), column - head
    else:
        end = (R0 + (VEC - 1)) // VEC * VEC
        return multiple_of(start, VEC) + column, column < end, column < R0, column


@jit
def slanted_tile(start, count, XBLOCK: tl.constexpr, VEC: tl.constexpr):
    """Rows of `count` outputs side by side that start anywhere, each read from the vector that its first output lies in: (offsets, may be
    read). Lane n of a row holds output n - start % VEC.
    """
    lane = tl.arange(0, XBLOCK)[:, None]
    end = (start % VEC + count + (VEC - 1)) // VEC * VEC
    return start // VEC * VEC + lane, tl.max_constancy(lane < end, (VEC, 1))


@jit
def slanted_window(tile, shift, K, K0, outer_stride, HOW: tl.constexpr, XBLOCK: tl.constexpr):
    """Outputs of a tile whose rows do not start on a vector: (offsets, outputs, exist, may be read).

    Rows that all start alike are read from the vector they start in. Else one vector of lanes is left for where each starts; then it is
    (offset of the first output in the first row, outputs, exist, how many).
    """
    VEC: tl.constexpr = HOW.column_vec
    DEEP: tl.constexpr = HOW.deep_kept
    wide: tl.constexpr = XBLOCK if HOW.slanted == 1 else XBLOCK - VEC
    inner, spare = K if HOW.kept == 1 else K0, VEC - 1 if HOW.slanted == 1 else 0
    per_row = tl.cdiv(inner + spare, wide)
    outer, begin, start = tile // per_row, tile % per_row * wide, shift
    if HOW.kept > 1:
        start += unravel_outer(outer, outer_stride, HOW.kept, DEEP, 0)
    lane = begin + tl.arange(0, XBLOCK)
    if HOW.slanted == 1:
        head = start % VEC
        exists, readable = (lane >= head) & (lane < head + inner), lane < (head + inner + (VEC - 1)) // VEC * VEC
        return start // VEC * VEC + lane, outer * inner + lane - head, exists, readable
    else:
        count = tl.minimum(inner - begin, wide)
        return start + begin, outer * inner + lane, lane < begin + count, count


@jit
def program_tile(slots, SHARED: tl.constexpr, HOW: tl.constexpr):
    """(output tile, slot) of this program: neighbours in the grid read neighbours in memory."""
    pid = tl.program_id(0)
    if not SHARED:
        return pid, 0
    elif HOW.brief == 2:  # no division, which the first load would wait for
        return pid * 0, pid
    elif HOW.slot_fast:
        return pid // slots, pid % slots
    else:
        output_tiles = tl.num_programs(0) // slots
        return pid % output_tiles, pid // output_tiles


@jit
def program_rows(
    slots, shift, K, K0, outer_stride, inner_stride, SHARED: tl.constexpr, HOW: tl.constexpr, XBLOCK: tl.constexpr
):  # fmt: skip
    """What this program reads: (output tile, slot, outputs, exist, may be read, offsets of their rows); where each row starts otherwise,
    how many outputs in place of what may be read, and the offset of the first of them alone.
    """
    DEEP: tl.constexpr = HOW.deep_kept
    tile, slot = program_tile(slots, SHARED, HOW)
    if HOW.wide:
        tile = tl.cast(tile, tl.int64)
    if HOW.slanted > 0:
        rows, k, live, reach = slanted_window(tile, shift, K, K0, outer_stride, HOW, XBLOCK)
    else:
        k = tile * XBLOCK + tl.arange(0, XBLOCK)
        live, reach = columns(k, K, HOW.column_vec, HOW.full_x)
        if HOW.kept == 2:
            outer_stride = multiple_of(outer_stride, HOW.column_vec)
        rows = kept_offsets(k, K0, outer_stride, inner_stride, HOW.kept, DEEP, 0) + shift
    return tile, slot, k, live, reach, rows


@jit
def tile_rows(
    rows, reach, row_stride, HOW: tl.constexpr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, R1_BLOCK: tl.constexpr
):  # fmt: skip
    """(offsets of the rows, may be read) of what `program_rows` says, for the lanes of a tile. Where each row starts otherwise, of those
    of the first tile: the others are whole vectors away.
    """
    if HOW.slanted > 1:
        row = reduced_tile(0, 1, R0_BLOCK, R1_BLOCK, HOW.reduced, HOW.wide)[1]
        return slanted_tile(rows + row[None, :] * row_stride, reach, XBLOCK, HOW.column_vec)
    else:
        return rows[:, None], reach[:, None]


@jit
def from_first_tile(t, start, inner_tiles, row_stride, HOW: tl.constexpr, R0_BLOCK: tl.constexpr):
    """How far tile `t` is from the first where each row starts otherwise, `start` along the outer axes: whole vectors."""
    if HOW.wide:
        t = tl.cast(t, tl.int64)
    if HOW.reduced > 1:
        t = t % inner_tiles
    return multiple_of(start + t * R0_BLOCK * row_stride, HOW.column_vec)
