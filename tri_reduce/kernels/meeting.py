"""How programs that share an output meet within a launch. What they meet at is all ones between launches; the last to leave restores it.

Two programs exchange their states in one atomic operation. More take a ticket, and the last to arrive folds what all have left: states in
words that say themselves that they are there, or, where a state is no such word, in memory that the ticket orders.
"""

from .compat import jit, tl
from .language import finalize, init, update


@jit
def arrive(ticket_ptr, slots, ORDERED: tl.constexpr):
    """True for the last of `slots` programs that share an output tile. ORDERED: it then sees what the others wrote before they arrived."""
    if ORDERED:
        tl.debug_barrier()  # all of this program's partials are written before its ticket counts
        before = tl.atomic_add(ticket_ptr, 1, sem="acq_rel")
    else:
        before = tl.atomic_add(ticket_ptr, 1, sem="relaxed")
    last = before + 2 == slots  # the first finds -1
    if last:
        tl.store(ticket_ptr, -1)
    return last


@jit
def word_of(state):
    """A state of 32 bits that is never all ones: of all the NaNs there are, one stands for that."""
    word = state.to(tl.int32, bitcast=True)
    return tl.where(word == -1, 0x7FFFFFFF, word)


@jit
def leave_word(p0, offsets, state, mask):
    """An atomic operation that nothing waits for: whoever reads a word reads -1 or all of it."""
    tl.atomic_and(p0 + offsets, word_of(state), mask=mask, sem="relaxed")


@jit
def ask_again(where, word):
    """The word, once it is there: its program has counted its ticket, so it is on its way."""
    return tl.inline_asm_elementwise(
        """{
            .reg .pred missing;
            mov.b32 $0, $2;
            setp.eq.s32 missing, $2, -1;
            @!missing bra THERE;
        AGAIN:
            ld.relaxed.gpu.global.b32 $0, [$1];
            setp.eq.s32 missing, $0, -1;
            @missing bra AGAIN;
        THERE:
        }""",
        "=r,l,r",
        [where.to(tl.uint64, bitcast=True), word],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


# The interpreter runs programs one after another, and knows no PTX.
settled = (lambda where, word: word) if type(ask_again).__name__ == "InterpretedFunction" else ask_again


@jit
def fold_words(p0, k, slots, k_stride, slot_stride, mask, OP: tl.constexpr, SBLOCK: tl.constexpr):
    """(the state of outputs `k` over all their slots, in the order of the slots; where the words are, which there are)."""
    slot = tl.arange(0, SBLOCK)
    live = mask[:, None] & (slot < slots)[None, :]
    where = p0 + (k[:, None] * k_stride + (slot * slot_stride)[None, :])
    word = settled(where, tl.load(where, mask=live, other=0, volatile=True))
    state = update(init(OP, live.shape, OP.dtypes[0]), word.to(OP.dtypes[0], bitcast=True), OP, mask=live, partial=True)
    return finalize(state, OP, axis=1, partial=True), where, live


@jit
def restore(where, live):
    """Words are all ones again."""
    tl.debug_barrier()  # all threads have read them
    tl.store(where, tl.full(where.shape, -1, where.dtype.element_ty), mask=live)


@jit
def exchange(p0, k, slot, state, mask, OP: tl.constexpr):
    """Of two programs, `slot` 0 and 1: (the state of both, outputs for which this one was second and has it).

    Each leaves its word in its half of 64 bits, by an AND with all ones in the other half, and sees what was there before.
    """
    word = word_of(state).to(tl.int64) & 0xFFFFFFFF
    before = tl.atomic_and(p0 + k, tl.where(slot == 0, word | -0x100000000, word << 32 | 0xFFFFFFFF), mask=mask, sem="relaxed")
    other = tl.where(slot == 0, before >> 32, before).to(tl.int32)
    second = mask & (other != -1)
    tl.store(p0 + k, tl.full(k.shape, -1, tl.int64), mask=second)
    theirs = other.to(OP.dtypes[0], bitcast=True)
    return update(tl.where(slot == 0, state, theirs), tl.where(slot == 0, theirs, state), OP, partial=True), second
