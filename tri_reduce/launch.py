"""From a plan to the driver: compile once, remember, launch with as little Python as possible.

A `Plan` is a specialised kernel with everything but the pointers. On a GPU it calls the compiled kernel's own launcher; under the
interpreter it calls the jit function. Programs that share outputs meet in a workspace, one for each device and stream: words that are
all ones between launches.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import capture, dtypes, targets
from .interpret import interpret
from .launcher import MIDDLE, Passed, compiled, launcher
from .problem import contiguous_strides
from .specialization import Specialization
from .workspaces import WORKSPACES, workspace

current_device = torch._C._cuda_getDevice if hasattr(torch._C, "_cuda_getDevice") else torch.cuda.current_device
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0)
_capturing: Callable[[], bool] = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
ROOM_BYTES = 8  # of an element of a workspace's room
STATES = ("p0", "p1", "p2", "ticket_ptr")


try:  # what Inductor's code calls: a third of the host time of torch.empty
    from torch._C._dynamo.guards import _empty_strided_cuda as _empty  # type: ignore[attr-defined]
except ImportError:
    _empty = None


def allocator(device: torch.device) -> Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor]:
    """What makes an uninitialised tensor of a shape, strides and dtype; a CUDA device must be the current one."""
    if _empty is not None and device.type == "cuda":
        return _empty  # type: ignore[no-any-return]
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device)


def overlapping(middle: tuple[Any, ...]) -> tuple[Any, ...]:
    """`middle` of a launch that may begin before the one before it has ended; as it is where this Triton's launcher takes no such thing."""
    return tuple(True if name == "launch_pdl" else value for name, value in zip(MIDDLE, middle)) if len(middle) == len(MIDDLE) else middle


class Bound(NamedTuple):
    """A plan's calls for results of one layout.

    `call(first, second, [third,] out)`: all but the first may be None. `again(start, ...)` and `into(out, start, ...)` take the addresses
    of the operands that the kernel reads, and for `into` the output with its address: for tensors that are known to fit. None where there
    is nothing shorter than `call`.
    """

    call: Callable[..., Tensor]
    again: Callable[..., Tensor] | None = None
    into: Callable[..., Tensor] | None = None


class Plan:
    """A kernel ready to run on tensors of one layout.

    Args:
        spec: the specialised kernel.
        device: where its tensors are.
        shift: elements from a 16-byte boundary to the first operand's first element.
    """

    def __init__(self, spec: Specialization, device: torch.device, shift: int, itemsize: int) -> None:
        if spec.tile.programs:  # reads from where a tensor starts
            shift = 0
        self.spec, self.device = spec, device
        self.target = targets.of_device(device.type, device.index or 0)
        self._back = shift * itemsize
        self._shift = shift
        self._index = device.index or 0
        values = dict(spec.values) | dict(spec.constexprs)
        pointers = [n for n in spec.fn.arg_names if n not in values or n.endswith("_ptr") or n in STATES]
        self._states = tuple(n for n in pointers if n in STATES)
        self._rest = tuple(dict(spec.values).get(n) for n in spec.fn.arg_names[len(pointers) :])
        self._shares = dict(spec.constexprs)["SINK"] in ("split", "words", "pair")
        self._none = (None,) * len(self._states)
        widest = max(d.primitive_bitwidth // 8 for d in spec.op.partial.dtypes)
        self._marks = -(-spec.marks // 4) * 4  # what lies behind them starts on 16 bytes, too
        self._room_step = -(-spec.outputs * spec.slots * widest // 16) * (16 // ROOM_BYTES)  # of each state: they start on 16 bytes
        self._operands = len(pointers) - len(self._states)
        kinds = dict(spec.signature)
        self._sparse = self.target.backend == "cuda"  # only what the binary takes is passed
        self._passed = tuple(not self._sparse or kinds[n] != "constexpr" for n in spec.fn.arg_names)
        self._launch: tuple[Callable[..., None], tuple[Any, ...]] | None = None
        self._public = self.target.backend == "npu"
        run = self._run_public if self._public else self._run
        self.run: Callable[..., None] = self._interpret if targets.interpreting() else run

    def _run(self, first: Tensor, *others: Tensor | None, states: tuple[Tensor, ...] = (), scalars: tuple[int, ...] = ()) -> None:
        """Launch on the device's current stream. `scalars` take the place of the first integers of the specialisation."""
        if current_device() != self._index:
            with torch.cuda.device(self._index):
                return self._run(first, *others, states=states, scalars=scalars)
        launch, middle = self._launch or self._prepare()
        stream = current_stream(self._index)
        given: tuple[int | None, ...] = (*(s.data_ptr() for s in states), *self._none)[: len(self._states)]
        state = self._room_pointers(self._room(stream)) if self._shares else given
        pointers = [None if o is None else o.data_ptr() for o in others]
        rest = (*scalars, *self._rest[len(scalars) :]) if scalars else self._rest
        arguments = (first.data_ptr() - self._back, *pointers, *state, *rest)
        launch(self.spec.programs, 1, 1, stream, *middle, *compress(arguments, self._passed))
        return None

    def _run_public(self, first: Tensor, *others: Tensor | None, states: tuple[Tensor, ...] = (), scalars: tuple[int, ...] = ()) -> None:
        """Launch by what every Triton backend has: its own stream, tensors as arguments."""
        spec, given = self.spec, dict(zip(self._states, states, strict=False))
        rest = (*scalars, *self._rest[len(scalars) :])
        named = dict(zip(spec.fn.arg_names, [first, *others, *(given.get(n) for n in self._states), *rest]))
        with targets.current(self.device):
            self.compile()[(spec.programs, 1, 1)](*(named[n] for n, kind in spec.signature if kind != "constexpr"))

    def bind(self, shape: tuple[int, ...], dtype: torch.dtype) -> Bound:
        """The plan's calls, with all that can be known beforehand looked up."""
        device, index, back, programs = self.device, self._index, self._back, self.spec.programs
        strides, empty = contiguous_strides(shape), allocator(device)
        if targets.interpreting() or self._public:

            def plainly(*operands: Tensor | None) -> Tensor:
                out = operands[-1] if operands[-1] is not None else empty(shape, strides, dtype)
                self.run(*operands[:-1], out)
                return out

            return Bound(plainly)
        launch, middle = self._launch or self._prepare()
        several, shares, after = torch.cuda.device_count() > 1, self._shares, self._after()
        tail = () if shares else after(0)
        inputs = [n for n in range(self._operands - 1) if self._passed[n]]

        def again(start: int, *more: int) -> Tensor:
            if several and current_device() != index:
                with torch.cuda.device(index):
                    return again(start, *more)
            out = empty(shape, strides, dtype)
            stream = current_stream(index)
            launch(programs, 1, 1, stream, *middle, start - back, *more, out.data_ptr(), *(after(stream) if shares else tail))
            return out

        def into(out: Tensor, address: int, start: int, *more: int) -> Tensor:
            if several and current_device() != index:
                with torch.cuda.device(index):
                    return into(out, address, start, *more)
            stream = current_stream(index)
            launch(programs, 1, 1, stream, *middle, start - back, *more, address, *(after(stream) if shares else tail))
            return out

        def call(*operands: Tensor | None) -> Tensor:
            starts = [0 if (t := operands[n]) is None else t.data_ptr() for n in inputs]
            out = operands[-1]
            return again(*starts) if out is None else into(out, out.data_ptr(), *starts)

        return Bound(call, again, into) if self._sparse else Bound(call)

    def _after(self) -> Callable[[int], tuple[Any, ...]]:
        """What is passed behind the operands, for a launch on a stream."""
        behind = self._passed[self._operands :]
        if not self._shares:
            alone = tuple(compress((*self._none, *self._rest), behind))
            return lambda stream: alone
        seen: dict[int, tuple[Any, tuple[Any, ...]]] = {}  # by stream, with the workspace, which lives as long: all that it had will do

        def after(stream: int) -> tuple[Any, ...]:
            had, captured = seen.get(stream), _capturing()
            if had is not None and not captured:
                return had[1]
            room = self._room(stream)
            found = tuple(compress((*self._room_pointers(room), *self._rest), behind))
            if not captured:
                seen[stream] = room, found
            return found

        return after

    def bind_states(self, states: tuple[Tensor, ...]) -> Callable[..., None]:
        """`call(first, second, *position)`: update these states, with all that can be known beforehand looked up.

        Where launches may overlap (see capture.py), an update waits at its start for all before it, unless it follows another directly.
        """
        if targets.interpreting() or self._public:
            return lambda first, second, *position: self.run(first, second, None, states=states, scalars=(0, *position))
        launch, middle = self._launch or self._prepare()
        several, index, back, programs = torch.cuda.device_count() > 1, self._index, self._back, self.spec.programs
        reads_second = self._passed[1]
        pointers = (None, *(s.data_ptr() for s in states), *self._none)[: len(self._states) + 1]

        def after(follows: int, *position: int) -> tuple[Any, ...]:
            return tuple(compress((*pointers, follows, *position, *self._rest[1 + len(position) :]), self._passed[2:]))

        apart, following = after(0), after(1)
        overlaps = self.target.overlaps and len(middle) == len(MIDDLE)
        early = overlapping(middle)

        def call(first: Tensor, second: Tensor | None, *position: int) -> None:
            if several and current_device() != index:
                with torch.cuda.device(index):
                    return call(first, second, *position)
            stream = current_stream(index)
            captured = overlaps and _capturing()
            goes_on = captured and capture.goes_on(stream)
            rest = after(int(goes_on), *position) if position else following if goes_on else apart
            how = early if overlaps and goes_on == captured else middle
            if reads_second:
                rest = (None if second is None else second.data_ptr(), *rest)
            launch(programs, 1, 1, stream, *how, first.data_ptr() - back, *rest)
            if captured:
                capture.launched(stream)
            return None

        return call

    def bind_output(self, states: tuple[Tensor, ...]) -> Callable[[Tensor], None]:
        """`call(out)`: fold these states into an output, with all that can be known beforehand looked up."""
        if targets.interpreting() or not self._sparse:
            return lambda out: self.run(out, states=states)
        launch, middle = self._launch or self._prepare()
        several, index, programs = torch.cuda.device_count() > 1, self._index, self.spec.programs
        pointers = (*(s.data_ptr() for s in states), *self._none)[: len(self._states)]
        after = tuple(compress((*pointers, *self._rest), self._passed[1:]))

        def call(out: Tensor) -> None:
            if several and current_device() != index:
                with torch.cuda.device(index):
                    return call(out)
            launch(programs, 1, 1, current_stream(index), *middle, out.data_ptr(), *after)
            return None

        return call

    def compile(self) -> Any:
        """The compiled kernel, not loaded yet: threads may compile side by side."""
        spec = self.spec
        return compiled((spec.fn, spec.signature, spec.constexprs, spec.divisible, spec.warps), self.target, self._index)

    def _prepare(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        kernel = self.compile()
        if self._sparse:
            kernel.src = Passed.of(self.spec.signature)  # what its launcher is made from when it is loaded
        with torch.cuda.device(self._index):  # where the binary is loaded
            self._launch = launcher(kernel)
        return self._launch

    def _room_pointers(self, memory: tuple[Tensor, Tensor]) -> tuple[int, ...]:
        marks, room = memory
        start, step = (marks.data_ptr(), 0) if self._marks else (room.data_ptr(), self._room_step * ROOM_BYTES)
        return (*(start, start + step, start + 2 * step)[: len(self._states) - 1], marks.data_ptr() + 4 * self._marks)

    def _room(self, stream: int) -> tuple[Tensor, Tensor]:
        return workspace(
            self.device, stream, self._marks + self.spec.output_tiles, 0 if self._marks else self._room_step * self.spec.op.arity
        )

    def _interpret(self, *operands: Tensor | None, states: tuple[Tensor, ...] = (), scalars: tuple[int, ...] = ()) -> None:
        spec = self.spec
        given: dict[str, Any] = dict(zip(self._states, states, strict=False))
        if self._shares:
            marks, room = self._room(0)
            kinds = [kind[1:] for name, kind in spec.signature if name in STATES[:3] and kind != "constexpr"]
            memory = marks[: self._marks] if self._marks else room
            views = [memory[n * self._room_step :].view(dtypes.named(kind).torch) for n, kind in enumerate(kinds)]
            given = dict(zip(STATES, views, strict=False)) | {"ticket_ptr": marks[self._marks :]}
        rest = (*scalars, *self._rest[len(scalars) :])
        try:
            interpret(spec, self._shift, operands, [*(given.get(n) for n in self._states), *rest])
        except BaseException:
            WORKSPACES.clear()  # some programs may have arrived, others never will
            raise
