"""The 48 problems of docs/performance.md: the floor, eager torch, torch.compile and tri_reduce in one process, on one GPU.

    python benchmarks/side_by_side.py [--only REGEX] [--policy heuristic] [--json FILE]

The floor is a cold read of the same bytes by a plain kernel, the best of a few tiles. Times are medians of the GPU's own time with a cold
L2: before each call a buffer of 256 MiB is written, and the GPU is kept busy until the host has enqueued. Every result is checked against
float64.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import tri_reduce

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
Problem = tuple[str, tuple[int, ...], tuple[int, ...], str]

ROWS: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((64, 401408), (1,), "fp32"),
    ((1, 1 << 26), (1,), "fp32"),
    ((256, 100352), (1,), "bf16"),
    ((32, 50176), (1,), "fp32"),
    ((65536, 49), (1,), "fp32"),
    ((1 << 20, 64), (1,), "bf16"),
    ((1 << 22, 8), (1,), "fp32"),
    ((1 << 22, 3), (1,), "fp32"),
    ((2048, 768), (1,), "fp32"),
    ((4096, 4096), (1,), "bf16"),
    ((8192, 8192), (1,), "fp32"),
    ((32768, 1024), (1,), "bf16"),
    ((512, 25088), (1,), "bf16"),
    ((8192, 50257), (1,), "bf16"),
    ((4096, 4096), (0,), "bf16"),
    ((401408, 64), (0,), "fp32"),
    ((65536, 768), (0,), "bf16"),
    ((1 << 20, 8), (0,), "fp32"),
    ((8192, 8192), (0,), "fp32"),
    ((32, 64, 112, 112), (0, 2, 3), "bf16"),
    ((32, 256, 56, 56), (0, 2, 3), "fp32"),
    ((128, 2048, 7, 7), (2, 3), "bf16"),
    ((16, 1024, 4096), (1,), "bf16"),
]
MAXIMA = [(64, 401408), (4096, 4096), (65536, 49), (8192, 8192)]
GEMV = {
    "bf16": [
        (4096, 4096),
        (6144, 4096),
        (28672, 4096),
        (4096, 14336),
        (128256, 4096),
        (8192, 8192),
        (57344, 8192),
        (8192, 28672),
        (1024, 1024),
        (256, 65536),
        (1, 1 << 20),
        (65536, 256),
        (16384, 64),
        (4096, 4095),
    ],
    "fp32": [(4096, 4096), (8192, 8192), (256, 65536), (65536, 256), (1, 1 << 20)],
}


def problems() -> list[Problem]:
    """The list, sums first."""
    found: list[Problem] = [("sum", s, d, t) for s, d, t in ROWS] + [("max", s, d, t) for s, d, t in ROWS if s in MAXIMA]
    return found + [("gemv", s, (1,), t) for t, shapes in GEMV.items() for s in shapes]


@triton.jit  # type: ignore[untyped-decorator]
def read_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0, eviction_policy="evict_first").to(tl.float32)
    tl.store(out_ptr + tl.program_id(0), tl.sum(x, 0))


def measure(call: Callable[[], Any], flush: torch.Tensor, repeats: int = 60) -> float:
    """Microseconds of GPU time, the median."""
    call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]  # type: ignore[no-untyped-call]
    for start, end in events:
        flush.zero_()
        torch.cuda._sleep(500_000)  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return float(statistics.median(start.elapsed_time(end) for start, end in events[6:])) * 1e3


def floor_of(x: torch.Tensor, flush: torch.Tensor) -> float:
    """Microseconds to read a tensor of these bytes once."""
    n, out = x.numel(), torch.empty(max(1, x.numel() // 1024) + 1, device=x.device)
    flat = x.flatten()
    tiles = [(1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8)]
    return min(
        measure(lambda b=b, w=w: read_kernel[(triton.cdiv(n, b),)](flat, out, n, BLOCK=b, num_warps=w), flush)  # type: ignore[misc]
        for b, w in tiles
    )


def agrees(got: torch.Tensor, want: torch.Tensor, magnitude: torch.Tensor, contributions: int) -> bool:
    """Within 4 eps log2(R) sum|x| of float64, and the output's own rounding."""
    bound = 4 * torch.finfo(torch.float32).eps * math.log2(max(contributions, 2)) * magnitude
    return bool(((got.double() - want).abs() <= bound + want.abs() * torch.finfo(got.dtype).eps).all())


def run(problem: Problem, flush: torch.Tensor) -> dict[str, Any]:
    """Times of one problem by contestant."""
    op, shape, dims, name = problem
    x = torch.randn(shape, device="cuda", dtype=DTYPES[name])
    ours: Callable[[], Any]
    eager: Callable[[], Any]
    compiled: Callable[[], Any]
    if op == "gemv":
        v = torch.randn(shape[1], device="cuda", dtype=x.dtype)
        ours, eager = (lambda: tri_reduce.gemv(x, v)), (lambda: torch.mv(x, v))
        want, magnitude = x.double() @ v.double(), x.double().abs() @ v.double().abs()
        compiled = torch.compile(eager)
    else:
        torch_op = torch.sum if op == "sum" else torch.amax
        ours, eager = (lambda: tri_reduce.reduce(x, op, dims)), (lambda: torch_op(x, dims))
        want = x.sum(dims, dtype=torch.float64) if op == "sum" else x.amax(dims).double()
        magnitude = x.abs().sum(dims, dtype=torch.float64)
        compiled = torch.compile(eager)
    contributions = math.prod(shape[d] for d in dims)
    row = {"right": agrees(ours(), want, magnitude, contributions), "floor": floor_of(x, flush)}
    for who, call in (("ours", ours), ("eager", eager), ("compile", compiled)):
        row[who] = measure(call, flush)
    return row


def main() -> None:
    """Measure, print a line a problem and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression on the problem's name")
    parser.add_argument("--policy", default="heuristic", choices=tri_reduce.autotune.POLICIES)
    parser.add_argument("--json", default="", help="a file for the numbers")
    options = parser.parse_args()
    flush, rows = torch.empty(1 << 26, dtype=torch.int32, device="cuda"), {}
    with tri_reduce.autotune.policy(options.policy):
        for problem in problems():
            op, shape, dims, name = problem
            title = f"{op}{list(shape)}{'' if op == 'gemv' else list(dims)} {name}"
            if re.search(options.only, title):
                torch._dynamo.reset()
                row = rows[title] = run(problem, flush)
                ratios = "  ".join(f"/{who} {row['ours'] / row[who]:.2f}" for who in ("floor", "eager", "compile"))
                print(f"{title:40} {row['ours']:8.2f} us  {ratios}  {'' if row['right'] else 'WRONG'}", flush=True)
                torch.cuda.empty_cache()
    for kind in ("gemv", ""):
        chosen = [r for t, r in rows.items() if t.startswith("gemv") == bool(kind)]
        for who in ("floor", "eager", "compile"):
            if chosen:
                mean = math.exp(statistics.fmean(math.log(r["ours"] / r[who]) for r in chosen))
                print(f"{kind or 'reduce'}: geometric mean of ours / {who} {mean:.3f} over {len(chosen)}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
