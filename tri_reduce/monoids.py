"""The table of monoids: what every reduction is. One entry holds everything that is particular to an op; nothing else knows op names.

A monoid is an identity, a lift (value -> state), a combine (state x state -> state), a fold (combine along an axis of a tile) and a finish
(state -> result); `kernels/functions.py` has the device functions. Beside them stand the dtype rules, the reference in torch and the
gradient.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from . import dtypes, gradients, reference
from .kernels import functions as fn
from .kernels.compat import Constant, tl

Number = float | int
Rule = Callable[[torch.dtype], torch.dtype]


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    """16-bit floats in float32, integers and bool in int64, the others in themselves."""
    if dtype.is_floating_point:
        return torch.float64 if dtype == torch.float64 else torch.float32
    return torch.int64


def _value(dtype: torch.dtype) -> torch.dtype:
    """Exact and without widening more than the hardware wants: float32, float64, int32 or int64."""
    if dtype.is_floating_point:
        return _accumulator(dtype)
    return torch.int64 if dtype == torch.int64 else torch.int32


def _float_accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _same(dtype: torch.dtype) -> torch.dtype:
    return dtype


def _always(dtype: torch.dtype) -> Rule:
    return lambda _: dtype


def _sum_result(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.int64


def _truth_result(dtype: torch.dtype) -> torch.dtype:
    return torch.uint8 if dtype == torch.uint8 else torch.bool


def _log_result(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.float32


def _lowest(dtype: torch.dtype) -> tuple[Number, ...]:
    return (dtypes.limits(dtypes.of(dtype))[0],)


def _highest(dtype: torch.dtype) -> tuple[Number, ...]:
    return (dtypes.limits(dtypes.of(dtype))[1],)


def _all_bits(dtype: torch.dtype) -> tuple[Number, ...]:
    return (1 if dtype == torch.bool else 255 if dtype == torch.uint8 else -1,)


def _no_index(dtype: torch.dtype) -> tuple[Number, ...]:
    """The lowest key, and an index that no element has."""
    key = torch.iinfo(torch.int64 if dtype in (torch.int64, torch.float64) else torch.int32).min
    return (key, torch.iinfo(torch.int64).max)


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
        functions = (self.lift, self.combine, self.fold, self.finish) if not self.parts else ()
        halves = [getattr(f, "cache_key", f.__name__) for f in functions]
        facts = (self.name, self.identity, [str(d) for d in self.dtypes], str(self.cast), self.lift_extra, self.finish_extra, self.param)
        return hashlib.sha256(repr((halves, facts, self.shifted, self.wider, [p.cache_key for p in self.parts])).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"DeviceOp({self.name}, {self.cache_key[:12]})"


@dataclass(frozen=True, eq=False)
class Monoid:
    """A reduction.

    Device functions are `@triton.jit`; a state is one to three tiles, passed one after another, and a state of several is returned as a
    tuple:
    `lift(x)` or `lift(x, index)`, `combine(a, b)` or `combine(a0, a1, b0, b1)`, `fold(a, axis)` with `axis` a `tl.constexpr`, `finish(a)`.
    A parameter named `param` of lift or finish receives `param` (a constexpr); one named `count` of finish the number of contributions.

    Args:
        name: shown in messages. identity: a number, a tuple with one for each tile, or a function of the values' torch dtype. lift,
        combine, fold, finish: the device functions. acc_dtype: dtype of the state, or a rule (values' dtype -> dtype), or a tuple of either
        with one for each tile. out_dtype: dtype of the result, or such a rule. commutative: False forbids plans that change the order of
        contributions; no kernel here keeps an order, so it is refused. reference: what it means in torch: `reference(x, dims, keepdim)`,
        `reference(x, dims)` or, on a flat tensor, `reference(x)`.

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
    acc_dtype: Any = _accumulator
    out_dtype: Any = _same
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
    lift_names, finish_names = monoid.lift.arg_names, monoid.finish.arg_names
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
    )


def _cast(monoid: Monoid, dtype: torch.dtype, acc: torch.dtype) -> torch.dtype:
    return _value(dtype) if monoid.indexed else acc


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

_sum = Monoid(
    "sum",
    0,
    fn.identity,
    fn.add,
    fn.fold_sum,
    fn.identity,
    _accumulator,
    _sum_result,
    reference=reference.sum,
    gradient=gradients.sum,
    join=torch.add,
    seed="state",
    accumulates=True,
)
_max = Monoid(
    "max",
    _lowest,
    fn.identity,
    fn.larger,
    fn.fold_max,
    fn.identity,
    _value,
    reference=reference.max,
    gradient=gradients.ties,
    join=torch.maximum,
    seed="state",
    accumulates=True,
    idempotent=True,
    no_empty=True,
)
_any = Monoid(
    "any",
    0,
    fn.lift_nonzero,
    fn.bit_or,
    fn.fold_max,
    fn.identity,
    torch.int32,
    _truth_result,
    reference=reference.any,
    join=torch.logical_or,
    seed="state",
    accumulates=True,
    idempotent=True,
    lift_raw=True,
)
_argmax = Monoid(
    "argmax",
    _no_index,
    fn.lift_argmax,
    fn.first_of_best,
    fn.fold_arg,
    fn.finish_arg,
    (lambda d: torch.int64 if d in (torch.int64, torch.float64) else torch.int32, torch.int64),
    torch.int64,
    reference=reference.argmax,
    indexed=True,
    no_empty=True,
    idempotent=True,
    folds=2,
)
_var = Monoid(
    "var",
    (0.0, 0.0, 0.0),
    fn.lift_moments,
    fn.add_moments,
    fn.fold_moments,
    fn.finish_var,
    _float_accumulator,
    reference=reference.var,
    gradient=gradients.var,
    floats_only=True,
    shifted=True,
    folds=4,
    param=1,
    options=("correction",),
)
_norm = Monoid(
    "norm",
    0,
    fn.lift_square,
    fn.add,
    fn.fold_sum,
    fn.finish_sqrt,
    _float_accumulator,
    reference=reference.norm,
    gradient=gradients.norm,
    floats_only=True,
    param=2,
    options=("ord",),
)
_mean = replace(_sum, name="mean", finish=fn.divide_count, acc_dtype=_float_accumulator, out_dtype=_same, reference=reference.mean)
_mean = replace(_mean, gradient=gradients.mean, seed=None, accumulates=False, floats_only=True, with_where="counted_mean")

MONOIDS: dict[str, Monoid] = {
    "sum": _sum,
    "prod": replace(
        _sum,
        name="prod",
        identity=1,
        combine=fn.multiply,
        fold=fn.fold_prod,
        reference=reference.prod,
        gradient=gradients.prod,
        join=torch.mul,
    ),
    "max": _max,
    "min": replace(_max, name="min", identity=_highest, combine=fn.smaller, fold=fn.fold_min, reference=reference.min, join=torch.minimum),
    "mean": _mean,
    "any": _any,
    "all": replace(_any, name="all", identity=1, combine=fn.bit_and, fold=fn.fold_min, reference=reference.all, join=torch.logical_and),
    "and": replace(
        _max,
        name="and",
        identity=_all_bits,
        combine=fn.bit_and,
        fold=fn.fold_and,
        reference=reference.bit_and,
        gradient=None,
        join=torch.bitwise_and,
        no_empty=False,
        ints_only=True,
    ),
    "or": replace(
        _max,
        name="or",
        identity=0,
        combine=fn.bit_or,
        fold=fn.fold_or,
        reference=reference.bit_or,
        gradient=None,
        join=torch.bitwise_or,
        no_empty=False,
        ints_only=True,
    ),
    "xor": replace(
        _max,
        name="xor",
        identity=0,
        combine=fn.bit_xor,
        fold=fn.fold_xor,
        reference=reference.bit_xor,
        gradient=None,
        join=torch.bitwise_xor,
        no_empty=False,
        ints_only=True,
        idempotent=False,
    ),
    "argmax": _argmax,
    "argmin": replace(_argmax, name="argmin", lift=fn.lift_argmin, reference=reference.argmin),
    "var": _var,
    "std": replace(_var, name="std", finish=fn.finish_std, reference=reference.std, gradient=gradients.std),
    "logsumexp": Monoid(
        "logsumexp",
        (float("-inf"), 0.0),
        fn.lift_exp,
        fn.add_exp,
        fn.fold_exp,
        fn.finish_log,
        _float_accumulator,
        _log_result,
        reference=reference.logsumexp,
        gradient=gradients.logsumexp,
        join=torch.logaddexp,
        seed="lift",
        folds=2,
    ),
    "norm": _norm,
    "count_nonzero": replace(
        _sum,
        name="count_nonzero",
        lift=fn.lift_nonzero,
        acc_dtype=torch.int64,
        out_dtype=torch.int64,
        lift_raw=True,
        reference=reference.count_nonzero,
        gradient=None,
    ),
    "abs_sum": replace(_sum, name="abs_sum", lift=fn.lift_abs, reference=reference.abs_sum, gradient=gradients.abs_sum),
    "abs_max": replace(
        _max,
        name="abs_max",
        identity=0,
        lift=fn.lift_abs,
        reference=reference.abs_max,
        gradient=gradients.abs_ties,
        no_empty=False,
    ),
    "sum_sq": replace(_sum, name="sum_sq", lift=fn.lift_square, reference=reference.sum_sq, gradient=gradients.sum_sq),
}
REGISTERED: dict[str, Monoid] = {}  # by registry.register_monoid
_INTERNAL: dict[str, Monoid] = {
    "counted_mean": replace(
        _mean,
        name="counted_mean",
        identity=(0.0, 0.0),
        lift=fn.lift_counted,
        combine=fn.add_counted,
        fold=fn.fold_counted,
        finish=fn.finish_mean,
        with_where=None,
        folds=2,
    ),
}
_products = replace(
    _sum, name="gemv", acc_dtype=lambda d: d if d == torch.float64 else torch.float32 if d.is_floating_point else torch.int32
)


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


def products() -> Monoid:
    """What gemv accumulates: sums of products, in int32 for int8."""
    return _products


def norm_of(order: float) -> Monoid:
    """The norm of one order: |x| summed, squared, maximised, counted, or raised to a power; ValueError for what is not a number."""
    if isinstance(order, bool) or not isinstance(order, int | float) or order != order:
        raise ValueError(f"norm: ord must be a number (0, 1, 2, inf, -inf or p), got {order!r}")
    changes: dict[float, dict[str, Any]] = {
        2.0: {},
        0.0: {"lift": fn.lift_nonzero_float, "finish": fn.identity},
        1.0: {"lift": fn.lift_abs, "finish": fn.identity},
        float("inf"): {"lift": fn.lift_abs, "combine": fn.larger, "fold": fn.fold_max, "finish": fn.identity},
        float("-inf"): {
            "lift": fn.lift_abs,
            "combine": fn.smaller,
            "fold": fn.fold_min,
            "finish": fn.identity,
            "identity": float("inf"),
        },
    }
    power = {"lift": fn.lift_power, "finish": fn.finish_root, "acc_dtype": torch.float64}
    return replace(_norm, param=float(order), **changes.get(float(order), power))


def lookup(op: str | Monoid, correction: float = 1, order: float = 2) -> Monoid:
    """The monoid that a public `op` names; ValueError lists the known ones."""
    if isinstance(op, Monoid):
        if not op.commutative:
            raise NotImplementedError(f"monoid {op.name!r} is declared commutative=False: no plan here keeps the order of contributions")
        return op
    found = MONOIDS.get(op, REGISTERED.get(op)) if isinstance(op, str) else None
    if found is None:
        raise ValueError(f"unknown op {op!r}: expected one of {', '.join([*MONOIDS, *REGISTERED])}, or a tri_reduce.Monoid")
    return _with_options(found, correction, order) if found.options else found


@functools.lru_cache(maxsize=256)
def _with_options(monoid: Monoid, correction: float, order: float) -> Monoid:
    if monoid.options == ("ord",):
        return norm_of(order)
    if isinstance(correction, bool) or not isinstance(correction, int | float):
        raise TypeError(f"{monoid.name}: correction must be a number, got {correction!r}")
    return replace(monoid, param=float(correction))


def counted(monoid: Monoid) -> Monoid:
    """The same reduction with its count in the state, for where= and for streams."""
    return _INTERNAL[monoid.with_where] if monoid.with_where else monoid


def device_op(name: str, dtype: Any = None) -> DeviceOp:
    """For `tri_reduce.language`: the device half of a built-in name; `dtype` is a Triton dtype (float32 where it does not matter)."""
    monoid = lookup(name)
    named = "fp32" if dtype is None else str(dtype)
    found = {"int1": torch.bool, "int8": torch.int8, "uint8": torch.uint8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64}
    torch_dtype = found.get(named) or (dtypes.named(named).torch if named in dtypes.BY_NAME else torch.int64)
    return counted(monoid).device(torch_dtype)
