"""How far a right floating answer may be from the reference (see `oracle`): no number here was chosen to make a test pass."""

import math

import numpy as np
import torch
from oracle import accumulator_eps, as_matrix, kept_shape, numpy_of, reference, result_dtype

POW_ULP = 8  # two calls of pow at the 4 ulp that the CUDA C++ Programming Guide states for powf


def tolerance(op, v, m, ref, acc_dtype, *, ord=2, correction=1, extra=()):
    """Largest error of the accumulator for each output, before the rounding to the output dtype.

    v, m: [kept, reduced] values and mask; ref: [kept]; extra: further contributions (a seed, the old output), each [kept] or a number.
    """
    eps, zero = accumulator_eps(acc_dtype), np.zeros(v.shape[0])
    with np.errstate(all="ignore"):
        a = np.abs(np.where(m, v, 0).astype(np.float64 if v.dtype.kind in "biu" else v.dtype))
        depth = 4 * math.log2(max(v.shape[1] + len(extra), 1))
        seeds = sum((np.abs(np.asarray(e, float)) for e in extra), zero)
        tol = {
            "sum": lambda: depth * eps * (a.sum(1) + seeds),
            "abs_sum": lambda: depth * eps * (a.sum(1) + seeds),
            "sum_sq": lambda: (depth + 1) * eps * ((a * a).sum(1) + seeds),
            "mean": lambda: depth * eps * a.sum(1) / m.sum(1),
            # any order of R factors rounds R - 1 times, half an eps each
            "prod": lambda: (v.shape[1] + len(extra)) * eps * np.abs(ref),
            "norm": lambda: _norm(depth, eps, ref, ord),
            "logsumexp": lambda: _logsumexp(depth, eps, v, m, ref, seeds),
            "var": lambda: _var(depth, eps, a, v, m, correction),
            "std": lambda: _std(depth, eps, a, v, m, ref, correction),
        }.get(op, lambda: zero)()
        return np.where(np.isfinite(tol), tol, 0)


def _norm(depth, eps, ref, p):
    if p in (0, 1, 2, math.inf, -math.inf):
        return {0: 0, 1: depth, 2: (depth + 1) / 2 + 1}.get(p, 0) * eps * np.abs(ref)
    return ((depth + POW_ULP) / abs(p) + POW_ULP) * eps * np.abs(ref)


def _logsumexp(depth, eps, v, m, ref, seeds):
    """exp amplifies the rounding of `x - max` by |x - max|: weigh that by each term's share; then `max + log` rounds once."""
    d = np.where(m, ref[:, None] - v, np.inf)
    share = np.where(np.isfinite(d), np.abs(d) * np.exp(-d), 0).sum(1)
    return eps * (depth + 4 + 4 * share + np.abs(ref) + seeds)


def _var(depth, eps, a, v, m, correction):
    """Relative in the deviations, plus what an error of the mean (4 * eps * log2(R) * mean|x|) adds to their squares."""
    n = m.sum(1)
    mean = np.where(m, v, 0).sum(1) / n
    m2 = (np.where(m, v - mean[:, None], 0) ** 2).sum(1)
    slip = (depth + 1) * eps * a.sum(1) / n
    return ((depth + 4) * eps * m2 + n * slip**2 + 2 * np.sqrt(n * m2) * slip) / np.maximum(n - correction, 0)


def _std(depth, eps, a, v, m, ref, correction):
    tol = _var(depth, eps, a, v, m, correction)
    return np.minimum(np.sqrt(tol), np.where(ref > 0, tol / ref, np.inf)) + eps * np.abs(ref)


def bound(x, dim, out_dtype, op="sum", where=None, **kw):
    """The contract's bound for `op` over `dim` of a tensor as a float64 tensor: accumulator error + ulp(out) / 2."""
    a = numpy_of(x)
    m = np.ones(a.shape, bool) if where is None else np.broadcast_to(where.cpu().numpy(), a.shape)
    v, m = as_matrix(a, dim), as_matrix(m, dim)
    ref = reference(op, v, m, x.dtype, **kw)
    tol = tolerance(op, v, m, ref, out_dtype if out_dtype is torch.float64 else x.dtype, **kw)
    return torch.from_numpy(np.asarray(tol + half_ulp(ref, out_dtype), float)).reshape(kept_shape(x.shape, dim, False))


def half_ulp(ref, dtype):
    info = torch.finfo(dtype)
    exponent = np.frexp(np.abs(np.asarray(ref, float)))[1] - 1
    return np.maximum(np.ldexp(info.eps, exponent), info.smallest_normal * info.eps) / 2


def rounded(a, dtype):
    return torch.from_numpy(np.asarray(a, np.float64)).to(dtype)


def mismatch(got, ref, tol, shape, dtype):
    """None, or one line that says how `got` differs from the [kept] reference."""
    if tuple(got.shape) != tuple(shape):
        return f"shape {tuple(got.shape)}, want {tuple(shape)}"
    if got.dtype is not dtype:
        return f"dtype {got.dtype}, want {dtype}"
    flat = got.detach().cpu().reshape(-1)
    if not dtype.is_floating_point:
        want = torch.from_numpy(np.ascontiguousarray(ref)).to(dtype)
        bad = flat != want
        low = high = want
    else:
        with np.errstate(all="ignore"):
            low, high = rounded(ref - tol, dtype), rounded(ref + tol, dtype)
        nan = torch.from_numpy(np.isnan(np.asarray(ref, np.float64)))
        bad = torch.where(nan, ~flat.isnan(), ~((flat >= low) & (flat <= high)))
    if not bool(bad.any()):
        return None
    i = int(bad.nonzero()[0])
    allowed = f"{ref[i]!r}, that is {low[i].item()!r} .. {high[i].item()!r}"
    return f"{int(bad.sum())} of {bad.numel()} wrong, first at {i}: got {flat[i].item()!r}, want {allowed}"


def check(got, x, op, dim=None, keepdim=False, *, where=None, out_dtype=None, dtype=None, **kw):
    """Assert that `got` is `op` over `dim` of `x`, within the bound, with the contract's shape and dtype."""
    a = numpy_of(x)
    m = np.ones(a.shape, bool) if where is None else np.broadcast_to(where.cpu().numpy(), a.shape)
    v, m = as_matrix(a, dim), as_matrix(m, dim)
    ref = reference(op, v, m, x.dtype, **kw)
    tol = tolerance(op, v, m, ref, dtype or x.dtype, **kw)
    want = out_dtype or result_dtype(op, x.dtype, dtype)
    problem = mismatch(got, ref, tol, kept_shape(x.shape, dim, keepdim), want)
    assert problem is None, f"{op} of {x.dtype} {tuple(x.shape)} over {dim}: {problem}"
