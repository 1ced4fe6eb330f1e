"""Which tile runs a problem on a target: a regime, then candidates, best guess first. Pure Python; nothing here may change a result's
meaning.

A tile is [XBLOCK outputs, R1_BLOCK x R0_BLOCK reduced lanes]; `split` programs share an output tile. Facts behind the constants (one H200,
docs/performance.md): short programs that read 4 to 16 KiB with 16-byte loads reach the memory floor, long loops do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from .inductor_list import inductor_candidates
from .problem import Problem
from .published import select_candidates
from .targets import Target, by_name

TILE_BYTES = 8192  # of a row in one tile: 2 vector loads a thread in flight
SHORT_ROW = 1024  # elements: shorter tiles of a long row do not pay
COLUMN_LANES = 4096  # of a tile of columns, on 8 warps
COLUMN_AHEAD = 4  # tiles of columns whose loads are in flight together: few programs, each with many loads
COLUMN_PROGRAMS = 2  # on a core: columns are walked by few long programs, since every one that shares outputs costs a round trip to memory
SHARE_BELOW = 3  # programs on a core: with fewer, rows are shared between programs ...
ROW_PROGRAMS = 8  # ... until there are this many on a core
THREAD_LOADS = 4  # that a thread makes of its own row; longer rows are laid over lanes
FOLD_BYTES = 32  # of states that a thread holds in the last fold
FOLD_GROUP = 32  # tiles of partials that it adds up one after another before it adds up those sums
SMALL_BYTES = 1 << 15  # of input: less is read by one program sooner than programs can meet
STEP_COST = 0.07  # a tile half as long costs that part more a row, beside the lanes it saves
REGIMES = ("thread", "rows", "columns", "strided")


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
    ahead: int = 1  # iterations of the loop over tiles whose loads may be in flight together
    unroll: int = 0  # tiles, where the whole reduced axis is walked without a loop; 0: a loop
    plain: bool = False  # masks and loads element by element: bits then do not depend on where a tensor lies in memory

    @property
    def lanes(self) -> int:
        """Elements of one tile."""
        return self.x * self.r0 * self.r1


def row_overhang(problem: Problem) -> int:
    """Lanes that a row may need before its first element, so that it is read in whole vectors."""
    return 0 if problem.aligned_rows or problem.layout != "rows" else problem.vector - 1


def tiles_of(problem: Problem, tile: Tile) -> tuple[int, int]:
    """(tiles along the inner reduced axis, tiles along all) that cover the reduced axes once."""
    inner = problem.reduced[-1].size
    if problem.rnumel == 0:
        return 1, 0
    inner_tiles = -(-(inner + (0 if tile.plain or tile.unroll else row_overhang(problem))) // tile.r0)
    return inner_tiles, inner_tiles * -(-(problem.rnumel // inner) // tile.r1)


def depth_limit(problem: Problem) -> int:
    """Additions one after another that keep a float sum within 4 eps log2(R) sum|x|: half an ulp each, at worst all in one direction."""
    return max(16, int(8 * math.log2(max(problem.rnumel, 4))))


def depth_of(problem: Problem, tile: Tile) -> int:
    """Additions one after another on the way of a value: in its lane, across lanes, over the partials of programs that share outputs."""
    _, tiles = tiles_of(problem, tile)
    depth = max(0, -(-tiles // tile.split) - 1) + (tile.r0 * tile.r1).bit_length() - 1
    if tile.split > 1:
        block = fold_block(tile, 8 * problem.arity)
        steps = -(-tile.split // block)
        depth += min(steps, FOLD_GROUP) + -(-steps // FOLD_GROUP) - 2 + block.bit_length() - 1
    return depth


def fold_block(tile: Tile, state_bytes: int) -> int:
    """Partials of an output in one tile of the last fold: few, as the rare path must not cost every program registers."""
    return min(pow2_ceil(tile.split), pow2_floor(FOLD_BYTES * 32 * tile.warps / (tile.x * state_bytes)))


def with_split(problem: Problem, target: Target, tile: Tile) -> Tile:
    """The tile with outputs shared between programs where there are too few outputs, or where a lane's chain of additions is too long."""
    if not target.tickets or tile.unroll:
        return tile
    _, tiles = tiles_of(problem, tile)
    outputs = -(-problem.xnumel // tile.x)
    if problem.nbytes <= SMALL_BYTES:
        wanted = 1
    elif problem.layout == "columns":
        wanted = round(COLUMN_PROGRAMS * target.cores / outputs)
    else:
        wanted = min(-(-ROW_PROGRAMS * target.cores // outputs), -(-tiles // 2)) if outputs < SHARE_BELOW * target.cores else 1
    return share(problem, target, tile, wanted)


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
    outputs = -(-problem.xnumel // tile.x)
    split = max(1, min(wanted, tiles, target.max_programs // outputs))
    return replace(tile, split=-(-tiles // -(-tiles // split)) if tiles else 1)


def thread_rows(problem: Problem, target: Target) -> list[Tile]:
    """Rows that one thread holds, read in the longest pieces that divide and align them: no lane ever talks to another."""
    r = problem.rnumel
    if len(problem.reduced) > 1 or problem.layout == "columns" or r == 0 or not target.warp:
        return []
    step = math.gcd(r, problem.row_alignment)
    if r * problem.dtype.itemsize > 16 and r // step > THREAD_LOADS:
        return []
    x = 128 if problem.xnumel >= 128 else pow2_ceil(problem.xnumel)
    return [Tile("thread", x * w // 4, step, warps=w, unroll=r // step) for w in (4, 8)]


def regime(problem: Problem, target: Target) -> str:
    """The regime's name: "thread", "rows", "columns" or "strided"."""
    return "thread" if thread_rows(problem, target) else problem.layout


def row_block(length: int, lanes: int) -> int:
    """Lanes along a row of `length`: as many as `lanes`, unless shorter tiles leave clearly fewer idle at the row's end."""
    longest = min(pow2_ceil(length), lanes)
    blocks = [longest] + [b for b in (longest // 2, longest // 4) if b >= SHORT_ROW]
    return min(blocks, key=lambda b: -(-length // b) * b * (1 + STEP_COST * math.log2(longest / b)))


def _columns(problem: Problem, target: Target) -> Tile:
    outputs = pow2_ceil(problem.kept[-1].size if len(problem.kept) > 1 else problem.xnumel)
    many = problem.xnumel >= 64 * COLUMN_PROGRAMS * target.cores
    wide = 32 if problem.column_vector > 1 else 64  # loads of single elements need more neighbours to fill a memory transaction
    x = min(outputs, wide * 2 if many else wide)
    lanes = min(COLUMN_LANES, target.max_tile)
    r0 = min(pow2_ceil(problem.reduced[-1].size), max(1, lanes // x))
    x = min(pow2_ceil(problem.xnumel), max(x, lanes // r0)) if problem.rnumel <= r0 else x
    return Tile("columns", x, r0, _outer_block(problem, lanes // (x * r0)), ahead=COLUMN_AHEAD)


def _outer_block(problem: Problem, lanes: int) -> int:
    outer = problem.rnumel // max(problem.reduced[-1].size, 1)
    return min(pow2_ceil(outer), max(1, lanes), 64)


def _rows(problem: Problem, target: Target) -> Tile:
    lanes = min(target.max_tile, 4096 if problem.arity == 3 else TILE_BYTES // problem.dtype.itemsize)
    inner = problem.reduced[-1].size
    r0 = row_block(inner + row_overhang(problem), lanes)
    if problem.op == "gemv" and 1 < problem.xnumel < SHARE_BELOW * target.cores and problem.rnumel > r0:
        return Tile(problem.layout, 2, r0 // 4, ahead=4)  # rows read together read the vector once
    if problem.rnumel > r0:
        while r0 > SHORT_ROW and problem.xnumel * (problem.rnumel // r0) < ROW_PROGRAMS * target.cores // 2:
            r0, lanes = r0 // 2, lanes // 2  # little to read: more programs rather than more lanes
        return Tile(problem.layout, 1, r0, _outer_block(problem, lanes // r0) if inner <= r0 else 1)
    enough = pow2_floor(problem.xnumel / (2 * target.cores))
    return Tile(problem.layout, max(1, min(lanes // r0, enough)), r0)


def _warps(problem: Problem, target: Target, tile: Tile) -> int:
    """256 elements a warp, 8 warps at most (0: the target has none); few columns are folded over many lanes by more warps, many
    outputs need fewer in each program.
    """
    if not target.warp:
        return 0
    if tile.regime == "columns" and tile.x < 32 and tile.lanes >= COLUMN_LANES:
        return 16
    most = 4 if tile.regime == "columns" and problem.xnumel >= 64 * COLUMN_PROGRAMS * target.cores else 8
    return max(1, min(most, tile.lanes // 256))


def candidates(problem: Problem, target: Target) -> tuple[Tile, ...]:
    """Legal tiles, best guess first, no two the same."""
    base = _columns(problem, target) if problem.layout == "columns" else _rows(problem, target)
    shapes = [base, replace(base, r0=max(1, base.r0 // 2))]
    if base.lanes * 2 <= target.max_tile:
        shapes += [
            replace(base, x=base.x * 2),
            replace(base, r0=min(base.r0 * 2, pow2_ceil(problem.reduced[-1].size + row_overhang(problem)))),
        ]
    found = thread_rows(problem, target)
    for shape in shapes:
        tile = with_split(problem, target, replace(shape, warps=_warps(problem, target, shape)))
        found += [tile, replace(tile, ahead=5 - tile.ahead), replace(tile, warps=min(16, tile.warps * 2))]
        if tile.split > 1:
            found += [share(problem, target, tile, tile.split * 2), share(problem, target, tile, tile.split // 2)]
    if not target.warp:
        found = [replace(t, ahead=1) for t in found]
    deepest = max(depth_limit(problem), depth_of(problem, found[0]))
    return tuple(dict.fromkeys(fit_grid(problem, target, t) for t in found if depth_of(problem, t) <= deepest))


def fit_grid(problem: Problem, target: Target, tile: Tile) -> Tile:
    """More outputs a program where the grid would pass the device's limit."""
    while -(-problem.xnumel // tile.x) * tile.split > target.max_programs and tile.lanes < target.max_tile:
        tile = replace(tile, x=tile.x * 2)
    return tile


def canonical(problem: Problem, target: Target) -> Tile:
    """For determinism="invariant": a tile that depends on the reduced axes and the op alone, not on how many outputs there are or
    where they lie.
    """
    lanes = 1024
    inner, outer = problem.reduced[-1].size, problem.rnumel // max(problem.reduced[-1].size, 1)
    r0 = min(pow2_ceil(inner), lanes)
    r1 = min(pow2_ceil(outer), lanes // r0)
    tile = Tile(problem.layout, max(1, lanes // (r0 * r1)), r0, r1, plain=True)
    _, tiles = tiles_of(problem, tile)
    return replace(tile, split=max(1, -(-tiles // 16)) if target.tickets else 1)


def select_configs(problem: Problem, target: Target | str) -> list[Any]:
    """The `@triton.autotune` list for a problem: `triton.Config`s, best guess first (the first is what policy "heuristic" runs).

    kwargs: XBLOCK, R0_BLOCK, R1_BLOCK, SPLIT (programs that share an output tile), AHEAD (iterations whose loads are in flight),
    UNROLL (tiles that a thread walks of its own row, 0 elsewhere).
    """
    import triton

    target = by_name(target)
    if not target.warp:  # knobs that the backend ignores are not emitted
        return [triton.Config({"XBLOCK": t.x, "R0_BLOCK": t.r0}) for t in candidates(problem, target)]
    return [
        triton.Config(
            {"XBLOCK": t.x, "R0_BLOCK": t.r0, "R1_BLOCK": t.r1, "SPLIT": t.split, "AHEAD": t.ahead, "UNROLL": t.unroll}, num_warps=t.warps
        )
        for t in candidates(problem, target)
    ]


def explain(problem: Problem, target: Target | str) -> str:
    """One screen for a person: the regime, why, and the candidates in order."""
    target = by_name(target)
    why = {
        "thread": "a row fits in one thread's registers: no collective at all",
        "rows": "a reduced axis is contiguous: lanes run along it",
        "columns": "a kept axis is contiguous: lanes run along it, the reduced axis is walked",
        "strided": "no axis is contiguous",
    }[regime(problem, target)]
    mib, floor = problem.nbytes / 2**20, problem.nbytes / target.bandwidth * 1e6
    lines = [
        f"{problem.op} of {problem.dtype.name}: {problem.xnumel} outputs from {problem.rnumel} values each, {mib:.1f} MiB",
        f"target: {target.name} ({target.cores} cores); the floor of reading it once is {floor:.1f} us",
        f"regime: {regime(problem, target)} ({why})",
        "candidates, best guess first:",
    ]
    for n, t in enumerate(candidates(problem, target)):
        programs = -(-problem.xnumel // t.x) * t.split
        lines.append(f"  {n}: XBLOCK={t.x} R0_BLOCK={t.r0} R1_BLOCK={t.r1} split={t.split} num_warps={t.warps}: {programs} programs")
    return "\n".join(lines)


__all__ = ["REGIMES", "Tile", "candidates", "canonical", "explain", "inductor_candidates", "select_candidates", "select_configs"]
