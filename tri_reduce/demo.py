"""Real work, checked against float64: `python -m tri_reduce demo`.

The reductions of `workloads.py`: on a GPU at their real sizes and timed beside eager torch; without one the same kernels run in Triton's
interpreter on the same shapes scaled down.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TextIO

import torch
from torch import Tensor

from .workloads import Case, cases, scaled

FLUSH_BYTES = 256 << 20
INTERPRETED_ELEMENTS = 1 << 14  # of an input without a GPU: a second each in the interpreter


def excess(got: Tensor, expected: Tensor, magnitude: Tensor, reduced: int) -> float:
    """The largest error as a fraction of the bound `4 eps(acc) log2(R) sum|x| + ulp(out)/2`: at most 1 where ours agrees.

    `acc` is float32, the accumulator of every float type up to it. NaN anywhere gives infinity.
    """
    largest = torch.maximum(got.double().abs(), expected.abs())
    finfo = torch.finfo(got.dtype)
    ulp = torch.ldexp(torch.full_like(largest, finfo.eps), torch.frexp(largest.clamp(min=finfo.tiny)).exponent - 1)
    bound = 4 * torch.finfo(torch.float32).eps * math.log2(max(reduced, 2)) * magnitude + ulp / 2
    worst = ((got.double() - expected).abs() / bound).max().item()
    return math.inf if math.isnan(worst) else worst


def cold_us(fn: Callable[..., object], args: tuple[Tensor, ...], reps: int = 20) -> float:
    """Median device time of `fn(*args)` in microseconds, the L2 cache flushed before each.

    All calls are enqueued before the first is read: the flush (some 60 us) keeps the device busy while the host enqueues the next.
    """
    device = args[0].device
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    events = [(torch.Event(device, enable_timing=True), torch.Event(device, enable_timing=True)) for _ in range(reps + 3)]
    fn(*args)
    for start, end in events:
        flush.zero_()
        start.record()
        fn(*args)
        end.record()
    torch.accelerator.synchronize()
    return statistics.median(float(start.elapsed_time(end)) for start, end in events[3:]) * 1e3


def interpreting() -> bool:
    """Whether Triton's interpreter runs the kernels of this process."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def run(out: TextIO | None = None, as_json: bool = False) -> int:
    """Run every case; 0 if all agree with float64, else 1. Without a GPU it continues in a new process with the interpreter on.

    as_json: print one JSON object instead of lines.
    """
    out = out or sys.stdout
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() and not interpreting() else None
    if device is not None:
        return _report(device, None, out, f"on {device}: real sizes, median GPU time with a cold L2 cache, beside eager torch", as_json)
    if not interpreting() and importlib.util.find_spec("triton"):
        # Triton decides at import whether kernels are compiled or interpreted: too late for this process.
        command = [sys.executable, "-m", "tri_reduce", "demo", *["--json"] * as_json]
        try:
            return subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}).returncode
        except KeyboardInterrupt:  # the other process had it too, and said so
            return 130
    what = "the real kernels in Triton's interpreter" if interpreting() else "no Triton either: the PyTorch reference, not the kernels,"
    return _report(
        torch.device("cpu"), INTERPRETED_ELEMENTS, out, f"no GPU: {what} on scaled-down inputs (correctness only, no speed)", as_json
    )


@dataclass(frozen=True)
class Outcome:
    """A case that ran. error: the largest, as a share of the bound; times in microseconds, where there is a GPU."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    error: float
    us: float | None = None
    eager_us: float | None = None
    gb_per_s: float | None = None

    @property
    def agrees(self) -> bool:
        """Every element is within the bound."""
        return self.error <= 1

    def __str__(self) -> str:
        verdict = "agrees with torch" if self.agrees else f"DISAGREES: {self.error:.3g} times the error bound"
        line = f"{self.name:34} {'x'.join(map(str, self.shape)):16} {verdict}"
        if self.us and self.eager_us:
            line += f"  {self.us:8.1f} us  {self.gb_per_s:6.0f} GB/s  eager {self.eager_us:8.1f} us, {self.eager_us / self.us:.2f}x"
        return line


def _outcome(case: Case, device: torch.device, seed: int) -> Outcome:
    inputs = case.inputs(device, seed)
    error = excess(case.ours(*inputs), *case.expected(inputs), case.reduced)
    about = (case.name, case.shapes[0], str(case.dtype).removeprefix("torch."), error)
    if device.type == "cpu":
        return Outcome(*about)
    ours, eager = (cold_us(fn, inputs) for fn in (case.ours, case.eager))
    return Outcome(*about, ours, eager, case.nbytes / ours / 1e3)


def _report(device: torch.device, limit: int | None, out: TextIO, title: str, as_json: bool) -> int:
    outcomes = []
    if not as_json:
        print(title, file=out)
    for seed, case in enumerate(cases(limit)):
        outcomes.append(_outcome(case, device, seed))
        if not as_json:
            print(outcomes[-1], file=out, flush=True)
    ratios = [o.eager_us / o.us for o in outcomes if o.us and o.eager_us]
    over_eager = statistics.geometric_mean(ratios) if ratios else None
    wrong = sum(not o.agrees for o in outcomes)
    if as_json:
        listed = [asdict(o) | {"agrees": o.agrees} for o in outcomes]
        print(json.dumps({"title": title, "over_eager": over_eager, "wrong": wrong, "cases": listed}, indent=2), file=out)
        return int(wrong > 0)
    if over_eager:
        print(f"geometric mean over eager torch: {over_eager:.2f}x", file=out)
    print(
        f"{wrong} of {len(outcomes)} disagree with float64" if wrong else f"all {len(outcomes)} agree with float64 within the bound",
        file=out,
    )
    return int(wrong > 0)


__all__ = ["Case", "Outcome", "cases", "cold_us", "excess", "interpreting", "run", "scaled"]
