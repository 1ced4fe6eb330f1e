"""What a reduction is made of: `Monoid`, for a person, and `DeviceOp`, its half for one dtype, which kernels take as a constant."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .kernels.compat import Constant, tl

Number = float | int


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """16-bit floats in float32, integers and bool in int64, the others in themselves."""
    if dtype.is_floating_point:
        return torch.float64 if dtype == torch.float64 else torch.float32
    return torch.int64


def value_kept(dtype: torch.dtype) -> torch.dtype:
    """Exact and without widening more than the hardware wants: float32, float64, int32 or int64."""
    if dtype.is_floating_point:
        return accumulator(dtype)
    return torch.int64 if dtype == torch.int64 else torch.int32


def same(dtype: torch.dtype) -> torch.dtype:
    return dtype


@dataclass(frozen=True, eq=False)
class DeviceOp(Constant):
    """A monoid's device half for one dtype of values: what kernels take as their constexpr `OP`."""

    name: str
    identity: tuple[Number, ...]
    dtypes: tuple[Any, ...]  # of the state's tiles
    cast: Any  # values become this before the lift; None: left as they are
    lift: Any
    combine: Any
    fold: Any
    finish: Any
    lift_extra: str | None
    finish_extra: str | None
    param: Any = None
    shifted: bool = False
    folds: int = 1
    wider: DeviceOp | None = None
    parts: tuple[DeviceOp, ...] = ()
    step: Any = None  # combines a value into a state: lift and combine in fewer instructions
    four: Any = None  # the state of four values

    @property
    def many(self) -> int:
        """Monoids of one tile each that this is made of; 0 for one monoid."""
        return len(self.parts)

    @property
    def partial(self) -> DeviceOp:
        """The op on folded states: in float64 where the lanes hold differences from a first value, which are then no longer small."""
        return self.wider or self

    @property
    def arity(self) -> int:
        """Tiles in a state."""
        return len(self.identity)

    @functools.cached_property
    def cache_key(self) -> str:
        """Changes when anything that a kernel compiles from this object changes."""
        functions = (self.lift, self.combine, self.fold, self.finish, *(f for f in (self.step, self.four) if f)) if not self.parts else ()
        halves = [getattr(f, "cache_key", f.__name__) for f in functions]
        facts = (self.name, self.identity, [str(d) for d in self.dtypes], str(self.cast), self.lift_extra, self.finish_extra, self.param)
        return hashlib.sha256(repr((halves, facts, self.shifted, self.wider, [p.cache_key for p in self.parts])).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"DeviceOp({self.name}, {self.cache_key[:12]})"


@dataclass(frozen=True, eq=False)
class Monoid:
    """A reduction.

    Device functions are `@triton.jit`; a state is one to three tiles, passed one after another, and a state of several is returned as a
    tuple: `combine(a, b)` or `combine(a0, a1, b0, b1)`. A parameter named `param` of lift or finish receives `param` (a constexpr), one
    named `index` of lift the position along the reduced axes, one named `count` of finish the number of contributions.

    Args:
        name: shown in messages.
        identity: a number, a tuple with one for each tile, or a function of the values' torch dtype.
        lift: `lift(x)`: a value as a state.
        combine: two states as one, lane by lane.
        fold: `fold(a, axis)` with `axis` a `tl.constexpr`: combine along an axis of a tile.
        finish: a state as the result.
        acc_dtype: dtype of the state, or a rule (values' dtype -> dtype), or a tuple of either with one for each tile.
        out_dtype: dtype of the result, or such a rule.
        commutative: False forbids plans that change the order of contributions; no kernel here keeps an order, so it is refused.
        reference: what it means in torch: `reference(x, dims, keepdim)`, `reference(x, dims)` or, on a flat tensor, `reference(x)`.

    Example:
        >>> import tri_reduce
        >>> tri_reduce.MONOIDS["sum"].identity_for(torch.float32)
        (0,)
    """

    name: str
    identity: Any
    lift: Any
    combine: Any
    fold: Any
    finish: Any
    acc_dtype: Any = accumulator
    out_dtype: Any = same
    commutative: bool = True
    reference: Callable[..., torch.Tensor] | None = None
    param: Any = None
    gradient: Callable[..., torch.Tensor] | None = None
    seed: str | None = None  # "state": a seed is itself a state; "lift": it is a value; None: this monoid takes none
    accumulates: bool = False  # the result is the state, so `out` can be one of the contributions
    idempotent: bool = False  # reading a contribution twice changes nothing
    indexed: bool = False  # the result is a position
    no_empty: bool = False  # has no result where there are no contributions
    floats_only: bool = False  # integers need dtype=
    ints_only: bool = False  # bitwise
    lift_raw: bool = False  # lift takes values of any dtype as they are
    folds: int = 1  # primitives in one fold
    four: Any = None  # the state of four values, where that takes fewer instructions than four lifts and combinations
    shifted: bool = False  # accurate only near zero: kernels subtract each output's first value
    join: Any = None  # two results (where those are states) in torch: seeds and old outputs of the reference
    with_where: str | None = None  # the monoid that takes this one's place under where=, or in a stream (its count is not known)
    options: tuple[str, ...] = field(default=())

    def identity_for(self, dtype: torch.dtype) -> tuple[Number, ...]:
        """The identity for values of `dtype`, a number for each tile of the state."""
        found = self.identity(dtype) if callable(self.identity) else self.identity
        return found if isinstance(found, tuple) else (found,)

    def acc_for(self, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
        """dtypes of the state's tiles for values of `dtype`."""
        arity = len(self.identity_for(dtype))
        rules = self.acc_dtype if isinstance(self.acc_dtype, tuple) else (self.acc_dtype,) * arity
        return tuple(rule(dtype) if callable(rule) else rule for rule in rules)

    def out_for(self, dtype: torch.dtype) -> torch.dtype:
        """dtype of the result for values of `dtype`."""
        found: torch.dtype = self.out_dtype(dtype) if callable(self.out_dtype) else self.out_dtype
        return found

    def device(self, dtype: torch.dtype = torch.float32, wide_index: bool = True) -> DeviceOp:
        """The device half for values of `dtype`; `wide_index`: positions may pass 2^31."""
        return _device(self, dtype, wide_index)


@functools.cache
def _device(monoid: Monoid, dtype: torch.dtype, wide_index: bool) -> DeviceOp:
    acc, identity = monoid.acc_for(dtype), monoid.identity_for(dtype)
    if monoid.indexed and not wide_index:
        acc, identity = (acc[0], torch.int32), (identity[0], torch.iinfo(torch.int32).max)
    names = [getattr(tl, _TL[d]) for d in acc]
    lift_names, finish_names = monoid.lift.arg_names[1:], monoid.finish.arg_names[len(acc) :]  # past the value, past the state
    return DeviceOp(
        monoid.name,
        identity,
        tuple(names),
        None if monoid.lift_raw else getattr(tl, _TL[_cast(monoid, dtype, acc[0])]),
        monoid.lift,
        monoid.combine,
        monoid.fold,
        monoid.finish,
        next((n for n in ("index", "param") if n in lift_names), None),
        next((n for n in ("count", "param") if n in finish_names), None),
        monoid.param,
        monoid.shifted,
        monoid.folds,
        _device(monoid, torch.float64, wide_index) if monoid.shifted and dtype != torch.float64 else None,
        four=monoid.four,
    )


def _cast(monoid: Monoid, dtype: torch.dtype, acc: torch.dtype) -> torch.dtype:
    return value_kept(dtype) if monoid.indexed else acc


_TL = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
}


def together(ops: tuple[DeviceOp, ...]) -> DeviceOp:
    """Two or three monoids of one tile each, accumulated from one read."""
    return DeviceOp(
        "+".join(o.name for o in ops),
        tuple(o.identity[0] for o in ops),
        tuple(o.dtypes[0] for o in ops),
        cast=None, lift=None, combine=None, fold=None, finish=None, lift_extra=None,
        finish_extra=next((o.finish_extra for o in ops if o.finish_extra == "count"), None),
        folds=sum(o.folds for o in ops),
        parts=ops,
    )  # fmt: skip
