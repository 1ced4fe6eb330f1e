"""The public functions: `reduce`, `gemv` and torch's names for the common ones."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import ops as operators
from . import recall
from .autocasting import autocasting, widened
from .calls import gemv_now, reduce_now
from .many import reduce_many_now
from .monoids import Monoid

Dim = int | Sequence[int] | None
_ZERO: Any = 0
_ONE: Any = 1
_TWO: Any = 2  # options are compared by identity: 1 == 1.0 == True


def reduce(
    x: Tensor,
    op: str | Monoid,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    accumulate: bool = False,
    where: Tensor | None = None,
    initial: float | Tensor | None = None,
    correction: float = 1,
    ord: float = 2,
    determinism: str = "run_to_run",
) -> Tensor:
    """Reduce dims of a tensor, each contribution counted exactly once.

    Args:
        x: [...], any strides; bool, uint8, int8/16/32/64, float16, bfloat16, float32 or float64.
        op: sum prod max min mean any all and or xor argmax argmin var std logsumexp norm count_nonzero abs_sum abs_max sum_sq, or a Monoid.
        dim: an int, several, or None (also an empty tuple) for all; argmax and argmin take one or None.
        keepdim: keep reduced dims with size 1.
        dtype: of the result; contributions are converted to it first, as in torch. Under torch.autocast, float32 where torch's would be.
        out: where the result goes: the result's shape, any strides, may overlap x.
        accumulate: combine the old values of `out` in, once (ops whose result is their state).
        where: bool, broadcastable to x: what is False contributes nothing, not even a NaN.
        initial: a seed, combined once into every output.
        correction: var and std divide by count - correction.
        ord: of norm: 0, 1, 2, inf, -inf or p.
        determinism: "run_to_run" (same input, device and tuning: same bits), "invariant" (same bits however many rows there are and
            whatever was tuned) or "none".

    Returns:
        The result, of torch's shape and dtype for the op.

    Raises:
        TypeError: a dtype that the op does not take, or that cannot be cast to `out`.
        ValueError: an unknown op or option, or an argument that the op does not take.
        IndexError: a dim out of range, or an empty axis for an op without identity.
        RuntimeError: a repeated dim, tensors on different devices.

    Example:
        >>> import torch, tri_reduce
        >>> tri_reduce.reduce(torch.tensor([[1.0, 5.0], [2.0, 3.0]]), "max", dim=1)
        tensor([5., 3.])
    """
    if (
        dtype is None and where is None and initial is None and accumulate is False and correction is _ONE and ord is _TWO
        and determinism == "run_to_run"
    ):  # fmt: skip
        return recall.reduction(x, op, dim, keepdim, out)
    if type(dim) is list:
        dim = tuple(dim)
    if autocasting() and dtype is None and out is None:
        dtype = widened(x, op)
    if operators.is_plain(x, where, out):
        return reduce_now(x, op, dim, keepdim, dtype, out, accumulate, where, initial, correction, ord, determinism)
    return operators.reduce(x, op, dim, keepdim, dtype, out, accumulate, where, initial, correction, ord, determinism)


def gemv(
    a: Tensor,
    x: Tensor,
    *,
    alpha: float = 1,
    beta: float = 0,
    y: Tensor | None = None,
    trans: bool = False,
    out: Tensor | None = None,
    determinism: str = "run_to_run",
) -> Tensor:
    """Matrix-vector product: `alpha * (a @ x) + beta * y`, accumulated in float32 for 16-bit floats.

    Args:
        a: [..., M, K] ([..., K, M] with `trans`), any strides: row-major, column-major, neither.
        x: [..., K], the dtype of a; batch dims broadcast.
        alpha, beta: numbers. With beta 0, y is not read.
        y: [..., M], of the result's shape and dtype.
        trans: use `a.mT`.
        out: [..., M], any strides, may overlap the operands.
        determinism: as in `reduce`.

    Returns:
        [..., M] of a's dtype; int32 for int8.

    Raises:
        ValueError: shapes that do not fit, naming both; beta without y.
        TypeError: dtypes that differ or are not supported.
        RuntimeError: tensors on different devices.

    Example:
        >>> import torch, tri_reduce
        >>> tri_reduce.gemv(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 1.0]))
        tensor([3., 7.])
    """
    if y is None and alpha is _ONE and beta is _ZERO and trans is False and determinism == "run_to_run":
        return recall.product(a, x, out)
    if operators.is_plain(a, x, out, y):
        return gemv_now(a, x, alpha, beta, y, trans, out, determinism)
    return operators.gemv(a, x, alpha, beta, y, trans, out, determinism)


def sum(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, out: Tensor | None = None) -> Tensor:
    """`torch.sum`. Source: torch's documentation, as for all shortcuts; see `reduce` for shapes, dtypes and errors.

    Example:
        >>> import torch, tri_reduce
        >>> tri_reduce.sum(torch.ones(2, 3), 1)
        tensor([3., 3.])
    """
    if dtype is None:
        return recall.reduction(x, "sum", dim, keepdim, out)
    return reduce(x, "sum", dim, keepdim, dtype=dtype, out=out)


def prod(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, out: Tensor | None = None) -> Tensor:
    """`torch.prod`, over any number of dims."""
    if dtype is None:
        return recall.reduction(x, "prod", dim, keepdim, out)
    return reduce(x, "prod", dim, keepdim, dtype=dtype, out=out)


def amax(x: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`torch.amax`: NaN wins."""
    return recall.reduction(x, "max", dim, keepdim, out)


def amin(x: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`torch.amin`: NaN wins."""
    return recall.reduction(x, "min", dim, keepdim, out)


def mean(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, out: Tensor | None = None) -> Tensor:
    """`torch.mean`."""
    if dtype is None:
        return recall.reduction(x, "mean", dim, keepdim, out)
    return reduce(x, "mean", dim, keepdim, dtype=dtype, out=out)


def any(x: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`torch.any`: NaN is true."""
    return recall.reduction(x, "any", dim, keepdim, out)


def all(x: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`torch.all`: NaN is true."""
    return recall.reduction(x, "all", dim, keepdim, out)


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`torch.argmax`: the first index of the largest, a NaN before all; without dim, into the flattened tensor."""
    return recall.reduction(x, "argmax", dim, keepdim, out)


def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`torch.argmin`: the first index of the smallest, a NaN before all; without dim, into the flattened tensor."""
    return recall.reduction(x, "argmin", dim, keepdim, out)


def _spread(
    op: str, x: Tensor, dim: Dim | bool, unbiased: bool | None, correction: float | None, keepdim: bool, dtype: Any, out: Tensor | None
) -> Tensor:
    if isinstance(dim, bool):  # torch's var(x, unbiased)
        if unbiased is not None:
            raise TypeError(f"{op}: dim must be an int, several or None, got {dim!r}")
        dim, unbiased = None, dim
    if unbiased is not None:
        if correction is not None:
            raise TypeError(f"{op}: give unbiased or correction, not both")
        correction = 1 if unbiased else 0
    return reduce(x, op, dim, keepdim, dtype=dtype, out=out, correction=1 if correction is None else correction)


def var(
    x: Tensor,
    dim: Dim | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`torch.var`, in both of its spellings: `var(x, dim, correction=1)` and `var(x, dim, unbiased=True)`.

    Example:
        >>> import torch, tri_reduce
        >>> tri_reduce.var(torch.tensor([1.0, 2.0, 3.0]), 0, correction=0)
        tensor(0.6667)
    """
    return _spread("var", x, dim, unbiased, correction, keepdim, dtype, out)


def std(
    x: Tensor,
    dim: Dim | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`torch.std`, in both of its spellings (see `var`)."""
    return _spread("std", x, dim, unbiased, correction, keepdim, dtype, out)


def logsumexp(x: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`torch.logsumexp`: -inf for nothing but -inf; integers compute in float32."""
    return recall.reduction(x, "logsumexp", dim, keepdim, out)


def norm(
    x: Tensor,
    ord: float | str = 2,
    dim: Dim = None,
    keepdim: bool = False,
    *,
    p: float | None = None,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`torch.linalg.vector_norm`, and `torch.norm(x, p, dim)` for numeric p.

    Example:
        >>> import torch, tri_reduce
        >>> tri_reduce.norm(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    order = ord if p is None else p
    return reduce(x, "norm", dim, keepdim, ord=2 if order == "fro" else order, dtype=dtype, out=out)  # type: ignore[arg-type]


def count_nonzero(x: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`torch.count_nonzero`: int64."""
    return recall.reduction(x, "count_nonzero", dim, keepdim, out)


def reduce_many(x: Tensor, ops: Sequence[str | Monoid], dim: Dim = None, keepdim: bool = False) -> tuple[Tensor, ...]:
    """Several reductions of the same dims, in one read of x for every three whose state is one tile (not arg*, var, std, logsumexp).

    Args:
        x: [...], as in `reduce`.
        ops: any ops of `reduce`.
        dim, keepdim: as in `reduce`.

    Returns:
        A result for each op, as `reduce` would give it. Results that share a read share one allocation.

    Raises:
        As `reduce`; TypeError where ops is a single op.

    Example:
        >>> import torch, tri_reduce
        >>> tri_reduce.reduce_many(torch.tensor([[1.0, 5.0], [2.0, 3.0]]), ["sum", "max", "min"], 1)
        (tensor([6., 5.]), tensor([5., 3.]), tensor([1., 2.]))
    """
    if isinstance(ops, str | Monoid):
        raise TypeError(f"reduce_many: ops must be a sequence of ops, got {ops!r} (for one op there is reduce)")
    dim = tuple(dim) if type(dim) is list else dim
    cast = autocasting() and builtins.any(widened(x, op) for op in ops)
    if operators.is_plain(x) and not cast:
        return reduce_many_now(x, ops, dim, keepdim)
    return tuple(reduce(x, op, dim, keepdim) for op in ops)
