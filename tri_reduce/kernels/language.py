"""The device-side reducer: init, update, finalize. A reduction is local accumulation, then one fold; a masked lane contributes nothing.

    acc = trl.init("sum", (BLOCK_M, BLOCK_K), tl.float32)              # the identity, never a seed
    for k in range(0, K, BLOCK_K):
        acc = trl.update(acc, a * x[None, :], "sum", mask=m)          # elementwise: no lane talks to another
    y = trl.finalize(acc, "sum", axis=1)                              # the one collective

`op` is the name of a monoid or a `Monoid.device(...)` object. The accumulator is one tile, or a tuple of two or three (argmax, logsumexp,
var).
"""

from .compat import HAS_TRITON, jit, tl


def _resolve(op, sources, dtype=None, _semantic=None, _builder=None):
    """At compile time: the device half of a name, for values of `dtype`; an object is its own.

    `sources`: part of what kernels are keyed by.
    """
    from ..monoids import device_op

    op, dtype = getattr(op, "value", op), getattr(dtype, "value", dtype)
    found = device_op(op, dtype) if isinstance(op, str) else op
    return found if _semantic is None and _builder is None else tl.constexpr(found)


_resolve.__triton_builtin__ = True  # type: ignore[attr-defined]  # called by the compiler, with the interpreter's and every version's own keyword

if HAS_TRITON:
    from ..hashing import sources

    # Names are looked up outside Triton's view of the source, so its key of a kernel that has one gets this.
    _SOURCES = tl.constexpr(sources("functions.py", "language.py", "../monoid.py", "../monoids.py"))


@jit
def init(op: tl.constexpr, shape: tl.constexpr, dtype: tl.constexpr):
    """The identity of `op` in every lane of `shape`; `dtype` is that of the values (16-bit floats accumulate in fp32)."""
    o: tl.constexpr = _resolve(op, _SOURCES, dtype)
    if o.arity == 1:
        return tl.full(shape, o.identity[0], o.dtypes[0])
    elif o.arity == 2:
        return tl.full(shape, o.identity[0], o.dtypes[0]), tl.full(shape, o.identity[1], o.dtypes[1])
    else:
        return (
            tl.full(shape, o.identity[0], o.dtypes[0]),
            tl.full(shape, o.identity[1], o.dtypes[1]),
            tl.full(shape, o.identity[2], o.dtypes[2]),
        )


@jit
def _lift(o: tl.constexpr, value, index):
    if o.many > 0:  # several monoids of one tile each
        first: tl.constexpr = o.parts[0]
        second: tl.constexpr = o.parts[1]
        if o.many == 2:
            return _lift_one(first, value, index), _lift_one(second, value, index)
        else:
            third: tl.constexpr = o.parts[2]
            return _lift_one(first, value, index), _lift_one(second, value, index), _lift_one(third, value, index)
    else:
        return _lift_one(o, value, index)


@jit
def _lift_one(o: tl.constexpr, value, index):
    if o.cast is not None:
        value = value.to(o.cast)
    if o.lift_extra == "index":
        return o.lift(value, index)
    elif o.lift_extra == "param":
        return o.lift(value, o.param)
    else:
        return o.lift(value)


@jit
def _like(o: tl.constexpr, state, acc):
    if o.arity == 1:
        return state.to(acc.dtype)
    elif o.arity == 2:
        return state[0].to(acc[0].dtype), state[1].to(acc[1].dtype)
    else:
        return state[0].to(acc[0].dtype), state[1].to(acc[1].dtype), state[2].to(acc[2].dtype)


@jit
def _combine(o: tl.constexpr, a, b):
    if o.many == 2:
        return o.parts[0].combine(a[0], b[0]), o.parts[1].combine(a[1], b[1])
    elif o.many == 3:
        return o.parts[0].combine(a[0], b[0]), o.parts[1].combine(a[1], b[1]), o.parts[2].combine(a[2], b[2])
    elif o.arity == 1:
        return o.combine(a, b)
    elif o.arity == 2:
        return o.combine(a[0], a[1], b[0], b[1])
    else:
        return o.combine(a[0], a[1], a[2], b[0], b[1], b[2])


@jit
def _select(o: tl.constexpr, mask, a, b):
    if o.arity == 1:
        return tl.where(mask, a, b)
    elif o.arity == 2:
        return tl.where(mask, a[0], b[0]), tl.where(mask, a[1], b[1])
    else:
        return tl.where(mask, a[0], b[0]), tl.where(mask, a[1], b[1]), tl.where(mask, a[2], b[2])


@jit
def update(acc, value, op: tl.constexpr, mask=None, index=None, partial: tl.constexpr = False):
    """Combine `value` into `acc` lane by lane, where `mask` is True.

    `index` is the position along the reduced axis (argmax, argmin). With `partial` the value is a state itself: another accumulator.
    """
    if partial:
        o: tl.constexpr = _resolve(op, _SOURCES)
        merged = _combine(o, acc, value)
    else:
        o: tl.constexpr = _resolve(op, _SOURCES, value.dtype)
        merged = _combine(o, acc, _like(o, _lift(o, value, index), acc))
    if mask is None:
        return merged
    else:
        return _select(o, mask, merged, acc)


@jit
def _finish(o: tl.constexpr, state, count):
    if o.arity == 1:
        if o.finish_extra == "param":
            return o.finish(state, o.param)
        elif o.finish_extra == "count":
            return o.finish(state, count)
        else:
            return o.finish(state)
    elif o.arity == 2:
        if o.finish_extra == "param":
            return o.finish(state[0], state[1], o.param)
        else:
            return o.finish(state[0], state[1])
    elif o.finish_extra == "param":
        return o.finish(state[0], state[1], state[2], o.param)
    else:
        return o.finish(state[0], state[1], state[2])


@jit
def finalize(acc, op: tl.constexpr, axis: tl.constexpr, count=None, partial: tl.constexpr = False):
    """Fold `axis` of the accumulator and finish: the result, or with `partial` the folded state. `axis=None` only finishes."""
    o: tl.constexpr = _resolve(op, _SOURCES)
    if axis is None:
        return _finish(o, acc, count)
    else:
        if o.many == 2:
            state = o.parts[0].fold(acc[0], axis), o.parts[1].fold(acc[1], axis)
        elif o.many == 3:
            state = o.parts[0].fold(acc[0], axis), o.parts[1].fold(acc[1], axis), o.parts[2].fold(acc[2], axis)  # type: ignore[assignment]
        elif o.arity == 1:
            state = o.fold(acc, axis)
        elif o.arity == 2:
            state = o.fold(acc[0], acc[1], axis)
        else:
            state = o.fold(acc[0], acc[1], acc[2], axis)
        if partial:
            return state
        else:
            return _finish(o, state, count)
