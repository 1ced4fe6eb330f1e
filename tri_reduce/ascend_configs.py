"""Which tiles run a problem where they must fit a buffer on chip (Ascend): the published formula minus what does not compile."""

from __future__ import annotations

from . import ascend
from .configs import Tile, pow2_ceil, tiles_of
from .problem import Problem
from .published import select_candidates
from .targets import Target

MOST_OUTPUTS = 4096  # of one tile: more fail to compile
TILE_COST = 512  # elements: what a tile costs beside those it moves. Not measured on hardware


def candidates(problem: Problem, target: Target) -> tuple[Tile, ...]:
    """Legal tiles, best guess first, no two the same."""
    tiles = [Tile(problem.layout, x, r, plain=True, programs=target.cores) for x, r in shapes(problem)]
    return tuple(sorted((_shared(problem, target, t) for t in tiles), key=lambda t: (cost(problem, target, t), t.x, t.r0)))


def shapes(problem: Problem) -> list[tuple[int, int]]:
    """(XBLOCK, R0_BLOCK) of the formula, powers of two."""
    loads = 2 if problem.op == "gemv" or problem.masked else 1
    found = select_candidates(max(problem.xnumel, 1), max(problem.rnumel, 1), problem.dtype.name, loads, 1, problem.dtype.itemsize)
    return list(dict.fromkeys((x, pow2_ceil(r)) for x, r in found if x <= MOST_OUTPUTS))


def cost(problem: Problem, target: Target, tile: Tile) -> int:
    """Elements that the busiest core moves, padding included."""
    _, tiles = tiles_of(problem, tile)
    rounds = -(-ascend.output_tiles(problem, tile) * tile.split // target.cores)
    return rounds * -(-tiles // tile.split) * (tile.lanes + TILE_COST)


def _shared(problem: Problem, target: Target, tile: Tile) -> Tile:
    return tile
