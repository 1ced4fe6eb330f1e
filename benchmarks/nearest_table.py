"""The fastest tiles of each problem of a sweep: the table that `tri_reduce.nearest` looks things up in.

    python benchmarks/nearest_table.py [--data FILE]

Writes tri_reduce/nearest_TARGET.json, a problem a line: op, shape, dim, dtype, trans, pitch, start, and the tiles as the compiler sees
them with their microseconds, fastest first: no slower than the best by more than a tenth, of different shapes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lattice import tile_at

from tri_reduce import evaluation, nearest, targets
from tri_reduce.configs import held
from tri_reduce.geometry import depth_limit, depth_of
from tri_reduce.problem import Problem
from tri_reduce.rules import guesses
from tri_reduce.targets import Target

WITHIN = 1.1  # times the best
HALVES = 1.02  # so much faster must loads of 8 bytes be than those of 16, which suit more problems
TABLES = Path(__file__).parent.parent / "tri_reduce"


def rows(data: dict[str, Any]) -> dict[str, list[Any]]:
    """The table of a sweep."""
    target = targets.by_name(data["meta"]["target"])
    found = {}
    for key, record in sorted(data["problems"].items()):
        problem = evaluation.problem_of(record)
        fastest = sorted(record["tiles"], key=lambda tile: tile[-1] * (1 if whole(problem, target, tile[:-1]) else HALVES))
        best: list[list[float]] = []
        for *at, us in fastest:
            other_shape = all(at[:3] != other[:3] for other in best)
            if len(best) < nearest.KEPT and us <= WITHIN * fastest[0][-1] and other_shape and may_be_first(problem, target, at):
                best.append([*at, us])
        if best:
            found[key] = [*evaluation.facts_of(record), best]
    return found


def whole(problem: Problem, target: Target, at: Sequence[int], bytes_: int = 16) -> bool:
    """Each thread that reads rows reads so many bytes at once, if rows let it."""
    tile, least = tile_at(problem, tuple(at)), min(problem.vector, bytes_ // problem.dtype.itemsize)
    return tile.unroll > 0 or problem.layout != "rows" or tile.lanes >= target.warp * tile.warps * least


def may_be_first(problem: Problem, target: Target, at: Sequence[int]) -> bool:
    """Chains of additions within the error bound, half a vector for each thread that reads rows, threads for rows that stay with them, and
    found again by `nearest`.
    """
    tile = tile_at(problem, tuple(at))
    stays = tile.unroll > 0 or not held(problem, guesses(problem, target))
    short = depth_of(problem, tile) <= depth_limit(problem)
    return whole(problem, target, at, 8) and stays and short and nearest.itself(problem, target, tuple(at))


def text(table: dict[str, list[Any]]) -> str:
    """A problem a line."""
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(row, separators=(',', ':'))}" for key, row in table.items()) + "\n}\n"


def main() -> int:
    """Write the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=evaluation.DEFAULT, help="a sweep (default: the one in this folder)")
    data = evaluation.load(parser.parse_args().data)
    path = TABLES / f"nearest_{data['meta']['target']}.json"
    table = rows(data)
    path.write_text(text(table))
    print(f"{len(table)} problems, {path.stat().st_size >> 10} KiB: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
