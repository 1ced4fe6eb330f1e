"""`register_monoid`: a name for a user's monoid, after its laws have been checked on sample data.

The device functions run as they are, on numpy arrays: Triton's interpreter lends its meaning of `triton.language` for the time of a check,
in a process that compiles kernels as well. So the check needs no GPU and is the same everywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import threading
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from . import reference
from .kernels import language
from .kernels.compat import HAS_TRITON, tl
from .monoids import MONOIDS, REGISTERED, Monoid

SAMPLES = {
    torch.float32: (0.0, 1.0, -1.0, 2.0, 0.5, -3.25, 7.0, 30.0),
    torch.int32: (0, 1, -1, 2, 3, -5, 7, 100),
}
_LOCK = threading.Lock()
State = tuple[Any, ...]


def register_monoid(monoid: Monoid, *, samples: Sequence[float] | None = None) -> Monoid:
    """Check a monoid's laws on sample data; from then on its name is accepted wherever the name of an op is.

    Checked on all triples of the samples: `combine` is associative, has the identity on both sides and commutes; `fold` does what
    `combine` does; `lift`, `fold` and `finish` together agree with `reference`, where there is one.

    Args:
        monoid: what to register. The same object may be registered again.
        samples: up to eight numbers to check on, where the default ones (of both signs, with fractions) are outside of the monoid's domain.

    Returns:
        The monoid.

    Raises:
        ValueError: a law does not hold (with the counter-example), the functions cannot be run, or the name is taken.
        NotImplementedError: `commutative=False`: every plan here combines contributions in an order of its own.

    Example:
        >>> import dataclasses, tri_reduce
        >>> peak = register_monoid(dataclasses.replace(tri_reduce.MONOIDS["abs_max"], name="peak"))
        >>> tri_reduce.reduce(torch.tensor([1.0, -3.0]), "peak")
        tensor(3.)
    """
    if not isinstance(monoid, Monoid):
        raise TypeError(f"register_monoid takes a tri_reduce.Monoid, got {type(monoid).__name__}")
    name = monoid.name
    if not isinstance(name, str) or not name:
        raise ValueError(f"a monoid's name must be a non-empty string, got {name!r}")
    if REGISTERED.get(name, monoid) is not monoid or name in (*MONOIDS, "gemv"):
        raise ValueError(f"the name {name!r} is taken by {'a built-in op' if name not in REGISTERED else 'another registered monoid'}")
    if HAS_TRITON:  # elsewhere no device function ever runs
        _check(monoid, samples)
    if not monoid.commutative:
        raise NotImplementedError(
            f"monoid {name!r} is declared commutative=False: lanes, tiles and programs combine contributions in an order of their own, "
            "so a monoid that depends on their order cannot be run"
        )
    with _LOCK:
        if REGISTERED.setdefault(name, monoid) is not monoid:
            raise ValueError(f"the name {name!r} is taken by another registered monoid")
        _change_keys(monoid)
    return monoid


def _change_keys(monoid: Monoid) -> None:
    """Kernels that name the monoid are compiled anew where its functions changed: Triton's own key has the name alone."""
    for function in (language.init, language.update, language.finalize):
        if hasattr(function, "cache_key"):
            key = function.cache_key + monoid.device(torch.float32).cache_key
            function.hash = hashlib.sha256(key.encode()).hexdigest()


def _check(monoid: Monoid, samples: Sequence[float] | None) -> None:
    """ValueError with the first law that does not hold."""
    failure: Exception | None = None
    for dtype in (torch.int32,) if monoid.ints_only else (torch.float32, torch.int32):
        chosen = np.resize(np.asarray(SAMPLES[dtype] if samples is None else samples), 8)
        x = torch.tensor([*itertools.product(chosen.tolist(), repeat=3)]).to(dtype)
        try:
            found = _evaluate(monoid, x)
        except Exception as e:  # whatever a user's function may raise
            failure = failure or e
            continue
        return _judge(monoid, x, found)
    raise ValueError(f"monoid {monoid.name!r}: its device functions cannot be run on sample data: {failure}") from failure


def _evaluate(monoid: Monoid, x: torch.Tensor) -> dict[str, State]:
    """What the device functions make of triples of values, [T, 3]."""
    op, size = monoid.device(x.dtype), len(x)
    with _LOCK, _interpreted(), np.errstate(all="ignore"):
        kind = getattr(tl, str(x.dtype).removeprefix("torch."))
        identity = language.init(op, (size,), kind)
        a, b, c = (language._like(op, language._lift(op, _tile(x[:, n], kind), _tile(n, tl.int32)), identity) for n in range(3))
        ab, bc = language._combine(op, a, b), language._combine(op, b, c)
        lanes = np.arange(4)[None, :]  # a power of two: the last one is masked
        acc = language.update(
            language.init(op, (size, 4), kind), _tile(x[:, [0, 1, 2, 2]], kind), op, _tile(lanes < 3, tl.int1), _tile(lanes, tl.int32)
        )
        folded = language.finalize(acc, op, 1, None, True)
        found = {
            "a": a,
            "b": b,
            "c": c,
            "identity": identity,
            "combine(a, b)": ab,
            "combine(b, a)": language._combine(op, b, a),
            "combine(combine(a, b), c)": language._combine(op, ab, c),
            "combine(a, combine(b, c))": language._combine(op, a, bc),
            "combine(identity, a)": language._combine(op, identity, a),
            "combine(a, identity)": language._combine(op, a, identity),
            "fold([a, b, c])": folded,
            "finish": language.finalize(folded, op, None, _tile(3, tl.int32)),
        }
        return {name: tuple(map(_array, state if isinstance(state, tuple | tl.tuple) else (state,))) for name, state in found.items()}


def _judge(monoid: Monoid, x: torch.Tensor, found: dict[str, State]) -> None:
    laws = [
        ("combine is not associative", "combine(combine(a, b), c)", "combine(a, combine(b, c))"),
        ("the identity is none", "combine(identity, a)", "a"),
        ("the identity is none", "combine(a, identity)", "a"),
        ("fold does not do what combine does", "fold([a, b, c])", "combine(combine(a, b), c)"),
    ]
    if monoid.commutative:
        laws.append(("combine does not commute (commutative=True)", "combine(a, b)", "combine(b, a)"))
    scale = _scale(found[n] for n in ("a", "b", "c", "combine(combine(a, b), c)", "combine(a, combine(b, c))"))
    for broken, left, right in laws:
        differs = np.any([_differs(p, q, scale, p.dtype) for p, q in zip(found[left], found[right], strict=True)], axis=0)
        if differs.any():
            at = int(differs.argmax())
            names = ["identity"] * ("identity" in left) + [n for n in "abc" if re.search(rf"\b{n}\b", left)]
            given = ", ".join(f"{n} = {_text(found[n], at)}" for n in names)
            both = f"{left} = {_text(found[left], at)}, but {right} = {_text(found[right], at)}"
            raise ValueError(f"monoid {monoid.name!r}: {broken}: with {given}, {both}")
    if monoid.reference is None:
        return
    got = found["finish"][0]
    out = monoid.out_for(x.dtype)
    want = reference.call(monoid.reference, x, (1,), False, None, monoid.param).to(torch.float64).numpy()
    coarse = out if out.is_floating_point and out != torch.float64 else torch.float32
    differs = _differs((got != 0) if out == torch.bool else got, want, np.maximum(scale, _scale([(x.double().numpy().T[0],)])), coarse)
    if differs.any():
        at = int(differs.argmax())
        raise ValueError(
            f"monoid {monoid.name!r}: lift, fold and finish do not agree with reference: of the values {tuple(x[at].tolist())} they give "
            f"{got[at]:g}, the reference gives {want[at]:g}"
        )


def _differs(p: Any, q: Any, scale: Any, kind: Any) -> Any:
    """Where two arrays are not the same: integers exactly, floats within what rounding may do to values of this scale."""
    if p.dtype.kind in "biu":
        return p != q
    eps = torch.finfo(kind).eps if isinstance(kind, torch.dtype) else np.finfo(kind).eps
    with np.errstate(all="ignore"):
        near = np.abs(p - q) <= 256 * eps * scale
    return ~((p == q) | near | (np.isnan(p) & np.isnan(q)))


def _scale(states: Iterable[State]) -> Any:
    """The largest finite magnitude, triple by triple."""
    tiles = [np.abs(t.astype(np.float64)) for state in states for t in state]
    return np.max([np.where(np.isfinite(t), t, 0.0) for t in tiles], axis=0)


def _text(state: State, at: int) -> str:
    values = [f"{t[at].item():.9g}" if t.dtype.kind == "f" else str(t[at].item()) for t in state]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


def _tile(data: Any, kind: Any) -> Any:
    """A tile of the interpreter."""
    from triton.runtime import interpreter

    array = np.atleast_1d(np.asarray(data)).astype(interpreter._get_np_dtype(kind))
    return tl.tensor(interpreter.TensorHandle(array, kind), tl.block_type(kind, list(array.shape)) if np.ndim(data) else kind)


def _array(tile: Any) -> Any:
    if tile.dtype in (tl.bfloat16, tl.float16):
        tile = tile.to(tl.float32)
    return tile.handle.data


@contextlib.contextmanager
def _interpreted() -> Iterator[None]:
    """Within the context `triton.language` works on numpy arrays and a jit function is the Python that it was written as."""
    from triton.runtime import interpreter, jit

    scope = types.FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})  # a module that sees all of the language
    owners = [jit.JITFunction, tl, tl.core, tl.math, tl.tensor, tl.dtype, getattr(tl.core, "tensor_descriptor_base", tl.tensor)]
    before = [(owner, dict(vars(owner))) for owner in owners]
    try:
        interpreter._patch_lang(scope)
        jit.JITFunction.__call__ = lambda self, *args, **kwargs: self.fn(*args, **kwargs)
        yield
    finally:
        for owner, names in before:
            for name in set(vars(owner)) - set(names):
                delattr(owner, name)
            for name, value in names.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)
