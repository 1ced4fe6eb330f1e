"""How a kernel walks its operands: the one constant by which kernels know a problem's layout and a tile, sizes aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .geometry import TOGETHER, Tile, seen, slanted, straight, tiles_of
from .kernels.compat import Constant
from .problem import Axis, Problem


@dataclass(frozen=True, eq=False)
class Walk(Constant):
    """Read by the kernel as `HOW`.

    kept, reduced: axes, 3 for more (then deep_* list all but the innermost). wide: 64-bit offsets. vec: elements of a row read at once.
    head: rows do not start on a vector. column_vec: contiguous outputs read at once. slanted: columns do not start on a vector; each row
    of a tile is read from the one it starts in, and every so many-eth starts alike (0: element by element, or aligned). abreast: rows of
    columns that are read as one, which is folded elsewhere (0: as they are). tail: some outputs have a contribution more than the others.
    full_x, full_r: tiles end where the axes do, nothing is masked. whole: else, of tiles without a loop, a bit for each of which nothing
    is masked either. peel: of a loop's tiles only the first and the last are masked. slot_fast: neighbouring programs share an output,
    else they have neighbouring outputs. tiles: walked without a loop, 0 for a loop. ahead: iterations in flight, TOGETHER at most. precast:
    what values become first. masked: there is a where. seed: "state", "lift" or None. accumulate: the old output is a contribution. truth:
    the result is a bool. scaled, adds: gemv's alpha is not 1, beta not 0. vector_2d: gemv's vector is read in the matrix's layout. early:
    the next launch may begin before this one ends (see capture.py). brief: 1 where all partial states of an output are folded at once, 2
    where there is one tile of outputs, too.
    """

    kept: int
    reduced: int
    deep_kept: tuple[tuple[int, ...], ...]
    deep_reduced: tuple[tuple[int, ...], ...]
    wide: bool
    vec: int
    head: bool
    column_vec: int
    slanted: int
    tail: bool
    abreast: int
    full_x: bool
    full_r: bool
    whole: int
    peel: bool
    slot_fast: bool
    tiles: int
    ahead: int
    precast: Any = None
    masked: bool = False
    seed: str | None = None
    accumulate: bool = False
    truth: bool = False
    scaled: bool = False
    adds: bool = False
    vector_2d: bool = False
    early: bool = False
    brief: int = 0
    kinds: tuple[Any, ...] = ()
    truths: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        assert 1 <= self.ahead <= TOGETHER, "a kernel would step over tiles that it does not read"


def walk_of(problem: Problem, tile: Tile, **more: Any) -> Walk:
    """The walk of a tile through a problem; `more` is what the two kernels differ in."""
    inner_tiles, tiles = tiles_of(problem, tile)
    count, ahead = straight(problem, tile), min(tile.ahead, TOGETHER)
    problem = seen(problem, tile)
    period = slanted(problem, tile)
    single = len(problem.reduced) == 1
    vector = problem.vector if problem.layout == "rows" and not tile.plain and tile.r0 >= problem.vector else 1
    if tile.unroll and problem.layout == "rows":
        vector = tile.r0
    full_r = _covers(problem, tile, tiles, count * tile.split if count else tiles)
    head = vector > 1 and not tile.unroll and not problem.aligned_rows
    line = tile.r1 == 1 and not tile.unroll  # tiles follow one another along the rows
    ends = (problem.busy or tile.abreast > 0 or (head and problem.singly)) and line and not full_r  # are masked alone
    row = -(-tiles // tile.split) if single else inner_tiles
    return Walk(
        kept=min(len(problem.kept), 3),
        reduced=min(len(problem.reduced), 3),
        deep_kept=deep(problem.kept),
        deep_reduced=deep(problem.reduced),
        wide=problem.wide,
        vec=vector,
        head=head,
        slanted=period,
        column_vec=problem.vector if period else 1 if tile.plain else problem.column_vector,
        full_x=not period and problem.xnumel % tile.x == 0,
        full_r=full_r,
        whole=_whole(problem, tile, count, head) if ends and single else 0,
        peel=ends and not count and row > 2 * ahead,
        tail=problem.tail > 0,
        abreast=tile.abreast,
        slot_fast=problem.layout != "columns",
        tiles=count,
        ahead=ahead,
        **more,
    )


def deep(axes: tuple[Axis, ...]) -> tuple[tuple[int, ...], ...]:
    """The axes that have no run-time strides: all but the innermost, innermost first, where there are more than two."""
    return tuple((a.size, *a.strides) for a in reversed(axes[:-1])) if len(axes) > 2 else ()


def _whole(problem: Problem, tile: Tile, count: int, head: bool) -> int:
    """A bit for each of `count` tiles that are read without a loop by all programs alike, set where the tile lies within the rows."""
    inner = problem.reduced[-1].size - (problem.tail > 0)
    return sum(1 << n for n in range(count) if tile.split == 1 and (n + 1) * tile.r0 <= inner and not (head and n == 0))


def _covers(problem: Problem, tile: Tile, tiles: int, walked: int) -> bool:
    """Every lane of every tile is a contribution: nothing is masked along the reduced axes."""
    inner = problem.reduced[-1].size
    outer = problem.rnumel // max(inner, 1)
    ragged = problem.layout == "rows" and not problem.aligned_rows and not tile.plain and not tile.unroll
    return tiles == walked > 0 and not problem.tail and not ragged and inner % tile.r0 == 0 and outer % tile.r1 == 0
