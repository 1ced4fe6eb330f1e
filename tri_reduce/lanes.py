"""What a program's lanes hold until its fold, where less will do than in partial states: half the registers and instructions."""

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


_VALUED = {
    fn.lift_argmax: (float("-inf"), fn.first_above, fn.fold_above),
    fn.lift_argmin: (float("inf"), fn.first_below, fn.fold_below),
}


def valued(op: DeviceOp, problem: Problem) -> DeviceOp:
    """argmax and argmin of floats with the values themselves in the lanes, not keys that order like them: two comparisons a value.

    For lanes that meet positions in their order, so along one axis, and contributions from position 0 on: where all are as low as the
    identity, no position is noted, which means 0.

    Example:
        >>> from .monoids import lookup
        >>> from .problem import describe
        >>> import torch
        >>> op = valued(lookup("argmax").device(torch.float32), describe("argmax", (64, 4096), 1))
        >>> op.dtypes[0], op.partial.dtypes[0]
        (triton.language.float32, triton.language.int32)
    """
    if op.lift not in _VALUED or not problem.dtype.is_float or problem.masked or len(problem.reduced) > 1:
        return op
    identity, combine, fold = _VALUED[op.lift]
    op = replace(op, identity=(identity, op.identity[1]), dtypes=(op.cast, op.dtypes[1]), wider=op.partial)
    return replace(op, lift=fn.lift_value, combine=combine, fold=fold)


def _most(op: DeviceOp, problem: Problem) -> int:
    """What no sum of the contributions can pass; floats that become integers may be any."""
    if op.lift is fn.lift_nonzero:
        return problem.rnumel
    if problem.dtype.is_float:
        return 2**63
    low, high = dtypes.limits(problem.dtype)
    return problem.rnumel * max(-int(low), int(high)) ** (2 if op.lift is fn.lift_square else 1)
