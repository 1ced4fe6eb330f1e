"""What each reduction means, in numpy, and how far a right answer may be from it.

Independent of the library: a problem becomes a `[kept, reduced]` matrix of float64 (long double for float64 inputs) or of
wrapping int64, and each op is one line on it. Integer answers are exact. For floats the bound is the contract's
`4 * eps(acc) * log2(R) * sum|x|`, carried through the op's own lift and finish (one rounding = one eps), and the answer must
lie between the roundings of `reference - bound` and `reference + bound` to the output dtype, which is the `+ ulp(out) / 2`.
"""

import math

import numpy as np
import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (torch.bool, *INTS, *FLOATS)
OPS = ("sum", "prod", "max", "min", "mean", "any", "all", "and", "or", "xor", "argmax", "argmin", "var", "std", "logsumexp")
OPS += ("norm", "count_nonzero", "abs_sum", "abs_max", "sum_sq")
BITWISE = ("and", "or", "xor")
NEED_FLOAT = ("mean", "var", "std", "norm")
SEEDED = ("sum", "prod", "max", "min", "any", "all", *BITWISE, "count_nonzero", "abs_sum", "abs_max", "sum_sq", "logsumexp")
ACCUMULATING = tuple(op for op in SEEDED if op != "logsumexp")
NO_EMPTY = ("max", "min", "argmax", "argmin")


def numpy_of(x):
    x = x.detach().cpu()
    if x.dtype is torch.bool:
        return x.numpy()
    if x.dtype is torch.float64:
        return x.numpy().astype(np.longdouble)
    return x.to(torch.float64 if x.is_floating_point() else torch.int64).numpy()


def dims_of(ndim, dim):
    """The reduced axes, by the contract: None and an empty tuple or list are all of them."""
    if dim is None or (isinstance(dim, (tuple, list)) and len(dim) == 0):
        return tuple(range(ndim))
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    return tuple(sorted(d % max(ndim, 1) for d in dims)) if ndim else ()


def kept_shape(shape, dim, keepdim):
    dims = dims_of(len(shape), dim)
    return tuple(1 if i in dims else n for i, n in enumerate(shape) if keepdim or i not in dims)


def as_matrix(a, dim):
    """[kept, reduced], both in logical (row-major) order."""
    dims = dims_of(a.ndim, dim)
    kept = [i for i in range(a.ndim) if i not in dims]
    rows = math.prod(a.shape[i] for i in kept)
    return a.transpose(kept + list(dims)).reshape(rows, math.prod(a.shape[i] for i in dims))


def result_dtype(op, dtype, asked=None):
    if op in ("argmax", "argmin", "count_nonzero"):
        return torch.int64
    if op in ("any", "all"):
        return torch.uint8 if dtype is torch.uint8 else torch.bool
    if asked is not None:
        return asked
    if op in ("sum", "prod", "abs_sum", "sum_sq") and not dtype.is_floating_point:
        return torch.int64
    if op == "logsumexp" and not dtype.is_floating_point:
        return torch.float32
    return dtype


def accumulator_eps(dtype):
    return torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps


def lowest(op, dtype):
    """The identity of max/min in the dtype."""
    top = op in ("max", "argmax")
    if dtype.is_floating_point:
        return -np.inf if top else np.inf
    if dtype is torch.bool:
        return not top
    return torch.iinfo(dtype).min if top else torch.iinfo(dtype).max


def _extreme(op, v, m, dtype):
    return getattr(np, "max" if op in ("max", "argmax") else "min")(np.where(m, v, lowest(op, dtype)), axis=1)


def _first(op, v, m, dtype):
    best = _extreme(op, v, m, dtype)[:, None]
    return np.argmax(m & ((v == best) | ((v != v) & (best != best))), axis=1)


def _moments(v, m):
    n = m.sum(1)
    mean = np.where(m, v, 0).sum(1) / n
    return n, mean, (np.where(m, v - mean[:, None], 0) ** 2).sum(1)


def _logsumexp(v, m):
    top = np.max(np.where(m, v, -np.inf), axis=1, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    return np.log(np.where(m, np.exp(v - shift[:, None]), 0).sum(1)) + shift


def _norm(v, m, p):
    a = np.abs(v.astype(float) if v.dtype.kind in "bi" else v)
    if p == 0:
        return (m & (a != 0)).sum(1).astype(a.dtype)
    if p == math.inf:
        return np.where(m, a, 0).max(1, initial=0)
    if p == -math.inf:
        return np.where(m, a, np.inf).min(1, initial=np.inf)
    total = np.where(m, a**p, 0).sum(1)
    return np.sqrt(total) if p == 2 else total ** (1 / np.asarray(p, a.dtype))


def reference(op, v, m, dtype, *, correction=1, ord=2):
    """[kept] from a [kept, reduced] matrix and the mask of what contributes. `dtype`: the values' torch dtype."""
    with np.errstate(all="ignore"):
        if op in ("max", "min"):
            return _extreme(op, v, m, dtype)
        if op in ("argmax", "argmin"):
            return _first(op, v, m, dtype)
        if op in ("var", "std"):
            n, _, m2 = _moments(v, m)
            var = m2 / np.maximum(n - correction, 0)
            return np.sqrt(var) if op == "std" else var
        if op in BITWISE:
            ufunc = getattr(np, f"bitwise_{op}")
            one = True if v.dtype == bool else -1
            return ufunc.reduce(np.where(m, v, one if op == "and" else 0).astype(v.dtype), axis=1)
        wide = v.astype(np.int64) if v.dtype == bool else v
        return {
            "sum": lambda: np.where(m, wide, 0).sum(1),
            "prod": lambda: np.where(m, wide, 1).prod(1),
            "mean": lambda: np.where(m, v, 0).sum(1) / m.sum(1),
            "any": lambda: (m & (v != 0)).any(1),
            "all": lambda: (~m | (v != 0)).all(1),
            "logsumexp": lambda: _logsumexp(v.astype(float) if v.dtype.kind in "bi" else v, m),
            "norm": lambda: _norm(v, m, ord),
            "count_nonzero": lambda: (m & (v != 0)).sum(1),
            "abs_sum": lambda: np.where(m, np.abs(wide), 0).sum(1),
            "abs_max": lambda: np.where(m, np.abs(v), 0).max(1, initial=0),
            "sum_sq": lambda: np.where(m, wide * wide, 0).sum(1),
        }[op]()


COMBINE = {
    "sum": np.add, "abs_sum": np.add, "sum_sq": np.add, "count_nonzero": np.add, "prod": np.multiply, "max": np.maximum,
    "abs_max": np.maximum, "min": np.minimum, "any": np.logical_or, "all": np.logical_and, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "logsumexp": np.logaddexp,
}  # fmt: skip


def combine(op, a, b):
    with np.errstate(all="ignore"):
        return COMBINE[op](a, b)
