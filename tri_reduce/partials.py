"""The partial states of one deferred reduction, between launches. `Partials` says what they can do; `SlotPartials` keeps them in kernels'
slots.

A state is one to three tiles; each is a tensor [slots, outputs], outputs in row-major order of the result. Sums of float32 are kept in
float64, so that a stream of a million updates is as accurate as one; the identity fills every slot at the start.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import autotune, dtypes, logs, targets
from .kinds import Kind
from .launch import Plan
from .plans import PLANS, remember
from .slot_plans import of_combine, of_merge, of_segment, segment_tile, slot_count
from .updates import bind_together

States = tuple[Tensor, ...]
Bound = Callable[..., None]
MOST = 3  # tiles that one launch updates


class Partials(abc.ABC):
    """States of a stream on one device."""

    def __init__(self, kind: Kind, device: torch.device, slots: int) -> None:
        self.kind, self.device, self.slots = kind, device, slots
        with torch.inference_mode(False):  # made within inference mode, they could not be written outside
            self._identities = kind.identities()
            self.states: States = tuple(torch.full((slots, kind.outputs), e, dtype=d, device=device) for e, d in self._identities)
            self.faults = [torch.zeros((slots, 3), dtype=torch.int64, device=device)]  # (number of the update, row, index) or zeros
        self.indexed = False  # something may be in `faults`

    def reset(self) -> None:
        """The identity in every slot."""
        for tile, (identity, _) in zip(self.states, self._identities, strict=True):
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

    @property
    def rows(self) -> int:
        """Of the tiles that `folded` gives: one state for each output, or what cannot be folded."""
        return 1

    def folded(self, rows: int) -> States:
        """One state for each output, [rows, outputs] a tile, in new memory; `rows` is the most that any rank has."""
        fresh = type(self)(self.kind, self.device, 1)
        fresh.absorb(self.states)
        return fresh.states

    @abc.abstractmethod
    def bind(self, values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> Bound:
        """A call `(values, where, *position)`, for tensors laid out like these: combine each value, reduced over `dims`, into its output.

        position: of the first value in the stream, for argmax and argmin.
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
        self.determinism = determinism
        target = targets.of_device(device.type, device.index or 0)
        self.most = target.cores if target.persistent else 0  # programs of a launch that walks tiles of outputs
        self.op = kind.monoid.device(kind.kept_in)  # on kept states
        self.key = (kind, device, slots, determinism)
        self._finishers: dict[object, Callable[[Tensor], None]] = {}  # from its own states

    def bind(self, values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> Bound:
        return bind_together((self,), values, dims, where)

    def segment(self, values: Tensor, index: Tensor, where: Tensor | None) -> Callable[[int, int], None]:
        if self.most:
            raise NotImplementedError(
                "Reducer.update(index=): its gathers and scatters do not compile for Ascend: sort by index and reduce"
            )
        self.indexed = True
        mask = None if where is None else where.expand(values.shape).stride()
        key = (self.key, values.shape, values.stride(), values.dtype, index.stride(), index.dtype, mask, autotune.MODE.get().split)
        plan = PLANS.get(key)
        if plan is None:
            kind, tile = self.kind, segment_tile(math.prod(self.kind.shape[1:]), self.determinism)
            spec = of_segment(
                self.op, dtypes.of(values.dtype), dtypes.of(index.dtype), kind.shape, values.shape[0], (values.stride(), mask,
                index.stride(0)), tile, self._programs(-(-values.shape[0] // tile.r0)),
            )  # fmt: skip
            logs.plan(f"{kind.monoid.name}, {values.shape[0]} rows into the outputs of an index", tile, "the only plan of a segment update")
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
        key = (self.key, "absorb", states[0].shape[0])
        plan = PLANS.get(key) or remember(key, Plan(of_merge(self.op, self.kind.outputs, states[0].shape[0], self.most), self.device, 0, 1))
        plan.run(*states, *(None,) * (3 - len(states)), states=self.states)

    def finish(self, states: States, seed: float | None, out: Tensor) -> None:
        key = (seed, out.stride(), out.dtype)
        finish = self._finishers.get(key) if states is self.states else None
        if finish is None:
            slots = states[0].shape[0]
            shared = (self.key, "finish", slots, *key)
            plan = PLANS.get(shared) or remember(shared, self._plan_finish(slots, seed, out))
            finish = plan.bind_output(states)
            if states is self.states:
                self._finishers[key] = finish
        finish(out)

    def _plan_finish(self, slots: int, seed: float | None, out: Tensor) -> Plan:
        kind = self.kind
        spec = of_combine(
            self.op, kind.shape, slots, dtypes.of(out.dtype), out.stride(), seed=seed, seed_kind=kind.monoid.seed, most=self.most
        )
        logs.plan(f"{kind.monoid.name}, {slots} slots of {kind.outputs} outputs", spec.tile, "the only plan of a finalize")
        return Plan(spec, self.device, 0, 1)


def bind_all(parts: Sequence[Partials], values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> list[tuple[Bound, bool]]:
    """(call, whether it takes a position): together they update every part. Kernels feed up to three states of one tile from one read."""
    lone = [p for p in parts if len(p.states) > 1 or not isinstance(p, SlotPartials) or p.most]
    sharing = [p for p in parts if isinstance(p, SlotPartials) and p not in lone]
    groups = [tuple(sharing[n : n + MOST]) for n in range(0, len(sharing), MOST)]
    calls = [(bind_together(group, values, dims, where), False) for group in groups]
    return calls + [(p.bind(values, dims, where), p.kind.monoid.indexed) for p in lone]


def partials_of(kind: Kind, device: torch.device, determinism: str) -> Partials:
    """Where the kernels run, slots; elsewhere (CPU without the interpreter) states in torch."""
    if targets.runs_kernels(device):
        cores = targets.of_device(device.type, device.index or 0).cores
        return SlotPartials(kind, device, slot_count(kind.outputs, determinism, cores), determinism)
    from .torch_partials import KeptContributions, TorchPartials

    return TorchPartials(kind, device, 1) if kind.builtin else KeptContributions(kind, device, 0)
