"""The common call: where it was made before, one lookup and one guard lead to the launch, else it goes the long way.

A miss means nothing. What the guard does not see (see `guards`) is asked here or is in the key.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from . import ops as operators
from .autocasting import autocasting, widened
from .autotune import MODE
from .calls import gemv_now, reduce_now
from .ops import overriding
from .plans import PLANS

_compiling = torch.compiler.is_dynamo_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._are_functorch_transforms_active
_grad_enabled = torch.is_grad_enabled
_Parameter = torch.nn.Parameter
_find, _mode = PLANS.short.get, MODE.get
_bump: Any = torch._C._increment_version
try:
    _bump(())
except TypeError:  # an older torch's takes one tensor

    def _bump(tensors: tuple[Tensor]) -> None:
        increment_version(tensors[0])


def reduction(x: Any, op: Any, dim: Any, keepdim: Any, out: Any = None) -> Tensor:
    """`reduce(x, op, dim, keepdim, out=out)`."""
    if out is not None:
        return _reduction_into(x, op, dim, keepdim, out)
    kind = type(x)
    if (kind is Tensor or kind is _Parameter) and not (
        _compiling() or _dispatch_modes() or _transforms() or forward_ad._current_level >= 0 or (_function_modes() and overriding())
    ):  # as in `_unseen`, without its call
        try:
            start = x.data_ptr()
            entry = _find((op, dim, keepdim, x.shape, start & 15, _mode(), _grad_enabled()))
        except (TypeError, RuntimeError):  # what cannot be hashed or has no memory: validation names it
            entry = None
        while entry is not None:
            fits, again, call, known_dim, known_keepdim, entry = entry
            if fits(x) and (dim is known_dim or _same(dim, known_dim)) and keepdim is known_keepdim:
                return call(x, None, None) if again is None else again(start)  # type: ignore[no-any-return]
    return _reduction(x, op, dim, keepdim, None)


def product(a: Any, x: Any, out: Any = None) -> Tensor:
    """`gemv(a, x, out=out)`."""
    if out is not None:
        return _product_into(a, x, out)
    kind = type(a)
    if (
        (kind is Tensor or kind is _Parameter)
        and type(x) is Tensor
        and not (
            _compiling() or _dispatch_modes() or _transforms() or forward_ad._current_level >= 0 or (_function_modes() and overriding())
        )
        and not x.is_nested
    ):
        try:
            start, second = a.data_ptr(), x.data_ptr()
            entry = _find((a.shape, start & 15, second & 15, _mode(), _grad_enabled()))
        except RuntimeError:
            entry = None
        while entry is not None:
            fits, again, call, entry = entry
            if fits(a, x):
                return call(a, x, None, None) if again is None else again(start, second)  # type: ignore[no-any-return]
    return _product(a, x, None)


def _reduction_into(x: Any, op: Any, dim: Any, keepdim: Any, out: Any) -> Tensor:
    if _unseen(x, out):
        try:
            start, address = x.data_ptr(), out.data_ptr()
            entry = _find((op, dim, keepdim, x.shape, start & 15, _mode(), _grad_enabled(), "out"))
        except (TypeError, RuntimeError):
            entry = None
        while entry is not None:
            fits, into, call, known_dim, known_keepdim, out_span, span, entry = entry
            if fits(x, out) and (dim is known_dim or _same(dim, known_dim)) and keepdim is known_keepdim:
                if address < start + span and start < address + out_span:
                    break
                _bump((out,))  # a backward that saved its old values must know
                return call(x, None, out) if into is None else into(out, address, start)  # type: ignore[no-any-return]
    return _reduction(x, op, dim, keepdim, out)


def _product_into(a: Any, x: Any, out: Any) -> Tensor:
    if type(x) is Tensor and _unseen(a, out) and not x.is_nested:
        try:
            start, second, address = a.data_ptr(), x.data_ptr(), out.data_ptr()
            entry = _find((a.shape, start & 15, second & 15, _mode(), _grad_enabled(), "out"))
        except RuntimeError:
            entry = None
        while entry is not None:
            fits, into, call, out_span, span, second_span, entry = entry
            if fits(a, x, out):
                end = address + out_span
                if (address < start + span and start < end) or (address < second + second_span and second < end):
                    break
                _bump((out,))
                return call(a, x, None, out) if into is None else into(out, address, start, second)  # type: ignore[no-any-return]
    return _product(a, x, out)


def _unseen(x: Any, out: Any) -> bool:
    """Plain tensors, and nothing has to see every call: no tracing, no mode, no transform, no forward gradient.

    The guard must not be asked about a nested tensor, which has no strides; the sizes in the key tell for `x`.
    """
    kind = type(x)
    return not (
        (kind is not Tensor and kind is not _Parameter)
        or type(out) is not Tensor
        or _compiling()
        or _dispatch_modes()
        or _transforms()
        or forward_ad._current_level >= 0
        or (_function_modes() and overriding())
        or out.is_nested
    )


def _same(dim: Any, known: Any) -> bool:
    """Equal dims are the same: 1 == 1.0 == True, but only one of them is a dim."""
    return type(dim) is type(known) is tuple and [*map(type, dim)] == [*map(type, known)]


def _reduction(x: Any, op: Any, dim: Any, keepdim: Any, out: Any) -> Tensor:
    """The long way."""
    if type(dim) is list:
        dim = tuple(dim)
    dtype = widened(x, op) if out is None and autocasting() else None
    if operators.is_plain(x, out):
        return reduce_now(x, op, dim, keepdim, dtype, out, False, None, None, 1, 2, "run_to_run", dtype is None)
    return operators.reduce(x, op, dim, keepdim, dtype, out, False, None, None, 1, 2, "run_to_run")


def _product(a: Any, x: Any, out: Any) -> Tensor:
    if operators.is_plain(a, x, out):
        return gemv_now(a, x, 1, 0, None, False, out, "run_to_run", True)
    return operators.gemv(a, x, 1, 0, None, False, out, "run_to_run")
