"""The table of monoids: what every reduction is. One entry holds everything that is particular to an op; nothing else knows op names.

A monoid is an identity, a lift (value -> state), a combine (state x state -> state), a fold (combine along an axis of a tile) and a finish
(state -> result); `kernels/functions.py` has the device functions. Beside them stand the dtype rules, the reference in torch and the
gradient.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch

from . import dtypes, gradients, reference
from .kernels import functions as fn
from .monoid import DeviceOp, Monoid, Number, accumulator, same, together, value_kept


def _float_accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


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


_sum = Monoid(
    "sum",
    0,
    fn.identity,
    fn.add,
    fn.fold_sum,
    fn.identity,
    accumulator,
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
    value_kept,
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
    four=fn.four_moments,
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
_mean = replace(_sum, name="mean", finish=fn.divide_count, acc_dtype=_float_accumulator, out_dtype=same, reference=reference.mean)
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
        four=fn.four_exp,
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
BUILT_IN = MONOIDS | _INTERNAL
_products = replace(
    _sum, name="gemv", acc_dtype=lambda d: d if d == torch.float64 else torch.float32 if d.is_floating_point else torch.int32
)


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


__all__ = ["BUILT_IN", "MONOIDS", "REGISTERED", "DeviceOp", "Monoid", "counted", "device_op", "lookup", "norm_of", "products", "together"]
