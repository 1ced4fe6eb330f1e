"""Gradient rules: for `y = reduce(x)`, the gradient of x from that of y, in elementwise torch and this library's own reductions.

A rule takes `(grad, x, y, given)`: grad and y keep the reduced dims with size 1, x is of the dtype that contributes and 0 where masked out.
It returns what broadcasts to x's gradient; the caller zeroes what `where` masks out. A rule only multiplies grad, lane by lane, so that it
gives the forward-mode derivative too, and it is differentiable itself. Subgradients are torch's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


@dataclass(frozen=True)
class Given:
    """What a rule may use beside the tensors: x's shape, the dims, the mask, the monoid's parameter (correction, ord) and the seed."""

    shape: Sequence[int]
    dims: tuple[int, ...]
    where: Tensor | None = None
    param: Any = None
    seed: Any = None
    determinism: str = "run_to_run"

    def reduce(self, t: Tensor, op: str) -> Tensor:
        """A tensor of x's shape, reduced over the same dims under the same mask; the dims are kept."""
        return torch.ops.tri_reduce.reduce(t, op, list(self.dims), True, self.where, determinism=self.determinism)  # type: ignore[no-any-return]

    @functools.cached_property
    def count(self) -> Tensor | int:
        """Contributions to each output: a number, or with a mask an int64 tensor."""
        if self.where is None:
            return math.prod(self.shape[d] for d in self.dims)
        return self.reduce(self.where.expand(self.shape), "count_nonzero")


_broadcast: Any = torch.broadcast_shapes
Rule = Callable[[Tensor, Any, Any, Given], Tensor]


def pull(rule: Rule | None, name: str, grad: Tensor, x: Tensor | None, y: Tensor | None, given: Given) -> Tensor:
    """The gradient of x; NotImplementedError for a monoid that has no rule."""
    if rule is None:
        raise NotImplementedError(f"{name} has no gradient: give its Monoid one (gradient=)")
    found = rule(grad, x, y, given).expand(given.shape)
    return found if given.where is None else torch.where(given.where, found, 0)


def saved_by(rule: Rule | None) -> tuple[bool, bool]:
    """Whether a rule reads x, and y."""
    return rule not in (sum, mean), rule not in (sum, mean, prod, var, abs_sum, sum_sq)


def _real(number: Tensor | int, like: Tensor) -> Any:
    """A count as a divisor: 16-bit floats cannot hold one above 65504."""
    if not isinstance(number, Tensor):
        return number
    return number.to(torch.float64 if like.dtype == torch.float64 else torch.float32)


def _differentiated_again() -> bool:
    return torch.is_grad_enabled() or forward_ad._current_level >= 0


def sum(grad: Tensor, x: None, y: None, given: Given) -> Tensor:
    return grad


def mean(grad: Tensor, x: None, y: None, given: Given) -> Tensor:
    count = given.count
    divisor: Tensor = _real(count.clamp(min=1) if isinstance(count, Tensor) else count, grad)
    return grad / divisor


def prod(grad: Tensor, x: Tensor, y: None, given: Given) -> Tensor:
    """The product of the others: with one zero only its own gradient lives, with two none does.

    `lone` is the sum of the zeros: 0, but with their derivatives. It stands for the one zero among the others, or for the other one of two.
    """
    zero = x == 0
    zeros = given.reduce(zero, "count_nonzero")
    product = given.reduce(torch.where(zero, 1, x), "prod") * (1 if given.seed is None else given.seed)
    of_zero, of_others = (zeros == 1).to(x.dtype), (zeros == 0).to(x.dtype)
    if _differentiated_again():
        lone = given.reduce(torch.where(zero, x, 0), "sum")
        of_zero, of_others = torch.where(zeros == 2, lone - x, of_zero), torch.where(zeros == 1, lone, of_others)
    return grad * torch.where(zero, product * of_zero, product / torch.where(zero, 1, x) * of_others)


def _share(grad: Tensor, best: Tensor, y: Tensor, given: Given) -> Tensor:
    """The gradient in equal parts to `best` and, where it is as good, to the seed, whose part nobody gets."""
    number = given.reduce(best, "count_nonzero")
    if given.seed is not None:
        number = number + (y == torch.full((), given.seed, dtype=y.dtype, device=y.device))
    return torch.where(best, (grad / _real(number.clamp(min=1), grad)).to(grad.dtype), 0)


def ties(grad: Tensor, x: Tensor, y: Tensor, given: Given) -> Tensor:
    """Equal extremes share the gradient evenly; where NaN won it is NaN for all, as in torch's amax and amin."""
    nan = y.isnan()
    return _share(torch.where(nan, y, grad), (x == y) | nan, y, given)


def abs_ties(grad: Tensor, x: Tensor, y: Tensor, given: Given) -> Tensor:
    return ties(grad, x.abs(), y, given) * x.sgn()


def abs_sum(grad: Tensor, x: Tensor, y: None, given: Given) -> Tensor:
    return grad * x.sgn()


def sum_sq(grad: Tensor, x: Tensor, y: None, given: Given) -> Tensor:
    return grad * 2 * x


def logsumexp(grad: Tensor, x: Tensor, y: Tensor, given: Given) -> Tensor:
    away = x - y
    return grad * (away if given.where is None else torch.where(given.where, away, -math.inf)).exp()


def var(grad: Tensor, x: Tensor, y: Any, given: Given) -> Tensor:
    factor: Tensor | float
    count = _real(given.count, grad)
    if isinstance(count, Tensor):
        factor = 2 / (count - given.param).clamp(min=0)
    else:
        factor = 2 / (count - given.param) if count > given.param else math.inf
    return grad * factor * (x - given.reduce(x, "mean"))


def _by(grad: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(grad, divisor) that make a rule 0 where y is 0, in its derivatives as well."""
    zero = y == 0
    return torch.where(zero, 0, grad), torch.where(zero, 1, y)


def std(grad: Tensor, x: Tensor, y: Tensor, given: Given) -> Tensor:
    grad, y = _by(grad, y)
    return var(grad / (2 * y), x, None, given)


def norm(grad: Tensor, x: Tensor, y: Tensor, given: Given) -> Tensor:
    order = float(given.param)
    if order == 0:
        return grad * torch.zeros_like(x)
    if order == 1:
        return grad * x.sgn()
    if math.isinf(order):
        return _share(grad, x.abs() == y, y, given) * x.sgn()
    grad, y = _by(grad, y)
    if order == 2:
        return grad * (x / y)
    return grad * x.sgn() * (torch.where(x == 0, 1, x.abs()) / y) ** (order - 1)


def of_gemv(
    grad: Tensor,
    a: Tensor | None,
    x: Tensor | None,
    shapes: Sequence[Sequence[int] | None],
    alpha: Any,
    beta: Any,
    trans: bool,
    determinism: str,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of a, x and y in `alpha * (a @ x) + beta * y`; shapes are theirs, None for one that needs no gradient.

    grad: [..., M]. A broadcast operand's gradient is summed over the batch dims it was broadcast along.
    """
    of_a, of_x, of_y = shapes
    found_a = found_x = None
    if of_a is not None and x is not None:
        rows, columns = (x, grad) if trans else (grad, x)
        found_a = alpha * _outer(rows, columns, of_a)
    if of_x is not None and a is not None:
        found_x = torch.ops.tri_reduce.gemv(a, grad, alpha=alpha, trans=not trans, determinism=determinism).sum_to_size(of_x)
    return found_a, found_x, None if of_y is None else beta * grad


def _outer(rows: Tensor, columns: Tensor, shape: Sequence[int]) -> Tensor:
    """[..., R] times [..., C] as matrices of the given shape; one matrix for a whole batch takes no memory for each product."""
    if len(shape) == 2 and rows.dim() + columns.dim() > 2:
        batch = _broadcast(rows.shape[:-1], columns.shape[:-1])
        left, right = (t.expand(*batch, t.shape[-1]).reshape(-1, t.shape[-1]) for t in (rows, columns))
        return left.mT @ right
    return (rows.unsqueeze(-1) * columns.unsqueeze(-2)).sum_to_size(shape)
