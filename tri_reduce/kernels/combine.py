"""The end of a reduction: partial states in memory, the fold over those of an output, and what is stored."""

from .compat import jit, tl
from .language import finalize, init, update


@jit
def store_state(p0, p1, p2, offsets, state, mask, OP: tl.constexpr):
    if OP.arity == 1:
        tl.store(p0 + offsets, state, mask=mask)
    else:
        tl.store(p0 + offsets, state[0], mask=mask)
        tl.store(p1 + offsets, state[1], mask=mask)
        if OP.arity == 3:
            tl.store(p2 + offsets, state[2], mask=mask)


@jit
def load_state(p0, p1, p2, offsets, mask, OP: tl.constexpr):
    """Past the first-level cache: another program wrote it during this launch."""
    a = tl.load(p0 + offsets, mask=mask, other=0, cache_modifier=".cg")
    if OP.arity == 1:
        return a
    else:
        b = tl.load(p1 + offsets, mask=mask, other=0, cache_modifier=".cg")
        if OP.arity == 2:
            return a, b
        else:
            return a, b, tl.load(p2 + offsets, mask=mask, other=0, cache_modifier=".cg")


@jit
def fold_slanted(acc, start, row_stride, OP: tl.constexpr, HOW: tl.constexpr, XBLOCK: tl.constexpr, LANES: tl.constexpr):
    """The partial state of each output where each row starts otherwise: of rows that start alike, then of all, moved to their outputs.

    `start`: offset of the first output in the first row.
    """
    PERIOD: tl.constexpr = HOW.slanted
    state = finalize(tl.reshape(acc, (XBLOCK, LANES // PERIOD, PERIOD)), OP, axis=1, partial=True)
    head = (start + tl.arange(0, PERIOD) * row_stride) % HOW.column_vec
    lane = tl.minimum(tl.arange(0, XBLOCK)[:, None] + head[None, :].to(tl.int32), XBLOCK - 1)
    return finalize(tl.gather(state, lane, 0), OP, axis=1, partial=True)


@jit
def take_partials(
    acc, first, p0, p1, p2, k, slots, k_stride, slot_stride, mask, OP: tl.constexpr, SBLOCK: tl.constexpr
):  # fmt: skip
    """Combine a tile of slots, from slot `first` on."""
    slot = first + tl.arange(0, SBLOCK)
    live = mask[:, None] & (slot < slots)[None, :]
    offsets = k[:, None] * k_stride + (slot * slot_stride)[None, :]
    return update(acc, load_state(p0, p1, p2, offsets, live, OP), OP, mask=live, partial=True)


@jit
def fold_partials(
    p0, p1, p2, k, slots, k_stride, slot_stride, mask, OP: tl.constexpr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr, ONE: tl.constexpr
):  # fmt: skip
    """The state of outputs `k` over all their slots, in the order of the slots. ONE: they are one tile.

    Tiles of slots are added up in groups of 32, and those groups: thousands of partials one after another would lose digits.
    """
    total = init(OP, (XBLOCK, SBLOCK), OP.dtypes[0])
    if ONE:
        total = take_partials(total, 0, p0, p1, p2, k, slots, k_stride, slot_stride, mask, OP, SBLOCK)
    else:
        for group in range(0, slots, 32 * SBLOCK):
            acc = init(OP, (XBLOCK, SBLOCK), OP.dtypes[0])
            for first in range(group, tl.minimum(group + 32 * SBLOCK, slots), SBLOCK):
                acc = take_partials(acc, first, p0, p1, p2, k, slots, k_stride, slot_stride, mask, OP, SBLOCK)
            total = update(total, acc, OP, partial=True)
    return finalize(total, OP, axis=1, partial=True)


@jit
def constant(bits, state: tl.constexpr):
    """A scalar of dtype `state` from its bits (a launch passes no floating-point numbers: their width would be guessed)."""
    if state.is_floating():
        if state == tl.float64:
            return bits.to(tl.int64).to(state, bitcast=True)
        else:
            return bits.to(tl.int32).to(state, bitcast=True)
    else:
        return bits.to(state)


@jit
def write_result(
    out_ptr, offsets, state, seed, count, mask, OP: tl.constexpr, SEED: tl.constexpr, ACCUMULATE: tl.constexpr, TRUTH: tl.constexpr
):
    """Combine the seed and the old output, each exactly once, finish and store."""
    if ACCUMULATE:
        old = tl.load(out_ptr + offsets, mask=mask, other=0).to(OP.dtypes[0])
        state = update(state, old, OP, partial=True)
    if SEED == "state":
        state = update(state, tl.zeros_like(state) + constant(seed, OP.dtypes[0]), OP, partial=True)
    elif SEED == "lift":
        value = tl.zeros_like(state[0]) + constant(seed, OP.dtypes[0])
        state = update(state, value, OP)
    result = finalize(state, OP, axis=None, count=count)
    if TRUTH:
        result = (result != 0).to(tl.uint8)
    tl.store(out_ptr + offsets, result.to(out_ptr.dtype.element_ty), mask=mask)


@jit
def write_part(out_ptr, part, K, offsets, state, count, mask, OP: tl.constexpr, PART: tl.constexpr, HOW: tl.constexpr):
    """Finish and store one of several results: each has room for K elements of 8 bytes."""
    ONE: tl.constexpr = OP.parts[PART]
    KIND: tl.constexpr = HOW.kinds[PART]
    result = finalize(state, ONE, axis=None, count=count)
    if HOW.truths[PART]:
        result = (result != 0).to(tl.uint8)
    room = out_ptr + part * 8 * K.to(tl.int64)
    tl.store(room.to(tl.pointer_type(KIND), bitcast=True) + offsets, result.to(KIND), mask=mask)


@jit
def write_parts(out_ptr, K, offsets, state, count, mask, OP: tl.constexpr, HOW: tl.constexpr):
    """Finish and store the results of a `DeviceOp` of several monoids."""
    write_part(out_ptr, 0, K, offsets, state[0], count, mask, OP, 0, HOW)
    write_part(out_ptr, 1, K, offsets, state[1], count, mask, OP, 1, HOW)
    if OP.many == 3:
        write_part(out_ptr, 2, K, offsets, state[2], count, mask, OP, 2, HOW)
