"""Contestants side by side in one process: each problem's take turns, and every result is checked against float64."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from . import __version__, exact
from . import bench_report as report
from .bench_clock import FLOOR_TILES, Clock, Contestant, Floor, GpuClock, HostClock, Time, said, take_turns
from .bench_contestants import OURS, PEERS, importable, result_of
from .bench_problems import Case

ROUNDS = 6  # each beginning with another contestant
COMPILED = {"compile", "max-autotune"}
CHECKED = 1 << 28  # elements that are checked at once, in float64


def contestants(names: str) -> list[str]:
    """Those that are named, by default all that are here; ValueError where one is unknown or not installed."""
    if not names:
        return [n for n in (*OURS, *PEERS) if importable(n)]
    for name in (found := names.split(",")):
        if name not in OURS and name not in PEERS:
            raise ValueError(f"--with: unknown contestant {name!r} (one of {', '.join([*OURS, *PEERS])})")
        if not importable(name):
            raise ValueError(f"--with: {name} is not installed")
    return found


def wrong(rows: Sequence[report.Row]) -> list[str]:
    """Problems where we were not right."""
    return [r["case"] for r in rows if any(name in r["wrong"] or name in r["errors"] for name in (*OURS, "inputs"))]


class Bench:
    """Measures one problem after another."""

    def __init__(self, device: torch.device, who: Sequence[str], samples: int) -> None:
        interpreting = device.type == "cpu"
        self.clock: Clock = HostClock(device) if interpreting else GpuClock(device)
        self.who = [n for n in who if not interpreting or n in (*OURS, "eager", "linear")]
        self.rounds, self.times = (1, 1) if interpreting else (min(ROUNDS, samples), math.ceil(samples / ROUNDS))
        self.floor = Floor(self.clock, ((1024, 4, 1),) if interpreting else FLOOR_TILES)
        self.rows: list[report.Row] = []

    def measure(self, case: Case) -> report.Row:
        """A row: all contestants' times, results checked."""
        row: report.Row = {
            "case": str(case), "op": case.op, "series": case.series, "bytes": case.nbytes, "MiB": round(case.nbytes / 2**20, 3),
            "outputs": case.outputs, "us": {}, "host_us": {}, "spread_us": {}, "wrong": {}, "errors": {},
        }  # fmt: skip
        self.rows.append(row)
        if COMPILED & set(self.who):
            torch.compiler.reset()  # else problems share, and exceed, the room for compilations of one lambda
        try:
            inputs = case.inputs(self.clock.device)
        except torch.OutOfMemoryError:
            row["errors"]["inputs"] = "no room for them"
            return row
        ready = {"floor": self.floor.reader(case.nbytes, inputs[0])}
        for name in self.who:
            try:
                made = (OURS | PEERS)[name](case, inputs)
                share = 0.0 if made is None else self.share(case, inputs, made)
            except Exception as error:  # noqa: PERF203  (a peer that cannot: recorded beside the others' times)
                row["errors"][name] = said(error)
            else:
                if made is not None:
                    ready[name] = made
                if not share <= 1:
                    row["wrong"][name] = share
        times = self.times_of(ready, row["errors"])
        for key, field in (("us", "us"), ("host_us", "host_us"), ("spread_us", "spread")):
            row[key] = {name: round(getattr(t, field), 3) for name, t in times.items()}
        del ready, inputs
        if self.clock.device.type == "cuda":
            torch.cuda.empty_cache()
        return row

    def times_of(self, ready: dict[str, Contestant], errors: dict[str, str] | None = None) -> dict[str, Time]:
        """Contestants' times, taken in turns; why there are none goes to `errors`."""
        times, failed = take_turns(self.clock, ready, self.rounds, self.times)
        (errors if errors is not None else {}).update(failed)
        return times

    def share(self, case: Case, inputs: tuple[Tensor, ...], contestant: Contestant) -> float:
        """The largest error over the bound, a part of the outputs at a time."""
        got, x = result_of(contestant), inputs[0]
        if case.op == "gemv":
            a = x.T if case.trans else x
            step = max(1, CHECKED // a.shape[1])
            return max(exact.gemv_excess(g, part, inputs[1]) for g, part in zip(torch.split(got, step), torch.split(a, step)))
        kept = [d for d in range(x.dim()) if d not in case.reduced]
        if x.numel() <= CHECKED or not kept:
            return exact.excess(case.op, got, x, case.reduced)
        along = max(kept, key=lambda d: x.shape[d])
        step = max(1, CHECKED * x.shape[along] // x.numel())
        parts = zip(torch.split(got, step, kept.index(along)), torch.split(x, step, along))
        return max(exact.excess(case.op, g, part, case.reduced) for g, part in parts)


def whole(which: str, device: torch.device, rows: Sequence[report.Row], left: Sequence[str]) -> dict[str, Any]:
    """Everything that was found, for programs."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "interpreter"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__, "tri_reduce": __version__}
    meta = {"device": name, "list": which} | versions
    return {"meta": meta, "rows": list(rows), "not measured": list(left), "summary": report.summary(rows)}


def save(path: Path, found: dict[str, Any]) -> None:
    """One file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(found, indent=1))
    part.replace(path)
