"""Which tile, by rule, from what was measured first (docs/performance.md): short programs that read 4 to 16 KiB with 16-byte loads reach
the memory floor, long loops do not. `configs` puts an estimate beside these guesses.
"""

from __future__ import annotations

import math
from dataclasses import replace

from .geometry import (
    MOST_STRAIGHT,
    Tile,
    depth_limit,
    depth_of,
    fit_grid,
    output_tiles,
    pow2_ceil,
    pow2_floor,
    row_overhang,
    share,
    straight,
    tiles_of,
)
from .lattice import holds
from .problem import LINE_BYTES, Problem
from .targets import Target

TILE_BYTES = 8192  # of a row in one tile: 2 vector loads a thread in flight
BUSY_VALUES, BUSY_AHEAD = 4, 4  # of a thread in a tile, and tiles read together, where instructions bind; of bytes, twice as many values
BUSY_WARPS = (4, 8, 2)  # of long rows, of columns, of long rows of outer axes
BUSY_COLUMNS, BUSY_PROGRAMS = (32, 16), (4, 2)  # columns side by side, and programs on a core: of states of two tiles, of three
BUSY_ROW, BUSY_PLANE = 4096, 2048  # elements: longer rows, of outer axes or not, are shared if they are few ...
ROW_WARPS = 32  # ... by programs of so many warps on a core
SMALL_PLANE, PLANE_LANES = 512, 4096  # shorter rows of outer axes are read whole, so much of them on 8 warps
PLANE_BLOCK = 128  # lanes along them at least, of several outputs
BYTE_VALUES, BYTE_WARPS = 16, 2  # of a thread, and in a program, of rows of bytes that are not shared
SHORT_ROW = 2048  # elements: shorter tiles of a long row do not pay
GEMV_ROWS = 16  # for each core: of more long rows that start anywhere, a gemv reads ...
GEMV_TILES, GEMV_LANES, GEMV_BYTES = 8, (256, 1024), 8  # ... so many tiles of each at once, of lanes from to, and bytes a thread
COLUMN_LANES = 4096  # of a tile of columns, on 8 warps
COLUMN_AHEAD = 4  # tiles of columns whose loads are in flight together: few programs, each with many loads
RAGGED_COLUMNS, RAGGED_ROWS, RAGGED_LANES = 64, 16, 1024  # of a tile of columns that do not start on a vector; at least LINE_BYTES wide
RAGGED_PROGRAMS, RAGGED_BYTES = 4.5, 32 << 20  # on a core; of less input, tiles are narrower
ABREAST_BYTES, ABREAST_WARPS = 8192, 4  # of a tile of rows that are read as one, a part of it where states are larger ...
ABREAST_AHEAD, ABREAST_PROGRAMS = 2, 5  # ... so many at once, twice as many of those; and programs on a core
SHORT_COLUMN, SHORT_LANES, SHORT_ROWS = 128, 1024, 8  # elements of columns that a warp walks; of its tile, and of these rows
COLUMN_PROGRAMS = 2  # on a core: columns are walked by few long programs, since every one that shares outputs costs a round trip to memory
SHARE_BELOW = 3  # programs on a core: with fewer, rows are shared between programs ...
ROW_PROGRAMS = 8  # ... until there are this many on a core
STRAIGHT, MOST_PROGRAMS = 4, 64  # ... or as many as read their tiles, so few, without a loop; not more of them on a core
THREAD_LOADS = 4  # that a thread makes of its own row; longer rows are laid over lanes
THREAD_BYTES = 32  # that a thread reads of rows of its own: several short ones, lest most of a launch is starting programs
SMALL_BYTES = 1 << 15  # of input: less is read by one program sooner than programs can meet
STEP_COST = 0.07  # a tile half as long costs that part more a row, beside the lanes it saves


def with_split(problem: Problem, target: Target, tile: Tile, programs: int = 0) -> Tile:
    """The tile with outputs shared between programs where there are too few outputs, or where a lane's chain of additions is too long.

    programs: that a core shall have, if known.
    """
    if not target.tickets or tile.unroll:
        return tile
    _, tiles = tiles_of(problem, tile)
    outputs = output_tiles(problem, tile)
    if problem.nbytes <= SMALL_BYTES:
        wanted = 1
    elif programs:
        wanted = min(programs * target.cores // outputs, -(-tiles // 2))  # rounded down: one more would run alone
    elif problem.layout == "columns":
        wanted = round((RAGGED_PROGRAMS if problem.slanted else COLUMN_PROGRAMS) * target.cores / outputs)
    else:
        wanted = min(-(-ROW_PROGRAMS * target.cores // outputs), -(-tiles // 2)) if outputs < SHARE_BELOW * target.cores else 1
        straight = -(-tiles // STRAIGHT)
        if problem.op != "gemv" and len(problem.reduced) == 1 and wanted > 1 and straight * outputs <= MOST_PROGRAMS * target.cores:
            wanted = max(wanted, straight)
    return share(problem, target, tile, wanted)


def thread_rows(problem: Problem, target: Target) -> list[Tile]:
    """Rows that one thread holds, read in the longest pieces that divide and align them: no lane ever talks to another."""
    r = problem.rnumel
    if len(problem.reduced) > 1 or problem.layout == "columns" or r == 0 or not target.warp:
        return []
    step = math.gcd(r, problem.row_alignment)
    if r * problem.dtype.itemsize > 16 and r // step > THREAD_LOADS:
        return []
    rows = max(1, pow2_floor(min(THREAD_BYTES / (r * problem.dtype.itemsize), problem.xnumel / (256 * target.cores))))
    x = 128 if problem.xnumel >= 128 else pow2_ceil(problem.xnumel)
    return [Tile("thread", max(1, x * n * w // 4), step, warps=w, unroll=r // step) for n in dict.fromkeys((rows, 1)) for w in (4, 8, 2)]


def rows_abreast(problem: Problem, target: Target) -> list[Tile]:
    """Columns of which several rows are read as one, that starts on a vector and wastes nothing; a second launch folds."""
    found, size, large = [], problem.dtype.itemsize, problem.arity > 1
    numbers = problem.abreast if target.apart else ()
    for rows in numbers[large:] + numbers[:large]:  # of large states, fewer: they leave more to be folded
        one = problem.as_one(rows)
        x = min(LINE_BYTES // size, pow2_floor(one.xnumel))
        lanes = pow2_floor(min(ABREAST_BYTES // size, target.max_tile) // problem.arity)
        r0 = min(max(1, lanes // x), pow2_ceil(one.reduced[-1].size))
        base = Tile("columns", x, r0, warps=ABREAST_WARPS, ahead=ABREAST_AHEAD << large, abreast=rows)
        found.append(share(problem, target, base, round(ABREAST_PROGRAMS * target.cores / output_tiles(problem, base))))
    return [tile for tile in found if depth_of(problem, tile) <= depth_limit(problem)]


def row_block(length: int, lanes: int, least: int = SHORT_ROW) -> int:
    """Lanes along a row of `length`: as many as `lanes`, unless shorter tiles, of at least so many, leave clearly fewer idle at its end."""
    longest = min(pow2_ceil(length), lanes)
    blocks = [longest] + [b for b in (longest // 2, longest // 4, longest // 8) if b >= least]
    return min(blocks, key=lambda b: -(-length // b) * b * (1 + STEP_COST * math.log2(longest / b)))


def _short_columns(problem: Problem, target: Target) -> bool:
    """A warp each: none waits for another to fold."""
    enough = problem.xnumel * min(problem.rnumel, SHORT_ROWS) >= 2 * SHORT_LANES * target.cores
    return problem.column_vector > 1 and problem.rnumel <= SHORT_COLUMN and enough


def _ragged_columns(problem: Problem, target: Target) -> Tile:
    wide = max(RAGGED_COLUMNS, LINE_BYTES // problem.dtype.itemsize) if problem.nbytes >= RAGGED_BYTES else RAGGED_COLUMNS // 2
    x = min(pow2_ceil(problem.kept[-1].size + problem.vector), wide)
    return Tile("columns", x, max(problem.slanted, RAGGED_ROWS, RAGGED_LANES // x), ahead=COLUMN_AHEAD)


def _columns(problem: Problem, target: Target) -> Tile:
    if problem.slanted:
        ragged = _ragged_columns(problem, target)
        if depth_of(problem, with_split(problem, target, ragged)) <= depth_limit(problem):
            return ragged
    if _short_columns(problem, target):
        r0 = min(pow2_ceil(problem.reduced[-1].size), SHORT_ROWS)
        return Tile("columns", SHORT_LANES // r0, r0, ahead=COLUMN_AHEAD)
    outputs = pow2_ceil(problem.kept[-1].size if len(problem.kept) > 1 else problem.xnumel)
    many = problem.xnumel >= 64 * COLUMN_PROGRAMS * target.cores
    wide = LINE_BYTES // problem.dtype.itemsize if problem.column_vector > 1 else 64  # single elements need more neighbours to fill lines
    x = min(outputs, wide * 2 if many and problem.column_vector == 1 else wide)
    lanes = min(COLUMN_LANES, target.max_tile)
    r0 = min(pow2_ceil(problem.reduced[-1].size), max(1, lanes // x))
    x = min(pow2_ceil(problem.xnumel), max(x, lanes // r0)) if problem.rnumel <= r0 else x
    return Tile("columns", x, r0, _outer_block(problem, lanes // (x * r0)), ahead=COLUMN_AHEAD)


def _outer_block(problem: Problem, lanes: int) -> int:
    outer = problem.rnumel // max(problem.reduced[-1].size, 1)
    return min(pow2_ceil(outer), max(1, lanes), 64)


def _busy(problem: Problem, target: Target) -> tuple[Tile, int] | None:
    """Where instructions bind: a tile of few values a thread, with its warps, and how many programs a core shall have (0: as elsewhere).

    None: as where memory binds.
    """
    if not (problem.busy and target.warp) or problem.op == "gemv" or problem.slanted:
        return None
    inner, large, of_bytes = problem.reduced[-1].size, problem.arity > 2, problem.dtype.itemsize == 1
    if problem.layout == "columns":
        if problem.arity == 1 or _short_columns(problem, target):
            return None
        lanes = BUSY_VALUES * BUSY_WARPS[1] * target.warp
        x = min(pow2_ceil(problem.kept[-1].size if len(problem.kept) > 1 else problem.xnumel), BUSY_COLUMNS[large])
        r0 = min(pow2_ceil(inner), lanes // x)
        tile = Tile("columns", x, r0, _outer_block(problem, lanes // (x * r0)), ahead=BUSY_AHEAD)
        warps = max(1, min(BUSY_WARPS[1], tile.lanes // (BUSY_VALUES * target.warp)))
        return replace(tile, warps=warps), BUSY_PROGRAMS[large]
    few = problem.xnumel < SHARE_BELOW * target.cores
    if few and inner > BUSY_ROW and len(problem.reduced) == 1:
        r0 = pow2_floor(BUSY_VALUES * (1 + of_bytes) * BUSY_WARPS[0] * target.warp)
        return Tile(problem.layout, 1, r0, warps=BUSY_WARPS[0], ahead=BUSY_AHEAD), ROW_WARPS // BUSY_WARPS[0]
    if large and pow2_ceil(inner) <= SMALL_PLANE and len(problem.reduced) == 2:
        r0 = pow2_ceil(inner)
        x = min(pow2_ceil(problem.xnumel), max(1, PLANE_BLOCK // r0))
        return Tile(problem.layout, x, r0, _outer_block(problem, PLANE_LANES // (x * r0)), warps=8), 1
    if few and large and inner >= BUSY_PLANE and len(problem.reduced) == 2:
        tile = Tile(problem.layout, 2, problem.vector * target.warp, warps=BUSY_WARPS[2], ahead=BUSY_AHEAD)
        return tile, ROW_WARPS // BUSY_WARPS[2]
    if of_bytes:
        lanes = pow2_floor(BYTE_VALUES * BYTE_WARPS * target.warp)
        r0 = row_block(inner + row_overhang(problem), lanes // 2, problem.vector)
        x = max(1, min(lanes // r0, pow2_floor(problem.xnumel / (2 * target.cores))))
        return Tile(problem.layout, x, r0, warps=max(1, x * r0 // (BYTE_VALUES * target.warp))), 0
    return None


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


def _ragged_rows(problem: Problem, target: Target) -> Tile | None:
    """Of many long rows of a gemv that start anywhere: all tiles at once, and few values a thread, whose part of the vector it reads one by
    one.
    """
    if not problem.singly or problem.xnumel < GEMV_ROWS * target.cores or not target.warp:
        return None
    r0 = min(pow2_ceil(problem.reduced[-1].size / GEMV_TILES), GEMV_LANES[1])
    tile = Tile(problem.layout, max(1, GEMV_LANES[0] // r0), r0, ahead=MOST_STRAIGHT)
    tile = replace(tile, warps=max(1, tile.lanes * problem.dtype.itemsize // (GEMV_BYTES * target.warp)))
    return tile if straight(problem, tile) else None


def _warps(problem: Problem, target: Target, tile: Tile) -> int:
    """256 elements a warp, 8 warps at most (0: the target has none); few columns are folded over many lanes by more warps, many
    outputs need fewer in each program.
    """
    if not target.warp:
        return 0
    if problem.slanted and tile.regime == "columns":
        return max(1, min(8, tile.lanes // (4 * target.warp)))
    if tile.regime == "columns" and _short_columns(problem, target):
        return max(1, tile.lanes // SHORT_LANES)
    if tile.regime == "columns" and tile.x < 32 and tile.lanes >= COLUMN_LANES:
        return 16
    most = 4 if tile.regime == "columns" and problem.xnumel >= 64 * COLUMN_PROGRAMS * target.cores else 8
    return max(1, min(most, tile.lanes // 256))


def _held(problem: Problem, target: Target, tile: Tile) -> Tile:
    """Reading no further ahead than registers hold."""
    while tile.ahead > 1 and not holds(problem, target, tile):
        tile = replace(tile, ahead=tile.ahead // 2)
    return tile


def guesses(problem: Problem, target: Target) -> tuple[Tile, ...]:
    """Legal tiles, likeliest first, no two the same."""
    busy = _busy(problem, target)
    base, programs = busy or (_columns(problem, target) if problem.layout == "columns" else _rows(problem, target), 0)
    shapes = [base, replace(base, r0=max(1, base.r0 // 2))]
    if base.lanes * 2 <= target.max_tile:
        shapes += [
            replace(base, x=base.x * 2),
            replace(base, r0=min(base.r0 * 2, pow2_ceil(problem.reduced[-1].size + row_overhang(problem)))),
        ]
    found, abreast, ragged = thread_rows(problem, target), rows_abreast(problem, target), _ragged_rows(problem, target)
    found += (abreast if problem.uneven else []) + ([ragged] if ragged else [])
    for shape in shapes:
        tile = with_split(problem, target, shape if busy else replace(shape, warps=_warps(problem, target, shape)), programs)
        found += [tile, replace(tile, ahead=5 - tile.ahead), replace(tile, warps=min(16, tile.warps * 2))]
        if tile.split > 1:
            found += [share(problem, target, tile, tile.split * 2), share(problem, target, tile, tile.split // 2)]
    found += abreast
    found = [_held(problem, target, t) if target.warp else replace(t, ahead=1) for t in found]
    deepest = max(depth_limit(problem), depth_of(problem, found[0]))
    return tuple(dict.fromkeys(fit_grid(problem, target, t) for t in found if depth_of(problem, t) <= deepest))
