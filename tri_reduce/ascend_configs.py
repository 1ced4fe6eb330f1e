"""Which tiles run a problem where they must fit a buffer on chip (Ascend): the published formula minus what does not compile."""

from __future__ import annotations

from dataclasses import replace

from . import ascend
from .geometry import Tile, pow2_ceil, tiles_of
from .monoids import DeviceOp
from .problem import Problem
from .published import select_candidates
from .targets import Target

MOST_OUTPUTS = 4096  # of one tile
SLOT_OUTPUTS = 256  # ... beside whose states, of more than one value each, those of a slot are read
BURST = 32  # elements: shorter rows are taken to cost as much as these. Not measured, as TILE_COST
ALWAYS = 4096  # elements that every op has room for, a row counted as 16 at least
TILE_COST = 512  # elements: what a tile is taken to cost beside those it moves. Not measured: no hardware was at hand


def candidates(problem: Problem, target: Target, op: DeviceOp | None = None) -> tuple[Tile, ...]:
    """Legal tiles, best guess first, no two the same; `op` where it is not that of the problem's name."""
    op = op or ascend.op_of(problem)
    loads = 2 if problem.op == "gemv" or problem.masked else 1
    formula = select_candidates(max(problem.xnumel, 1), max(problem.rnumel, 1), problem.dtype.name, loads, 1, problem.dtype.itemsize)
    shapes = dict.fromkeys((x, pow2_ceil(r)) for x, r in formula)
    tiles = [Tile(problem.layout, x, r, warps=0, plain=True, programs=target.cores) for x, r in shapes]
    most = SLOT_OUTPUTS if target.tickets and op.arity > 1 else MOST_OUTPUTS
    legal = [t for t in tiles if t.x <= most and fits(op, problem, t)] or [
        replace(tiles[0], x=1, r0=min(pow2_ceil(problem.rnumel), ALWAYS))
    ]
    shared = {share(problem, target, t) for t in legal}
    return tuple(sorted(shared, key=lambda t: (cost(problem, target, t), t.x, t.r0)))


def fits(op: DeviceOp, problem: Problem, tile: Tile) -> bool:
    """The tile compiles: a model of the buffer, without the compiler."""
    if tile.x > MOST_OUTPUTS:
        return False
    if tile.x * max(tile.r0, ascend.ROW_LANES) <= ALWAYS:
        return True
    if op.arity > 2 and problem.layout == "rows" and tile.r0 < ascend.ROW_LANES and ascend.group(problem, tile, op):
        return False  # so many states of two levels leave no room for rows that are mostly padding
    return ascend.padded(problem, tile) <= ascend.room(op, problem, tile)


def share(problem: Problem, target: Target, tile: Tile) -> Tile:
    """The tile shared by as many programs as cores would be idle, where programs may share an output."""
    if not target.tickets:
        return tile
    _, tiles = tiles_of(problem, tile)
    outputs = max(ascend.output_tiles(problem, tile), 1)
    split = max(1, min(target.cores // outputs, tiles))
    return replace(tile, split=-(-tiles // -(-tiles // split)) if tiles else 1)


def cost(problem: Problem, target: Target, tile: Tile) -> int:
    """Elements that the busiest core moves, padding and what short rows waste included."""
    _, tiles = tiles_of(problem, tile)
    rounds = -(-ascend.output_tiles(problem, tile) * tile.split // target.cores)
    moved = max(tile.x, BURST) * tile.r0 if problem.layout == "columns" else tile.x * max(tile.r0, BURST)
    return rounds * -(-tiles // tile.split) * (moved + TILE_COST)
