"""Planned calls: from validated arguments to something that runs, remembered under everything that could change it.

A planned call is a `launch.Bound`. `PLANS` is one of the package's two module-level caches; it is bounded and safe under threads.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import autotune, dtypes, logs, reference, targets
from .apart import planned
from .configs import canonical
from .geometry import Tile
from .launch import Bound
from .monoids import Monoid, counted, products
from .problem import Problem, coalesce, of_strides
from .specialization import Specialization
from .specialize import of_gemv, of_reduce
from .tuning import Trial

REFERENCE = "the PyTorch reference: no kernels for this device"
MAX_PLANS = 8192


class Plans(dict[Hashable, Any]):
    """Planned calls by their keys. `short` has those that `recall` finds before any key is made: never more than are planned."""

    def __init__(self) -> None:
        super().__init__()
        self.short: dict[Hashable, Any] = {}

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self.short.clear()


PLANS = Plans()
LOCK = threading.Lock()


def remember(key: Hashable, call: Any) -> Any:
    """Keep a planned call, unless its tile was to be tuned and could not be yet; the oldest half goes when there are too many."""
    if autotune.is_postponed():
        return call
    with LOCK:
        if len(PLANS) >= MAX_PLANS:
            PLANS.short.clear()
            for old in list(PLANS)[: MAX_PLANS // 2]:
                del PLANS[old]
        PLANS[key] = call
    return call


def _forget_cached() -> None:
    """Something was tuned: what was planned under "cached" is planned anew when it is next wanted."""
    with LOCK:
        PLANS.short.clear()
        for key in [k for k in PLANS if isinstance(k, tuple) and any(autotune.is_cached(part) for part in k)]:
            del PLANS[key]


autotune.WHEN_TUNED.append(_forget_cached)


@dataclass(frozen=True)
class Reduction:
    """A validated reduction: everything but the tensors. `dims` are distinct, sorted and non-negative; `shape` is the result's."""

    monoid: Monoid
    dims: tuple[int, ...]
    keepdim: bool
    shape: tuple[int, ...]
    value: torch.dtype  # of the contributions, after dtype=
    precast: torch.dtype | None  # contributions are converted to this one by one
    result: torch.dtype
    seed: Any
    accumulate: bool
    determinism: str


def shift_of(x: Tensor) -> int:
    """Elements from the 16-byte boundary at or before x's first element to it."""
    return (x.data_ptr() & 15) // x.element_size()


def plan_reduction(r: Reduction, x: Tensor, where: Tensor | None, out: Tensor | None) -> Bound:
    """A call for tensors with these layouts."""
    if not targets.runs_kernels(x.device):
        logs.plan(f"{r.monoid.name} of {tuple(x.shape)} {x.dtype} over {r.dims}", None, REFERENCE)
        return Bound(lambda x, where, out: _refer(r, x, where, out))
    kept = [s for d, s in enumerate(out.stride()) if not r.keepdim or d not in r.dims] if out is not None else None
    monoid = r.monoid if where is None else counted(r.monoid)
    shift = _safe_shift(x)
    problem = of_strides(
        monoid.name, dtypes.of(x.dtype), x.shape, r.dims, x.stride(), None if where is None else where.expand(x.shape).stride(), kept,
        shift=shift, indexed=monoid.indexed, idempotent=monoid.idempotent, arity=len(monoid.identity_for(r.value)),
        logical=r.determinism == "invariant",
    )  # fmt: skip
    out_dtype = r.result if out is None else out.dtype
    shape, device = r.shape, x.device
    if problem.xnumel == 0:
        return Bound(lambda x, where, out: torch.empty(shape, dtype=out_dtype, device=device) if out is None else out)
    op = monoid.device(r.value, problem.rnumel >= 2**31 - 1)

    target = targets.of_device(device.type, device.index or 0)

    def specialise(tile: Tile) -> Specialization:
        return of_reduce(
            problem, tile, op, dtypes.of(out_dtype), precast=dtypes.of(r.precast) if r.precast else None, seed=r.seed,
            seed_kind=monoid.seed, accumulate=r.accumulate, early=target.overlaps, words=target.words,
        )  # fmt: skip

    spare = functools.cache(lambda: spare_of(out, shape, out_dtype, device))

    def trial(tile: Tile) -> Trial:
        plan = planned(specialise(tile), device, shift, x.element_size())
        return Trial(plan.compile, lambda: plan.run(x, where, spare()))

    tile = choose(problem, device, r.determinism, trial)
    return planned(specialise(tile), device, shift, x.element_size()).bind(shape, out_dtype)


def spare_of(out: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """What a trial writes: laid out as the output is, and holding numbers, as an accumulating kernel reads it."""
    if out is None:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.empty_strided(out.shape, out.stride(), dtype=dtype, device=device).zero_()


def choose(problem: Problem, device: torch.device, determinism: str, trial: Callable[[Tile], Trial], apart: bool = True) -> Tile:
    """The tile that the determinism level, `force` and the policy in force allow. apart: it may ask for a launch that only folds."""
    target = targets.of_device(device.type, device.index or 0)
    if not apart:
        target = replace(target, apart=False)
    if determinism == "invariant":
        if autotune.is_forced():
            raise ValueError('determinism="invariant" has one plan for a problem: nothing can be forced')
        chosen = autotune.Choice(canonical(problem, target), "invariant: one tile for this op and reduced length")
    else:
        chosen = autotune.choose(problem, target, trial, device)
    logs.plan(problem, chosen.tile, f"{chosen.why} on {target.name}")
    return chosen.tile


def _safe_shift(x: Tensor) -> int:
    """`shift_of`, or 0 where there is nothing to read; the interpreter cannot read before a storage's first byte."""
    return shift_of(x) if x.numel() else 0


def _refer(r: Reduction, x: Tensor, where: Tensor | None, out: Tensor | None) -> Tensor:
    """The reference in torch (CPU tensors without the interpreter)."""
    values = x if r.precast is None else x.to(r.precast)
    if r.value.is_floating_point and not values.dtype.is_floating_point:
        values = values.to(torch.float64)
    mask = None if where is None else where.expand(x.shape)
    if r.monoid.reference is None:
        raise NotImplementedError(f"{r.monoid.name} has no reference=, which CPU tensors need outside Triton's interpreter")
    y = reference.call(r.monoid.reference, values, r.dims, r.keepdim, mask, r.monoid.param)
    if r.seed is not None:
        y = r.monoid.join(y, torch.as_tensor(r.seed, dtype=y.dtype, device=y.device))
    if r.accumulate and out is not None:
        y = r.monoid.join(out.to(y.dtype), y)
    return (torch.empty(r.shape, dtype=r.result, device=x.device) if out is None else out).copy_(y)  # never a view of x


def plan_gemv(
    a: Tensor, x: Tensor, y: Tensor | None, out: Tensor | None, alpha: float, beta: float, result: torch.dtype, determinism: str
) -> Bound:
    """A call `(a, x, y, out) -> Tensor` for a: [..., M, K] and x: [..., K], already broadcast to common batch dims."""
    batch, (m, k), device = a.shape[:-2], a.shape[-2:], a.device
    shape = (*batch, m)
    out_dtype = result if out is None else out.dtype
    if not targets.runs_kernels(device):
        logs.plan(f"gemv of {tuple(a.shape)} {a.dtype}", None, REFERENCE)
        return Bound(lambda a, x, y, out: _refer_gemv(a, x, y, out, alpha, beta, result))
    shift = _safe_shift(a)
    zeros = (0,) * len(shape)
    strides = [a.stride()[:-1], (*x.stride()[:-1], 0), zeros if y is None or beta == 0 else y.stride()]
    fresh = torch.empty(shape, device="meta").stride()
    kept = coalesce(shape, [*strides, fresh if out is None else out.stride()])
    reduced = coalesce([k], [[a.stride(-1)], [x.stride(-1)]])
    problem = Problem("gemv", dtypes.of(a.dtype), kept, reduced, shift)
    if problem.xnumel == 0:
        return Bound(lambda a, x, y, out: torch.empty(shape, dtype=out_dtype, device=device) if out is None else out)
    op, aligned = products().device(a.dtype), x.data_ptr() % 16 == 0 and determinism != "invariant"
    words = targets.of_device(device.type, device.index or 0).words

    def specialise(tile: Tile) -> Specialization:
        return of_gemv(problem, tile, op, dtypes.of(x.dtype), dtypes.of(out_dtype), alpha, beta, aligned, words)

    spare = functools.cache(lambda: spare_of(out, shape, out_dtype, device))

    def trial(tile: Tile) -> Trial:
        plan = planned(specialise(tile), device, shift, a.element_size())
        return Trial(plan.compile, lambda: plan.run(a, x, y if beta else None, spare()))

    tile = choose(problem, device, determinism, trial)
    return planned(specialise(tile), device, shift, a.element_size()).bind(shape, out_dtype)


def _refer_gemv(a: Tensor, x: Tensor, y: Tensor | None, out: Tensor | None, alpha: float, beta: float, result: torch.dtype) -> Tensor:
    wide = torch.float64 if a.dtype.is_floating_point else torch.int64
    product = (a.to(wide) * x.to(wide).unsqueeze(-2)).sum(-1)
    total = product if alpha == 1 else alpha * product
    if beta != 0 and y is not None:
        total = total + beta * y.to(wide)
    return total.to(result) if out is None else out.copy_(total)
