"""`alpha * (a @ x) + beta * y` in float64 (long double for float64) or exact ints, with the contract's error bound."""

import math

import numpy as np
import torch
from bounds import mismatch
from oracle import accumulator_eps, numpy_of

GEMV_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_gemv(got, a, x, *, alpha=1, beta=0, y=None, trans=False):
    """Assert value, shape and dtype of a product; K terms and the addend are K + 1 contributions."""
    dtype = torch.int32 if a.dtype is torch.int8 else a.dtype
    m, v = numpy_of(a.mT if trans else a), numpy_of(x)
    shape = np.broadcast_shapes(m.shape[:-2], v.shape[:-1]) + m.shape[-2:-1]
    with np.errstate(all="ignore"):
        product = (m * v[..., None, :]).sum(-1)
        addend = beta * numpy_of(y) if beta != 0 else np.zeros(shape, m.dtype)
        ref = np.broadcast_to(alpha * product + addend, shape).reshape(-1)
        tol = np.zeros(ref.shape)
        if dtype.is_floating_point:
            size = abs(alpha) * np.abs(m * v[..., None, :]).sum(-1) + np.abs(addend)
            tol = 4 * accumulator_eps(dtype) * math.log2(m.shape[-1] + 1) * np.broadcast_to(size, shape).reshape(-1)
    problem = mismatch(got, ref, np.where(np.isfinite(tol), tol, 0), shape, dtype)
    assert problem is None, f"gemv {a.dtype} {tuple(a.shape)} x {tuple(x.shape)} {alpha=} {beta=} {trans=}: {problem}"
