"""From a reducer's slots and the layout of an update to a kernel that is ready to run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from . import autotune, dtypes, logs, targets
from .configs import canonical
from .geometry import Tile, depth_limit, tiles_of
from .launch import Plan
from .monoid import DeviceOp, together
from .plans import PLANS, remember, shift_of
from .problem import Problem, of_strides
from .slot_plans import beside
from .specialize import of_reduce
from .tuning import Trial

if TYPE_CHECKING:
    from .partials import SlotPartials


def bind_together(parts: Sequence[SlotPartials], values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> Callable[..., None]:
    """A call `(values, where, *position)` that updates a part, or several of one tile, from one read: `Partials.bind`."""
    mask = None if where is None else where.expand(values.shape).stride()
    keys = tuple(p.key for p in parts)
    key: Any = (keys, values.shape, values.stride(), values.dtype, values.data_ptr() & 15, dims, mask, autotune.MODE.get())
    plan = PLANS.get(key)
    if plan is None:
        plan = remember(key, _plan(parts, values, dims, where))
    return plan.bind_states(tuple(s for p in parts for s in p.states))  # type: ignore[no-any-return]


def _op(parts: Sequence[SlotPartials], problem: Problem, chain: int) -> DeviceOp:
    """The op of an update: narrow in its lanes while that is accurate, then as the slots keep it."""
    wide_index = problem.rnumel >= 2**31 - 1
    deep = chain > depth_limit(problem)
    lanes = tuple(p.op if p.kind.wide and deep else p.kind.monoid.device(p.kind.value, wide_index) for p in parts)
    if len(parts) == 1:
        return lanes[0] if lanes[0] is parts[0].op else replace(lanes[0], wider=parts[0].op)
    return replace(together(lanes), wider=together(tuple(p.op for p in parts)))


def _plan(parts: Sequence[SlotPartials], values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> Plan:
    monoids, first, shift = [p.kind.monoid for p in parts], parts[0], shift_of(values)
    strides = None if where is None else where.expand(values.shape).stride()
    problem = of_strides(
        "+".join(m.name for m in monoids), dtypes.of(values.dtype), values.shape, dims, values.stride(), strides, None, shift=shift,
        indexed=any(m.indexed for m in monoids), idempotent=all(m.idempotent for m in monoids), arity=sum(len(p.states) for p in parts),
    )  # fmt: skip
    target = targets.of_device(first.device.type, first.device.index or 0)

    def shaped(tile: Tile) -> Tile:
        if target.overlaps and first.determinism != "invariant" and not autotune.is_forced():
            tile = beside(problem, target, tile)
        return replace(tile, split=min(tile.split, first.slots))

    def planned(tile: Tile) -> Plan:
        _, tiles = tiles_of(problem, tile)
        op = _op(parts, problem, -(-tiles // tile.split))
        spec = of_reduce(problem, tile, op, dtypes.of(first.kind.result), slot_count=first.slots, early=target.overlaps)
        return Plan(spec, first.device, shift, values.element_size())

    scratch = functools.cache(lambda: tuple(s.clone() for p in parts for s in p.states))

    def trial(tile: Tile) -> Trial:
        plan = planned(shaped(tile))
        return Trial(plan.compile, lambda: plan.run(values, where, None, states=scratch()))

    # Programs that own slots need not meet; what was timed are calls, whose programs do.
    chosen = _choose(first, problem, replace(target, tickets=True, apart=False, timed=""), trial)
    tile = shaped(chosen.tile)
    logs.plan(problem, tile, f"{chosen.why} on {target.name}, an update into {first.slots} slots")
    return planned(tile)


def _choose(part: SlotPartials, problem: Problem, target: targets.Target, trial: Callable[[Tile], Trial]) -> autotune.Choice:
    if part.determinism == "invariant":
        return autotune.Choice(canonical(problem, target), "invariant: one tile for this op and reduced length")
    forced = autotune.MODE.get().split
    if forced is not None and forced > part.slots:
        raise ValueError(f"split={forced} is illegal: this reducer has {part.slots} slots for each of its {part.kind.outputs} outputs")
    return autotune.choose(problem, target, trial, part.device, "update")
