"""`torch.ops.tri_reduce.*`: what torch.compile, autograd, vmap and dispatch modes see. Plain eager calls never come here (`is_plain`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import validate
from .calls import gemv_now, reduce_now
from .monoids import Monoid, lookup

_TENSORS = (Tensor, torch.nn.Parameter)
_modes = torch._C._len_torch_dispatch_stack
_functorch = torch._C._functorch.peek_interpreter_stack

_LIBRARY = torch.library.Library("tri_reduce", "DEF")
_OPTIONS = "ScalarType? dtype=None, Tensor? where=None, Scalar? initial=None, Scalar correction=1, Scalar ord=2, str determinism='run_to_run'"
_LIBRARY.define(f"reduce(Tensor x, str op, int[]? dim=None, bool keepdim=False, *, {_OPTIONS}) -> Tensor")
_LIBRARY.define(f"reduce_out(Tensor x, str op, int[]? dim=None, bool keepdim=False, *, {_OPTIONS}, Tensor(a!) out, bool accumulate=False) -> ()")
_LIBRARY.define(
    "gemv(Tensor a, Tensor x, *, Scalar alpha=1, Scalar beta=0, Tensor? y=None, bool trans=False, str determinism='run_to_run') -> Tensor"
)
_LIBRARY.define(
    "gemv_out(Tensor a, Tensor x, *, Scalar alpha=1, Scalar beta=0, Tensor? y=None, bool trans=False, str determinism='run_to_run', "
    "Tensor(a!) out) -> ()"
)


def is_plain(x: Any, a: Any = None, b: Any = None, c: Any = None) -> bool:
    """Nothing has to see this call: no tracing, no dispatch mode, no functorch, no gradient to record."""
    if torch.compiler.is_compiling() or _modes() or _functorch() is not None:
        return False
    grad = torch.is_grad_enabled()
    if type(x) not in _TENSORS or (grad and x.requires_grad):
        return not isinstance(x, Tensor)  # validation names it
    for t in (a, b, c):
        if t is not None and isinstance(t, Tensor) and (type(t) not in _TENSORS or (grad and t.requires_grad)):
            return False
    return True


def reduce(
    x: Tensor, op: Any, dim: Any, keepdim: bool, dtype: Any, out: Tensor | None, accumulate: bool, where: Any, initial: Any,
    correction: Any, order: Any, determinism: str,
) -> Tensor:  # fmt: skip
    """The public call as an operator."""
    if isinstance(op, Monoid):
        if lookup(op.name) is not op:
            raise ValueError(f"monoid {op.name!r} must be registered (tri_reduce.register_monoid) to be traced or differentiated")
        op = op.name
    monoid = lookup(op)
    dims = list(validate.normalise_dims(op, dim, x.dim(), monoid.indexed)) if dim is not None and dim != () and dim != [] else None
    if isinstance(initial, Tensor):
        initial = initial.item()
    options = {"dtype": dtype, "where": where, "initial": initial, "correction": correction, "ord": order, "determinism": determinism}
    if out is None:
        if accumulate:
            raise ValueError(f"{op}: accumulate=True needs out=, whose old values are combined in")
        return torch.ops.tri_reduce.reduce(x, op, dims, keepdim, **options)  # type: ignore[no-any-return]
    _refuse_grad(op, x, out)
    torch.ops.tri_reduce.reduce_out(x, op, dims, keepdim, **options, out=out, accumulate=accumulate)
    return out


def gemv(a: Tensor, x: Tensor, alpha: Any, beta: Any, y: Tensor | None, trans: bool, out: Tensor | None, determinism: str) -> Tensor:
    """The public call as an operator."""
    options = {"alpha": alpha, "beta": beta, "y": y, "trans": trans, "determinism": determinism}
    if out is None:
        return torch.ops.tri_reduce.gemv(a, x, **options)  # type: ignore[no-any-return]
    _refuse_grad("gemv", a, x, y, out)
    torch.ops.tri_reduce.gemv_out(a, x, **options, out=out)
    return out


def _refuse_grad(name: str, *tensors: Tensor | None) -> None:
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise RuntimeError(f"{name}: out= does not support automatic differentiation, but one of the tensors requires grad")


def _dim(op: str, dim: Any) -> Any:
    """The operator's int[] as the public argument."""
    if dim is None:
        return None
    return dim[0] if lookup(op).indexed and len(dim) == 1 else tuple(dim)


def _request(x: Tensor, op: str, dim: Any, keepdim: bool, dtype: Any, where: Any, initial: Any, correction: Any, ord: Any, determinism: str,
             out: Any = None, accumulate: bool = False) -> validate.Reduction:  # noqa: A002  # fmt: skip
    return validate.reduction(x, op, _dim(op, dim), keepdim, dtype, out, accumulate, where, initial, correction, ord, determinism)


_KERNELS = "CompositeExplicitAutograd"


def _reduce(
    x: Tensor, op: str, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, where: Any = None, initial: Any = None,
    correction: Any = 1, ord: Any = 2, determinism: str = "run_to_run",
) -> Tensor:  # noqa: A002  # fmt: skip
    return reduce_now(x, op, _dim(op, dim), keepdim, dtype, None, False, where, initial, correction, ord, determinism)


def _reduce_out(
    x: Tensor, op: str, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, where: Any = None, initial: Any = None,
    correction: Any = 1, ord: Any = 2, determinism: str = "run_to_run", out: Tensor, accumulate: bool = False,
) -> None:  # noqa: A002  # fmt: skip
    reduce_now(x, op, _dim(op, dim), keepdim, dtype, out, accumulate, where, initial, correction, ord, determinism)


def _gemv(
    a: Tensor, x: Tensor, *, alpha: Any = 1, beta: Any = 0, y: Any = None, trans: bool = False, determinism: str = "run_to_run"
) -> Tensor:
    return gemv_now(a, x, alpha, beta, y, trans, None, determinism)


def _gemv_out(
    a: Tensor, x: Tensor, *, alpha: Any = 1, beta: Any = 0, y: Any = None, trans: bool = False, determinism: str = "run_to_run", out: Tensor
) -> None:
    gemv_now(a, x, alpha, beta, y, trans, out, determinism)


for _name, _body in (("reduce", _reduce), ("reduce_out", _reduce_out), ("gemv", _gemv), ("gemv_out", _gemv_out)):
    _LIBRARY.impl(_name, _body, _KERNELS)


@torch.library.register_fake("tri_reduce::reduce", lib=_LIBRARY)
def _reduce_fake(x: Tensor, op: str, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
    r = _request(x, op, dim, keepdim, **_defaults(options))
    return torch.empty(r.shape, dtype=r.result, device=x.device)


@torch.library.register_fake("tri_reduce::reduce_out", lib=_LIBRARY)
def _reduce_out_fake(x: Tensor, op: str, dim: Any = None, keepdim: bool = False, *, out: Tensor, accumulate: bool = False, **options: Any) -> None:
    _request(x, op, dim, keepdim, **_defaults(options), out=out, accumulate=accumulate)


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": None, "where": None, "initial": None, "correction": 1, "ord": 2, "determinism": "run_to_run"} | options


@torch.library.register_fake("tri_reduce::gemv", lib=_LIBRARY)
def _gemv_fake(
    a: Tensor, x: Tensor, *, alpha: Any = 1, beta: Any = 0, y: Any = None, trans: bool = False, determinism: str = "run_to_run"
) -> Tensor:
    batch, result = validate.gemv_arguments(a, x, alpha, beta, y, trans, None, determinism)
    return torch.empty((*batch, a.shape[-1 if trans else -2]), dtype=result, device=a.device)


@torch.library.register_fake("tri_reduce::gemv_out", lib=_LIBRARY)
def _gemv_out_fake(
    a: Tensor, x: Tensor, *, alpha: Any = 1, beta: Any = 0, y: Any = None, trans: bool = False, determinism: str = "run_to_run", out: Tensor
) -> None:
    validate.gemv_arguments(a, x, alpha, beta, y, trans, out, determinism)
