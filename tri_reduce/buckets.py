"""Which problems share a tuned entry, and how a tile is written into one and found again. Pure Python, no device.

A bucket holds what a tile's merit hangs on: the op, the layout, what may be read in vectors, and sizes within a factor of 1.5. Whether a
stored tile is legal is asked of the problem at hand: it has to be one of its candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import hashing
from .geometry import Tile, pow2_ceil
from .kernels.compat import HAS_TRITON, triton
from .problem import Axis, Problem

EXACT = 64  # reduced elements up to this are buckets of their own: a thread may hold such rows, unrolled
EXACT_OUTPUTS = 8


def key_of(problem: Problem, kind: str = "call") -> str:
    """What a tuned entry is kept under, beside the device: Triton's version, the kernels' sources, and the problem's bucket.

    kind: "call", or "update" for a Reducer's, whose programs do not meet.

    Example:
        >>> from tri_reduce.problem import describe
        >>> key_of(describe("sum", (4000, 50257), 1, "bf16")).split("/", 2)[2]
        'call/sum/bf16x1/rows1/4096@65536/65536@1'
    """
    version = triton.__version__ if HAS_TRITON else "none"
    vector = problem.column_vector if problem.layout == "columns" else problem.row_alignment
    facts = [f"triton-{version}", hashing.sources(), kind, problem.op, f"{problem.dtype.name}x{problem.arity}", f"{problem.layout}{vector}"]
    facts += [_side(problem.kept, EXACT_OUTPUTS), _side(problem.reduced, EXACT)]
    flags = {"where": problem.masked, "wide": problem.wide}
    return "/".join(facts + [name for name, is_set in flags.items() if is_set])


def _side(axes: Sequence[Axis], exact: int) -> str:
    """Elements along some axes and, where there are several, along the innermost, with its stride; "*" where any is read repeatedly."""
    inner, several = axes[-1], len(axes) > 1
    size = str(_up_to(math.prod(a.size for a in axes), exact)) + f"({min(len(axes), 3)}axes,{_up_to(inner.size, exact)})" * several
    return f"{size}@{_up_to(abs(inner.strides[0]), EXACT)}" + "*" * any(a.size > 1 and a.strides[0] == 0 for a in axes)


def _up_to(n: int, exact: int) -> int:
    """The largest size of a size's bucket: itself up to `exact`, then 2^k or 1.5 * 2^k.

    >>> [_up_to(n, 64) for n in (0, 7, 64, 65, 97, 4096, 4097)]
    [0, 7, 64, 96, 128, 4096, 6144]
    """
    if n <= exact:
        return n
    whole = pow2_ceil(n)
    return whole * 3 // 4 if n <= whole * 3 // 4 else whole


def config_of(tile: Tile) -> dict[str, Any]:
    """A tile in the names of `configs.select_configs`."""
    return {
        "regime": tile.regime, "XBLOCK": tile.x, "R0_BLOCK": tile.r0, "R1_BLOCK": tile.r1, "SPLIT": tile.split, "AHEAD": tile.ahead,
        "UNROLL": tile.unroll, "num_warps": tile.warps, **({"ABREAST": tile.abreast} if tile.abreast else {}),
    }  # fmt: skip


def tile_of(entry: Any, found: Sequence[Tile]) -> Tile | None:
    """The candidate that an entry names: the same but for the split, which hangs on exact sizes and may differ by a factor of two.

    Entries come from files, so anything may be in them; what names no candidate is None.
    """
    config = entry.get("config") if isinstance(entry, dict) else None
    if not isinstance(config, dict):
        return None
    split = config.get("SPLIT")
    if type(split) is not int or split < 1:
        return None
    near = [t for t in found if t.split <= 2 * split <= 4 * t.split and config_of(t) == config | {"SPLIT": t.split}]
    return min(near, key=lambda t: max(t.split, split) / min(t.split, split), default=None)
