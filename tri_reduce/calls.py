"""A call that nothing has to see: a key, a remembered plan, a launch. What is not remembered is validated and planned first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import guards
from .autotune import MODE
from .launch import Bound
from .plans import PLANS, plan_gemv, plan_reduction, remember
from .validate import check_determinism, gemv_arguments, overlaps, reduction, spans


def reduce_now(
    x: Tensor, op: Any, dim: Any, keepdim: bool, dtype: Any, out: Tensor | None, accumulate: bool, where: Tensor | None, initial: Any,
    correction: Any, order: Any, determinism: str, common: bool = False,
) -> Tensor:  # fmt: skip
    """`reduce`, past the gate. `common`: only `out` may differ from the defaults: `recall` makes the next call like this one."""
    given = x
    try:
        away = x.data_ptr() & 15
        if away and x.is_neg():  # z.conj().imag, negated when read: odd elements of a complex tensor, so never aligned
            x = x.resolve_neg()
            away = x.data_ptr() & 15
        key: Any = (
            op, dim, keepdim, x.shape, x.stride(), x.dtype, x.device, away, dtype, determinism, MODE.get(), correction, order,
            None if dim is None or type(dim) is int else (type(dim), *map(type, dim)), type(correction), type(order),  # 1 == 1.0 == True
            accumulate if out is None else (out.shape, out.stride(), out.dtype, out.device, accumulate),
            None if where is None else (where.shape, where.stride(), where.dtype, where.device),
            None if initial is None else (type(initial), str(initial)),
        )  # fmt: skip
        planned = PLANS.get(key)
    except (TypeError, AttributeError, NotImplementedError):  # an argument that cannot be hashed or is no tensor: validation names it
        key, planned = None, None
    if planned is None:
        r = reduction(x, op, dim, keepdim, dtype, out, accumulate, where, initial, correction, order, determinism)
        planned = plan_reduction(r, x, where, out), spans(out, x, where)
        if key is not None and not isinstance(initial, Tensor):
            remember(key, planned)
    elif determinism == "none":
        check_determinism(determinism)  # torch may have forbidden it since
    bound, reach = planned
    call = bound.call
    if common and key is not None and x is given:
        guards.learn_reduction(key, x, op, dim, keepdim, out, bound, reach)
    if out is None:
        return call(x, where, None)
    increment_version(out)  # a backward that saved its old values must know
    if out.is_neg() or overlaps(reach, out, x, where):
        return _through_copy(call, x, where, out, accumulate)
    return call(x, where, out)


def _through_copy(call: Any, x: Tensor, where: Tensor | None, out: Tensor, accumulate: bool) -> Tensor:
    """`out` shares memory with an operand: programs still read what others would already have written."""
    fresh = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device)
    if accumulate:
        fresh.copy_(out)
    call(x, where, fresh)
    return out.copy_(fresh)


def gemv_now(
    a: Tensor, x: Tensor, alpha: Any, beta: Any, y: Tensor | None, trans: bool, out: Tensor | None, determinism: str, common: bool = False
) -> Tensor:
    """`gemv`, past the gate. `common`: as in `reduce_now`."""
    try:
        away_a, away_x = a.data_ptr() & 15, x.data_ptr() & 15
        if (away_a and a.is_neg()) or (away_x and x.is_neg()) or (y is not None and y.is_neg()):
            y = None if y is None else y.resolve_neg()
            return gemv_now(a.resolve_neg(), x.resolve_neg(), alpha, beta, y, trans, out, determinism)
        key: Any = (
            a.shape, a.stride(), a.dtype, a.device, away_a, x.shape, x.stride(), x.dtype, x.device, away_x, alpha, beta, trans, determinism,
            MODE.get(), None if y is None else (y.shape, y.stride(), y.dtype, y.device), None if out is None else (out.shape, out.stride(),
            out.dtype, out.device),
        )  # fmt: skip
        planned = PLANS.get(key)
    except (TypeError, AttributeError, NotImplementedError):
        key, planned = None, None
    if planned is None:
        planned = _planned_gemv(a, x, alpha, beta, y, trans, out, determinism), spans(out, a, x, y)
        if key is not None:
            remember(key, planned)
    elif determinism == "none":
        check_determinism(determinism)
    bound, reach = planned
    call = bound.call
    if common and key is not None:
        guards.learn_product(key, a, x, out, bound, reach)
    if out is None:
        return call(a, x, y, None)
    increment_version(out)
    if out.is_neg() or overlaps(reach, out, a, x, y):
        return out.copy_(call(a, x, y, torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device)))
    return call(a, x, y, out)


def _planned_gemv(a: Any, x: Any, alpha: Any, beta: Any, y: Any, trans: bool, out: Any, determinism: str) -> Bound:
    batch, result = gemv_arguments(a, x, alpha, beta, y, trans, out, determinism)

    def views(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        a = a.mT if trans else a
        return a.expand(*batch, *a.shape[-2:]), x.expand(*batch, x.shape[-1])

    inner = plan_gemv(*views(a, x), y, out, alpha, beta, result, determinism)
    if not batch and not trans:
        return inner

    def call(a: Tensor, x: Tensor, y: Tensor | None, out: Tensor | None) -> Tensor:
        return inner.call(*views(a, x), y, out)

    return Bound(call)
