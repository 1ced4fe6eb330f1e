"""What small calls cost the host. Beside torch on a GPU; without one, Python's part alone: nothing is launched.

    python benchmarks/host_cost.py [--json FILE]

Ours and torch's take turns, in rounds of 2000 calls on 64 x 64 tensors; the best and the median of the rounds, in microseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._C._dynamo.guards as torch_guards
from torch import Tensor

import tri_reduce
from tri_reduce import launch, plans, targets

Call = Callable[[], object]
CALLS, ROUNDS = 2000, 15
EMPTY: Any = getattr(torch_guards, "_empty_strided_cpu", torch.empty_strided)


@contextlib.contextmanager
def somewhere() -> Iterator[torch.device]:
    """The GPU; where there is none, the CPU in place of an H200 on which launches do nothing."""
    if torch.cuda.is_available():
        yield torch.device("cuda", torch.cuda.current_device())
        return
    middle = (0, False, False, None, None, (4, 1, 0), None, None, None)
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (targets, "interpreting", lambda: False),
            (targets, "runs_kernels", lambda device: True),
            (targets, "of_device", lambda kind, index: targets.H200),
            (launch, "current_device", lambda: 0),
            (launch, "current_stream", lambda index: 0),
            (launch, "_capturing", lambda: False),
            (launch, "allocator", lambda device: EMPTY),
            (launch.Plan, "_prepare", lambda plan: (lambda *given: None, middle)),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        plans.PLANS.clear()
        stack.callback(plans.PLANS.clear)  # they launch nothing
        yield torch.device("cpu")


def pairs(device: torch.device) -> dict[str, tuple[Call, Call | None]]:
    """By name: our call, and torch's, where it has one."""
    x, v, out = torch.randn(64, 64, device=device), torch.randn(64, device=device), torch.empty(64, device=device)
    half, w, row = x.bfloat16(), v.bfloat16(), torch.zeros(1, 1 << 14, device=device)
    r, tile = tri_reduce.Reducer("sum", (64,), torch.float32, device), torch.zeros(1, 64, device=device)
    total = torch.zeros(64, device=device)

    def add() -> Tensor:
        return total.add_(tile.sum(0))

    def finalize() -> None:
        r._state = "active"
        r.finalize(out)

    def update() -> None:
        r._state = "active"
        r.update(tile, 0)
        r._state = "finalized"

    return {
        "sum(x, 1)": (lambda: tri_reduce.sum(x, 1), lambda: torch.sum(x, 1)),
        "reduce(x, 'sum', 1)": (lambda: tri_reduce.reduce(x, "sum", 1), lambda: torch.sum(x, 1)),
        "amax(x, 1)": (lambda: tri_reduce.amax(x, 1), lambda: torch.amax(x, 1)),
        "sum(x)": (lambda: tri_reduce.sum(x), lambda: torch.sum(x)),
        "sum(x, 1, out=out)": (lambda: tri_reduce.sum(x, 1, out=out), lambda: torch.sum(x, 1, out=out)),
        "var(x, 1)": (lambda: tri_reduce.var(x, 1), lambda: torch.var(x, 1)),
        "sum(x, 1, dtype=)": (lambda: tri_reduce.sum(x, 1, dtype=torch.float64), lambda: torch.sum(x, 1, dtype=torch.float64)),
        "gemv(a, x)": (lambda: tri_reduce.gemv(x, v), lambda: torch.mv(x, v)),
        "gemv(a, x) bf16": (lambda: tri_reduce.gemv(half, w), lambda: torch.mv(half, w)),
        "gemv(a, x, out=out)": (lambda: tri_reduce.gemv(x, v, out=out), lambda: torch.mv(x, v, out=out)),
        "sum(row, 1), shared": (lambda: tri_reduce.sum(row, 1), lambda: torch.sum(row, 1)),
        "Reducer.update": (update, add),
        "Reducer.finalize(out)": (finalize, None),
    }


def rounds_of(calls: dict[str, Call], number: int = CALLS, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Microseconds a call in each round; in a round the calls take turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(50):
            call()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in calls.items():
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(number):
                    call()
                found[name].append((time.perf_counter() - begin) / number * 1e6)
    finally:
        gc.enable()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    options = parser.parse_args()
    table: dict[str, dict[str, float]] = {}
    with somewhere() as device:
        gpu = device.type == "cuda"
        print(f"{torch.cuda.get_device_name(device)}: us a call" if gpu else "no GPU: Python's part of a call, us; nothing is launched")
        print(f"{'':24} {'ours':>7} {'median':>7}" + (f" {'torch':>7} {'median':>7} {'ratio':>6}" if gpu else ""))
        for name, (ours, theirs) in pairs(device).items():
            took = rounds_of({"ours": ours} | ({"torch": theirs} if gpu and theirs is not None else {}))
            kinds = (("best", min), ("median", statistics.median))
            row = table[name] = {f"{who} {kind}": of(us) for who, us in took.items() for kind, of in kinds}
            text = "".join(f" {us:7.2f}" for us in row.values())
            ratio = f" {row['ours median'] / row['torch median']:6.2f}" if "torch median" in row else ""
            print(f"{name:24}{text}{ratio}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"device": str(device), "us": table}, indent=1))


if __name__ == "__main__":
    main()
