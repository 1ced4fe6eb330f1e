"""The tiles that a sweep tries for a problem: the selector's own, a lattice over all that is legal, and the neighbours of the best."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace

from tri_reduce.configs import candidates
from tri_reduce.geometry import (
    MOST_STRAIGHT,
    Coordinates,
    Tile,
    coordinates,
    depth_limit,
    depth_of,
    fit_grid,
    pow2_ceil,
    row_overhang,
    share,
)
from tri_reduce.lattice import holds
from tri_reduce.problem import Problem
from tri_reduce.rules import thread_rows
from tri_reduce.targets import Target

LEAST_LANES, LEAST_COLUMN = 256, 4  # smaller tiles leave most of a warp idle, or most of a memory transaction
THREAD_VALUES = 64  # of the accumulators, in 32-bit registers of a thread: more are spilled
PROGRAMS = (1, 2, 4, 8, 16, 32, 64)  # on a core, where outputs are shared between programs
AHEAD = (1, 2, 4, MOST_STRAIGHT)


def powers(low: int, high: int) -> list[int]:
    """Powers of two from low to high, both included."""
    return [1 << n for n in range(max(low, 1).bit_length() - 1, max(high, 1).bit_length()) if 1 << n >= low]


def tile_at(problem: Problem, at: Coordinates) -> Tile:
    """A tile with these coordinates."""
    x, r0, r1, split, warps, ahead, unroll, abreast = (*at, 0)[:8]
    return Tile("thread" if unroll else problem.layout, x, r0, r1, split, warps, max(1, ahead), unroll, abreast=abreast)


def is_legal(problem: Problem, target: Target, tile: Tile) -> bool:
    """The tile may win: it fits the problem, the device, the registers and the error bound."""
    inner = problem.reduced[-1].size
    outer = problem.rnumel // max(inner, 1)
    warps = max(tile.warps, 1)
    threads = 32 * warps
    values = tile.lanes * max(problem.arity, 1) / threads
    whole = tile.x >= pow2_ceil(problem.xnumel) and tile.r0 >= pow2_ceil(inner) and tile.r1 >= pow2_ceil(outer)
    return (
        1 <= tile.x <= pow2_ceil(problem.xnumel)
        and 1 <= tile.r0 <= pow2_ceil(inner + row_overhang(problem))
        and 1 <= tile.r1 <= pow2_ceil(outer)
        and (tile.r1 == 1 or (problem.op != "gemv" and len(problem.reduced) > 1))
        and tile.lanes <= target.max_tile
        and (whole or tile.lanes >= LEAST_LANES)
        and warps <= 32
        and tile.lanes >= 16 * warps  # half of the lanes would be copies
        and values <= THREAD_VALUES
        and (tile.ahead == 1 or not target.warp or holds(problem, target, tile))
        and -(-problem.xnumel // tile.x) * tile.split <= target.max_programs
        and (tile.split == 1 or target.tickets)
        and depth_of(problem, tile) <= deepest(problem, target)
    )


@functools.lru_cache(maxsize=64)
def deepest(problem: Problem, target: Target) -> int:
    """Additions that may follow one another: what the error bound allows, or what the selector cannot avoid."""
    return max(depth_limit(problem), depth_of(problem, candidates(problem, target)[0]))


def shapes(problem: Problem, target: Target) -> Iterator[tuple[int, int, int]]:
    """(x, r0, r1) of the lattice."""
    inner = problem.reduced[-1].size
    longest = min(pow2_ceil(inner + row_overhang(problem)), target.max_tile)
    outer = pow2_ceil(problem.rnumel // max(inner, 1)) if problem.op != "gemv" and len(problem.reduced) > 1 else 1
    if problem.layout == "columns":
        widest = min(pow2_ceil(problem.xnumel), 512)
        for x in powers(min(LEAST_COLUMN, widest), widest):
            for r0 in powers(1, min(longest, 1024)):
                yield from ((x, r0, r1) for r1 in powers(1, min(outer, 16) if r0 == longest else 1))
        return
    for r0 in powers(min(longest, 256), longest):
        for r1 in powers(1, min(outer, 64) if r0 == longest else 1):
            most = 8 if r0 < longest else max(8, target.max_tile // r0)
            yield from ((x, r0, r1) for x in powers(1, min(pow2_ceil(problem.xnumel), most)))


def shared(problem: Problem, target: Target, tile: Tile, wanted: int) -> Tile:
    """The tile on the device's grid, its outputs shared by about `wanted` programs."""
    tile = replace(tile, split=1)
    return fit_grid(problem, target, share(problem, target, tile, wanted) if target.tickets and not tile.unroll else tile)


def variants(problem: Problem, target: Target, x: int, r0: int, r1: int) -> Iterator[Tile]:
    """One shape with every legal number of warps, programs and loads in flight; the likeliest warps first."""
    outputs = -(-problem.xnumel // x)
    wanted = {1} | {max(1, round(p * target.cores / outputs)) for p in PROGRAMS}
    likely = max(1, min(8, x * r0 * r1 // 256))
    counts = [likely, likely // 2, likely * 2, likely // 4, likely * 4] if target.warp else [0]
    for warps in (w for w in counts if 0 < w <= 16 or not target.warp):
        for ahead in AHEAD if target.warp else (1,):
            for programs in sorted(wanted):
                yield shared(problem, target, Tile(problem.layout, x, r0, r1, warps=warps, ahead=ahead), programs)


def thread_variants(problem: Problem, target: Target) -> Iterator[Tile]:
    """Rows that threads hold, one or two a thread."""
    for tile in thread_rows(problem, target)[:1]:
        for warps in (1, 2, 4, 8):
            for rows in (1, 2):
                yield replace(tile, x=32 * warps * rows, warps=warps)


def lattice(problem: Problem, target: Target, limit: int, seed: str) -> list[Tile]:
    """The selector's candidates in their order, then at most `limit` more: each shape in turn, its variants drawn at random."""
    found: dict[Coordinates, Tile] = {}
    for tile in candidates(problem, target):
        found.setdefault(coordinates(problem, tile), tile)
    most = len(found) + limit
    rng = random.Random(seed)
    piles: list[list[Tile]] = [list(thread_variants(problem, target))]
    for shape in shapes(problem, target):
        pile = [t for t in dict.fromkeys(variants(problem, target, *shape)) if is_legal(problem, target, t)]
        piles.append(rng.sample(pile, len(pile)))
    rng.shuffle(piles)
    while any(piles) and len(found) < most:
        for pile in piles:
            if pile and len(found) < most:
                tile = pile.pop()
                found.setdefault(coordinates(problem, tile), tile)
    return list(found.values())


def neighbours(problem: Problem, target: Target, tile: Tile) -> Iterator[Tile]:
    """The legal tiles one step away in a coordinate, or as large in another shape."""
    changed = [
        replace(tile, x=tile.x * 2),
        replace(tile, x=tile.x // 2),
        replace(tile, warps=tile.warps * 2),
        replace(tile, warps=tile.warps // 2),
    ]
    if not tile.unroll:
        changed += [
            replace(tile, r0=tile.r0 * 2),
            replace(tile, r0=tile.r0 // 2),
            replace(tile, x=tile.x * 2, r0=tile.r0 // 2),
            replace(tile, x=tile.x // 2, r0=tile.r0 * 2),
            replace(tile, r1=tile.r1 * 2),
            replace(tile, r1=tile.r1 // 2),
            *(replace(tile, ahead=n) for n in AHEAD),
        ]
    found = [t for t in changed if min(t.x, t.r0, t.r1) >= 1 and (t.warps >= 1 or not target.warp)]
    found = [t if t.unroll else shared(problem, target, t, t.split) for t in found]
    if not tile.unroll:
        found += [shared(problem, target, tile, max(1, round(tile.split * factor))) for factor in (2, 1 / 2, 3 / 2, 2 / 3)]
    for near in dict.fromkeys(found):
        if near != tile and (near.unroll or is_legal(problem, target, near)):
            yield near
