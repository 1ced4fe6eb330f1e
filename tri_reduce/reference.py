"""What each op means, in PyTorch: the oracle of the tests, and what CPU tensors run where there is no interpreter.

Every function takes `(x, dims, keepdim, where, param)`: a tensor, a tuple of distinct non-negative dims (never empty unless x is 0-d), a
mask of x's shape or None, and the monoid's parameter. Floats are computed in float64, integers exactly; the caller casts the result.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .autocasting import autocasting

Dims = tuple[int, ...]


def _wide(x: Tensor) -> Tensor:
    return x.double() if x.dtype.is_floating_point else x.long()


def _real(x: Tensor) -> Tensor:
    return x.double()


def _masked(x: Tensor, where: Tensor | None, neutral: float) -> Tensor:
    return x if where is None else torch.where(where, x, torch.full((), neutral, dtype=x.dtype, device=x.device))


def _flat(x: Tensor, dims: Dims) -> Tensor:
    """The reduced dims as one last dim, in their logical order."""
    kept = [d for d in range(x.dim()) if d not in dims]
    moved = x.permute(*kept, *sorted(dims)) if x.dim() else x
    return moved.reshape([x.shape[d] for d in kept] + [math.prod(x.shape[d] for d in dims)])


def _shaped(y: Tensor, x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    return y.reshape([1 if d in dims else s for d, s in enumerate(x.shape)]) if keepdim else y


def _over_flat(f: Callable[..., Tensor], x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None, neutral: float) -> Tensor:
    return _shaped(f(_flat(_masked(x, where, neutral), dims), -1), x, dims, keepdim)


def count(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None) -> Tensor:
    """Contributions to each output, float64 of the result's shape."""
    ones = torch.ones((), device=x.device, dtype=torch.float64).expand(x.shape) if where is None else where.double()
    return _over_flat(torch.sum, ones, dims, keepdim, None, 0)


def sum(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    kind = torch.float64 if x.dtype.is_floating_point else torch.int64
    return _over_flat(lambda t, d: torch.sum(t, d, dtype=kind), x, dims, keepdim, where, 0)


def prod(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _over_flat(torch.prod, _wide(x), dims, keepdim, where, 1)


def _extreme(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None, largest: bool) -> Tensor:
    """A value is put beside each output's contributions, so that there always is one: the identity of the dtype."""
    info = None if x.dtype.is_floating_point or x.dtype == torch.bool else torch.iinfo(x.dtype)
    if info is None:
        neutral: Any = (not largest) if x.dtype == torch.bool else (-math.inf if largest else math.inf)
    else:
        neutral = info.min if largest else info.max
    flat = _flat(_masked(x, where, neutral), dims)
    flat = torch.cat([flat, torch.full_like(flat[..., :1] if flat.shape[-1] else flat.new_empty(*flat.shape[:-1], 1), neutral)], -1)
    return _shaped(flat.amax(-1) if largest else flat.amin(-1), x, dims, keepdim)


def max(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _extreme(x, dims, keepdim, where, True)


def min(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _extreme(x, dims, keepdim, where, False)


def mean(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return sum(_real(x), dims, keepdim, where) / count(x, dims, keepdim, where)


def any(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _over_flat(torch.any, x != 0, dims, keepdim, where, False)


def all(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _over_flat(torch.all, x != 0, dims, keepdim, where, True)


def _fold_bits(combine: Callable[[Tensor, Tensor], Tensor], neutral: int) -> Callable[..., Tensor]:
    def f(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
        flat = _flat(_masked(x.long(), where, neutral), dims)
        while flat.shape[-1] > 1:
            half = flat.shape[-1] // 2
            flat = torch.cat([combine(flat[..., :half], flat[..., half : 2 * half]), flat[..., 2 * half :]], -1)
        y = flat[..., 0] if flat.shape[-1] else torch.full(flat.shape[:-1], neutral, device=x.device)
        return _shaped(y & 1 if x.dtype == torch.bool else y, x, dims, keepdim)

    return f


bit_and = _fold_bits(torch.bitwise_and, -1)
bit_or = _fold_bits(torch.bitwise_or, 0)
bit_xor = _fold_bits(torch.bitwise_xor, 0)


def _best(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None, largest: bool) -> Tensor:
    flat, mask = _flat(x, dims), None if where is None else _flat(where.expand(x.shape), dims)
    n = flat.shape[-1]
    if n == 0:
        return _shaped(torch.zeros(flat.shape[:-1], dtype=torch.int64, device=x.device), x, dims, keepdim)
    seen = torch.ones_like(flat, dtype=torch.bool) if mask is None else mask
    nan = flat.isnan() & seen
    best = _flat(_extreme(x, dims, True, where, largest), dims)
    winner = torch.where(nan.any(-1, keepdim=True), nan, (flat == best) & seen)
    position = torch.where(winner, torch.arange(n, device=x.device), n).amin(-1)
    return _shaped(torch.where(position == n, 0, position), x, dims, keepdim)


def argmax(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _best(x, dims, keepdim, where, True)


def argmin(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _best(x, dims, keepdim, where, False)


def var(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = 1) -> Tensor:
    x = _real(x)
    away = x - mean(x, dims, True, where).reshape([1 if d in dims else s for d, s in enumerate(x.shape)])
    squares = sum(away * away, dims, keepdim, where)
    divisor: Tensor = count(x, dims, keepdim, where) - param
    return squares / divisor.clamp(min=0)


def std(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = 1) -> Tensor:
    return var(x, dims, keepdim, where, param).sqrt()


def logsumexp(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _over_flat(torch.logsumexp, _real(x), dims, keepdim, where, -math.inf)


def norm(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = 2) -> Tensor:
    size, order = _real(x).abs(), float(param)
    if math.isinf(order):
        largest = order > 0
        flat = _flat(_masked(size, where, 0.0 if largest else math.inf), dims)
        if flat.shape[-1] == 0:
            flat = flat.new_full((*flat.shape[:-1], 1), 0.0 if largest else math.inf)
        return _shaped(flat.amax(-1) if largest else flat.amin(-1), x, dims, keepdim)
    if order == 0:
        return sum((size != 0).double(), dims, keepdim, where)
    total = sum(size**order, dims, keepdim, where)
    result: Tensor = total if order == 1 else total.sqrt() if order == 2 else total.pow(1 / order)
    return result


def count_nonzero(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return sum((x != 0).long(), dims, keepdim, where)


def abs_sum(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return sum(_wide(x).abs(), dims, keepdim, where)


def abs_max(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return _extreme(_masked(_wide(x).abs(), where, 0), dims, keepdim, None, True).clamp(min=0)


def sum_sq(x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None = None, param: Any = None) -> Tensor:
    return sum(_wide(x).square(), dims, keepdim, where)


def call(f: Callable[..., Tensor], x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None, param: Any) -> Tensor:
    """A reference's result. The caller's autocast has no part in how it is computed (nor has it in a kernel)."""
    if not autocasting():
        return _called(f, x, dims, keepdim, where, param)
    with torch.autocast(x.device.type, enabled=False):
        return _called(f, x, dims, keepdim, where, param)


def _called(f: Callable[..., Tensor], x: Tensor, dims: Dims, keepdim: bool, where: Tensor | None, param: Any) -> Tensor:
    """A built-in reference as it is; a user's with what it takes, output by output where a mask leaves uneven contributions."""
    try:
        takes = list(inspect.signature(f).parameters)
    except ValueError:  # a builtin, such as torch.amax
        takes = ["x", "dims", "keepdim"]
    if "where" in takes:
        return f(x, dims, keepdim, where, param)
    flat = _flat(x, dims)
    if where is None and len(takes) >= 2:
        y = f(flat, (flat.dim() - 1,)) if len(takes) == 2 else f(flat, (flat.dim() - 1,), False)
    else:
        rows, masks = (
            flat.reshape(-1, flat.shape[-1]),
            None if where is None else _flat(where.expand(x.shape), dims).reshape(-1, flat.shape[-1]),
        )
        each = [row if masks is None else row[masks[i]] for i, row in enumerate(rows)]
        extra = {1: (), 2: ((0,),)}.get(len(takes), ((0,), False))
        y = torch.stack([f(row, *extra) for row in each]).reshape(flat.shape[:-1]) if each else flat.new_empty(flat.shape[:-1])
    return _shaped(y, x, dims, keepdim)
