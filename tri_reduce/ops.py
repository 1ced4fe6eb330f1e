"""`torch.ops.tri_reduce.*`: what torch.compile, autograd, vmap and dispatch modes see. Plain eager calls never come here (`is_plain`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.overrides
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from . import autograd, batching, validate
from .calls import gemv_now, reduce_now
from .monoids import MONOIDS, REGISTERED, Monoid, lookup
from .problem import normalise_dims
from .samples import samples

__all__ = ["gemv", "is_plain", "reduce", "samples"]

_compiling = torch.compiler.is_dynamo_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_overloaded = torch._C._has_torch_function_unary
_jit_tracing = torch._C._is_tracing
_grad_enabled = torch.is_grad_enabled
_function_modes: Any = torch.overrides._get_current_function_mode_stack
_Parameter = torch.nn.Parameter

# Tensors are not keyword-only: torch's vmap rules take none.
_library: Any = torch.library
_LIBRARY = _library.Library("tri_reduce", "DEF")
_OPTIONS = "ScalarType? dtype=None, Scalar? initial=None, Scalar correction=1, Scalar ord=2, str determinism='run_to_run'"
_REDUCE = "Tensor x, str op, int[]? dim=None, bool keepdim=False, Tensor? where=None"
_GEMV = "Tensor a, Tensor x, Tensor? y=None, *, Scalar alpha=1, Scalar beta=0, bool trans=False, str determinism='run_to_run'"
_LIBRARY.define(f"reduce({_REDUCE}, *, {_OPTIONS}) -> Tensor")
_LIBRARY.define(f"reduce_out({_REDUCE}, *, {_OPTIONS}, Tensor(a!) out, bool accumulate=False) -> ()")
_LIBRARY.define(f"gemv({_GEMV}) -> Tensor")
_LIBRARY.define(f"gemv_out({_GEMV}, Tensor(a!) out) -> ()")


def is_plain(x: Any, a: Any = None, b: Any = None, c: Any = None) -> bool:
    """Nothing has to see this call: no tracing, no mode, no transform, no gradient to record. Runs before every call."""
    if (
        _compiling()
        or _dispatch_modes()
        or _transforms()
        or forward_ad._current_level >= 0
        or _jit_tracing()
        or (_overloaded(x) and overriding())
    ):
        return not isinstance(x, Tensor)  # validation names it
    kind = type(x)
    if kind is not Tensor and kind is not _Parameter:
        return not isinstance(x, Tensor)
    if x.requires_grad and _grad_enabled():
        return False
    return (
        (a is None or (type(a) is Tensor and not a.requires_grad) or _is_plain_too(a))
        and (b is None or (type(b) is Tensor and not b.requires_grad) or _is_plain_too(b))
        and (c is None or (type(c) is Tensor and not c.requires_grad) or _is_plain_too(c))
    )


def overriding() -> bool:
    """A function mode is active that may care about this call; that of a default device does not."""
    return any(type(mode) is not DeviceContext for mode in _function_modes())


def _is_plain_too(t: Any) -> bool:
    """The rarer kinds of a further operand."""
    return not isinstance(t, Tensor) or (type(t) in (Tensor, _Parameter) and not (t.requires_grad and _grad_enabled()))


def reduce(
    x: Tensor, op: Any, dim: Any, keepdim: bool, dtype: Any, out: Tensor | None, accumulate: bool, where: Any, initial: Any,
    correction: Any, order: Any, determinism: str,
) -> Tensor:  # fmt: skip
    """The public call as an operator."""
    if isinstance(op, Monoid):
        if MONOIDS.get(op.name, REGISTERED.get(op.name)) is not op:
            raise ValueError(f"monoid {op.name!r} must be registered (tri_reduce.register_monoid) to be traced or differentiated")
        op = op.name
    indexed = (MONOIDS[op] if isinstance(op, str) and op in MONOIDS else lookup(op)).indexed
    dims = None if dim is None or dim == () or dim == [] else list(normalise_dims(op, dim, x.dim(), indexed))
    if isinstance(initial, Tensor) and initial.numel() == 1:
        initial = initial.item()
    options = {"dtype": dtype, "initial": initial, "correction": correction, "ord": order, "determinism": determinism}
    if out is None and accumulate:
        raise ValueError(f"{op}: accumulate=True needs out=, whose old values are combined in")

    def check() -> None:
        validate.reduction(x, op, dim, keepdim, dtype, out, accumulate, where, initial, correction, order, determinism)

    if dtype is not None and not isinstance(dtype, torch.dtype):
        check()  # the dispatcher takes any integer for one
    if out is None:
        return _call(torch.ops.tri_reduce.reduce, check, x, op, dims, keepdim, where, **options)  # type: ignore[no-any-return]
    _call(torch.ops.tri_reduce.reduce_out, check, x, op, dims, keepdim, where, **options, out=out, accumulate=accumulate)
    return out


def gemv(a: Tensor, x: Tensor, alpha: Any, beta: Any, y: Tensor | None, trans: bool, out: Tensor | None, determinism: str) -> Tensor:
    """The public call as an operator."""
    options = {"alpha": alpha, "beta": beta, "trans": trans, "determinism": determinism}

    def check() -> None:
        validate.gemv_arguments(a, x, alpha, beta, y, trans, out, determinism)

    if out is None:
        return _call(torch.ops.tri_reduce.gemv, check, a, x, y, **options)  # type: ignore[no-any-return]
    _call(torch.ops.tri_reduce.gemv_out, check, a, x, y, **options, out=out)
    return out


def _call(operator: Any, check: Callable[[], None], *args: Any, **options: Any) -> Any:
    """An operator's result. The dispatcher knows an argument of a wrong type by its schema only: `check` says it as everywhere else."""
    if _compiling():
        return operator(*args, **options)
    try:
        return operator(*args, **options)
    except RuntimeError:
        check()
        raise


def _dim(op: str, dim: Any) -> Any:
    """The operator's int[] as the public argument."""
    if dim is None:
        return None
    return dim[0] if lookup(op).indexed and len(dim) == 1 else tuple(dim)


_DEFAULTS = {"dtype": None, "initial": None, "correction": 1, "ord": 2, "determinism": "run_to_run"}


def _reduce(x: Tensor, op: str, dim: Any = None, keepdim: bool = False, where: Any = None, **options: Any) -> Tensor:
    o = _DEFAULTS | options
    dim = _dim(op, dim)
    return reduce_now(x, op, dim, keepdim, o["dtype"], None, False, where, o["initial"], o["correction"], o["ord"], o["determinism"])


def _reduce_out(
    x: Tensor, op: str, dim: Any = None, keepdim: bool = False, where: Any = None, *, out: Tensor, accumulate: bool = False, **options: Any
) -> None:
    o = _DEFAULTS | options
    dim = _dim(op, dim)
    reduce_now(x, op, dim, keepdim, o["dtype"], out, accumulate, where, o["initial"], o["correction"], o["ord"], o["determinism"])


def _gemv(
    a: Tensor, x: Tensor, y: Any = None, *, alpha: Any = 1, beta: Any = 0, trans: bool = False, determinism: str = "run_to_run"
) -> Tensor:
    return gemv_now(a, x, alpha, beta, y, trans, None, determinism)


def _gemv_out(
    a: Tensor, x: Tensor, y: Any = None, *, alpha: Any = 1, beta: Any = 0, trans: bool = False, determinism: str = "run_to_run", out: Tensor
) -> None:
    gemv_now(a, x, alpha, beta, y, trans, out, determinism)


def _number(value: Any, instead: float) -> Any:
    """A number of the call, or another where the compiler keeps it symbolic: no shape or dtype depends on it, so it stays no constant."""
    return instead if isinstance(value, torch.SymInt | torch.SymFloat) else value


def _reduce_fake(
    x: Tensor,
    op: str,
    dim: Any = None,
    keepdim: bool = False,
    where: Any = None,
    *,
    out: Any = None,
    accumulate: bool = False,
    **options: Any,
) -> Any:
    o = _DEFAULTS | options
    initial, correction, order = (_number(o[name], 1) for name in ("initial", "correction", "ord"))
    r = validate.reduction(x, op, _dim(op, dim), keepdim, o["dtype"], out, accumulate, where, initial, correction, order, o["determinism"])
    return torch.empty(r.shape, dtype=r.result, device=x.device) if out is None else None


def _gemv_fake(
    a: Tensor,
    x: Tensor,
    y: Any = None,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    trans: bool = False,
    determinism: str = "run_to_run",
    out: Any = None,
) -> Any:
    batch, result = validate.gemv_arguments(a, x, _number(alpha, 1), _number(beta, 0), y, trans, out, determinism)
    return torch.empty((*batch, a.shape[-1 if trans else -2]), dtype=result, device=a.device) if out is None else None


for _name, _body, _fake in (
    ("reduce", _reduce, _reduce_fake),
    ("reduce_out", _reduce_out, _reduce_fake),
    ("gemv", _gemv, _gemv_fake),
    ("gemv_out", _gemv_out, _gemv_fake),
):
    _LIBRARY.impl(_name, _body, "CompositeExplicitAutograd")
    _library.register_fake(f"tri_reduce::{_name}", _fake, lib=_LIBRARY)
autograd.register(_LIBRARY)
batching.register(_LIBRARY)
