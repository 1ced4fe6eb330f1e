"""Gradient rules: for `y = reduce(x)`, the gradient of x from that of y. Elementwise torch only; what is reduced on the way is passed in.

Every rule takes `(grad, x, y, where, count, param)`, with grad, y and count broadcastable to x (kept dims of size 1), and returns x's gradient
before masking: the caller zeroes what `where` masks out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Reduce = Callable[[Tensor, str], Tensor]
"""Reduces a tensor of x's shape over the same dims, keeping them, under the same mask."""


def sum(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:  # noqa: A001
    return grad.expand_as(x)


def mean(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    return (grad / count).expand_as(x)


def prod(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    """With one zero only its own gradient lives: the product of the others; with two none does."""
    zero = x == 0
    zeros = reduce(zero.to(x.dtype), "sum")
    others = reduce(torch.where(zero, torch.ones_like(x), x), "prod")
    return grad * torch.where(zero, torch.where(zeros == 1, others, 0.0), torch.where(zeros == 0, y / torch.where(zero, 1.0, x), 0.0))


def ties(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    """Equal extremes share the gradient evenly, as torch's amax and amin do."""
    best = ((x == y) | (x.isnan() & y.isnan())).to(x.dtype)
    return grad * best / reduce(best, "sum")


def abs_ties(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    return ties(grad, x.abs(), y, count, param, reduce) * x.sgn()


def abs_sum(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    return grad * x.sgn()


def sum_sq(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    return grad * 2 * x


def logsumexp(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    return grad * torch.where(y.isinf() & (x == y), torch.ones_like(x), (x - torch.where(y.isinf(), 0.0, y)).exp())


def var(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    centred = x - reduce(x, "mean")
    divisor = (count - param).clamp(min=0) if isinstance(count, Tensor) else max(count - param, 0)
    return grad * centred * (2 / torch.as_tensor(divisor, dtype=x.dtype, device=x.device))


def std(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    return var(grad / (2 * y), x, y, count, param, reduce).masked_fill(y == 0, 0)


def norm(grad: Tensor, x: Tensor, y: Tensor, count: Tensor | int, param: Any, reduce: Reduce) -> Tensor:
    order = float(param)
    if order == 0:
        return torch.zeros_like(x) * grad
    if order == 1:
        return grad * x.sgn()
    if order in (float("inf"), float("-inf")):
        return abs_ties(grad, x, y, count, param, reduce)
    if order == 2:
        return grad * torch.where(y == 0, 0.0, x / y)
    slope = x.sgn() * (x.abs() / torch.where(y == 0, 1.0, y)) ** (order - 1)
    return grad * torch.where((y == 0) | (x == 0), 0.0, slope)
