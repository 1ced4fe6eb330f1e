"""What `recall` finds: planned calls behind torch's own guard, which compiled code asks before it runs.

In 0.1 us the guard compares type, dtype, device, sizes, strides, requires_grad and the dispatch keys (autocast, functorch, inference mode,
negated views) of some tensors with those that it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
import torch._C._dynamo.guards as _torch_guards
from torch import Tensor

from .autotune import MODE
from .launch import Bound
from .plans import LOCK, MAX_PLANS, PLANS

MOST = 8  # entries of one key: the same shape in other strides, dtypes, devices
_TensorGuards: Any = getattr(_torch_guards, "TensorGuards", None)
_grad_enabled = torch.is_grad_enabled


def guard(*tensors: Tensor) -> Callable[..., bool] | None:
    """Tells whether tensors are like these; None where torch cannot. It must not be asked about nested tensors, which have no strides."""
    if _TensorGuards is None or any(t.is_neg() for t in tensors):
        return None
    sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
    try:
        fits: Callable[..., bool] = _TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except TypeError:  # another torch's, made otherwise
        return None
    return fits if fits(*tensors) else None


def learn_reduction(
    planned: Hashable, x: Tensor, op: Any, dim: Any, keepdim: Any, out: Tensor | None, bound: Bound, reach: tuple[int, ...]
) -> None:
    """Remember a call that nothing has to see, as long as its plan is (`planned`: its key). `reach`: as `validate.spans` gives it."""
    key: tuple[Any, ...] = (op, dim, keepdim, x.shape, x.data_ptr() & 15, MODE.get(), _grad_enabled())
    if out is None:
        _learn(planned, key, (x,), (bound.again, bound.call, dim, keepdim))
    else:
        _learn(planned, (*key, "out"), (x, out), (bound.into, bound.call, dim, keepdim, *reach[:2]))


def learn_product(planned: Hashable, a: Tensor, x: Tensor, out: Tensor | None, bound: Bound, reach: tuple[int, ...]) -> None:
    """The same for `gemv`."""
    key: tuple[Any, ...] = (a.shape, a.data_ptr() & 15, x.data_ptr() & 15, MODE.get(), _grad_enabled())
    if out is None:
        _learn(planned, key, (a, x), (bound.again, bound.call))
    else:
        _learn(planned, (*key, "out"), (a, x, out), (bound.into, bound.call, *reach[:3]))


def _learn(planned: Hashable, key: tuple[Any, ...], tensors: tuple[Tensor, ...], known: tuple[Any, ...]) -> None:
    """Put an entry, (guard, *known, the next of the same key), before the others."""
    with LOCK:  # another thread may have tuned and forgotten the plan
        if planned in PLANS:
            _put(key, tensors, known)


def _put(key: tuple[Any, ...], tensors: tuple[Tensor, ...], known: tuple[Any, ...]) -> None:
    first = entry = PLANS.short.get(key)
    for _ in range(MOST):
        if entry is None:
            break
        if entry[0](*tensors):
            return
        entry = entry[-1]
    else:
        return
    fits = guard(*tensors)
    if fits is not None and len(PLANS.short) < MAX_PLANS:
        PLANS.short[key] = (fits, *known, first)
