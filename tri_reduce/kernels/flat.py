"""The device-side reducer where the language has no tuples in the arguments of jit functions (Triton 3.2).

A state is written out as three values; those beyond the op's arity are idle zeros, which no instruction is left of. Everything else is as
in `language.py`: init, update, and one fold after the loops.
"""

from .compat import jit, tl


@jit
def flat_init(X: tl.constexpr, R: tl.constexpr, AXIS: tl.constexpr, alive, OP: tl.constexpr):
    """The identity in every lane of a tile of X outputs and R contributions, which lie along AXIS.

    `alive`, always True, is not known to the compiler: it would keep a tile of constants beside the accumulator, to copy it from.
    """
    if AXIS == 1:
        return flat_full((X, R), alive, OP)
    else:
        return flat_full((R, X), alive, OP)


@jit
def flat_full(shape: tl.constexpr, alive, OP: tl.constexpr):
    a = full_if(shape, alive, OP.identity[0], OP.dtypes[0])
    if OP.arity == 1:
        return a, 0, 0
    elif OP.arity == 2:
        return a, full_if(shape, alive, OP.identity[1], OP.dtypes[1]), 0
    else:
        return a, full_if(shape, alive, OP.identity[1], OP.dtypes[1]), full_if(shape, alive, OP.identity[2], OP.dtypes[2])


@jit
def full_if(shape: tl.constexpr, alive, value: tl.constexpr, dtype: tl.constexpr):
    """A tile of `value`, or of something else were `alive` False."""
    if value == 0:
        return tl.full(shape, tl.where(alive, 0, 1).to(dtype), dtype)
    else:
        return tl.full(shape, tl.where(alive, value, 0).to(dtype), dtype)


@jit
def flat_lift(value, extra, OP: tl.constexpr):
    """A value as a state; `extra` is its index, or its weight, where the op asks for that."""
    if OP.cast is not None:
        value = value.to(OP.cast)
    if OP.arity == 1:
        if OP.lift_extra == "param":
            return OP.lift(value, OP.param).to(OP.dtypes[0]), 0, 0
        else:
            return OP.lift(value).to(OP.dtypes[0]), 0, 0
    elif OP.arity == 2:
        if OP.lift_extra is None:
            a, b = OP.lift(value)
        else:
            a, b = OP.lift(value, extra)
        return a.to(OP.dtypes[0]), b.to(OP.dtypes[1]), 0
    else:
        a, b, c = OP.lift(value)
        return a.to(OP.dtypes[0]), b.to(OP.dtypes[1]), c.to(OP.dtypes[2])


@jit
def flat_merge(a0, a1, a2, b0, b1, b2, OP: tl.constexpr):
    """Two states combined lane by lane."""
    if OP.arity == 1:
        return OP.combine(a0, b0), 0, 0
    elif OP.arity == 2:
        x, y = OP.combine(a0, a1, b0, b1)
        return x, y, 0
    else:
        x, y, z = OP.combine(a0, a1, a2, b0, b1, b2)
        return x, y, z


@jit
def flat_update(a0, a1, a2, value, extra, OP: tl.constexpr):
    """Combine `value` lane by lane; a lane that is none of the contributions holds what contributes nothing."""
    if OP.step is None:
        b0, b1, b2 = flat_lift(value, extra, OP)
        return flat_merge(a0, a1, a2, b0, b1, b2, OP)
    else:
        return OP.step(a0, a1, a2, value, extra)


@jit
def flat_fold(a0, a1, a2, axis: tl.constexpr, OP: tl.constexpr):
    """The one collective."""
    if OP.arity == 1:
        return OP.fold(a0, axis), 0, 0
    elif OP.arity == 2:
        x, y = OP.fold(a0, a1, axis)
        return x, y, 0
    else:
        x, y, z = OP.fold(a0, a1, a2, axis)
        return x, y, z


@jit
def flat_finish(a0, a1, a2, count, OP: tl.constexpr):
    """A folded state's result."""
    if OP.arity == 1:
        if OP.finish_extra == "param":
            return OP.finish(a0, OP.param)
        elif OP.finish_extra == "count":
            return OP.finish(a0, count)
        else:
            return OP.finish(a0)
    elif OP.arity == 2:
        return OP.finish(a0, a1)
    elif OP.finish_extra == "param":
        return OP.finish(a0, a1, a2, OP.param)
    else:
        return OP.finish(a0, a1, a2)


@jit
def flat_load(p0, p1, p2, offsets, mask, OP: tl.constexpr):
    """Partial states from memory; where masked, the identity."""
    a = tl.load(p0 + offsets, mask=mask, other=OP.identity[0])
    if OP.arity == 1:
        return a, 0, 0
    elif OP.arity == 2:
        return a, tl.load(p1 + offsets, mask=mask, other=OP.identity[1]), 0
    else:
        return a, tl.load(p1 + offsets, mask=mask, other=OP.identity[1]), tl.load(p2 + offsets, mask=mask, other=OP.identity[2])


@jit
def flat_store(p0, p1, p2, offsets, a0, a1, a2, mask, OP: tl.constexpr):
    tl.store(p0 + offsets, a0, mask=mask)
    if OP.arity > 1:
        tl.store(p1 + offsets, a1, mask=mask)
    if OP.arity == 3:
        tl.store(p2 + offsets, a2, mask=mask)
