"""`reduce_many`: several reductions of the same dims from one read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import dtypes, targets
from .autotune import MODE
from .calls import reduce_now
from .geometry import Tile
from .launch import Plan
from .monoids import Monoid, together
from .plans import PLANS, Reduction, choose, remember, shift_of
from .problem import contiguous_strides, of_strides
from .specialization import Specialization
from .specialize import of_reduce
from .tuning import Trial
from .validate import reduction

ROOM = 8  # bytes for an element of a result, whatever its dtype
MOST = 3  # tiles of a state


def reduce_many_now(x: Tensor, ops: Sequence[Any], dim: Any, keepdim: bool) -> tuple[Tensor, ...]:
    """A result for each op. Ops whose state is one tile share a read, up to three at a time; the others are read for on their own."""
    wanted = [reduction(x, op, dim, keepdim, None, None, False, None, None, 1, 2, "run_to_run") for op in ops]
    alone = [n for n, r in enumerate(wanted) if not _shares(r.monoid, x)]
    sharing = [n for n in range(len(wanted)) if n not in alone]
    results: dict[int, Tensor] = {}
    for first in range(0, len(sharing), MOST):
        group = sharing[first : first + MOST]
        if len(group) == 1:
            alone += group
        else:
            results |= zip(group, _together([wanted[n] for n in group], x))
    for n in alone:
        results[n] = reduce_now(x, ops[n], dim, keepdim, None, None, False, None, None, 1, 2, "run_to_run")
    return tuple(results[n] for n in range(len(wanted)))


def _shares(monoid: Monoid, x: Tensor) -> bool:
    one_tile = len(monoid.identity_for(x.dtype)) == 1 and not monoid.indexed
    if not (one_tile and targets.runs_kernels(x.device) and x.numel() > 0):
        return False
    return not targets.of_device(x.device.type, x.device.index or 0).persistent  # whose kernels keep one state


def _together(group: list[Reduction], x: Tensor) -> tuple[Tensor, ...]:
    x = x.resolve_neg() if x.is_neg() else x
    names = tuple(r.monoid for r in group)
    key = ("many", names, group[0].dims, group[0].keepdim, x.shape, x.stride(), x.dtype, x.device, x.data_ptr() & 15, MODE.get())
    call = PLANS.get(key) or remember(key, _plan(group, x))
    return call(x)  # type: ignore[no-any-return]


def _plan(group: list[Reduction], x: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
    dims, shape, device, shift, size = group[0].dims, group[0].shape, x.device, shift_of(x), x.element_size()
    # The interpreter truncates where hardware rounds to bfloat16: there it is torch that rounds.
    rounds = (torch.bfloat16,) if targets.interpreting() else ()
    kinds = tuple(dtypes.named("fp32") if r.result in rounds else dtypes.of(r.result) for r in group)
    op = together(tuple(r.monoid.device(r.value) for r in group))
    problem = of_strides(op.name, dtypes.of(x.dtype), x.shape, dims, x.stride(), None, None, shift=shift, arity=op.arity)
    outputs = problem.xnumel
    room = ROOM * outputs * len(group)

    def specialise(tile: Tile) -> Specialization:
        return of_reduce(problem, tile, op, dtypes.named("u8"), kinds=kinds)

    spare = functools.cache(lambda: torch.empty(room, dtype=torch.uint8, device=device))

    def trial(tile: Tile) -> Trial:
        plan = Plan(specialise(tile), device, shift, size)
        return Trial(plan.compile, lambda: plan.run(x, None, spare()))

    tile = choose(problem, device, "run_to_run", trial, apart=False)
    launch = Plan(specialise(tile), device, shift, size).bind((room,), torch.uint8).call
    strides = contiguous_strides(shape)

    def call(x: Tensor) -> tuple[Tensor, ...]:
        bytes_ = launch(x, None, None)
        parts = [bytes_[n * ROOM * outputs :][: kind.itemsize * outputs].view(kind.torch) for n, kind in enumerate(kinds)]
        return tuple(part.as_strided(shape, strides).to(r.result) for part, r in zip(parts, group))

    return call
