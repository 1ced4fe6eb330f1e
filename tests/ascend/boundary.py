"""Measure, with the compiler, the largest tiles that fit the Unified Buffer: what `tri_reduce.ascend_configs.ROOM` is fitted to.

    .venv-ascend/bin/python tests/ascend/boundary.py [op ...]

One line for each op, dtype and layout: for each XBLOCK the longest R0_BLOCK that compiles.
"""

from __future__ import annotations

import sys

import toolchain

OUTPUTS = (1, 4, 16, 64, 256, 1024, 4096)
OPS = ("sum", "prod", "max", "any", "sum_sq", "argmax", "var", "logsumexp", "gemv")
MOST = 32768  # elements of the largest tile that the formula emits


def problem_of(op: str, dtype: str, layout: str, long: bool, masked: bool = False) -> object:
    """Ragged on both sides. long: reduced so many times that the sum is added up in groups."""
    from tri_reduce.problem import describe, of_strides

    r = 2**21 + 1 if long else 2**15 + 1
    if op == "gemv":
        return describe("gemv", (4097, r) if layout == "rows" else (r, 4097), dtype=dtype, trans=layout != "rows")
    if not masked:
        return describe(op, (4097, r) if layout == "rows" else (r, 4097), 1 if layout == "rows" else 0, dtype)
    from tri_reduce import dtypes
    from tri_reduce.monoids import counted, lookup

    monoid, kind = counted(lookup(op)), dtypes.named(dtype)
    sizes, strides = ((4097, r), (r, 1)) if layout == "rows" else ((r, 4097), (4097, 1))
    arity = len(monoid.identity_for(kind.torch))
    return of_strides(op, kind, sizes, (1,) if layout == "rows" else (0,), strides, strides, None, indexed=monoid.indexed, arity=arity)


def fits(problem: object, x: int, r: int) -> bool:
    """A tile compiles."""
    from tri_reduce import inventory
    from tri_reduce.geometry import Tile

    spec = inventory.specialized(problem, Tile(problem.layout, x, r, plain=True, programs=40))
    try:
        toolchain.compile_record(spec.fn, dict(spec.signature), dict(spec.constexprs), spec.attrs, {})
    except toolchain.BufferOverflow:
        return False
    return True


def longest(problem: object, x: int) -> int:
    """The largest power of two R0_BLOCK that fits beside XBLOCK; 0 where none does."""
    r = max(1, 8192 // x)
    if fits(problem, x, r):
        while x * r < MOST and fits(problem, x, 2 * r):
            r *= 2
        return r
    while r > 1:
        r //= 2
        if fits(problem, x, r):
            return r
    return 0


def main() -> None:
    toolchain.install()
    from tri_reduce import ascend

    ascend.in_pieces = lambda op, problem, tile, slots=False: tile  # whole tiles
    for op in sys.argv[1:] or OPS:
        for dtype in ("fp32", "bf16") if op in ("var", "logsumexp", "gemv", "sum_sq", "prod") else ("fp32", "bf16", "i32", "i8"):
            for layout in ("rows", "columns"):
                for long in (False, True):
                    for masked in (False, True):
                        if masked and (op == "gemv" or long):
                            continue
                        problem = problem_of(op, dtype, layout, long, masked)
                        row = " ".join(f"{x}x{longest(problem, x)}" for x in OUTPUTS)
                        print(
                            f"{op:10s} {dtype:5s} {layout:8s} {'long ' if long else '     '}{'where' if masked else '     '} {row}",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
