"""The partial states of one deferred reduction, between launches. `Partials` says what they can do; `SlotPartials` keeps them in kernels'
slots.

A state is one to three tiles; each is a tensor [slots, outputs], outputs in row-major order of the result. Sums of float32 are kept in
float64, so that a stream of a million updates is as accurate as one; the identity fills every slot at the start.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from . import autotune, dtypes, targets
from .configs import Tile, canonical, chain_limit, tiles_of
from .launch import Plan
from .monoids import DeviceOp, Monoid, counted, lookup
from .plans import PLANS, remember, shift_of
from .problem import Problem, of_strides
from .slot_plans import of_combine, of_merge, of_segment, segment_tile, slot_count
from .specialize import of_reduce

States = tuple[Tensor, ...]


@dataclass(frozen=True)
class Kind:
    """What two reducers must share to be merged: the monoid, dtype of the values, dtype and shape of the result.

    wide: states are kept in float64. builtin: the monoid is the library's own.
    """

    monoid: Monoid
    value: torch.dtype
    result: torch.dtype
    shape: tuple[int, ...]
    wide: bool
    builtin: bool

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return math.prod(self.shape)

    @property
    def kept_in(self) -> torch.dtype:
        """The values' dtype that decides the states' dtypes."""
        return torch.float64 if self.wide else self.value

    @property
    def label(self) -> tuple[object, ...]:
        """Equal for kinds that mean the same, also in another process."""
        return (self.monoid.name, self.monoid.param, str(self.value), str(self.result), self.shape)

    def identities(self) -> tuple[tuple[float | int, torch.dtype], ...]:
        """(identity, dtype) of each tile of a kept state."""
        return tuple(zip(self.monoid.identity_for(self.kept_in), self.monoid.acc_for(self.kept_in), strict=True))


class Partials(abc.ABC):
    """States of a stream on one device."""

    def __init__(self, kind: Kind, device: torch.device, slots: int) -> None:
        self.kind, self.device, self.slots = kind, device, slots
        self.states: States = tuple(torch.full((slots, kind.outputs), e, dtype=d, device=device) for e, d in kind.identities())
        self.indexed = False  # something may be in `faults`
        self.faults = [torch.zeros((slots, 3), dtype=torch.int64, device=device)]  # (number of the update, row, index) or zeros

    def reset(self) -> None:
        """The identity in every slot."""
        for tile, (identity, _) in zip(self.states, self.kind.identities(), strict=True):
            tile.fill_(identity)
        self.clear_faults()

    def clear_faults(self) -> None:
        """No index has been out of range."""
        if self.indexed:
            del self.faults[1:]
            self.faults[0].zero_()
            self.indexed = False

    def fault(self) -> tuple[int, int, int] | None:
        """(number of the update, row, index) of the first index out of range; waits for the device where there can be one."""
        if not self.indexed:
            return None
        found = [tuple(row) for row in torch.cat(self.faults).tolist() if row[0]]
        return min(found) if found else None

    def take_faults(self, other: Partials) -> None:
        """Those of a reducer that is merged into this one, which keeps a clean sheet."""
        if other.indexed:
            self.indexed, other.indexed = True, False
            self.faults += other.faults
            other.faults = [torch.zeros_like(other.faults[0])]

    def folded(self) -> States:
        """One state for each output, [1, outputs] a tile, in new memory."""
        fresh = type(self)(self.kind, self.device, 1)
        fresh.absorb(self.states)
        return fresh.states

    @abc.abstractmethod
    def update(self, values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> Callable[[int], None]:
        """A call that combines each value, reduced over `dims`, into its output, given the first value's position in the stream
        (argmax, argmin).
        """

    @abc.abstractmethod
    def segment(self, values: Tensor, index: Tensor, where: Tensor | None) -> Callable[[int, int], None]:
        """A call that combines each row of values into the output that its index names, given the first row's position and the
        update's number.
        """

    @abc.abstractmethod
    def absorb(self, states: States) -> None:
        """Combine others' states, [slots, outputs] a tile, into these."""

    @abc.abstractmethod
    def finish(self, states: States, seed: float | None, out: Tensor) -> None:
        """Fold states over their slots, combine the seed once, finish and store."""


class SlotPartials(Partials):
    """States in slots that kernels own: which program of an update writes which slot is a function of its plan."""

    def __init__(self, kind: Kind, device: torch.device, slots: int, determinism: str = "run_to_run") -> None:
        super().__init__(kind, device, slots)
        self._determinism = determinism
        self._key = (kind, device, slots, determinism)
        self._partial = kind.monoid.device(kind.kept_in)

    def update(self, values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> Callable[[int], None]:
        mask = None if where is None else where.expand(values.shape).stride()
        key = (self._key, values.shape, values.stride(), values.dtype, values.data_ptr() & 15, dims, mask, autotune.MODE.get())
        plan = PLANS.get(key)
        if plan is None:
            plan = remember(key, self._plan(values, dims, where))
        run, states = plan.run, self.states
        if self.kind.monoid.indexed:
            return lambda position: run(values, where, None, states=states, scalars=(position,))
        return lambda position: run(values, where, None, states=states)

    def _op(self, problem: Problem, chain: int) -> DeviceOp:
        """The op of an update: narrow in its lanes while that is accurate, then as the slots keep it."""
        kind, monoid = self.kind, self.kind.monoid
        if kind.wide and chain > chain_limit(problem):
            return self._partial
        return replace(monoid.device(kind.value, problem.rnumel >= 2**31 - 1), wider=self._partial)

    def _plan(self, values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> Plan:
        kind, monoid = self.kind, self.kind.monoid
        shift = shift_of(values)
        problem = of_strides(
            monoid.name, dtypes.of(values.dtype), values.shape, dims, values.stride(), None if where is None else
            where.expand(values.shape).stride(),
            None, shift=shift, indexed=monoid.indexed, idempotent=monoid.idempotent, arity=len(self.states),
        )  # fmt: skip

        def planned(tile: Tile) -> Plan:
            tile = replace(tile, split=min(tile.split, self.slots))
            _, tiles = tiles_of(problem, tile)
            op = self._op(problem, -(-tiles // tile.split))
            return Plan(
                of_reduce(problem, tile, op, dtypes.of(kind.result), slot_count=self.slots), self.device, shift, values.element_size()
            )

        def trial(tile: Tile) -> Callable[[], None]:
            plan, scratch = planned(tile), tuple(s.clone() for s in self.states)
            return lambda: plan.run(values, where, None, states=scratch)

        return planned(self._choose(problem, trial))

    def _choose(self, problem: Problem, trial: autotune.Trial) -> Tile:
        target = replace(targets.of_device(self.device.type, self.device.index or 0), tickets=True)  # slots: programs need not meet
        if self._determinism == "invariant":
            return canonical(problem, target)
        forced = autotune.MODE.get().split
        if forced is not None and forced > self.slots:
            raise ValueError(f"split={forced} is illegal: this reducer has {self.slots} slots for each of its {self.kind.outputs} outputs")
        return autotune.pick(problem, target, trial)

    def segment(self, values: Tensor, index: Tensor, where: Tensor | None) -> Callable[[int, int], None]:
        self.indexed = True
        mask = None if where is None else where.expand(values.shape).stride()
        key = (self._key, values.shape, values.stride(), values.dtype, index.stride(), index.dtype, mask, autotune.MODE.get().split)
        plan = PLANS.get(key)
        if plan is None:
            kind, tile = self.kind, segment_tile(math.prod(self.kind.shape[1:]), self._determinism)
            spec = of_segment(
                self._partial, dtypes.of(values.dtype), dtypes.of(index.dtype), kind.shape, values.shape[0], (values.stride(), mask,
                index.stride(0)), tile, self._programs(-(-values.shape[0] // tile.r0)),
            )  # fmt: skip
            plan = remember(key, Plan(spec, self.device, 0, 1))
        run, faults, states = plan.run, self.faults[0], self.states
        return lambda position, serial: run(values, index, where, faults, states=states, scalars=(position, serial))

    def _programs(self, row_tiles: int) -> int:
        """Programs that share an output in a segment update."""
        forced = autotune.MODE.get().split
        if forced is not None and forced > min(self.slots, row_tiles):
            raise ValueError(f"split={forced} is illegal: {row_tiles} tiles of rows, and {self.slots} slots for each output")
        return forced or min(self.slots, row_tiles)

    def absorb(self, states: States) -> None:
        if not self.kind.outputs:
            return
        key = (self._key, "absorb", states[0].shape[0])
        plan = PLANS.get(key) or remember(key, Plan(of_merge(self._partial, self.kind.outputs, states[0].shape[0]), self.device, 0, 1))
        plan.run(*states, *(None,) * (3 - len(states)), states=self.states)

    def finish(self, states: States, seed: float | None, out: Tensor) -> None:
        key = (self._key, "finish", states[0].shape[0], None if seed is None else str(seed), out.stride(), out.dtype)
        plan = PLANS.get(key)
        if plan is None:
            spec = of_combine(
                self._partial,
                self.kind.shape,
                states[0].shape[0],
                dtypes.of(out.dtype),
                out.stride(),
                seed=seed,
                seed_kind=self.kind.monoid.seed,
            )
            plan = remember(key, Plan(spec, self.device, 0, 1))
        plan.run(out, states=states)


def kind_of(op: str | Monoid, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device, correction: float, order: float) -> Kind:
    """The kind of a reducer; TypeError where the op does not take the dtype."""
    monoid = counted(lookup(op, correction, order))
    name, builtin = monoid.name, isinstance(op, str)
    if (monoid.floats_only or name == "logsumexp") and not dtype.is_floating_point:
        raise TypeError(f"Reducer: {op} has a floating-point result, got dtype={dtype}")
    if monoid.ints_only and dtype.is_floating_point:
        raise TypeError(f"Reducer: {op} is bitwise and needs an integer or bool dtype, got {dtype}")
    if getattr(monoid.device(dtype), "finish_extra", None) == "count":
        raise ValueError(f"Reducer: {name}'s finish takes count, which a stream does not know beforehand: keep a count in its state")
    fixed = not builtin or monoid.indexed or monoid.lift_raw
    result = torch.bool if name in ("any", "all") and builtin else monoid.out_for(dtype) if fixed else dtype
    sums = dtype.is_floating_point and not monoid.idempotent and not monoid.indexed
    has_wide = not targets.runs_kernels(device) or targets.of_device(device.type, device.index or 0).wide_floats
    return Kind(monoid, dtype, result, shape, builtin and sums and has_wide and dtype != torch.float64, builtin)


def partials_of(kind: Kind, device: torch.device, determinism: str) -> Partials:
    """Where the kernels run, slots; elsewhere (CPU without the interpreter) states in torch."""
    if targets.runs_kernels(device):
        return SlotPartials(kind, device, slot_count(kind.outputs, determinism), determinism)
    from .torch_partials import KeptContributions, TorchPartials

    return TorchPartials(kind, device, 1) if kind.builtin else KeptContributions(kind, device, 0)
