"""Two launches for one call: programs leave partial states in the workspace, and a second kernel folds them.

Where launches may overlap, the second begins while the first runs, and waits for it in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from . import dtypes, launch, targets
from .launch import Bound, Plan, allocator, overlapping
from .problem import contiguous_strides
from .specialize import Specialization
from .workspaces import workspace


class Apart(Plan):
    """A kernel whose states another folds: `spec.fold`. Its arguments are those of a `Plan`."""

    def __init__(self, spec: Specialization, device: torch.device, shift: int, itemsize: int) -> None:
        super().__init__(spec, device, shift, itemsize)
        assert spec.fold is not None, "nothing folds what this kernel leaves"
        self._fold = Plan(spec.fold, device, 0, 1)
        self._first, self._behind = self.run, self._by_stream(self._arguments)
        self.run = self._interpret_both if targets.interpreting() else self._run_both

    def compile(self) -> Any:
        """Both kernels."""
        self._fold.compile()
        return super().compile()

    def _room(self, stream: int) -> tuple[Tensor, Tensor]:
        return workspace(self.device, stream, 0, self._room_step * self.spec.op.arity)

    def _arguments(self, room: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What is passed behind the operands of each kernel."""
        states, fold = room[: len(self._fold._states)], self._fold
        return (
            tuple(compress((*room, *self._rest), self._passed[self._operands :])),
            tuple(compress((*states, *fold._rest), fold._passed[1:])),
        )

    def _run_both(self, first: Tensor, second: Tensor | None, out: Tensor) -> None:
        if launch.current_device() != self._index:
            with torch.cuda.device(self._index):
                return self._run_both(first, second, out)
        self._launch_both()(launch.current_stream(self._index), first.data_ptr() - self._back, out.data_ptr())
        return None

    def _launch_both(self) -> Callable[[int, int, int], None]:
        """`call(stream, address of the input, address of the output)`, where this device is the current one."""
        first, middle = self._launch or self._prepare()
        fold, late = self._fold._launch or self._fold._prepare()
        if self.target.overlaps:
            late = overlapping(late)
        programs, folding, behind = self.spec.programs, self._fold.spec.programs, self._behind

        def call(stream: int, start: int, address: int) -> None:
            after, then = behind(stream)
            first(programs, 1, 1, stream, *middle, start, *after)
            fold(folding, 1, 1, stream, *late, address, *then)

        return call

    def bind(self, shape: tuple[int, ...], dtype: torch.dtype) -> Bound:
        """The plan's calls, with all that can be known beforehand looked up."""
        device, index, back = self.device, self._index, self._back
        strides, empty = contiguous_strides(shape), allocator(device)
        if targets.interpreting():

            def plainly(first: Tensor, second: Tensor | None, out: Tensor | None) -> Tensor:
                out = empty(shape, strides, dtype) if out is None else out
                self.run(first, second, out)
                return out

            return Bound(plainly)
        both, several = self._launch_both(), torch.cuda.device_count() > 1

        def again(start: int) -> Tensor:
            if several and launch.current_device() != index:
                with torch.cuda.device(index):
                    return again(start)
            out = empty(shape, strides, dtype)
            both(launch.current_stream(index), start - back, out.data_ptr())
            return out

        def into(out: Tensor, address: int, start: int) -> Tensor:
            if several and launch.current_device() != index:
                with torch.cuda.device(index):
                    return into(out, address, start)
            both(launch.current_stream(index), start - back, address)
            return out

        def call(first: Tensor, second: Tensor | None, out: Tensor | None) -> Tensor:
            return again(first.data_ptr()) if out is None else into(out, out.data_ptr(), first.data_ptr())

        return Bound(call, again, into)

    def _interpret_both(self, first: Tensor, second: Tensor | None, out: Tensor) -> None:
        _, room = self._room(0)
        kinds = [kind[1:] for name, kind in self.spec.signature if name in self._states and kind != "constexpr"]
        states = tuple(room[n * self._room_step :].view(dtypes.named(kind).torch) for n, kind in enumerate(kinds))
        self._first(first, second, None, states=states)
        self._fold.run(out, states=states)


def planned(spec: Specialization, device: torch.device, shift: int, itemsize: int) -> Plan:
    """What runs a specialisation: one launch, or two."""
    return (Plan if spec.fold is None else Apart)(spec, device, shift, itemsize)


__all__ = ["Apart", "planned"]
