"""A reducer's slots: partial states in memory, [slot, output], that outlive a launch. Who writes a slot, and the one fold at the end.

Within a launch a program owns its slot of its outputs, and launches of a stream follow one another: reading, combining and writing a slot
needs no atomics, and which tile shape or split an earlier launch had is of no concern.
"""

from .combine import fold_partials, load_state, store_state, write_result
from .compat import gdc_wait, jit, tl
from .language import update
from .tiles import kept_offsets


@jit
def as_partial(state, position, OP: tl.constexpr):
    """A folded state as slots keep it; positions are from here on those in the stream, of which this launch began at `position`."""
    PARTIAL: tl.constexpr = OP.partial
    if OP.lift_extra == "index":
        none = state[1] == OP.identity[1]
        return state[0].to(PARTIAL.dtypes[0]), tl.where(none, PARTIAL.identity[1], state[1].to(PARTIAL.dtypes[1]) + position)
    elif OP.arity == 1:
        return state.to(PARTIAL.dtypes[0])
    elif OP.arity == 2:
        return state[0].to(PARTIAL.dtypes[0]), state[1].to(PARTIAL.dtypes[1])
    else:
        return state[0].to(PARTIAL.dtypes[0]), state[1].to(PARTIAL.dtypes[1]), state[2].to(PARTIAL.dtypes[2])


@jit
def add_to_slot(p0, p1, p2, offsets, state, position, mask, OP: tl.constexpr):
    """Combine a program's folded state into the slot that it owns."""
    PARTIAL: tl.constexpr = OP.partial
    old = load_state(p0, p1, p2, offsets, mask, PARTIAL)
    store_state(p0, p1, p2, offsets, update(old, as_partial(state, position, OP), PARTIAL, partial=True), mask, PARTIAL)


@jit
def combine_kernel(
    out_ptr, p0, p1, p2, seed, count, K, K0, step, o_k1, o_k0, slots,
    OP: tl.constexpr, KEPT: tl.constexpr, DEEP_KEPT: tl.constexpr, SEED: tl.constexpr, TRUTH: tl.constexpr, ACCUMULATE: tl.constexpr,
    LATE: tl.constexpr, WIDE: tl.constexpr, SINK: tl.constexpr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr,
):  # fmt: skip
    """The end of a stream, or of rows that were read as one: fold each output's slots, `step` apart, in their order, combine the seed
    once, finish and store. LATE: the launch before this one may still be writing them.
    """
    if LATE:
        gdc_wait()
    k = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    if WIDE:
        k = tl.program_id(0).to(tl.int64) * XBLOCK + tl.arange(0, XBLOCK)
    live = k < K
    state = fold_partials(p0, p1, p2, k, slots, 1, step, live, OP, XBLOCK, SBLOCK, False)
    offsets = kept_offsets(k, K0, o_k1, o_k0, KEPT, DEEP_KEPT, 1)
    write_result(out_ptr, offsets, state, seed, count, live, OP, SEED, ACCUMULATE, TRUTH)


@jit
def merge_kernel(
    q0_ptr, q1_ptr, q2_ptr, p0, p1, p2, K, slots,
    OP: tl.constexpr, WIDE: tl.constexpr, SINK: tl.constexpr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr,
):  # fmt: skip
    """Fold each output's slots in q and combine the state into p, in its first slot."""
    k = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    if WIDE:
        k = tl.program_id(0).to(tl.int64) * XBLOCK + tl.arange(0, XBLOCK)
    live = k < K
    state = fold_partials(q0_ptr, q1_ptr, q2_ptr, k, slots, 1, K, live, OP, XBLOCK, SBLOCK, False)
    add_to_slot(p0, p1, p2, k, state, 0, live, OP)
