"""Results, and a reducer's slots, from states that are written out (`flat.py`): what `combine.py` and `slots.py` are for tuples."""

from .affine import inner_length, outer_and_start, outer_offset
from .combine import constant
from .compat import jit, tl
from .flat import flat_finish, flat_fold, flat_init, flat_load, flat_merge, flat_store, flat_update


@jit
def flat_write(
    out_ptr, offsets, a0, a1, a2, seed, count, mask, OP: tl.constexpr, SEED: tl.constexpr, ACCUMULATE: tl.constexpr, TRUTH: tl.constexpr
):
    """Combine the seed and the old output, each exactly once, finish and store."""
    if ACCUMULATE:
        old = tl.load(out_ptr + offsets, mask=mask, other=0).to(OP.dtypes[0])
        a0, a1, a2 = flat_merge(a0, a1, a2, old, 0, 0, OP)
    if SEED == "state":
        value = tl.zeros_like(a0) + constant(seed, OP.dtypes[0])
        a0, a1, a2 = flat_merge(a0, a1, a2, value, 0, 0, OP)
    elif SEED == "lift":
        value = tl.zeros_like(a0) + constant(seed, OP.dtypes[0])
        a0, a1, a2 = flat_update(a0, a1, a2, value, 0, OP)
    result = flat_finish(a0, a1, a2, count, OP)
    if TRUTH:
        result = (result != 0).to(tl.uint8)
    tl.store(out_ptr + offsets, result.to(out_ptr.dtype.element_ty), mask=mask)


@jit
def flat_as_partial(a0, a1, a2, position, OP: tl.constexpr):
    """A folded state as slots keep it; positions are from here on those in the stream, of which this launch began at `position`."""
    PARTIAL: tl.constexpr = OP.partial
    if OP.lift_extra == "index":
        moved = tl.where(a1 == OP.identity[1], PARTIAL.identity[1], a1.to(PARTIAL.dtypes[1]) + position)
        return a0.to(PARTIAL.dtypes[0]), moved, 0
    elif OP.arity == 1:
        return a0.to(PARTIAL.dtypes[0]), 0, 0
    elif OP.arity == 2:
        return a0.to(PARTIAL.dtypes[0]), a1.to(PARTIAL.dtypes[1]), 0
    else:
        return a0.to(PARTIAL.dtypes[0]), a1.to(PARTIAL.dtypes[1]), a2.to(PARTIAL.dtypes[2])


@jit
def flat_add_to_slot(p0, p1, p2, offsets, a0, a1, a2, position, mask, OP: tl.constexpr):
    """Combine a program's folded state into the slot that it owns."""
    PARTIAL: tl.constexpr = OP.partial
    b0, b1, b2 = flat_as_partial(a0, a1, a2, position, OP)
    c0, c1, c2 = flat_load(p0, p1, p2, offsets, mask, PARTIAL)
    c0, c1, c2 = flat_merge(c0, c1, c2, b0, b1, b2, PARTIAL)
    flat_store(p0, p1, p2, offsets, c0, c1, c2, mask, PARTIAL)


@jit
def flat_fold_slots(p0, p1, p2, k, slots, K, mask, OP: tl.constexpr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    """The state of outputs `k` over all their slots, in an order that the number of slots decides."""
    a0, a1, a2 = flat_init(XBLOCK, SBLOCK, 0, slots > 0, OP)
    for first in range(0, slots, SBLOCK):
        slot = first + tl.arange(0, SBLOCK)
        live = (slot < slots)[:, None] & mask[None, :]
        b0, b1, b2 = flat_load(p0, p1, p2, (slot * K)[:, None] + k[None, :], live, OP)
        a0, a1, a2 = flat_merge(a0, a1, a2, b0, b1, b2, OP)
    return flat_fold(a0, a1, a2, 0, OP)


@jit
def persistent_combine_kernel(
    out_ptr, p0, p1, p2, seed, K, K0, o_k1, o_k0, slots, OP: tl.constexpr, KEPT: tl.constexpr, DEEP_KEPT: tl.constexpr, SEED:
    tl.constexpr, TRUTH: tl.constexpr, WIDE: tl.constexpr, SINK: tl.constexpr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr,
):  # fmt: skip
    """The end of a stream: fold each output's slots in their order, combine the seed once, finish and store."""
    length = inner_length(K, K0, KEPT)
    per_row = tl.cdiv(length, XBLOCK)
    for tile in range(tl.program_id(0), K // length * per_row, tl.num_programs(0)):
        if WIDE:
            tile = tl.cast(tile, tl.int64)
        outer, start = outer_and_start(tile, per_row, XBLOCK, KEPT)
        inner = start + tl.arange(0, XBLOCK)
        live = inner < length
        a0, a1, a2 = flat_fold_slots(p0, p1, p2, outer * length + inner, slots, K, live, OP, XBLOCK, SBLOCK)
        out = outer_offset(outer, o_k1, KEPT, DEEP_KEPT, 1) + inner * o_k0
        flat_write(out_ptr, out, a0, a1, a2, seed, 0, live, OP, SEED, False, TRUTH)


@jit
def persistent_merge_kernel(
    q0_ptr, q1_ptr, q2_ptr, p0, p1, p2, K, slots,
    OP: tl.constexpr, WIDE: tl.constexpr, SINK: tl.constexpr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr,
):  # fmt: skip
    """Fold each output's slots in q and combine the state into p, in its first slot."""
    for tile in range(tl.program_id(0), tl.cdiv(K, XBLOCK), tl.num_programs(0)):
        if WIDE:
            tile = tl.cast(tile, tl.int64)
        k = tile * XBLOCK + tl.arange(0, XBLOCK)
        live = k < K
        a0, a1, a2 = flat_fold_slots(q0_ptr, q1_ptr, q2_ptr, k, slots, K, live, OP, XBLOCK, SBLOCK)
        flat_add_to_slot(p0, p1, p2, k, a0, a1, a2, 0, live, OP)
