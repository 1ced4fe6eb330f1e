"""Tiles: how many cover a problem, how many additions follow one another in them, how many programs share an output. No choice is made
here.

A tile is [XBLOCK outputs, R1_BLOCK x R0_BLOCK reduced lanes]; `split` programs share an output tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .problem import Problem
from .targets import Target

FOLD_BYTES = 32  # of states that a thread holds in the last fold
FOLD_LANES, FOLD_STEPS, MOST_FOLD_LANES = (
    512,
    16,
    4096,
)  # of a program of a kernel that only folds: short of programs, unless slots are many
SEGMENT = 96  # bytes of a row of a slanted tile: what it shares with its neighbours is little beside that
FOLD_GROUP = 32  # tiles of partials that it adds up one after another before it adds up those sums
TOGETHER, MOST_STRAIGHT = 4, 16  # tiles that kernels read before they combine any; that a program reads without a loop, if `ahead` says so
Coordinates = tuple[int, ...]


def pow2_ceil(n: float) -> int:
    """The smallest power of two >= n."""
    return 1 << max(0, math.ceil(math.log2(n))) if n > 1 else 1


def pow2_floor(n: float) -> int:
    """The largest power of two <= n."""
    return 1 << math.floor(math.log2(n)) if n > 1 else 1


@dataclass(frozen=True)
class Tile:
    """One candidate. x: outputs a program computes. r0, r1: lanes along the inner and the outer reduced axes.

    split: programs that share an output.
    """

    regime: str
    x: int
    r0: int
    r1: int = 1
    split: int = 1
    warps: int = 4
    ahead: int = 1  # iterations of the loop over tiles whose loads may be in flight together; no loop is left of so many
    unroll: int = 0  # tiles, where the whole reduced axis is walked without a loop; 0: a loop
    plain: bool = False  # masks and loads element by element: bits then do not depend on where a tensor lies in memory
    abreast: int = 0  # rows of columns that are read as one, folded by a launch of its own; 0: as they are
    programs: int = 0  # of a persistent launch, each walking tiles of outputs; 0: one program a tile

    @property
    def lanes(self) -> int:
        """Elements of one tile."""
        return self.x * self.r0 * self.r1


def row_overhang(problem: Problem) -> int:
    """Lanes that a row may need before its first element, so that it is read in whole vectors."""
    return 0 if problem.aligned_rows or problem.layout != "rows" else problem.vector - 1


def seen(problem: Problem, tile: Tile) -> Problem:
    """The problem that a tile covers: rows that it reads as one are one."""
    return problem.as_one(tile.abreast) if tile.abreast else problem


def slanted(problem: Problem, tile: Tile) -> int:
    """Rows after which columns start alike, where a tile reads each row from the vector that its outputs start in; else 0."""
    period, outputs = problem.slanted, slanted_outputs(problem, tile)
    if not period or tile.r0 % period or tile.plain or tile.programs:
        return 0
    return period if outputs * problem.dtype.itemsize >= SEGMENT or outputs >= problem.kept[-1].size else 0


def slanted_outputs(problem: Problem, tile: Tile) -> int:
    """Outputs of a slanted tile: one vector of lanes is left for where each row starts, unless all start alike."""
    return tile.x - problem.vector if problem.slanted > 1 else tile.x


def output_tiles(problem: Problem, tile: Tile) -> int:
    """Tiles that cover the outputs once, at least one."""
    problem = seen(problem, tile)
    if not slanted(problem, tile):
        return max(-(-problem.xnumel // tile.x), 1)
    inner = problem.kept[-1].size
    lanes = inner + problem.vector - 1 if problem.slanted == 1 else inner  # rows that start alike start within the first tile
    return problem.xnumel // max(inner, 1) * -(-lanes // slanted_outputs(problem, tile))


def tiles_of(problem: Problem, tile: Tile) -> tuple[int, int]:
    """(tiles along the inner reduced axis that a program may walk, tiles along all) that cover the reduced axes once."""
    problem = seen(problem, tile)
    inner = problem.reduced[-1].size
    if problem.rnumel == 0:
        return 1, 0
    overhang = 0 if tile.plain or tile.unroll else row_overhang(problem)
    inner_tiles = -(-(inner + overhang) // tile.r0)
    return inner_tiles, inner_tiles * -(-(problem.rnumel // inner) // tile.r1)


def straight(problem: Problem, tile: Tile) -> int:
    """Tiles that a program reads without a loop: few, or no more than shall be in flight together. 0: it has a loop."""
    if tile.unroll or tile.programs:
        return tile.unroll
    _, tiles = tiles_of(problem, tile)
    chunk, most = -(-tiles // tile.split), min(max(tile.ahead, TOGETHER), MOST_STRAIGHT)
    return chunk if chunk <= most and (len(problem.reduced) == 1 or chunk * tile.split == tiles) else 0


def coordinates(problem: Problem, tile: Tile) -> Coordinates:
    """What a tile is to the compiler: (x, r0, r1, split, warps, ahead, unroll), and `abreast` if it is. ahead: 0 where no loop is left in
    any case, MOST_STRAIGHT where none is because of it.
    """
    count, abreast = straight(problem, tile), (tile.abreast,) if tile.abreast else ()
    ahead = min(tile.ahead, TOGETHER) if not count else 0 if tile.unroll or count <= TOGETHER else MOST_STRAIGHT
    return tile.x, tile.r0, tile.r1, tile.split, tile.warps, ahead, tile.unroll, *abreast


def depth_limit(problem: Problem) -> int:
    """Additions one after another that keep a float sum within 4 eps log2(R) sum|x|: half an ulp each, at worst all in one direction."""
    return max(16, int(8 * math.log2(max(problem.rnumel, 4))))


def depth_of(problem: Problem, tile: Tile) -> int:
    """Additions one after another on the way of a value: in its lane, across lanes, over the partials of programs that share outputs."""
    _, tiles = tiles_of(problem, tile)
    depth = max(0, -(-tiles // tile.split) - 1) + (tile.r0 * tile.r1).bit_length() - 1
    slots = tile.split * max(tile.abreast, 1)
    if slots > 1:
        block = fold_tile(slots, problem.arity).r0 if tile.abreast else fold_block(tile, 8 * problem.arity)
        steps = -(-slots // block)
        depth += min(steps, FOLD_GROUP) + -(-steps // FOLD_GROUP) - 2 + block.bit_length() - 1
    return depth


def fold_block(tile: Tile, state_bytes: int) -> int:
    """Partials of an output in one tile of the last fold: few, as the rare path must not cost every program registers."""
    return min(pow2_ceil(tile.split), pow2_floor(FOLD_BYTES * 32 * tile.warps / (tile.x * state_bytes)))


def fold_tile(slots: int, arity: int) -> Tile:
    """[outputs, slots] of a kernel that only folds. It depends on the slots and the state alone: so do the bits of a fold."""
    most = max(FOLD_LANES, min(pow2_floor(slots / FOLD_STEPS), MOST_FOLD_LANES >> (arity - 1)))
    lanes = min(pow2_ceil(slots), most)
    return Tile("combine", max(1, min(FOLD_LANES // lanes, 256)), lanes, plain=True)


def share(problem: Problem, target: Target, tile: Tile, wanted: int) -> Tile:
    """The tile shared by about `wanted` programs, none of them idle: by more, or with more lanes, where additions would follow too long."""
    found = _split_into(problem, target, tile, wanted)
    while depth_of(problem, found) > depth_limit(problem):
        more = _split_into(problem, target, tile, 2 * found.split)
        if depth_of(problem, more) >= depth_of(problem, found):
            longer = replace(tile, r0=2 * tile.r0)
            fits = longer.lanes <= target.max_tile and tile.r0 < problem.reduced[-1].size
            return share(problem, target, longer, wanted) if fits else found
        found = more
    return found


def _split_into(problem: Problem, target: Target, tile: Tile, wanted: int) -> Tile:
    _, tiles = tiles_of(problem, tile)
    split = max(1, min(wanted, tiles, target.max_programs // output_tiles(problem, tile)))
    return replace(tile, split=-(-tiles // -(-tiles // split)) if tiles else 1)


def fit_grid(problem: Problem, target: Target, tile: Tile) -> Tile:
    """More outputs a program where the grid would pass the device's limit, of shorter tiles where they are as large as may be."""
    while output_tiles(problem, tile) * tile.split > target.max_programs:
        r0 = tile.r0 if tile.lanes < target.max_tile else tile.r0 // 2
        if not r0 or (tile.unroll and r0 < tile.r0):
            break
        tile = replace(tile, x=tile.x * 2, r0=r0)
    return tile
