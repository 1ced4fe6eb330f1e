"""The plan that `force` asks for: legal for the problem, or an error with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .configs import candidates
from .geometry import Tile, pow2_ceil, tiles_of
from .problem import Problem
from .rules import thread_rows
from .targets import Target

KNOBS = {"XBLOCK": "x", "R0_BLOCK": "r0", "R1_BLOCK": "r1", "SPLIT": "split", "AHEAD": "ahead", "ABREAST": "abreast", "num_warps": "warps"}
MAX_TILE = 2**20  # elements: Triton's own limit
MAX_WARPS = 32


def forced(problem: Problem, target: Target, name: str | None, split: int | None, config: dict[str, int]) -> Tile:
    """The tile that `force` asks for; ValueError with the reason where it is illegal for the problem."""
    legal = {"thread"} if thread_rows(problem, target) else set()
    legal |= {"rows", "columns", "strided"}
    if name is not None and name not in legal:
        raise ValueError(f"regime {name!r} is illegal here: it needs one short contiguous row an output: 16 bytes, or what four loads read")
    if name == "thread":
        tile = thread_rows(problem, target)[0]
    elif name is not None and name != problem.layout:
        tile = simplest(problem, name)
    else:
        found = [t for t in candidates(problem, target) if (t.regime == name if name else t.regime != "thread" or split is None)]
        tile = found[0] if found else simplest(problem, problem.layout)
    if config:
        changes: dict[str, Any] = {KNOBS[key]: value for key, value in config.items()}
        tile = replace(tile, unroll=0, **changes)
        tile = replace(tile, abreast=0) if tile.abreast == 1 else tile
    rows = sorted((1, *problem.abreast)) if target.apart else [1]
    if tile.abreast and tile.abreast not in rows:
        raise ValueError(f"config ABREAST={tile.abreast} is illegal: here rows are read {', '.join(map(str, rows))} at a time")
    if target.persistent:
        if tile.r1 > 1:
            raise ValueError(f"config R1_BLOCK={tile.r1} is illegal on {target.name}: its tiles lie on one reduced axis")
        tile = replace(tile, warps=0, plain=True, unroll=0, programs=target.cores)
    if tile.r1 > 1 and (len(problem.reduced) == 1 or problem.op == "gemv"):
        raise ValueError(f"config R1_BLOCK={tile.r1} is illegal: this problem has one reduced axis")
    if split is not None:
        tile = replace(tile, unroll=0, split=split)
    if tile.lanes > MAX_TILE:
        raise ValueError(f"config is illegal: a tile of {tile.lanes} elements passes Triton's limit of {MAX_TILE}")
    _, tiles = tiles_of(problem, tile)
    if tile.split > 1 and not target.tickets:
        raise ValueError(f"split={tile.split} is illegal on {target.name}: its programs cannot meet within a launch")
    if tile.split > max(tiles, 1):
        raise ValueError(f"split={tile.split} is illegal: the reduced axes make only {tiles} tiles of {tile.r1}x{tile.r0} for this problem")
    return tile


def simplest(problem: Problem, name: str) -> Tile:
    """A small plain tile of a regime: lanes along the reduced axis ("rows"), along the outputs ("columns"), or both ("strided")."""
    x, r0 = {"rows": (1, 256), "columns": (256, 1), "strided": (16, 16), "thread": (128, 1)}[name]
    return Tile(name, min(x, pow2_ceil(problem.xnumel)), min(r0, pow2_ceil(problem.reduced[-1].size)), plain=True)


def check_config(config: Any) -> tuple[tuple[str, int], ...] | None:
    """The entries of a `force(config=...)`, sorted; ValueError naming the entry that is none."""
    for key, value in (config or {}).items():
        if key not in KNOBS:
            raise ValueError(f"unknown config entry {key!r}: expected some of {', '.join(KNOBS)}")
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not whole or (key != "SPLIT" and value & (value - 1)) or (key == "num_warps" and value > MAX_WARPS):
            needed = "a positive integer" if key == "SPLIT" else f"a power of two{f' up to {MAX_WARPS}' * (key == 'num_warps')}"
            raise ValueError(f"config {key}={value!r} is illegal: {needed} is needed")
    return tuple(sorted(config.items())) if config else None
