"""The operators under autograd: reverse and forward mode, differentiable again, and under torch.func's transforms.

These are kernels of the Autograd dispatch key. `torch.library.register_autograd` would write them, but its functions refuse to run under
`torch.func.grad` and know no forward mode: a dual tensor's tangent would be dropped without a word.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from . import gradients, validate
from .monoids import lookup
from .problem import normalise_dims

_C = torch._C
_unpack: Any = forward_ad.unpack_dual


def _below(op: Any, keys: Any, *args: Any, **options: Any) -> Any:
    """The same operator under the next dispatch key."""
    with _C._AutoDispatchBelowAutograd():
        return op.redispatch(keys & _C._after_autograd_keyset, *args, **options)


def _resumed(op: Any, keys: Any) -> Callable[..., Any]:
    """`_below` for a function's forward, which runs with recording off: what comes next may be another level, which records for itself."""
    grads, tangents = torch.is_grad_enabled(), _C._is_fwd_grad_enabled()

    def call(*args: Any, **options: Any) -> Any:
        with torch.set_grad_enabled(grads), forward_ad._set_fwd_grad_enabled(tangents):
            return _below(op, keys, *args, **options)

    return call


class _Node(torch.autograd.Function):
    """A function that records at one level of torch.func's transforms: the one that is being worked on when this key is reached."""

    @classmethod
    def apply(cls, *args: Any) -> Any:
        with enable_single_level_autograd_function() if _C._are_functorch_transforms_active() else contextlib.nullcontext():
            # Past Function's own, which would start at the outermost level again.
            return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]


def _recorded(*tensors: Tensor | None) -> bool:
    """Something has to be recorded, or some tensor may carry a tangent."""
    return forward_ad._current_level >= 0 or (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors))


def _remember(ctx: Any, *tensors: Tensor | None) -> None:
    ctx.save_for_backward(*tensors)
    if forward_ad._current_level >= 0:
        ctx.save_for_forward(*tensors)


def _primals(ctx: Any) -> list[Tensor | None]:
    """What was saved for a forward-mode derivative, without the tangents whose derivative it is."""
    with forward_ad._set_fwd_grad_enabled(True):
        return [None if t is None else _unpack(t).primal for t in ctx.saved_tensors]


class _Reduce(_Node):
    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Tensor | None, below: Any, op: str, dim: Any, keepdim: bool, options: dict[str, Any]) -> Tensor:
        y = below(x, op, dim, keepdim, where, **options)
        monoid = lookup(op)
        ctx.monoid, ctx.keepdim, ctx.options = monoid, keepdim, options
        ctx.dims = normalise_dims(op, dim if dim else None, x.dim())
        ctx.shape, ctx.x_dtype, ctx.y_dtype = x.shape, x.dtype, y.dtype
        reads_x, reads_y = gradients.saved_by(monoid.gradient)
        _remember(ctx, x if reads_x else None, y if reads_y else None, where)
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if not ctx.keepdim:
            for d in ctx.dims:
                grad = grad.unsqueeze(d)
        return _pull(ctx, grad, *ctx.saved_tensors).to(ctx.x_dtype), None, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        with forward_ad._set_fwd_grad_enabled(True):  # for other levels
            x, y, where = _primals(ctx)
            change = _given(ctx, where).reduce(_pull(ctx, tangent, x, y, where), "sum").to(ctx.y_dtype)
            return change if ctx.keepdim else change.squeeze(ctx.dims)


def _given(ctx: Any, where: Tensor | None) -> gradients.Given:
    options, named = ctx.options, ctx.monoid.options
    return gradients.Given(ctx.shape, ctx.dims, where, options[named[0]] if named else None, options["initial"], options["determinism"])


def _pull(ctx: Any, grad: Tensor, x: Tensor | None, y: Tensor | None, where: Tensor | None) -> Tensor:
    """The rule of the monoid on what was saved, in the dtype that contributes."""
    monoid, options = ctx.monoid, ctx.options
    value, _, result = validate.value_types(monoid, ctx.x_dtype, options["dtype"])
    given = _given(ctx, where)
    if x is not None:
        x = x.to(value) if where is None else torch.where(where, x.to(value), 0)
    if y is not None and result != value:  # rounded since: no contribution would equal it
        y = torch.ops.tri_reduce.reduce(x, monoid.name, list(ctx.dims), True, where, **(options | {"dtype": None}))
    elif y is not None and not ctx.keepdim:
        for d in ctx.dims:
            y = y.unsqueeze(d)
    return gradients.pull(monoid.gradient, monoid.name, grad.to(value), x, y, given)


class _Gemv(_Node):
    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor, y: Tensor | None, below: Any, options: dict[str, Any]) -> Tensor:
        ctx.options = options
        ctx.shapes = a.shape, x.shape, None if y is None else y.shape
        dual = forward_ad._current_level >= 0
        _remember(ctx, a if ctx.needs_input_grad[1] or dual else None, x if ctx.needs_input_grad[0] or dual else None)
        return below(a, x, y, **options)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, x = ctx.saved_tensors
        shapes = [s if needed else None for s, needed in zip(ctx.shapes, ctx.needs_input_grad, strict=False)]
        return (*gradients.of_gemv(grad, a, x, shapes, **ctx.options), None, None)

    @staticmethod
    def jvp(ctx: Any, of_a: Tensor | None, of_x: Tensor | None, of_y: Tensor | None, *_: Any) -> Tensor | None:
        a, x = _primals(ctx)
        products = {k: v for k, v in ctx.options.items() if k != "beta"}
        pairs = [(m, v) for m, v in ((of_a, x), (a, of_x)) if m is not None and v is not None]
        with forward_ad._set_fwd_grad_enabled(True):
            terms = [torch.ops.tri_reduce.gemv(m, v, **products) for m, v in pairs]
            terms += [] if of_y is None else [ctx.options["beta"] * of_y]
            return sum(terms[1:], terms[0]) if terms else None


def reduce(
    keys: Any, x: Tensor, op: str, dim: Any = None, keepdim: bool = False, where: Any = None, *, dtype: Any = None, initial: Any = None,
    correction: Any = 1, ord: Any = 2, determinism: str = "run_to_run",
) -> Tensor:  # fmt: skip
    """`tri_reduce::reduce` at the Autograd key."""
    options = {"dtype": dtype, "initial": initial, "correction": correction, "ord": ord, "determinism": determinism}
    if _recorded(x):
        return _Reduce.apply(x, where, _resumed(torch.ops.tri_reduce.reduce.default, keys), op, dim, keepdim, options)  # type: ignore[no-any-return]
    return _below(torch.ops.tri_reduce.reduce.default, keys, x, op, dim, keepdim, where, **options)  # type: ignore[no-any-return]


def gemv(
    keys: Any, a: Tensor, x: Tensor, y: Any = None, *, alpha: Any = 1, beta: Any = 0, trans: bool = False, determinism: str = "run_to_run"
) -> Tensor:
    """`tri_reduce::gemv` at the Autograd key."""
    options = {"alpha": alpha, "beta": beta, "trans": trans, "determinism": determinism}
    if _recorded(a, x, y):
        return _Gemv.apply(a, x, y, _resumed(torch.ops.tri_reduce.gemv.default, keys), options)  # type: ignore[no-any-return]
    return _below(torch.ops.tri_reduce.gemv.default, keys, a, x, y, **options)  # type: ignore[no-any-return]


def writes_out(name: str) -> Any:
    """The Autograd kernel of an operator that writes `out`: no gradient passes, and a backward that saved `out` learns that it changed."""

    def kernel(keys: Any, *args: Any, out: Tensor, **options: Any) -> None:
        tensors = [t for t in (*args, *options.values(), out) if isinstance(t, Tensor)]
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            raise RuntimeError(f"{name}: out= does not support automatic differentiation, but one of the tensors requires grad")
        if forward_ad._current_level >= 0 and any(_unpack(t).tangent is not None for t in tensors):
            raise RuntimeError(f"{name}: out= does not support forward-mode differentiation, but one of the tensors has a tangent")
        _below(getattr(torch.ops.tri_reduce, name).default, keys, *args, out=out, **options)
        torch.autograd.graph.increment_version(out)

    return kernel


def register(library: Any) -> None:
    """Put the kernels into the library that defines the operators."""
    for name, kernel in (
        ("reduce", reduce),
        ("gemv", gemv),
        ("reduce_out", writes_out("reduce_out")),
        ("gemv_out", writes_out("gemv_out")),
    ):
        library.impl(name, kernel, "Autograd", with_keyset=True)
