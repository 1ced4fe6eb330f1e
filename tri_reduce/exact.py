"""How far a result is from float64, as a share of the library's error bound. In torch, on the device that has the result."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Dim = int | tuple[int, ...] | None
REFERENCES = {
    "sum": lambda v, dim: v.sum(dim),
    "mean": lambda v, dim: v.mean(dim),
    "max": lambda v, dim: v.amax(dim),
    "min": lambda v, dim: v.amin(dim),
    "sum_sq": lambda v, dim: (v * v).sum(dim),
    "abs_max": lambda v, dim: v.abs().amax(dim),
    "norm": lambda v, dim: torch.linalg.vector_norm(v, 2, dim),
    "logsumexp": lambda v, dim: v.logsumexp(dim),
    "var": lambda v, dim: v.var(dim),
}


def excess(op: str, got: Tensor, x: Tensor, dim: Dim) -> float:
    """The largest error over `4 eps log2(R) sum|x|`, carried through the op's lift and finish, plus half an ulp of the result.

    Args:
        op: a key of `REFERENCES`, or "argmax", whose result must be a position of the largest value, and the first.

    Returns:
        At most 1 where every output is right; inf for a wrong argmax.
    """
    dims = tuple(range(x.dim())) if dim is None else (dim,) if isinstance(dim, int) else dim
    if op == "argmax":
        return 0.0 if bool((got == x.argmax(dims[0])).all()) else math.inf
    if not x.dtype.is_floating_point:  # exact in int64, and in float64 up to 2**53
        wide = x.long()
        want = wide.sum(dims) if op == "sum" else REFERENCES[op](wide, dims)
        return 0.0 if bool((got == want).all()) else math.inf
    v = x.double()
    ref = REFERENCES[op](v, dims)
    length = v.numel() // max(ref.numel(), 1)
    depth, eps = 4 * math.log2(max(length, 2)), torch.finfo(torch.float32).eps
    if op in ("max", "min", "abs_max"):
        bound = torch.zeros_like(ref)
    elif op in ("sum", "mean"):
        bound = depth * eps * v.abs().sum(dims) / (length if op == "mean" else 1)
    elif op == "sum_sq":
        bound = (depth + 1) * eps * ref
    elif op == "norm":
        bound = ((depth + 1) / 2 + 1) * eps * ref
    elif op == "logsumexp":  # exp amplifies the rounding of `x - max` by |x - max|, weighed by each term's share
        distance = v.logsumexp(dims, keepdim=True) - v
        bound = eps * (depth + 4 + 4 * (distance.abs() * torch.exp(-distance)).sum(dims) + ref.abs())
    else:  # var: relative in the squared deviations, plus what an error of the mean adds to them
        deviations = (v - v.mean(dims, keepdim=True)).square_().sum(dims)
        slip = (depth + 1) * eps * v.abs().sum(dims) / length
        bound = ((depth + 4) * eps * deviations + length * slip**2 + 2 * (length * deviations).sqrt() * slip) / max(length - 1, 1)
    return _share(got, ref, bound)


def gemv_excess(got: Tensor, a: Tensor, x: Tensor) -> float:
    """The same for `a @ x`, a: [M, K]."""
    ref, magnitude = a.double() @ x.double(), a.double().abs() @ x.double().abs()
    return _share(got, ref, 4 * torch.finfo(torch.float32).eps * math.log2(max(len(x), 2)) * magnitude)


def _share(got: Tensor, ref: Tensor, bound: Tensor) -> float:
    half_ulp = torch.finfo(got.dtype).eps * torch.exp2(torch.floor(torch.log2(ref.abs().clamp(min=1e-30)))) / 2
    share = (got.double() - ref).abs() / (bound + half_ulp)
    return float(torch.where(got == ref.to(got.dtype), 0, share).max())  # a result too large for its dtype is rightly infinite
