"""The table of docs/performance.md, for programs: what the figure and the selector's prediction are checked against."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
ROW = re.compile(r"\| (\w+) \[([\d, ]+)\](?: over \[([\d, ]+)\])? (\w+) ((?:\| [\d.]+ ){6})\|")


@dataclass(frozen=True)
class Measured:
    """One problem. Times in microseconds, of a cold cache; MiB read and written."""

    op: str
    shape: tuple[int, ...]
    dim: int | tuple[int, ...]
    dtype: str
    mib: float
    floor: float
    us: float
    eager: float
    compiled: float


def problems(page: Path = PAGE) -> list[Measured]:
    """Every problem of the page's table.

    Example:
        >>> problems()[0].shape
        (4096, 4096)
    """
    return [_measured(*row) for row in ROW.findall(page.read_text())]


def _measured(op: str, shape: str, dim: str, dtype: str, numbers: str) -> Measured:
    mib, floor, us, _, over_eager, over_compiled = map(float, numbers.strip("| ").split(" | "))
    return Measured(op, _ints(shape), _ints(dim) if dim else -1, dtype, mib, floor, us, us / over_eager, us / over_compiled)


def _ints(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
