"""From a plan to the driver: compile once, remember, launch with as little Python as possible.

A `Plan` is a specialised kernel with everything but the pointers. On a GPU it calls the compiled kernel's own launcher; under the
interpreter it calls the jit function. Programs that share outputs meet in a workspace, one for each device and stream: tickets that are
zero between launches.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import capture, dtypes, targets
from .configs import pow2_ceil
from .interpret import interpret
from .problem import contiguous_strides
from .specialize import Specialization

_current_device = torch._C._cuda_getDevice if hasattr(torch._C, "_cuda_getDevice") else torch.cuda.current_device
_current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0)
_capturing: Callable[[], bool] = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
_WORKSPACES: dict[tuple[str, int, int], tuple[Tensor, Tensor, Any]] = {}
_LOCK = threading.Lock()
_SLOT_BYTES = 8
STATES = ("p0", "p1", "p2", "ticket_ptr")


def _new_workspace(device: torch.device, tickets: int, slots: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(tickets, dtype=torch.int32, device=device), torch.empty(slots, dtype=torch.int64, device=device)


def _workspace(device: torch.device, stream: int, tickets: int, slots: int) -> tuple[Tensor, Tensor]:
    """(tickets, all zero; room for partial states). Launches of one stream follow one another, so they share it; a graph gets its own."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return _new_workspace(device, tickets, slots)  # from the graph's pool, zeroed again by every replay
    key = (device.type, device.index or 0, stream)
    had = _WORKSPACES.get(key)
    if had is not None and had[0].numel() >= tickets and had[1].numel() >= slots:
        return had[0], had[1]
    with _LOCK:  # what is replaced lives on: another thread may have taken its address and not launched yet
        had = _WORKSPACES.get(key)
        if had is not None:
            tickets, slots = max(tickets, had[0].numel()), max(slots, had[1].numel())
        found = _new_workspace(device, max(4096, pow2_ceil(tickets)), max(1 << 16, pow2_ceil(slots)))
        _WORKSPACES[key] = (*found, had)
    return found


@functools.lru_cache(maxsize=4096)
def compiled(spec_key: tuple[Any, ...], target: targets.Target, device_index: int) -> Any:
    """The compiled kernel, for a device."""
    import triton
    from triton.compiler.compiler import ASTSource

    fn, signature, constexprs, divisible, warps = spec_key
    names = fn.arg_names
    source = ASTSource(
        fn, signature=dict(signature), constexprs=dict(constexprs), attrs={(names.index(n),): [["tt.divisibility", 16]] for n in divisible}
    )
    return triton.compile(source, target=targets.compiler_target(target), options={"num_warps": warps})


_MIDDLE = ("function", "cooperative", "launch_pdl", "", "", "metadata", "", "", "")  # what the compiled launcher takes before the arguments


def _launcher(kernel: Any) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """(launch, middle), to be called as `launch(grid, 1, 1, stream, *middle, *arguments)`.

    It is the compiled launcher itself where this Triton's is known, else its public wrapper.
    """
    run = kernel.run
    direct = getattr(run, "launch", None)
    if direct is not None and hasattr(run, "launch_pdl") and hasattr(run, "profile_scratch_size") and run.global_scratch_size == 0:
        return direct, (kernel.function, run.launch_cooperative_grid, run.launch_pdl, None, None, kernel.packed_metadata, None, None, None)
    return run, (kernel.function, kernel.packed_metadata, None, None, None)


try:  # what Inductor's code calls: a third of the host time of torch.empty
    from torch._C._dynamo.guards import _empty_strided_cuda  # type: ignore[attr-defined]
except ImportError:
    _empty_strided_cuda = None


def new_output(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialised tensor; for CUDA, `device` must be the current one."""
    if _empty_strided_cuda is not None and device.type == "cuda":
        return _empty_strided_cuda(shape, strides, dtype)  # type: ignore[no-any-return]
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


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
        self._operands = len(pointers) - len(self._states)
        self._launch: tuple[Callable[..., None], tuple[Any, ...]] | None = None
        self.run: Callable[..., None] = self._interpret if targets.interpreting() else self._run

    def _run(self, first: Tensor, *others: Tensor | None, states: tuple[Tensor, ...] = (), scalars: tuple[int, ...] = ()) -> None:
        """Launch on the device's current stream. `scalars` take the place of the first integers of the specialisation."""
        if _current_device() != self._index:
            with torch.cuda.device(self._index):
                return self._run(first, *others, states=states, scalars=scalars)
        launch, middle = self._launch or self._prepare()
        stream = _current_stream(self._index)
        given: tuple[int | None, ...] = (*(s.data_ptr() for s in states), *self._none)[: len(self._states)]
        state = self._room_pointers(stream) if self._shares else given
        pointers = [None if o is None else o.data_ptr() for o in others]
        rest = (*scalars, *self._rest[len(scalars) :]) if scalars else self._rest
        launch(self.spec.programs, 1, 1, stream, *middle, first.data_ptr() - self._back, *pointers, *state, *rest)
        return None

    def bind(self, shape: tuple[int, ...], dtype: torch.dtype) -> Callable[..., Tensor]:
        """`call(first, second, [third,] out)`, where all but the first may be None: `run` with all that can be known beforehand looked
        up.
        """
        device, index, back, programs = self.device, self._index, self._back, self.spec.programs
        strides = contiguous_strides(shape)
        if targets.interpreting():

            def interpret(*operands: Tensor | None) -> Tensor:
                out = operands[-1] if operands[-1] is not None else torch.empty_strided(shape, strides, dtype=dtype, device=device)
                self.run(*operands[:-1], out)
                return out

            return interpret
        launch, middle = self._launch or self._prepare()
        shares, states, rest, tail = self._shares, self._room_pointers, self._rest, (*self._none, *self._rest)

        def call(first: Tensor, second: Tensor | None, out: Tensor | None) -> Tensor:
            if _current_device() != index:
                with torch.cuda.device(index):
                    return call(first, second, out)
            if out is None:
                out = new_output(shape, strides, dtype, device)
            stream = _current_stream(index)
            after = (*states(stream), *rest) if shares else tail
            other = None if second is None else second.data_ptr()
            launch(programs, 1, 1, stream, *middle, first.data_ptr() - back, other, out.data_ptr(), *after)
            return out

        def call_of_four(first: Tensor, second: Tensor, third: Tensor | None, out: Tensor | None) -> Tensor:
            if _current_device() != index:
                with torch.cuda.device(index):
                    return call_of_four(first, second, third, out)
            if out is None:
                out = new_output(shape, strides, dtype, device)
            stream = _current_stream(index)
            after = (*states(stream), *rest) if shares else tail
            other = None if third is None else third.data_ptr()
            launch(programs, 1, 1, stream, *middle, first.data_ptr() - back, second.data_ptr(), other, out.data_ptr(), *after)
            return out

        return call_of_four if self._operands == 4 else call

    def bind_states(self, states: tuple[Tensor, ...]) -> Callable[..., None]:
        """`call(first, second, *position)`: update these states, with all that can be known beforehand looked up.

        Where launches may overlap (see capture.py), an update waits at its start for all before it, unless it follows another directly.
        """
        if targets.interpreting():
            return lambda first, second, *position: self.run(first, second, None, states=states, scalars=(0, *position))
        launch, middle = self._launch or self._prepare()
        index, back, programs = self._index, self._back, self.spec.programs
        head = (None, *(s.data_ptr() for s in states), *self._none)[: len(self._states) + 1]
        rest, apart, following = self._rest, (*head, 0, *self._rest[1:]), (*head, 1, *self._rest[1:])
        overlaps = self.target.overlaps and len(middle) == len(_MIDDLE)
        early = tuple(True if name == "launch_pdl" else value for name, value in zip(_MIDDLE, middle, strict=overlaps))

        def call(first: Tensor, second: Tensor | None, *position: int) -> None:
            if _current_device() != index:
                with torch.cuda.device(index):
                    return call(first, second, *position)
            stream = _current_stream(index)
            captured = overlaps and _capturing()
            goes_on = captured and capture.goes_on(stream)
            after = following if goes_on else apart
            if position:
                after = (*head, int(goes_on), *position, *rest[2:])
            how = early if overlaps and goes_on == captured else middle
            other = None if second is None else second.data_ptr()
            launch(programs, 1, 1, stream, *how, first.data_ptr() - back, other, *after)
            if captured:
                capture.launched(stream)
            return None

        return call

    def compile(self) -> Any:
        """The compiled kernel, not loaded yet: threads may compile side by side."""
        spec = self.spec
        return compiled((spec.fn, spec.signature, spec.constexprs, spec.divisible, spec.warps), self.target, self._index)

    def _prepare(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        kernel = self.compile()
        with torch.cuda.device(self._index):  # where the binary is loaded
            self._launch = _launcher(kernel)
        return self._launch

    def _room_pointers(self, stream: int) -> tuple[int, ...]:
        tickets, room = self._room(stream)
        start, step = room.data_ptr(), self._slots * _SLOT_BYTES
        return (*(start, start + step, start + 2 * step)[: len(self._states) - 1], tickets.data_ptr())

    def _room(self, stream: int) -> tuple[Tensor, Tensor]:
        return _workspace(self.device, stream, self.spec.output_tiles, self._slots * self.spec.op.arity)

    def _interpret(self, *operands: Tensor | None, states: tuple[Tensor, ...] = (), scalars: tuple[int, ...] = ()) -> None:
        spec = self.spec
        given: dict[str, Any] = dict(zip(self._states, states, strict=False))
        if self._shares:
            tickets, room = self._room(0)
            kinds = [kind[1:] for name, kind in spec.signature if name in STATES[:3] and kind != "constexpr"]
            views = [room[n * self._slots :].view(dtypes.named(kind).torch) for n, kind in enumerate(kinds)]
            given = dict(zip(STATES, views, strict=False)) | {"ticket_ptr": tickets}
        rest = (*scalars, *self._rest[len(scalars) :])
        try:
            interpret(spec, self._shift, operands, [*(given.get(n) for n in self._states), *rest])
        except BaseException:
            _WORKSPACES.clear()  # some programs may have arrived, others never will
            raise
