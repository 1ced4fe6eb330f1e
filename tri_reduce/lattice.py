"""The tiles that an estimate ranks: every size that can be good, within what the device holds and the accuracy allows."""

from __future__ import annotations

from .cost import vector
from .geometry import TOGETHER, Tile, coordinates, depth_of, fit_grid, pow2_ceil, row_overhang, share, straight
from .monoids import MONOIDS
from .problem import Problem
from .targets import Target

WARPS = (1, 2, 4, 8, 16)  # of a program
VALUES = (2, 4, 8, 16, 32)  # of a tile, that a thread holds: more are spilled
STATES = 64  # tiles of the state count as often
LEAST_VALUES = 4  # ... where several are read at once: fewer leave loads unfilled
VECTOR_BYTES = 16  # of a load: rows are read in whole vectors
PROGRAMS = (1, 2, 4, 8, 16, 32, 64)  # on a core, where programs share outputs
AHEAD = (1, 2, 4)  # tiles of a loop that are read before any is combined
IN_FLIGHT, SINGLE = 64, 32  # words that a thread may be waiting for: more are spilled; with single values, each has an address too
ROWS_AT_ONCE, PIECES = 8, 4  # of which a tile holds a part, or at least one of so many pieces
LEAST_COLUMNS = 4  # side by side: fewer leave most of a memory transaction unused


def powers(low: int, high: int) -> list[int]:
    """Powers of two from low to high, itself one."""
    return [1 << n for n in range(low.bit_length() - 1, high.bit_length())]


def shapes(problem: Problem, target: Target) -> dict[tuple[int, int, int], list[int]]:
    """(x, r0, r1) of tiles that may be good, each with the warps that hold them."""
    inner, widest = problem.reduced[-1].size, pow2_ceil(problem.xnumel)
    longest = pow2_ceil(inner + row_overhang(problem))
    outer = 1 if problem.op == "gemv" else pow2_ceil(problem.rnumel // max(inner, 1))
    found: dict[tuple[int, int, int], list[int]] = {}
    columns = problem.layout == "columns"
    least = min(LEAST_COLUMNS, widest) if columns else 1
    together = VECTOR_BYTES // problem.dtype.itemsize
    least_values = together if not columns else LEAST_VALUES if problem.column_vector > 1 else 1
    values = [n for n in VALUES if least_values <= n <= max(STATES // problem.arity, least_values)]
    for warps in WARPS:
        for lanes in {min(target.warp * warps * n, target.max_tile) for n in values}:
            for x in powers(least, min(widest, lanes)):
                r0 = min(longest, lanes // x)
                r1 = min(outer, lanes // (x * r0))
                whole = x == widest and r0 == longest and r1 == outer
                if (x * r0 * r1 == lanes or whole) and (columns or PIECES * r0 >= longest or x <= ROWS_AT_ONCE):
                    found.setdefault((x, r0, r1), []).append(warps)
    return found


def lattice(problem: Problem, target: Target, deepest: int) -> list[Tile]:
    """All of them with at most `deepest` additions one after another."""
    found: dict[Tile, list[int]] = {}
    for (x, r0, r1), warps in shapes(problem, target).items():
        base, outputs = Tile(problem.layout, x, r0, r1, warps=warps[0]), -(-problem.xnumel // x)  # few warps fold in more steps
        wanted = {max(1, round(n * target.cores / outputs)) for n in PROGRAMS} if target.tickets else ()
        for n in sorted({1, *wanted}):
            tile = fit_grid(problem, target, share(problem, target, base, n))
            if tile.lanes == x * r0 * r1:
                found[tile] = warps
            else:  # lengthened, for the grid or the bound: the fewest warps that hold it, unless it is a shape of its own
                most = min(STATES, VALUES[-1] * problem.arity)
                found.setdefault(tile, [w for w in WARPS if tile.lanes * problem.arity <= target.warp * w * most][:1])
    return [
        one
        for tile, warps in found.items() if depth_of(problem, tile) <= deepest
        for w in warps
        for a in (AHEAD if coordinates(problem, tile)[5] else AHEAD[:1])
        for one in (Tile(problem.layout, tile.x, tile.r0, tile.r1, tile.split, w, a),)
        if a == 1 or holds(problem, target, one)
    ]  # fmt: skip


def _at_once(problem: Problem) -> bool:
    """Four values become one state: a thread need not hold four."""
    monoid = MONOIDS.get(problem.op)
    return monoid is not None and monoid.four is not None and not problem.masked


def holds(problem: Problem, target: Target, tile: Tile) -> bool:
    """The registers hold what a thread reads ahead: three states in the lanes of rows leave none, unless four values become one state."""
    if problem.arity == 3 and problem.layout != "columns" and not _at_once(problem):
        return False
    together = straight(problem, tile) or min(tile.ahead, TOGETHER)
    values, whole = tile.lanes / (target.warp * tile.warps) * together, vector(problem, tile)
    return values * problem.dtype.itemsize / 4 <= IN_FLIGHT if whole > 1 else values <= SINGLE
