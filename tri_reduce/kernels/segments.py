"""Segment updates: each row of values contributes to the output that its index names. No atomics: a program owns its slot of every output.

Rows are taken in tiles of [ROWS x LANES, ROWS]: each lane folds those rows of the tile that go where its own row goes, and of rows with
one target the first adds the result to the slot. Any monoid works, and the same input gives the same bits.
"""

from .compat import jit, tl
from .language import finalize, init, update
from .slots import add_to_slot
from .tiles import kept_offsets


@jit
def record_fault(fault_ptr, index_ptr, first, i_n, slot, serial, found):
    """Keep (number of the update, row, index) of the first index out of range that this slot's program has met since the start."""
    here = fault_ptr + slot * 3 + tl.arange(0, 1)
    found &= tl.load(here, mask=found, other=1) == 0
    bad = tl.load(index_ptr + first * i_n, mask=found, other=0).to(tl.int64)
    tl.store(here, first * 0 + serial, mask=found)
    tl.store(here + 1, first, mask=found)
    tl.store(here + 2, bad, mask=found)


@jit
def segment_kernel(
    v_ptr, index_ptr, where_ptr, fault_ptr, p0, p1, p2, position, serial, N, M, L, K, K0, v_n, i_n, w_n, v_k1, v_k0, w_k1, w_k0, o_k1, o_k0,
    row_tiles, chunk, lane_tiles, OP: tl.constexpr, KEPT: tl.constexpr, DEEP_KEPT: tl.constexpr, MASKED: tl.constexpr, WIDE: tl.constexpr,
    SINK: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Row n of v, [N, L], goes to output index[n] of [M, L]; an index outside [0, M) contributes nothing and is recorded."""
    lane_tile, slot = tl.program_id(0) % lane_tiles, tl.program_id(0) // lane_tiles
    lane = tl.arange(0, ROWS * LANES)
    j = lane_tile * LANES + lane % LANES
    within = tl.arange(0, ROWS)
    if WIDE:
        j, within, slot = j.to(tl.int64), within.to(tl.int64), slot.to(tl.int64)
    v_lane = kept_offsets(j, K0, v_k1, v_k0, KEPT, DEEP_KEPT, 0)
    w_lane = kept_offsets(j, K0, w_k1, w_k0, KEPT, DEEP_KEPT, 1)
    o_lane = kept_offsets(j, K0, o_k1, o_k0, KEPT, DEEP_KEPT, 2)
    outside = init("min", (1, ROWS), tl.int64)
    for t in tl.range(slot * chunk, tl.minimum(slot * chunk + chunk, row_tiles), num_stages=1):
        row, mine = t * ROWS + within, t * ROWS + lane // LANES
        to = tl.load(index_ptr + row * i_n, mask=row < N, other=-1).to(tl.int64)
        target = tl.load(index_ptr + mine * i_n, mask=mine < N, other=-1).to(tl.int64)
        legal = (to >= 0) & (to < M)
        outside = update(outside, row.to(tl.int64)[None, :], "min", mask=((row < N) & ~legal)[None, :])
        same = (target[:, None] == to[None, :]) & legal[None, :] & (j < L)[:, None]
        valid = same
        if MASKED:
            valid &= tl.load(where_ptr + w_lane[:, None] + (row * w_n)[None, :], mask=valid, other=0) != 0
        value = tl.load(v_ptr + v_lane[:, None] + (row * v_n)[None, :], mask=valid, other=0)
        acc = update(init(OP, (ROWS * LANES, ROWS), OP.dtypes[0]), value, OP, mask=valid, index=(position + row)[None, :])
        state = finalize(acc, OP, axis=1, partial=True)
        earlier = same & (row[None, :] < mine[:, None])
        repeats = finalize(update(init("any", (ROWS * LANES, ROWS), tl.int32), earlier.to(tl.int32), "any"), "any", axis=1)
        owns = (repeats == 0) & (target >= 0) & (target < M) & (j < L)
        add_to_slot(p0, p1, p2, slot * K + target * L + o_lane, state, 0, owns, OP)
        tl.debug_barrier()  # the next tile's rows may go to the same outputs, held by other threads
    first = finalize(outside, "min", axis=1)
    record_fault(fault_ptr, index_ptr, first, i_n, slot, serial, (first < N) & (lane_tile == 0))
