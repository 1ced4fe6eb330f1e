"""Time a lattice of tiles for every problem of the corpus, on the GPU at hand, into one compact JSON file.

    python benchmarks/sweep.py --out DIR [--from FILE] [--budget SECONDS] [--only REGEX] [--jobs N] [--limit N] [--rounds N] [--again N]

Kernels are compiled by processes that never touch the device, into Triton's cache; this process only loads and times them: the GPU's own
time, cold L2. A problem starts with the selector's candidates and a random part of the lattice, then tries the neighbours of its best
four, a few rounds; last, all that came close are timed again, taking turns. The selector's first pick is checked against float64. What
FILE (or an earlier run's result in DIR) has is kept; what it lacks is measured; with --again, so are the best N that it has, from which the
search goes on, and its other times are scaled alike. With TRITON_INTERPRET=1 it runs without a GPU, where times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from compiling import compile_tile, lattice_of, result_of, specialise, start, started
from corpus import KEPT_OUT, LARGEST, Case, cases
from lattice import neighbours, tile_at
from sweep_clock import Clock, GpuClock, host_clock
from torch import Tensor

from tri_reduce import targets
from tri_reduce.apart import planned
from tri_reduce.configs import candidates
from tri_reduce.exact import excess, gemv_excess
from tri_reduce.geometry import Coordinates, Tile, coordinates
from tri_reduce.problem import Problem
from tri_reduce.targets import Target

COLUMNS = ("x", "r0", "r1", "split", "warps", "ahead", "unroll", "us")  # "abreast" before "us" where rows are read as one
HOPELESS, CLOSE = 2.0, 1.2  # times the best: dropped after the first pass; timed again at the end
FIRST, SECOND, LAST = 4, 8, 24  # samples of a pass
BEST = 4  # tiles whose neighbours are tried
WINDOW = 24  # problems under way: enough that no compiling process ever waits
MARGIN, DRAIN = 12, 45  # seconds before the budget ends: nothing goes on; no problem is begun


@dataclass
class Device:
    """Where problems run: its target, its clock, and one buffer of random numbers for each dtype that all inputs are views of."""

    device: torch.device
    target: Target
    clock: Clock
    limit: int
    buffers: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def values(self, shape: Sequence[int], dtype: torch.dtype, pitch: int = 0, start: int = 0) -> Tensor:
        """Normally distributed numbers in memory of their own, as they lie in it (see `describe`)."""
        if dtype not in self.buffers:
            size = self.limit // dtype.itemsize + 16
            some = torch.randn(size, device=self.device, dtype=dtype if dtype.is_floating_point else torch.float16)
            self.buffers[dtype] = some if dtype.is_floating_point else some.mul_(40).to(dtype)
        *outer, row = shape
        wide = (*outer, pitch or row)
        own = self.buffers[dtype][: start + torch.Size(wide).numel()].clone()
        return own[start:].view(wide)[..., :row]


@dataclass
class Progress:
    """One problem under way."""

    case: Case
    problem: Problem
    record: dict[str, Any]
    us: dict[Coordinates, float]
    failed: dict[Coordinates, str]
    planned: Future[list[Tile]] | None = None
    new: dict[Coordinates, Tile] = field(default_factory=dict)
    jobs: dict[Coordinates, Future[str]] = field(default_factory=dict)
    calls: dict[Coordinates, Callable[[], None]] = field(default_factory=dict)
    tiles: dict[Coordinates, Tile] = field(default_factory=dict)
    old: dict[Coordinates, float] = field(default_factory=dict)
    operands: tuple[Tensor, Tensor | None] | None = None
    round: int = 0

    @property
    def ready(self) -> bool:
        """Nothing is being compiled."""
        return (self.planned is None or self.planned.done()) and all(job.done() for job in self.jobs.values())


def progress_of(case: Case, record: dict[str, Any] | None) -> Progress:
    """Where a problem stands, from what a file has of it."""
    record = record or case.record() | {"done": False, "excess": None, "tiles": [], "failed": []}
    us = {tuple(row[:-1]): row[-1] for row in record["tiles"]}
    tiles = {c: tile_at(case.problem, c) for c in us}
    return Progress(case, case.problem, record, us, {tuple(row[:-1]): row[-1] for row in record["failed"]}, tiles=tiles)


class Sweep:
    """All problems, their file, and the compiling processes."""

    def __init__(self, device: Device, compilers: ProcessPoolExecutor | None, limit: int, rounds: int, again: int = 0) -> None:
        self.device, self.compilers, self.limit, self.rounds, self.again = device, compilers, limit, rounds, again
        self.kernels: dict[Any, Future[str]] = {}

    def missing(self, progress: Progress) -> list[Tile]:
        """The selector's present candidates that were never tried."""
        found = candidates(progress.problem, self.device.target)
        tried = progress.us.keys() | progress.failed.keys()
        return [t for t in found if coordinates(progress.problem, t) not in tried]

    def begin(self, progress: Progress) -> None:
        """Ask for the first tiles."""
        if progress.record["done"] and self.again:
            progress.old, progress.us = progress.us, {}
            progress.record = progress.record | {"done": False}
            best = sorted(progress.old, key=lambda c: progress.old[c])[: self.again]
            self.ask(progress, [*(progress.tiles[c] for c in best), *candidates(progress.problem, self.device.target)[:1]])
        elif progress.record["done"]:
            self.ask(progress, self.missing(progress))
        else:
            progress.planned = self.submit(lattice_of, progress.case, self.device.target, self.limit)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Elsewhere, or at once where nothing compiles."""
        if self.compilers is not None:
            return self.compilers.submit(function, *arguments)
        done: Future[Any] = Future()
        done.set_result(function(*arguments))
        return done

    def ask(self, progress: Progress, tiles: Iterable[Tile]) -> None:
        """Have tiles compiled that are neither timed nor failed yet; kernels that problems share only once."""
        progress.jobs.clear()
        limit = CLOSE * min(progress.old.values(), default=0)
        for tile in tiles:
            at = coordinates(progress.problem, tile)
            if at in progress.us or at in progress.failed or at in progress.new or progress.old.get(at, 0) > limit:
                continue
            progress.new[at] = tile
            if self.compilers is not None:
                spec = specialise(progress.case, tile)
                kernel = (spec.fn.__name__, spec.signature, spec.constexprs, spec.divisible, spec.warps)
                if kernel not in self.kernels:
                    self.kernels[kernel] = self.submit(compile_tile, progress.case, tile, self.device.target)
                progress.jobs[at] = self.kernels[kernel]

    def advance(self, progress: Progress) -> bool:
        """Time what is compiled and ask for more; True when the problem is done."""
        if progress.planned is not None:
            tiles, progress.planned = progress.planned.result(), None
            self.ask(progress, tiles)
            return False
        self.time(progress)
        if not progress.record["done"] and progress.round < self.rounds:
            progress.round += 1
            best = sorted(progress.us, key=lambda c: progress.us[c])[:BEST]
            near = [n for c in best for n in neighbours(progress.problem, self.device.target, progress.tiles[c])]
            self.ask(progress, near)
            if progress.new:
                return False
        self.finish(progress, True)
        return True

    def time(self, progress: Progress) -> None:
        """The first two passes over new tiles."""
        fresh = []
        for at, tile in progress.new.items():
            error = progress.jobs[at].result() if at in progress.jobs else ""
            try:
                if error:
                    raise RuntimeError(error)
                call = self.call_of(progress, tile)
                call()
            except Exception as reason:  # shared memory, registers: recorded with the tile
                progress.failed[at] = " ".join(str(reason).split())[:200]
            else:
                progress.calls[at], progress.tiles[at] = call, tile
                fresh.append(at)
        progress.new.clear()
        progress.us |= zip(fresh, self.device.clock([progress.calls[c] for c in fresh], FIRST))
        limit = HOPELESS * min(progress.us.values(), default=0)
        again = [c for c in fresh if progress.us[c] <= limit]
        progress.us |= zip(again, self.device.clock([progress.calls[c] for c in again], SECOND))

    def finish(self, progress: Progress, done: bool) -> None:
        """The last pass, the check, the record."""
        limit = CLOSE * min(progress.us.values(), default=0)
        close = [c for c in progress.calls if progress.us[c] <= limit]
        progress.us |= zip(close, self.device.clock([progress.calls[c] for c in close], LAST))
        progress.us = _rescaled(progress.old, progress.us)
        if progress.record["excess"] is None:
            progress.record["excess"] = round(self.check(progress), 4)
        progress.record["tiles"] = [[*at, round(us, 2)] for at, us in progress.us.items()]
        progress.record["failed"] = [[*at, why] for at, why in progress.failed.items()]
        progress.record["done"] = done or bool(progress.old)
        progress.calls.clear()
        progress.operands = None

    def operands(self, progress: Progress) -> tuple[Tensor, Tensor | None]:
        """The input, and gemv's vector, the same as long as a problem is under way."""
        if progress.operands is None:
            case, vector = progress.case, None
            x = self.device.values(case.shape, case.problem.dtype.torch, case.pitch, case.start)
            if case.op == "gemv":
                numbers = self.device.values((2, case.problem.rnumel), torch.float32)[1]  # no row of the matrix: its square may overflow
                vector = numbers.to(x.dtype, copy=True)  # which starts on a vector
            progress.operands = x, vector
        return progress.operands

    def call_of(self, progress: Progress, tile: Tile) -> Callable[[], None]:
        """The loaded kernel with its operands."""
        case = progress.case
        spec = specialise(case, tile)
        (x, v), out = self.operands(progress), self.output(case)
        plan = planned(spec, self.device.device, case.problem.shift, x.element_size())
        return (lambda: plan.run(x, v, None, out)) if case.op == "gemv" else (lambda: plan.run(x, None, out))

    def output(self, case: Case) -> Tensor:
        """Where results go."""
        return torch.empty(case.problem.xnumel, dtype=result_of(case), device=self.device.device)

    def check(self, progress: Progress) -> float:
        """The selector's first pick against float64: its error as a share of the bound."""
        case = progress.case
        (x, v), out = self.operands(progress), self.output(case)
        spec = specialise(case, candidates(case.problem, self.device.target)[0])
        plan = planned(spec, self.device.device, case.problem.shift, x.element_size())
        if v is None:
            plan.run(x, None, out)
            kept = [n for d, n in enumerate(x.shape) if d not in _dims(case)]
            return excess(case.op, out.view(kept), x, case.dim)
        plan.run(x, v, None, out)
        return gemv_excess(out, x.T if case.trans else x, v)


def _rescaled(old: dict[Coordinates, float], new: dict[Coordinates, float]) -> dict[Coordinates, float]:
    """New times, and the old ones of tiles that have none, as much faster or slower as the others were."""
    both = [new[c] / old[c] for c in old.keys() & new.keys()]
    ratio = statistics.median(both) if both else 1.0
    return {c: us * ratio for c, us in old.items()} | new


def _dims(case: Case) -> set[int]:
    rank = len(case.shape)
    given = range(rank) if case.dim is None else (case.dim,) if isinstance(case.dim, int) else case.dim
    return {d % rank for d in given}


def load(path: Path) -> dict[str, Any]:
    """A sweep's file."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def save(path: Path, meta: dict[str, Any], records: dict[str, dict[str, Any]]) -> None:
    """A problem a line, in the order of their names; whole or not at all."""
    lines = [f"{json.dumps(key)}: {json.dumps(records[key], separators=(',', ':'))}" for key in sorted(records)]
    head = f'"meta": {json.dumps(meta)},\n"columns": {json.dumps(COLUMNS)},\n"problems": {{\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text("{" + head + ",\n".join(lines) + "\n}}\n")
    part.replace(path)


def run(
    sweep: Sweep, todo: Sequence[Case], records: dict[str, dict[str, Any]], store: Callable[[], None], deadline: float, every: float = 15
) -> None:
    """All problems, a window of them at a time, until the deadline."""
    waiting = [progress_of(case, records.get(case.key)) for case in todo]
    waiting = [p for p in waiting if sweep.again or not p.record["done"] or sweep.missing(p)]
    waiting.sort(key=lambda p: bool(p.record["done"]))  # what only lacks candidates comes last
    print(f"{len(todo)} problems, {len(waiting)} to do", flush=True)
    total, done, said = len(waiting), 0, time.monotonic()
    active: list[Progress] = []
    while time.monotonic() < deadline and (active or (waiting and time.monotonic() < deadline - DRAIN)):
        while waiting and len(active) < WINDOW and time.monotonic() < deadline - DRAIN:
            active.append(waiting.pop(0))
            sweep.begin(active[-1])
        ready = next((p for p in active if p.ready), None)
        if ready is None:
            time.sleep(0.005)
        elif sweep.advance(ready):
            active.remove(ready)
            done += 1
            records[ready.case.key] = ready.record
            if ready.record["excess"] > 1:
                print(f"WRONG: {ready.case.key}: {ready.record['excess']:.3g} times the bound", flush=True)
        if time.monotonic() - said > every:
            said = time.monotonic()
            store()
            print(f"{done}/{total} problems, {len(sweep.kernels)} kernels, {deadline - said:.0f} s left", flush=True)
    for progress in (p for p in active if p.us):
        sweep.finish(progress, False)
        records[progress.case.key] = progress.record
    store()
    print(f"{done}/{total} problems, {len(sweep.kernels)} kernels; {len(waiting) + len(active)} left for another run", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep; the exit status is 1 where a result was wrong."""
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the result, NAME_reduce.json by the device's name")
    parser.add_argument("--from", dest="known", type=Path, help="what is kept of it (default: the result in --out, then benchmarks/data)")
    parser.add_argument("--budget", type=float, default=540, help="seconds in all (default: 540)")
    parser.add_argument("--only", default="", help="a regular expression on family and name")
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="compiling processes (default: all but one core)"
    )
    parser.add_argument("--limit", type=int, default=40, help="tiles of a problem's lattice beside the selector's candidates (default: 40)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of neighbours (default: 3)")
    parser.add_argument("--again", type=int, default=0, help="best known tiles of each problem to time anew (default: none)")
    parser.add_argument("--largest", type=int, default=LARGEST, help="bytes of the largest input (default: 1 GiB)")
    options = parser.parse_args(arguments)
    interpreting = targets.interpreting()
    compilers = None
    if not interpreting:  # before this process touches the device: children of one that has may not
        compilers = ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork"), start)
        for ready in [compilers.submit(started) for _ in range(options.jobs)]:
            ready.result()
    if not interpreting and not torch.cuda.is_available():
        print("sweep: no GPU here, and TRITON_INTERPRET is not set", file=sys.stderr)
        return 2
    where = torch.device("cpu") if interpreting else torch.device("cuda", 0)
    device = Device(where, targets.of_device(where.type, 0), host_clock if interpreting else GpuClock(where), options.largest)
    name = device.target.name.replace(" ", "_")
    path = options.out / f"{name}_reduce.json"
    source = options.known or (path if path.exists() else Path(__file__).parent / "data" / path.name)
    known = load(source) if source.exists() else {"meta": {}, "problems": {}}
    meta: dict[str, Any] = {
        "device": "interpreter" if interpreting else torch.cuda.get_device_name(0),
        "target": name,
        "torch": torch.__version__,
    }
    meta["kept_out"] = list(KEPT_OUT)
    if known["meta"].get("device", meta["device"]) != meta["device"]:
        print(f"sweep: {source} is of {known['meta']['device']!r}, this is {meta['device']!r}", file=sys.stderr)
        return 2
    records = known["problems"]
    todo = [c for c in cases() if re.search(options.only, f"{c.family}: {c.key}") and c.nbytes <= options.largest]
    sweep = Sweep(device, compilers, options.limit, options.rounds, options.again)
    try:
        run(sweep, todo, records, lambda: save(path, meta, records), begin + options.budget - MARGIN)
    finally:
        save(path, meta, records)
        if compilers is not None:
            compilers.shutdown(wait=False, cancel_futures=True)
    return int(any(r["excess"] is not None and r["excess"] > 1 for r in records.values()))


if __name__ == "__main__":
    sys.exit(main())
