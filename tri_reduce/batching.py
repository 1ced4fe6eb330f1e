"""The operators under `torch.vmap`: the mapped dim becomes a kept dim of the reduction, or one more batch dim of the product."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .monoids import lookup
from .problem import normalise_dims


def _front(t: Tensor, at: int | None, ndim: int, size: int | None = None) -> Tensor:
    """The tensor with its mapped dim first and `ndim` dims behind it. One without is left to broadcast, or repeated `size` times."""
    if at is None:
        return t if size is None else t.expand(size, *(1,) * (ndim - t.dim()), *t.shape)
    t = t.movedim(at, 0)
    return t.reshape(t.shape[0], *(1,) * (ndim + 1 - t.dim()), *t.shape[1:])


def reduce(
    info: Any, in_dims: Any, x: Tensor, op: str, dim: Any = None, keepdim: bool = False, where: Tensor | None = None, **options: Any
) -> tuple[Tensor, int]:
    """The rule of `tri_reduce::reduce`; x, where or both are mapped."""
    at_x, at_where = in_dims[0], in_dims[4] if len(in_dims) > 4 else None
    ndim = x.dim() - (at_x is not None)
    x = _front(x, at_x, ndim, info.batch_size)
    if where is not None:
        where = _front(where, at_where, ndim)
    indexed = lookup(op).indexed
    dims = [d + 1 for d in normalise_dims(op, dim if dim else None, ndim)]
    shape = (x.shape[0], *(1,) * ndim)
    if ndim == 0 or (indexed and len(dims) > 1):  # a scalar, or a position in all of the tensor: one row each
        where = None if where is None else where.expand(x.shape).reshape(x.shape[0], math.prod(x.shape[1:]))
        x, dims = x.reshape(x.shape[0], math.prod(x.shape[1:])), [1]
        y = torch.ops.tri_reduce.reduce(x, op, dims, False, where, **options)
        return y.reshape(shape) if keepdim else y, 0
    return torch.ops.tri_reduce.reduce(x, op, dims, keepdim, where, **options), 0


def gemv(info: Any, in_dims: Any, a: Tensor, x: Tensor, y: Tensor | None = None, *, beta: Any = 0, **options: Any) -> tuple[Tensor, int]:
    """The rule of `tri_reduce::gemv`; some of a, x and y are mapped."""
    at_a, at_x, at_y = in_dims[0], in_dims[1], in_dims[2] if len(in_dims) > 2 else None
    batch = max(a.dim() - (at_a is not None) - 2, x.dim() - (at_x is not None) - 1)
    a = _front(a, at_a, batch + 2)
    x = _front(x, at_x, batch + 1, info.batch_size if at_a is None else None)
    if y is not None:
        y = _front(y, at_y, batch + 1, info.batch_size)
    return torch.ops.tri_reduce.gemv(a, x, y, beta=beta, **options), 0


def register(library: Any) -> None:
    """Put the rules into the library that defines the operators."""
    torch.library.register_vmap("tri_reduce::reduce", reduce, lib=library)
    torch.library.register_vmap("tri_reduce::gemv", gemv, lib=library)
