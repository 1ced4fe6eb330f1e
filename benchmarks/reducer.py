"""Streaming through a `Reducer` beside one-shot `reduce` of the same bytes and beside torch's `acc += tile.sum(dim)`. Needs a GPU.

    python benchmarks/reducer.py [--mib 1024] [--tiles 64]

One line a problem: microseconds of the one-shot reduction under a CUDA graph, then ratios to it (`graph`, `eager`), torch's loop over ours
(eager), and microseconds of `finalize` and of the host for one update.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import tri_reduce

Problem = tuple[str, tuple[int, ...], int | None, torch.dtype]
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
)


def microseconds(run: Callable[[], object], repeats: int = 10) -> float:
    """Median time on the GPU's clock of a call and everything that it launched."""
    for _ in range(3):
        run()
    times: list[float] = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
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


def measure(op: str, shape: tuple[int, ...], dim: int | None, dtype: torch.dtype, mib: int, tiles: int) -> str:
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
        for part in parts:
            acc += part.sum(dim)

    stream()
    out = torch.empty_like(r.value)
    one = microseconds(graphed(lambda: tri_reduce.reduce(x, op, dim)))
    in_graph, eager, loop = microseconds(graphed(stream)), microseconds(stream), microseconds(by_torch)
    r.reset()
    r.update(parts[0], dim)

    def finish() -> None:
        r._state = "active"
        r.finalize(out)

    finish_in = microseconds(graphed(finish), 50)
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
        f"{op:7s} {shape!s:8s} dim {dim!s:4s} {str(dtype)[6:]:9s} one-shot {one:7.1f} us  graph {in_graph / one:5.2f}x"
        f"  eager {eager / one:5.2f}x  torch loop {loop / eager:5.2f}x ours  finalize {finish_in:5.1f} us  host {host:5.1f} us/update"
    )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--tiles", type=int, default=64)
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}: {arguments.mib} MiB in {arguments.tiles} tiles")
    for problem in PROBLEMS:
        print(measure(*problem, arguments.mib, arguments.tiles), flush=True)


if __name__ == "__main__":
    main()
