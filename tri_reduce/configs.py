"""Which tile runs a problem on a target: candidates, best guess first. Pure Python; nothing here may change a result's meaning.

Tiles that won on a problem near this one come first (nearest.py). Where there are none, rules make guesses (rules.py), and an estimate of
times ranks a lattice of tiles (lattice.py, cost.py): it decides where it promises a tenth less than the rules' own choice, since that was
measured to be good where they were made; else it adds what to tune.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import Any

from . import ascend_configs, cost
from .geometry import Coordinates, Tile, coordinates, depth_limit, depth_of, pow2_ceil, tiles_of
from .inductor_list import inductor_candidates
from .lattice import lattice
from .nearest import nearest
from .problem import Problem
from .published import select_candidates
from .rules import guesses
from .targets import Target, by_name

MARGIN, GEMV_MARGIN, BUSY_MARGIN, SLANTED_MARGIN = 1.1, 1.15, 1.3, 2.0  # that the estimate must promise to overrule the rules
LOAD_BYTES = 16  # a row of no more is held by a thread
CANDIDATES, ALIKE = 12, 2  # of a problem, and of one shape among them
REGIMES = ("thread", "rows", "columns", "strided")


def regime(problem: Problem, target: Target) -> str:
    """The name of the first candidate's regime: "thread", "rows", "columns" or "strided"."""
    return first(problem, target).regime


@functools.lru_cache(maxsize=4096)
def first(problem: Problem, target: Target) -> Tile:
    """The first candidate: where something near was timed, it is known without ranking the others."""
    timed = [] if target.persistent else _timed(problem, target, guesses(problem, target), frozenset())
    return timed[0] if timed else candidates(problem, target)[0]


@functools.lru_cache(maxsize=4096)
def candidates(problem: Problem, target: Target, apart: frozenset[str] = frozenset()) -> tuple[Tile, ...]:
    """Legal tiles, best guess first, no two the same to the compiler. apart: keys of timed problems that are not looked at."""
    if target.persistent:
        return ascend_configs.candidates(problem, target)
    by_rule = guesses(problem, target)
    if not _ranked(problem, target, by_rule):
        return by_rule
    timed = _timed(problem, target, by_rule, apart)
    deepest = _deepest(problem, by_rule)
    tiles = [by_rule[0], *timed, *(t for t in by_rule[1:] if t.unroll or t.abreast), *lattice(problem, target, deepest)]
    times = cost.microseconds(cost.facts(problem, target, tiles), target)
    margin = _margin(problem)
    times[[t.abreast > 0 for t in tiles]] *= 1 if problem.uneven else margin  # a second launch must promise as much
    times[0] = 0 if held(problem, by_rule) or by_rule[0].abreast else times[0] / margin
    times[1 : 1 + len(timed)] = range(-len(timed), 0)  # before all that are estimated
    found: dict[Coordinates, Tile] = {}
    alike: Counter[tuple[int, int, int]] = Counter()
    known = coordinates(problem, by_rule[0])
    for n in times.argsort(kind="stable"):
        tile = tiles[n]
        at, shape = coordinates(problem, tile), (tile.x, tile.r0, tile.r1)
        if at not in found and (at == known or (alike[shape] < ALIKE and len(found) + (known not in found) < CANDIDATES)):
            found[at] = tile
            alike[shape] += 1
    return tuple(found.values())


def _ranked(problem: Problem, target: Target, by_rule: tuple[Tile, ...]) -> bool:
    """There is more than the rules: not for rows that a thread reads at once, nor where nothing is known of the device."""
    return target.registers > 0 and by_rule[0].unroll != 1 and problem.nbytes > 0


def _margin(problem: Problem) -> float:
    """How many times as long as the estimate's tile the rules' own may take, by the estimate, and still stay."""
    if problem.slanted:
        return SLANTED_MARGIN
    if problem.op == "gemv":
        return GEMV_MARGIN if problem.layout == "rows" else MARGIN
    busy = problem.arity > 1 if problem.layout == "columns" else problem.arity > 2 and len(problem.reduced) > 1
    return BUSY_MARGIN if busy else MARGIN


def _deepest(problem: Problem, by_rule: tuple[Tile, ...]) -> int:
    """Additions one after another that a candidate may have."""
    return max(depth_limit(problem), depth_of(problem, by_rule[0]))


def held(problem: Problem, by_rule: tuple[Tile, ...]) -> bool:
    """Rows of one load stay with a thread, whatever else was timed or promised."""
    return by_rule[0].unroll > 0 and problem.rnumel * problem.dtype.itemsize <= LOAD_BYTES


def _timed(problem: Problem, target: Target, by_rule: tuple[Tile, ...], apart: frozenset[str]) -> list[Tile]:
    """Tiles of the nearest timed problem."""
    if not _ranked(problem, target, by_rule):
        return []
    deepest, by_thread = _deepest(problem, by_rule), held(problem, by_rule)
    return [t for t in nearest(problem, target, apart) if depth_of(problem, t) <= deepest and (t.unroll or not by_thread)]


def canonical(problem: Problem, target: Target) -> Tile:
    """For determinism="invariant": a tile that depends on the reduced axes and the op alone, not on how many outputs there are or
    where they lie.
    """
    lanes = 1024
    inner, outer = problem.reduced[-1].size, problem.rnumel // max(problem.reduced[-1].size, 1)
    r0 = min(pow2_ceil(inner), lanes)
    r1 = min(pow2_ceil(outer), lanes // r0)
    if target.persistent:
        x = 1 if problem.layout == "strided" else 16
        return Tile(problem.layout, x, min(r0, 128), warps=0, plain=True, programs=target.cores)  # read whole whatever the layout
    tile = Tile(problem.layout, max(1, lanes // (r0 * r1)), r0, r1, plain=True)
    _, tiles = tiles_of(problem, tile)
    return replace(tile, split=max(1, -(-tiles // 16)) if target.tickets else 1)


def select_configs(problem: Problem, target: Target | str) -> list[Any]:
    """The `@triton.autotune` list for a problem: `triton.Config`s, best guess first (the first is what policy "heuristic" runs).

    kwargs: XBLOCK, R0_BLOCK, R1_BLOCK, SPLIT (programs that share an output tile), AHEAD (tiles whose loads are in flight: up to four of
    a loop, or all of up to 16, without a loop), UNROLL (tiles that a thread walks of its own row, 0 elsewhere); ABREAST where so many rows
    of columns are read as one, and another launch folds.
    """
    target = by_name(target)
    return [config(tile, target) for tile in candidates(problem, target)]


def config(tile: Tile, target: Target) -> Any:
    """A tile as a `triton.Config`; knobs that the backend ignores are not in it."""
    import triton

    if not target.warp:
        return triton.Config({"XBLOCK": tile.x, "R0_BLOCK": tile.r0})
    knobs = {"R1_BLOCK": tile.r1, "SPLIT": tile.split, "AHEAD": tile.ahead, "UNROLL": tile.unroll}
    knobs |= {"ABREAST": tile.abreast} if tile.abreast else {}
    return triton.Config({"XBLOCK": tile.x, "R0_BLOCK": tile.r0} | knobs, num_warps=tile.warps)


def explain(problem: Problem, target: Target | str) -> str:
    """One screen for a person: the regime, why, the candidates in order, and the predicted time beside the floor.

    Example:
        >>> from tri_reduce.problem import describe
        >>> print(explain(describe("sum", (8192, 50257), 1, "bf16"), "h200").splitlines()[0])
        sum of bf16: 8192 outputs from 50257 values each, 785.3 MiB
    """
    from .explanation import Explanation  # it asks this module for the candidates

    return str(Explanation.of(problem, by_name(target)))


__all__ = ["REGIMES", "Tile", "candidates", "canonical", "explain", "first", "inductor_candidates", "select_candidates", "select_configs"]
