"""How long calls take, side by side: the clock of `sweep.py`."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

FLUSH_BYTES = 256 << 20
Clock = Callable[[Sequence[Callable[[], None]], int], list[float]]


class GpuClock:
    """Microseconds on the GPU, for each call: L2 flushed before each, calls taking turns, the host always ahead.

    Between two events every fourth launch takes 0.6 us more, whatever runs: each turn has an order of its own, and what counts is the
    mean of the middle half, as a median would be that of one kind of launch or the other.
    """

    def __init__(self, device: torch.device) -> None:
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
        self.random = random.Random(0)

    def __call__(self, calls: Sequence[Callable[[], None]], repeats: int) -> list[float]:
        pairs = [[(_event(), _event()) for _ in range(repeats)] for _ in calls]
        torch.cuda._sleep(300_000)  # type: ignore[no-untyped-call]
        for turn in range(repeats):
            for n in self.random.sample(range(len(calls)), len(calls)):
                start, end = pairs[n][turn]
                self.flush.zero_()
                torch.cuda._sleep(20_000)  # type: ignore[no-untyped-call]
                start.record()
                calls[n]()
                end.record()
        torch.cuda.synchronize()
        return [_middle([start.elapsed_time(end) * 1e3 for start, end in mine]) for mine in pairs]


def _middle(samples: list[float]) -> float:
    """The mean of the middle half."""
    cut = len(samples) // 4
    return statistics.mean(sorted(samples)[cut : len(samples) - cut])


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def host_clock(calls: Sequence[Callable[[], None]], repeats: int) -> list[float]:
    """Microseconds of one call each: for the interpreter."""
    times = []
    for call in calls:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return times
