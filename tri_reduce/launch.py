"""From a plan to the driver: compile once, remember, launch with as little Python as possible.

A `Plan` is a specialised kernel with everything but the pointers. On a GPU it calls the compiled kernel's own launcher; under the interpreter it
calls the jit function. Programs that share outputs meet in a workspace, one for each device and stream: tickets that are zero between launches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import targets
from .specialize import Specialization

_WORKSPACES: dict[tuple[str, int, int], tuple[Tensor, Tensor]] = {}
_SLOT_BYTES = 8
STATES = ("p0", "p1", "p2", "ticket_ptr")
_TORCH = {"fp32": torch.float32, "fp64": torch.float64, "i32": torch.int32, "i64": torch.int64}


def pow2_at_least(n: int, least: int) -> int:
    """The smallest power of two that is at least n and `least`."""
    return max(least, 1 << max(n - 1, 0).bit_length())


def _new_workspace(device: torch.device, tickets: int, slots: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(tickets, dtype=torch.int32, device=device), torch.empty(slots, dtype=torch.int64, device=device)


def _workspace(device: torch.device, stream: int, tickets: int, slots: int) -> tuple[Tensor, Tensor]:
    """(tickets, all zero; room for partial states). Launches of one stream follow one another, so they share it; a graph gets its own."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return _new_workspace(device, tickets, slots)  # from the graph's pool, zeroed again by every replay
    key = (device.type, device.index or 0, stream)
    found = _WORKSPACES.get(key)
    if found is None or found[0].numel() < tickets or found[1].numel() < slots:
        had = found or (torch.empty(0), torch.empty(0))
        found = _new_workspace(device, pow2_at_least(max(tickets, had[0].numel()), 4096), pow2_at_least(max(slots, had[1].numel()), 1 << 16))
        _WORKSPACES[key] = found
    return found


@functools.cache
def compiled(spec_key: tuple[Any, ...], target: targets.Target, device_index: int) -> Any:
    """The compiled kernel, its binary loaded on the device."""
    import triton
    from triton.compiler.compiler import ASTSource

    fn, signature, constexprs, divisible, warps = spec_key
    names = fn.arg_names
    source = ASTSource(
        fn, signature=dict(signature), constexprs=dict(constexprs), attrs={(names.index(n),): [["tt.divisibility", 16]] for n in divisible}
    )
    return triton.compile(source, target=targets.compiler_target(target), options={"num_warps": warps})


def _launcher(kernel: Any) -> Callable[..., None]:
    """`launch(grid_x, stream, *arguments)`: the compiled launcher itself where this Triton's is known, else its public wrapper."""
    run = kernel.run
    function, packed = kernel.function, kernel.packed_metadata
    direct = getattr(run, "launch", None)
    if direct is not None and hasattr(run, "launch_pdl") and hasattr(run, "profile_scratch_size") and run.global_scratch_size == 0:
        cooperative, pdl = run.launch_cooperative_grid, run.launch_pdl

        def launch(grid: int, stream: int, *arguments: Any) -> None:
            direct(grid, 1, 1, stream, function, cooperative, pdl, None, None, packed, None, None, None, *arguments)

        return launch

    def launch_by_wrapper(grid: int, stream: int, *arguments: Any) -> None:
        run(grid, 1, 1, stream, function, packed, None, None, None, *arguments)

    return launch_by_wrapper


class Plan:
    """A kernel ready to run on tensors of one layout.

    Args:
        spec: the specialised kernel.
        device: where its tensors are.
        shift: elements from a 16-byte boundary to the first operand's first element.
    """

    def __init__(self, spec: Specialization, device: torch.device, shift: int, itemsize: int) -> None:
        self.spec, self.device = spec, device
        self.target = targets.of_device(device.type, device.index or 0)
        self._back = shift * itemsize
        self._shift = shift
        self._index = device.index or 0
        values = dict(spec.values) | dict(spec.constexprs)
        pointers = [n for n in spec.fn.arg_names if n not in values or n.endswith("_ptr") or n in STATES]
        self._states = tuple(n for n in pointers if n in STATES)
        self._rest = tuple(dict(spec.values).get(n) for n in spec.fn.arg_names[len(pointers) :])
        self._shares = dict(spec.constexprs)["SINK"] == "split"
        self._none = (None,) * len(self._states)
        self._slots = spec.outputs * spec.slots
        self._launch: Callable[..., None] | None = None
        self.run: Callable[..., None] = self._interpret if targets.interpreting() else self._run

    def _run(self, first: Tensor, *others: Tensor | None, states: tuple[Tensor, ...] = ()) -> None:
        """Launch on the device's current stream."""
        if torch.cuda.current_device() != self._index:
            with torch.cuda.device(self._index):
                return self._run(first, *others, states=states)
        launch = self._launch or self._prepare()
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        state: tuple[int | None, ...] = self._none
        if self._shares:
            tickets, room = self._room(stream)
            start, step = room.data_ptr(), self._slots * _SLOT_BYTES
            state = (start, start + step, start + 2 * step)[: len(self._states) - 1] + (tickets.data_ptr(),)
        elif states:
            state = (*(s.data_ptr() for s in states), *self._none)[: len(self._states)]
        pointers = [None if o is None else o.data_ptr() for o in others]
        launch(self.spec.programs, stream, first.data_ptr() - self._back, *pointers, *state, *self._rest)
        return None

    def _prepare(self) -> Callable[..., None]:
        spec = self.spec
        kernel = compiled((spec.fn, spec.signature, spec.constexprs, spec.divisible, spec.warps), self.target, self._index)
        self._launch = _launcher(kernel)
        return self._launch

    def _room(self, stream: int) -> tuple[Tensor, Tensor]:
        return _workspace(self.device, stream, self.spec.output_tiles, self._slots * self.spec.op.arity)

    def _interpret(self, first: Tensor, *others: Tensor | None, states: tuple[Tensor, ...] = ()) -> None:
        spec = self.spec
        operands = [_bytes(first.detach().as_strided((1,), (1,), first.storage_offset() - self._shift))]
        operands += [None if o is None else _bytes(o.detach()) for o in others]
        given: dict[str, Any] = dict(zip(self._states, states, strict=False))
        if self._shares:
            tickets, room = self._room(0)
            views = [room[n * self._slots :].view(_TORCH[k[1:]]) for n, k in enumerate(k for n, k in spec.signature if n in STATES[:3] and k != "constexpr")]
            given = dict(zip(STATES, views, strict=False)) | {"ticket_ptr": tickets}
        arguments = [*operands, *(given.get(n) for n in self._states), *self._rest]
        constants = dict(spec.constexprs)
        named = {n: constants.get(n, a) for n, a in zip(spec.fn.arg_names, arguments, strict=False)}
        try:
            with np.errstate(all="ignore"):  # masked lanes compute too
                spec.fn[(spec.programs,)](**(constants | named))
        except BaseException:
            _WORKSPACES.clear()  # some programs may have arrived, others never will
            raise


def _bytes(t: Tensor) -> Tensor:
    return t.view(torch.uint8) if t.dtype == torch.bool else t
