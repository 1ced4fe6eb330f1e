"""Two launches for one call: programs leave partial states in memory of the call's own, and a second kernel folds them.

Where launches may overlap, the second begins while the first runs, and waits for it in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from . import dtypes, launch, targets
from .launch import ROOM_BYTES, Plan, allocator, overlapping
from .specialization import Specialization


class Apart(Plan):
    """A kernel whose states another folds: `spec.fold`. Its arguments are those of a `Plan`."""

    def __init__(self, spec: Specialization, device: torch.device, shift: int, itemsize: int) -> None:
        super().__init__(spec, device, shift, itemsize)
        assert spec.fold is not None, "nothing folds what this kernel leaves"
        self._fold, self._first = Plan(spec.fold, device, 0, 1), self.run
        self.run = self._interpret_both if targets.interpreting() else self._run_both

    def compile(self) -> Any:
        """Both kernels."""
        self._fold.compile()
        return super().compile()

    def _prepare(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """A launcher of both, which takes nothing but the addresses of the input and of the output."""
        first, middle = super()._prepare()
        fold, late = self._fold._prepare()
        if self.target.overlaps:
            late = overlapping(late)
        folding, empty, kinds = self._fold.spec.programs, allocator(self.device), self.spec.op.arity
        after = tuple(compress((*self._none, *self._rest), self._passed[self._operands :]))[kinds:]
        then = tuple(compress((*self._fold._none, *self._fold._rest), self._fold._passed[1:]))[kinds:]
        words, step = (self._room_step * kinds,), self._room_step * ROOM_BYTES

        def both(programs: int, y: int, z: int, stream: int, start: int, address: int) -> None:
            room = empty(words, (1,), torch.int64)  # this call's own: other threads may launch on this stream between the two
            states = tuple(room.data_ptr() + n * step for n in range(kinds))
            first(programs, y, z, stream, *middle, start, *states, *after)
            fold(folding, y, z, stream, *late, address, *states, *then)

        self._launch = both, ()
        return self._launch

    def _after(self) -> Callable[[int], tuple[Any, ...]]:
        return lambda stream: ()

    def _run_both(self, first: Tensor, second: Tensor | None, out: Tensor) -> None:
        if launch.current_device() != self._index:
            with torch.cuda.device(self._index):
                return self._run_both(first, second, out)
        both, _ = self._launch or self._prepare()
        both(self.spec.programs, 1, 1, launch.current_stream(self._index), first.data_ptr() - self._back, out.data_ptr())
        return None

    def _interpret_both(self, first: Tensor, second: Tensor | None, out: Tensor) -> None:
        room = torch.empty(self._room_step * self.spec.op.arity, dtype=torch.int64)
        kinds = [kind[1:] for name, kind in self.spec.signature if name in self._states and kind != "constexpr"]
        states = tuple(room[n * self._room_step :].view(dtypes.named(kind).torch) for n, kind in enumerate(kinds))
        self._first(first, second, None, states=states)
        self._fold.run(out, states=states)


def planned(spec: Specialization, device: torch.device, shift: int, itemsize: int) -> Plan:
    """What runs a specialisation: one launch, or two."""
    return (Plan if spec.fold is None else Apart)(spec, device, shift, itemsize)


__all__ = ["Apart", "planned"]
