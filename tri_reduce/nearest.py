"""The fastest tiles of the nearest problem that was timed on a device: what a rule or an estimate would guess is known there.

A table is data beside this module, made from a sweep by `benchmarks/nearest_table.py`. A problem is near another if kernels do the same for
both, and their sizes agree within a factor of two.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .geometry import (
    MOST_STRAIGHT,
    TOGETHER,
    Coordinates,
    Tile,
    coordinates,
    fit_grid,
    pow2_ceil,
    pow2_floor,
    row_overhang,
    seen,
    share,
    tiles_of,
)
from .problem import LINE_BYTES, Problem, describe
from .targets import Target

NEAR = 1  # doublings, in any of the sizes
LONGEST = 16384  # lanes of a row in a tile: longer rows are all walked in pieces
KEPT = 3  # tiles of a problem: the first choice, and what tuning tries


class Timed(NamedTuple):
    """A problem of a table, and microseconds of its fastest tiles, fastest first."""

    key: str
    problem: Problem
    us: dict[Coordinates, float]


def kind(problem: Problem) -> tuple[Any, ...]:
    """What two problems must agree in: the work on a value, the layout, how values lie beside vectors, whether rows are best read as one,
    whether a tile holds a row, whether rows of columns share lines of memory, and how many do.
    """
    work = problem.op if problem.op == "gemv" or problem.arity > 1 else "one state"
    inner, side = problem.reduced[-1].size + row_overhang(problem), problem.kept[-1].size * problem.dtype.itemsize
    return (
        work,
        problem.layout,
        problem.dtype.itemsize,
        problem.row_alignment if problem.layout == "rows" else problem.column_vector,
        problem.slanted,
        problem.uneven,
        len(problem.kept),
        len(problem.reduced),
        min(pow2_ceil(inner), LONGEST) if problem.layout == "rows" else pow2_ceil(min(side, LINE_BYTES)),
    )


def place(problem: Problem) -> tuple[float, ...]:
    """Where a problem lies among those of its kind: logarithms to base 2 of its sizes."""
    sizes = (problem.xnumel, problem.rnumel, problem.kept[-1].size, problem.reduced[-1].size)
    return tuple(math.log2(max(n, 1)) for n in sizes)


@functools.cache
def table(name: str) -> dict[tuple[Any, ...], list[tuple[tuple[float, ...], Timed]]]:
    """The problems of a table, by their kind, with their places."""
    found: dict[tuple[Any, ...], list[tuple[tuple[float, ...], Timed]]] = {}
    rows = json.loads((Path(__file__).parent / f"nearest_{name}.json").read_text())
    for key, (*facts, tiles) in rows.items():
        problem = describe(*facts)
        timed = Timed(key, problem, {tuple(at): us for *at, us in tiles})
        found.setdefault(kind(problem), []).append((place(problem), timed))
    return found


def neighbour(problem: Problem, target: Target, apart: frozenset[str] = frozenset()) -> Timed | None:
    """The timed problem of its kind that is nearest, itself if it was timed. apart: keys of problems not to look at."""
    if not target.timed or problem.masked or not problem.nbytes:
        return None
    here, same = place(problem), (problem.op, problem.dtype)
    others = [
        (max(abs(a - b) for a, b in zip(here, there)), (timed.problem.op, timed.problem.dtype) != same, timed.key, timed)
        for there, timed in table(target.timed).get(kind(problem), ())
        if timed.key not in apart
    ]
    distance, *_, timed = min(others, default=(math.inf, None))
    return timed if distance <= NEAR else None


def nearest(problem: Problem, target: Target, apart: frozenset[str] = frozenset()) -> dict[Tile, float]:
    """Tiles for a problem, likeliest first, and the microseconds each took for the neighbour; none where there is no neighbour."""
    timed = neighbour(problem, target, apart)
    if timed is None:
        return {}
    found: dict[Tile, float] = {}
    for at, us in timed.us.items():
        tile = adapted(problem, target, timed.problem, at)
        if tile is not None:
            found.setdefault(tile, us)
    return found


def source(problem: Problem, target: Target, tile: Tile) -> Timed | None:
    """The timed problem that this tile was taken over from."""
    return neighbour(problem, target) if tile in nearest(problem, target) else None


def adapted(problem: Problem, target: Target, timed: Problem, at: Coordinates) -> Tile | None:
    """The tile with these coordinates for another problem, where outputs are shared by so many that programs are as many as before, and
    none reads more tiles if it had no loop.

    None: the device holds no such tile, a thread cannot hold rows of this length in such pieces, so many rows are not read as one here, or
    columns end within a tile where they did not.
    """
    x, r0, r1, split, warps, ahead, unroll, abreast = (*at, 0)[:8]
    if x * r0 * r1 > target.max_tile or (abreast and not (target.apart and abreast in problem.abreast)):
        return None
    if unroll:
        fits = r0 * unroll == problem.rnumel and problem.row_alignment % math.gcd(r0, problem.vector) == 0
        return Tile("thread", x, r0, warps=warps, unroll=unroll) if fits else None
    tile = Tile(problem.layout, x, r0, r1, warps=warps, ahead=max(1, ahead), abreast=abreast)
    if problem.layout == "columns" and not ends(timed, tile) and ends(problem, tile):
        return None
    chunk = -(-tiles_of(timed, tile)[1] // split)  # of a program, all in flight if it had no loop
    if not ahead:
        tile = replace(tile, ahead=min(TOGETHER, pow2_floor(chunk)))
    wanted = max(1, round(split * timed.xnumel / problem.xnumel)) if split > 1 else 1
    if split > 1 and ahead in (0, MOST_STRAIGHT):
        wanted = max(wanted, -(-tiles_of(problem, tile)[1] // chunk))
    found = fit_grid(problem, target, share(problem, target, tile, wanted))
    return evenly(problem, found) if split > 1 and ahead in (0, MOST_STRAIGHT) and len(problem.reduced) > 1 else found


def evenly(problem: Problem, tile: Tile) -> Tile:
    """Shared by as many programs as read the same number of tiles each: over several axes there is a loop otherwise."""
    _, tiles = tiles_of(problem, tile)
    chunk = -(-tiles // tile.split)
    while tiles % chunk:
        chunk -= 1
    return replace(tile, split=tiles // chunk)


def ends(problem: Problem, tile: Tile) -> bool:
    """Some tile of the innermost reduced axis is not full."""
    return seen(problem, tile).reduced[-1].size % tile.r0 > 0


def itself(problem: Problem, target: Target, at: Coordinates) -> bool:
    """A tile of this very problem that `nearest` gives back as it is."""
    tile = adapted(problem, target, problem, at)
    return tile is not None and coordinates(problem, tile) == at


__all__ = ["KEPT", "NEAR", "Timed", "itself", "nearest", "neighbour", "source", "table"]
