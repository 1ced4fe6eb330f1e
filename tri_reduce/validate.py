"""Arguments: every bad one is a typed error that names what was wrong and what would be right, before anything is written."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import dtypes
from .monoids import Monoid, lookup
from .plans import Reduction
from .problem import normalise_dims

DETERMINISM = ("run_to_run", "invariant", "none")


def check_determinism(level: Any) -> None:
    """ValueError naming the three levels."""
    if level not in DETERMINISM:
        raise ValueError(f"unknown determinism {level!r}: expected one of {', '.join(DETERMINISM)}")
    if level == "none" and torch.are_deterministic_algorithms_enabled():
        raise RuntimeError('determinism="none" is not allowed under torch.use_deterministic_algorithms(True)')


def result_shape(sizes: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The result's shape."""
    return tuple(1 if d in dims else n for d, n in enumerate(sizes) if keepdim or d not in dims)


def value_types(monoid: Monoid, x: torch.dtype, dtype: torch.dtype | None) -> tuple[torch.dtype, torch.dtype | None, torch.dtype]:
    """(dtype of the contributions, dtype each is first converted to or None, dtype of the result)."""
    name = monoid.name
    dtypes.of(x, f"{name}'s input")
    value, precast = x, None
    if dtype is not None:
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"{name}: dtype must be a torch.dtype, got {dtype!r}")
        dtypes.of(dtype, f"{name}'s dtype=")
        fixed = monoid.out_for(x)
        if monoid.indexed or monoid.lift_raw:
            if dtype != fixed:
                raise TypeError(f"{name}: the result is always {fixed}, dtype={dtype} is not possible")
            dtype = None
        elif dtype.is_floating_point:
            value = torch.promote_types(x, dtype) if x.is_floating_point else dtype
        elif dtype != x:
            value = precast = dtype
    if monoid.floats_only and not value.is_floating_point:
        raise TypeError(f"{name} needs a floating-point input, got {value}: give dtype=torch.float32 or another")
    if monoid.ints_only and value.is_floating_point:
        raise TypeError(f"{name} is bitwise and needs an integer or bool input, got {value}")
    return value, precast, dtype or monoid.out_for(value)


def check_where(op: str, where: Any, x: Tensor) -> None:
    """A bool mask that broadcasts to x, on its device."""
    if not isinstance(where, Tensor):
        raise TypeError(f"{op}: where must be a bool tensor, got {type(where).__name__}")
    if where.dtype != torch.bool:
        raise TypeError(f"{op}: where must be a bool tensor, got {where.dtype}")
    if where.device != x.device:
        raise RuntimeError(f"{op}: where is on {where.device}, the input on {x.device}")
    if where.dim() > x.dim() or any(w not in (n, 1) for w, n in zip(where.shape[::-1], x.shape[::-1], strict=False)):
        raise ValueError(f"{op}: where of shape {tuple(where.shape)} does not broadcast to the input's shape {tuple(x.shape)}")


def check_out(op: str, out: Any, shape: tuple[int, ...], result: torch.dtype, device: torch.device) -> None:
    """A tensor of the result's shape, on its device, whose dtype the result can be cast to, each element its own memory."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{op}: out must be a tensor, got {type(out).__name__}")
    if tuple(out.shape) != tuple(shape):
        raise ValueError(f"{op}: out has shape {tuple(out.shape)}, the result has shape {tuple(shape)}")
    dtypes.of(out.dtype, f"{op}'s out")
    if not torch.can_cast(result, out.dtype):
        raise TypeError(f"{op}: the result is {result} and cannot be cast to out's dtype {out.dtype}")
    if out.device != device:
        raise RuntimeError(f"{op}: out is on {out.device}, the input on {device}")
    if any_shared(out):
        raise RuntimeError(f"{op}: elements of out (shape {tuple(out.shape)}, strides {out.stride()}) share memory: give each its own")


def any_shared(t: Tensor) -> bool:
    """Some elements of the tensor lie at the same address (decided exactly for nested strides, the way views are made)."""
    axes = sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1)
    reach = 0
    for stride, size in axes if t.numel() else ():
        if stride <= reach:
            return stride == 0 or len(set(_offsets(t))) < t.numel()
        reach += stride * (size - 1)
    return False


def _offsets(t: Tensor) -> list[int]:
    offsets = torch.zeros((), dtype=torch.int64)
    for stride, size in zip(t.stride(), t.shape, strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(size) * stride
    return offsets.flatten().tolist()


def spans(out: Tensor | None, *operands: Tensor | None) -> tuple[int, ...]:
    """For each tensor, the bytes from its first element to the end of its last; nothing where there is no `out` to overlap."""
    if out is None:
        return ()
    tensors = (out, *operands)
    return tuple(
        0 if t is None or not t.numel() else (sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1) * t.element_size() for t in tensors
    )


def overlaps(reach: tuple[int, ...], out: Tensor, *operands: Tensor | None) -> bool:
    """The memory that `out` spans may be read through one of the operands. `reach`: what `spans` gave for tensors of these layouts."""
    first = out.data_ptr()
    last = first + reach[0]
    for span, operand in zip(reach[1:], operands):
        if operand is not None:
            start = operand.data_ptr()
            if first < start + span and start < last:
                return True
    return False


def check_seed(monoid: Monoid, value: torch.dtype, initial: Any) -> Any:
    """The seed as a Python number of the kind that the monoid accumulates."""
    name = monoid.name
    if monoid.seed is None:
        raise ValueError(f"{name} takes no initial")
    if isinstance(initial, Tensor):
        if initial.numel() != 1:
            raise ValueError(f"{name}: initial must be one number, got a tensor of shape {tuple(initial.shape)}")
        initial = initial.item()
    if isinstance(initial, complex) or not isinstance(initial, bool | int | float):
        raise TypeError(f"{name}: initial must be a number, got {initial!r}")
    acc = monoid.acc_for(value)[0]
    if acc.is_floating_point:
        return float(initial)
    if monoid.lift_raw and monoid.name != "count_nonzero":
        return int(bool(initial))
    if isinstance(initial, float) and not initial.is_integer():
        raise TypeError(f"{name} of {value} accumulates integers, initial={initial!r} is none")
    low, high = dtypes.limits(dtypes.of(value if monoid.idempotent else torch.int64))
    if not low <= initial <= high:
        raise ValueError(f"{name}: initial={initial!r} does not fit {value} ({low} to {high})")
    return int(initial)


def reduction(
    x: Any,
    op: Any,
    dim: Any,
    keepdim: Any,
    dtype: Any,
    out: Any,
    accumulate: Any,
    where: Any,
    initial: Any,
    correction: Any,
    order: Any,
    determinism: Any,
) -> Reduction:
    """The arguments of `reduce`, validated and normalised."""
    monoid = lookup(op, correction, order)
    name = monoid.name
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: the input must be a tensor, got {type(x).__name__}")
    check_determinism(determinism)
    value, precast, result = value_types(monoid, x.dtype, dtype)
    dims = normalise_dims(name, dim, x.dim(), monoid.indexed)
    shape = result_shape(tuple(x.shape), dims, keepdim)
    if where is not None:
        check_where(name, where, x)
    if out is not None:
        check_out(name, out, shape, result, x.device)
    if accumulate and out is None:
        raise ValueError(f"{name}: accumulate=True needs out=, whose old values are combined in")
    if accumulate and not monoid.accumulates:
        raise ValueError(f"{name}: accumulate=True is for ops whose result is their state")
    seed = None if initial is None else check_seed(monoid, value, initial)
    if seed is None and not accumulate and (monoid.no_empty or (name == "norm" and monoid.param < 0)):
        empty = [d for d in dims if x.shape[d] == 0]  # asked of no other op: a length may not be known yet under torch.compile
        if empty:
            raise IndexError(
                f"{name} has no result over an empty dim: dim {empty[0]} of shape {tuple(x.shape)} has size 0 (initial= would be one)"
            )
    return Reduction(monoid, dims, bool(keepdim), shape, value, precast, result, seed, bool(accumulate), determinism)


def gemv_arguments(a: Any, x: Any, alpha: Any, beta: Any, y: Any, trans: Any, out: Any, determinism: Any) -> tuple[torch.Size, torch.dtype]:
    """(batch shape, result dtype) of a valid `gemv`."""
    for name, t in (("a", a), ("x", x)):
        if not isinstance(t, Tensor):
            raise TypeError(f"gemv: {name} must be a tensor, got {type(t).__name__}")
    check_determinism(determinism)
    for name, number in (("alpha", alpha), ("beta", beta)):
        if isinstance(number, complex) or not isinstance(number, int | float):
            raise TypeError(f"gemv: {name} must be a number, got {number!r}")
    if a.dtype != x.dtype:
        raise TypeError(f"gemv: a is {a.dtype} and x is {x.dtype}: they must be the same")
    if not (dtypes.of(a.dtype, "gemv's a").is_float or a.dtype == torch.int8):
        raise TypeError(f"gemv: dtype {a.dtype} is not supported: expected float16, bfloat16, float32, float64 or int8")
    if a.device != x.device:
        raise RuntimeError(f"gemv: a is on {a.device}, x on {x.device}")
    result = torch.int32 if a.dtype == torch.int8 else a.dtype
    if result == torch.int32 and not (float(alpha).is_integer() and float(beta).is_integer()):
        raise TypeError(f"gemv: int8 accumulates integers: alpha={alpha!r} and beta={beta!r} must be whole numbers")
    if a.dim() < 2 or x.dim() < 1:
        raise ValueError(f"gemv: a must be [..., M, K] and x [..., K], got shapes {tuple(a.shape)} and {tuple(x.shape)}")
    m, k = (a.shape[-1], a.shape[-2]) if trans else (a.shape[-2], a.shape[-1])
    if x.shape[-1] != k:
        raise ValueError(
            f"gemv: a of shape {tuple(a.shape)}{' transposed' if trans else ''} needs x of size {k}, got shape {tuple(x.shape)}"
        )
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], x.shape[:-1])  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise ValueError(f"gemv: batch dims of a {tuple(a.shape)} and x {tuple(x.shape)} do not broadcast") from None
    shape = (*batch, m)
    if beta != 0 and y is None:
        raise ValueError(f"gemv: beta={beta!r} needs y, of shape {shape}")
    if y is not None:
        if not isinstance(y, Tensor):
            raise TypeError(f"gemv: y must be a tensor, got {type(y).__name__}")
        if tuple(y.shape) != shape:
            raise ValueError(f"gemv: y has shape {tuple(y.shape)}, the result has shape {shape}")
        if y.dtype != result:
            raise TypeError(f"gemv: y is {y.dtype}, the result is {result}")
        if y.device != a.device:
            raise RuntimeError(f"gemv: y is on {y.device}, a on {a.device}")
    if out is not None:
        check_out("gemv", out, shape, result, a.device)
    return batch, result
