"""Sums of integers so small that 32 bits hold them are kept in these until a program's fold: half the registers and instructions of 64."""

from __future__ import annotations

from dataclasses import replace

from . import dtypes
from .kernels import functions as fn
from .kernels.compat import tl
from .monoid import DeviceOp
from .problem import Problem


def narrow(op: DeviceOp, problem: Problem) -> DeviceOp:
    """The op with 32-bit lanes, and partial states as they were, where no sum of the problem's contributions can pass 32 bits.

    Example:
        >>> from .monoids import lookup
        >>> from .problem import describe
        >>> import torch
        >>> op = narrow(lookup("sum").device(torch.int8), describe("sum", (64, 4096), 1, "i8"))
        >>> op.dtypes, op.partial.dtypes
        ((triton.language.int32,), (triton.language.int64,))
    """
    if str(op.dtypes[0]) != "int64" or op.combine is not fn.add or _most(op, problem) >= 2**31:
        return op
    return replace(op, dtypes=(tl.int32,), cast=tl.int32 if op.cast is not None else None, wider=op.partial)


def _most(op: DeviceOp, problem: Problem) -> int:
    """What no sum of the contributions can pass; floats that become integers may be any."""
    if op.lift is fn.lift_nonzero:
        return problem.rnumel
    if problem.dtype.is_float:
        return 2**63
    low, high = dtypes.limits(problem.dtype)
    return problem.rnumel * max(-int(low), int(high)) ** (2 if op.lift is fn.lift_square else 1)
