"""The text of a TTIR module as operations: their nesting, the values they use, and the line of Python that each comes from.

The text is the one form of the IR that every Triton version hands out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Frame = tuple[str, int]  # (file, line)
NAME = r"%[\w.$-]+"
VALUE = rf"{NAME}(?:#\d+)?"
_OP = re.compile(rf'^(?:({NAME}(?::\d+)?(?:, {NAME}(?::\d+)?)*) = )?"?([A-Za-z_][\w.]*)"?(.*)$')


@dataclass(eq=False)
class Op:
    """One operation. `regions` have the operations inside; `blocks[label, region]` the arguments of a labelled block."""

    name: str
    results: list[str]
    operands: list[str]
    text: str
    loc: str = ""
    regions: list[list[Op]] = field(default_factory=list)
    blocks: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    @property
    def parameters(self) -> list[str]:
        """Arguments of a function."""
        return re.findall(rf"({NAME}): ", self.text)


def parse(text: str) -> tuple[dict[str, Op], dict[str, str]]:
    """(functions by name, locations by name) of a TTIR module."""
    functions: dict[str, Op] = {}
    locations: dict[str, str] = {}
    around: list[Op] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("#"):
            name, _, body = line.partition(" = loc(")
            locations[name] = body[:-1]
        elif line.startswith("^") and around:
            label = re.split(r"[:(]", line, maxsplit=1)[0]
            around[-1].blocks[label, len(around[-1].regions) - 1] = re.findall(rf"({NAME}): ", line)
        elif re.match(r"^\}(,| else| do)", line):  # the same operation goes on with another region
            around[-1].regions.append([])
        elif line.startswith("}") and around:
            around.pop().loc = _split_loc(line)[1]
        elif op := _operation(line):
            if op.name == "tt.func":
                functions[symbol(op)] = op
            elif around:
                around[-1].regions[-1].append(op)
            if op.regions and "module" not in op.name:
                around.append(op)
    return functions, locations


def _operation(line: str) -> Op | None:
    opens = line.endswith("{")
    body, loc = (line, "") if opens else _split_loc(line)
    match = _OP.match(body)
    if match is None:
        return None
    names, name, rest = match.groups()
    results: list[str] = []
    for part in filter(None, (names or "").split(", ")):
        value, _, count = part.partition(":")
        results += [f"{value}#{n}" for n in range(int(count))] if count else [value]
    operands = re.findall(VALUE, re.sub(r'"[^"]*"', "", rest))
    return Op(name, results, operands, rest, loc, [[]] if opens else [])


def symbol(op: Op) -> str:
    """The function that a `tt.func` or `tt.call` names."""
    return re.sub(r'^.*?@("[^"]*"|[\w.$-]+).*$', r"\1", op.text)


def _split_loc(line: str) -> tuple[str, str]:
    """(text, location) of a line."""
    at = line.rfind(" loc(")
    return (line, "") if at < 0 else (line[:at], line[at + 5 : -1])


def frames(loc: str, locations: Mapping[str, str]) -> tuple[Frame, ...]:
    """Source lines of a location, innermost first; Triton's own are left out."""
    if loc.startswith("#"):
        return frames(locations.get(loc, ""), locations)
    line = re.match(r'^"([^"]*)":(\d+):\d+', loc)
    if line:
        return () if "/triton/language/" in line[1].replace("\\", "/") else ((line[1], int(line[2])),)
    inner = [frames(part, locations) for part in _inner_locs(loc)]
    return sum(inner, ()) if loc.startswith("callsite") else next(filter(None, inner), ())


def _inner_locs(loc: str) -> Iterator[str]:
    """The locations inside `callsite(a at b)`, `fused[a, b]` or `"name"(a)`."""
    depth, start = 0, 0
    for at, char in enumerate(loc):
        if char in "([":
            depth += 1
            start = at + 1 if depth == 1 else start
        ends = depth == 1 and (char in "),]" or loc.startswith(" at ", at))
        if ends:
            yield loc[start:at].strip()
            start = at + (4 if char == " " else 1)
        depth -= char in ")]"


def captured(op: Op) -> Iterator[str]:
    """What the operations inside an operation use."""
    for region in op.regions:
        for inner in region:
            yield from inner.operands
            yield from captured(inner)
