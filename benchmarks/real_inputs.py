"""Real reductions at their real sizes: checked against float64, timed beside eager torch and torch.compile.

    python benchmarks/real_inputs.py [--only WORD] [--compile] [--rounds N] [--json FILE]

The cases are the demo's. Device time, cold L2; contestants take turns, in another order each round. Exit status 1 if a result is
outside the error bound.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tri_reduce
from tri_reduce import demo

Row = dict[str, Any]


def measure(case: demo.Case, device: torch.device, rounds: int, with_compile: bool, order: random.Random) -> Row:
    """One case: its error as a fraction of the bound, and each contestant's median time in microseconds."""
    inputs = case.inputs(device)
    contestants: dict[str, Callable[..., object]] = {"ours": case.ours, "eager": case.eager}
    if with_compile:
        torch.compiler.reset()
        contestants["compile"] = torch.compile(case.eager, dynamic=False)
    share = demo.excess(case.ours(*inputs), *case.expected(inputs), case.reduced)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in order.sample(list(contestants), len(contestants)):
            times[name].append(demo.cold_us(contestants[name], inputs))
    shape = "x".join(map(str, case.shapes[0]))
    medians = {name: statistics.median(ts) for name, ts in times.items()}
    return {"case": case.name, "shape": shape, "error/bound": share, "bytes": case.nbytes, "us": medians}


def line(row: Row) -> str:
    """One row for a person."""
    us = row["us"]
    rest = "".join(f"  {name} {t:8.1f} us {t / us['ours']:5.2f}x" for name, t in us.items() if name != "ours")
    verdict = "ok" if row["error/bound"] <= 1 else "WRONG"
    return f"{row['case']:34} {row['shape']:16} {verdict:5} {us['ours']:8.1f} us {row['bytes'] / us['ours'] / 1e3:6.0f} GB/s{rest}"


def main() -> int:
    """Run the cases; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--compile", action="store_true", help="also time torch.compile")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of 20 calls for each contestant (default: 3)")
    parser.add_argument("--json", type=Path, help="write what was measured, with the versions, to this file")
    args = parser.parse_args()
    if not torch.accelerator.is_available():
        parser.exit(2, "no GPU: speed is measured on one only (`python -m tri_reduce demo` checks the results in the interpreter)\n")
    device = torch.device(f"{torch.accelerator.current_accelerator()}:{torch.accelerator.current_device_index()}")
    chosen = [case for case in demo.cases() if args.only.lower() in case.name.lower()]
    if not chosen:
        parser.exit(2, f"--only {args.only!r}: no case has this word in its name\n")

    rows, order = [], random.Random(0)
    for case in chosen:
        rows.append(measure(case, device, args.rounds, args.compile, order))
        print(line(rows[-1]), flush=True)
    ratios = {n: statistics.geometric_mean(r["us"][n] / r["us"]["ours"] for r in rows) for n in rows[0]["us"] if n != "ours"}
    print(f"geometric mean of {len(rows)}: " + ", ".join(f"{ratio:.2f}x over {name}" for name, ratio in ratios.items()))
    if args.json:
        about = {
            "device": torch.get_device_module(device.type).get_device_name(device.index),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "tri_reduce": tri_reduce.__version__,
        }
        args.json.write_text(json.dumps({"about": about, "ratios": ratios, "rows": rows}, indent=1) + "\n")
    return int(any(row["error/bound"] > 1 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
