"""The rarer forms of a problem: masks, strides, many axes, 64-bit offsets, seeds, old outputs, converted values."""

from __future__ import annotations

from typing import Any

from tri_reduce import MONOIDS, ascend, configs, dtypes, targets
from tri_reduce.monoids import counted, lookup
from tri_reduce.problem import Problem, of_strides
from tri_reduce.specialization import Specialization
from tri_reduce.specialize import of_gemv, of_reduce

LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {  # sizes, strides, reduced dims
    "rows": ((300, 3000), (3000, 1), (1,)),
    "columns": ((3000, 300), (300, 1), (0,)),
    "strided": ((300, 3000), (6000, 2), (1,)),
    "expanded": ((300, 3000), (0, 1), (1,)),
    "channels": ((32, 64, 49), (3136, 49, 1), (0, 2)),
    "deep": ((3, 4, 5, 6, 7, 8), (100000, 20000, 3000, 400, 50, 5), (1, 3, 5)),
    "wide": ((3, 2**31 + 5), (2**31 + 5, 1), (1,)),
    "far": ((70000, 50000), (50000, 1), (1,)),
}


def problem(op: str, dtype: str, layout: str, masked: bool = False) -> Problem:
    sizes, strides, dims = LAYOUTS[layout]
    monoid, kind = counted(lookup(op)) if masked else lookup(op), dtypes.named(dtype)
    arity = len(monoid.identity_for(kind.torch))
    where = strides if masked else None
    return of_strides(
        monoid.name, kind, sizes, dims, strides, where, None, indexed=monoid.indexed, idempotent=monoid.idempotent, arity=arity
    )


def specialised(found: Problem, tile: configs.Tile | None = None, **options: Any) -> Specialization:
    """The kernel of the first candidate."""
    op = ascend.op_of(found)
    tile = tile or configs.candidates(found, targets.by_name("ascend"))[0]
    name = found.op if found.op in MONOIDS else "mean"
    return of_reduce(found, tile, op, dtypes.of(MONOIDS[name].out_for(found.dtype.torch)), **options)


def reductions() -> list[tuple[str, Specialization]]:
    """(name, kernel) of every variant of some ops."""
    ops = ("sum", "mean", "max", "any", "argmax", "var", "logsumexp")
    found = [
        (f"{op}-{dtype}-{layout}{'-where' * masked}", specialised(problem(op, dtype, layout, masked)))
        for op in ops
        for dtype in ("fp32", "bf16")
        for layout in LAYOUTS
        for masked in (False, True)
        if not (op == "argmax" and layout in ("channels", "deep"))
    ]
    for op in ("sum", "max", "logsumexp"):
        plain = problem(op, "fp32", "rows")
        found.append((f"{op}-seeded", specialised(plain, seed=2.0, seed_kind=MONOIDS[op].seed)))
        if MONOIDS[op].accumulates:
            found.append((f"{op}-accumulated", specialised(plain, accumulate=True)))
    for op in ("sum", "argmax", "var"):
        plain = problem(op, "bf16", "rows")
        found.append((f"{op}-invariant", specialised(plain, configs.canonical(plain, targets.by_name("ascend")))))
    found.append(("sum-converted", specialised(problem("sum", "fp32", "rows"), precast=dtypes.named("fp16"))))
    return found


def products() -> list[tuple[str, Specialization]]:
    """(name, kernel) of gemv with alpha and beta, and batched."""
    from tri_reduce.monoids import products as monoid
    from tri_reduce.problem import coalesce

    found = []
    for dtype in ("fp32", "bf16"):
        kind = dtypes.named(dtype)
        for name, sizes, strides in (
            ("scaled", (700,), [[1000], [0], [1], [1]]),
            ("batched", (6, 700), [[700000, 1000], [1000, 0], [700, 1], [700, 1]]),
            ("one-row-each", (600,), [[1000], [1000], [1], [1]]),
        ):
            case = Problem("gemv", kind, coalesce(sizes, strides), coalesce([1000], [[1], [1]]))
            tile = configs.candidates(case, targets.by_name("ascend"))[0]
            found.append((f"gemv-{dtype}-{name}", of_gemv(case, tile, monoid().device(kind.torch), kind, kind, 2.0, 3.0)))
    return found
