"""Where the values of a kernel flow, read off its TTIR. `Flow` walks it as it runs: calls are followed, loops are told apart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .ttir import NAME, VALUE, Frame, Op, captured, frames, parse, symbol

_WRITES = re.compile(r"^tt\..*(store|atomic|descriptor_(reduce|scatter))")
_VARIES = re.compile(r"load|atomic|gather|inline_asm|extern_elementwise")  # may give something else when run again


@dataclass(frozen=True)
class Place:
    """Where an operation stands: a prefix that makes its values unique, the loops around it, what decides whether it runs, who called."""

    scope: str = ""
    loops: tuple[int, ...] = ()
    control: tuple[str, ...] = ()
    calls: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class Reduction:
    """One `tt.reduce` as reached from the kernel: the loops around it, outermost first, and its line's frames, innermost first."""

    op: Op
    results: tuple[str, ...]
    loops: tuple[int, ...]
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Write:
    """One store or atomic: `node` is reached by whatever decides what is written, `address` by what decides where."""

    node: str
    address: str
    loops: tuple[int, ...]
    frames: tuple[Frame, ...]


class Flow:
    """Forward data flow of a kernel. `reductions` and `writes` are as the kernel reaches them, a noinline function once for every call."""

    def __init__(self, text: str) -> None:
        self.functions, self.locations = parse(text)
        self.reductions: list[Reduction] = []
        self.writes: list[Write] = []
        self.loop_frames: list[tuple[Frame, ...]] = []
        self._edges: dict[str, set[str]] = defaultdict(set)
        self._changing: list[set[str]] = []  # by loop: values that may differ from one iteration to the next
        self._labels: dict[str, list[str]] = {}
        self._calls = 0
        self._function(next(f for f in self.functions.values() if " public " in f.text), Place(), [])

    def reached(self, values: Iterable[str]) -> set[str]:
        """Everything that depends on some of the values."""
        seen = set(values)
        todo = list(seen)
        while todo:
            after = self._edges[todo.pop()] - seen
            seen |= after
            todo += after
        return seen

    def advances(self, loop: int, write: Write) -> bool:
        """The write is in the loop, and each iteration may write somewhere else."""
        return loop in write.loops and write.address in self.reached(self._changing[loop])

    def frames(self, op: Op) -> tuple[Frame, ...]:
        """Source lines of an operation, innermost first."""
        return frames(op.loc, self.locations)

    def _link(self, sources: Iterable[str], *targets: str) -> None:
        for source in sources:
            self._edges[source].update(targets)

    def _function(self, function: Op, place: Place, results: list[str]) -> None:
        self._labels |= {place.scope + label: [place.scope + a for a in args] for (label, _), args in function.blocks.items()}
        self._walk(function.regions[0], place, [[r] for r in results])

    def _walk(self, ops: list[Op], place: Place, results: list[list[str]]) -> None:
        """Visit the operations of a region. `results[i]`: the values that operand i of its yield or return becomes."""
        for op in ops:
            operands = [place.scope + o for o in op.operands]
            own = [place.scope + r for r in op.results]
            if op.name in ("scf.yield", "tt.return"):
                for value, targets in zip(operands, results, strict=False):
                    self._link((value, *place.control), *targets)
            elif op.name == "scf.for":
                self._for(op, operands, own, place)
            elif op.name == "scf.while":
                self._while(op, own, place)
            elif op.name == "scf.if":
                self._link(operands, *own)
                for region in op.regions:
                    self._walk(region, replace(place, control=(*place.control, *operands)), [[r] for r in own])
            elif op.name == "tt.call":
                self._calls += 1
                callee, scope = self.functions[symbol(op)], f"call {self._calls} "
                for value, arg in zip(operands, callee.parameters, strict=True):
                    self._link([value], scope + arg)
                self._function(callee, replace(place, scope=scope, calls=self.frames(op) + place.calls), own)
            elif op.name.startswith("cf."):  # an early return
                for label, values in re.findall(r"(\^\w+)\(([^:)]*)", op.text):
                    for value, arg in zip(re.findall(VALUE, values), self._labels[place.scope + label], strict=True):
                        self._link([place.scope + value], arg)
                if op.name == "cf.cond_br":
                    place = replace(place, control=(*place.control, operands[0]))
            else:
                self._compute(op, operands, own, place)

    def _compute(self, op: Op, operands: list[str], results: list[str], place: Place) -> None:
        where = self.frames(op) + place.calls
        self._link((*operands, *(place.scope + o for o in captured(op))), *results)
        if op.name == "tt.reduce":
            self.reductions.append(Reduction(op, tuple(results), place.loops, where))
        if _WRITES.match(op.name):
            write = Write(f"write {len(self.writes)}", f"address {len(self.writes)}", place.loops, where)
            self.writes.append(write)
            self._link((*operands, *place.control), write.node)
            self._link(operands[:-1] if "descriptor" in op.name else operands[:1], write.address)
        if _VARIES.search(op.name):
            for loop in place.loops:
                self._changing[loop].update(results)

    def _for(self, op: Op, operands: list[str], results: list[str], place: Place) -> None:
        (induction, *args), (_, *inits) = self._pairs(op, place)
        bounds = operands[1:4]
        self._link(bounds, induction, *results)
        for init, arg, result in zip(inits, args, results, strict=True):
            self._link([init], arg, result)
        inside = self._enter(op, {induction, *args}, place)
        carried = [list(pair) for pair in zip(args, results, strict=True)]
        self._walk(op.regions[0], replace(inside, control=(*place.control, *bounds)), carried)

    def _while(self, op: Op, results: list[str], place: Place) -> None:
        args, inits = self._pairs(op, place)
        body = [place.scope + a for a in op.blocks.get(("^bb0", 1), [])]
        before, after = op.regions
        test = next(o for o in before if o.name == "scf.condition")
        condition, *values = [place.scope + o for o in test.operands]
        self._link([condition], *results)
        for init, arg in zip(inits, args, strict=True):
            self._link([init], arg)
        for value, arg, result in zip(values, body, results, strict=True):
            self._link([value], arg, result)
        inside = self._enter(op, {*args, *body}, place)
        self._walk([o for o in before if o is not test], inside, [])
        self._walk(after, replace(inside, control=(*place.control, condition)), [[a] for a in args])

    def _pairs(self, op: Op, place: Place) -> tuple[list[str], list[str]]:
        """What the loop calls its arguments, and what they start as."""
        pairs = re.findall(rf"({NAME}) = ({VALUE})", op.text)
        return [place.scope + a for a, _ in pairs], [place.scope + b for _, b in pairs]

    def _enter(self, op: Op, changing: set[str], place: Place) -> Place:
        self._changing.append(changing)
        self.loop_frames.append(self.frames(op) + place.calls)
        return replace(place, loops=(*place.loops, len(self._changing) - 1))
