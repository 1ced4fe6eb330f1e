"""Streaming through a `Reducer` beside one-shot `reduce` of the same bytes and beside torch's `acc += tile.sum(dim)`. Needs a GPU.

    python benchmarks/reducer.py [--mib 1024] [--tiles 64]

One line a problem: microseconds of the one-shot reduction under a CUDA graph, then ratios to it: the stream under a graph, eagerly as the
GPU sees it when the host is ahead (`queued`), and eagerly by the clock; torch's loop over ours (both by the clock, then both queued), and
microseconds of `finalize` (20 in a graph) and of the host for one update. First the host's own floor: so many launches of an empty kernel.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
import triton

import tri_reduce
from tri_reduce.launcher import launcher

Op = str | tuple[str, ...]
Problem = tuple[Op, tuple[int, ...], int | None, torch.dtype]
PROBLEMS: tuple[Problem, ...] = (  # op, shape of the result, dim of a tile that is reduced, dtype
    ("sum", (), None, torch.float32),
    ("sum", (4096,), 0, torch.float32),
    ("sum", (4096,), 0, torch.bfloat16),
    ("sum", (4096,), 1, torch.float32),
    ("sum", (64,), 0, torch.bfloat16),
    ("max", (4096,), 0, torch.bfloat16),
    ("mean", (4096,), 0, torch.float32),
    ("var", (4096,), 0, torch.float32),
    ("argmax", (4096,), 0, torch.float32),
    (("sum", "max", "min"), (4096,), 0, torch.float32),
)


def microseconds(run: Callable[[], object], repeats: int = 10, *, queued: bool = False) -> float:
    """Median time on the GPU's clock of a call and everything that it launched; `queued`: all is enqueued before the first launch runs."""
    for _ in range(3):
        run()
    times: list[float] = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        if queued:
            torch.cuda._sleep(6_000_000)  # type: ignore[no-untyped-call]
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def graphed(run: Callable[[], object]) -> Callable[[], None]:
    """The replay of a captured call."""
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


@triton.jit  # type: ignore[untyped-decorator]
def empty_kernel() -> None:
    """Nothing."""


def launch_floor(times: int) -> float:
    """Microseconds by the clock of so many bare launches through a compiled kernel's own launcher."""
    launch, middle = launcher(empty_kernel[(1,)]())
    stream = torch.cuda.current_stream().cuda_stream

    def run() -> None:
        for _ in range(times):
            launch(1, 1, 1, stream, *middle)

    return microseconds(run)


def once(x: torch.Tensor, op: Op, dim: int | None) -> object:
    """The one-shot reduction."""
    return tri_reduce.reduce(x, op, dim) if isinstance(op, str) else tri_reduce.reduce_many(x, op, dim)


def measure(op: Op, shape: tuple[int, ...], dim: int | None, dtype: torch.dtype, mib: int, tiles: int) -> str:
    """One line of the table."""
    elements = mib * 2**20 // dtype.itemsize
    outputs = shape[0] if shape else 1
    x = torch.randn(elements, device="cuda", dtype=dtype)
    x = x.view(outputs, -1) if dim == 1 else x.view(-1, outputs) if shape else x
    parts = [p.contiguous() for p in x.chunk(tiles, dim or 0)]
    sizes = [p.shape[dim or 0] for p in parts]
    offsets = [sum(sizes[:n]) if op == "argmax" else None for n in range(len(parts))]
    r, out = tri_reduce.Reducer(op, shape, dtype, "cuda"), None

    def stream() -> None:
        r.reset()
        for part, offset in zip(parts, offsets, strict=True):
            r.update(part, dim, offset=offset)
        r.finalize(out)

    def by_torch() -> None:
        acc = torch.zeros(shape, device="cuda", dtype=torch.float32)
        most, least = torch.full_like(acc, -math.inf), torch.full_like(acc, math.inf)
        for part in parts:
            acc += part.sum(dim)
            if not isinstance(op, str):
                torch.maximum(most, part.amax(dim or 0), out=most)
                torch.minimum(least, part.amin(dim or 0), out=least)

    stream()
    out = tuple(torch.empty_like(v) for v in r.value) if isinstance(r.value, tuple) else torch.empty_like(r.value)
    one = microseconds(graphed(lambda: once(x, op, dim)))
    in_graph, eager, queued = microseconds(graphed(stream)), microseconds(stream), microseconds(stream, queued=True)
    loop, loop_queued = microseconds(by_torch), microseconds(by_torch, queued=True)
    r.reset()
    r.update(parts[0], dim)

    def finish() -> None:
        for _ in range(20):
            r._state = "active"
            r.finalize(out)

    finish_in = microseconds(graphed(finish)) / 20
    small = torch.zeros_like(parts[0][:1] if dim != 1 else parts[0][:, :1])
    r.reset()
    r.update(small, dim, offset=offsets[0])
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(1000):
        r.update(small, dim, offset=offsets[0])
    host = (time.perf_counter() - start) * 1e3
    r.reset()
    return (
        f"{op if isinstance(op, str) else '+'.join(op):11s} {shape!s:7s} dim {dim!s:4s} {str(dtype)[6:]:8s} one-shot {one:5.0f} us"
        f"  graph {in_graph / one:4.2f}x  queued {queued / one:4.2f}x  eager {eager / one:4.2f}x  torch's loop {loop / eager:4.2f}x,"
        f" {loop_queued / queued:4.2f}x  finalize {finish_in:4.1f} us  host {host:4.1f} us/update"
    )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--tiles", type=int, default=64)
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}: {arguments.mib} MiB in {arguments.tiles} tiles")
    print(f"{arguments.tiles} bare launches: {launch_floor(arguments.tiles):.0f} us")
    for problem in PROBLEMS:
        print(measure(*problem, arguments.mib, arguments.tiles), flush=True)


if __name__ == "__main__":
    main()
