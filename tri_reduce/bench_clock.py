"""Time on the device alone, cold, beside the host's time of the same calls; and the floor: a cold read of so many bytes."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

FLUSH_BYTES = 256 << 20
BUSY_CYCLES = 500_000  # a quarter of a millisecond, in which the host enqueues the call that is timed
CYCLES_PER_US = 2_000
FLOOR_TILES = (
    (1024, 4, 1),
    (2048, 4, 1),
    (2048, 8, 1),
    (4096, 8, 1),
    (4096, 8, 2),
    (8192, 8, 1),
    (2048, 4, 8),
    (4096, 8, 8),
)  # see `read_kernel`


@dataclass(frozen=True)
class Contestant:
    """A call, and what is in force around it."""

    call: Callable[[], Any]
    context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


@dataclass(frozen=True)
class Time:
    """Medians, in microseconds, and half the distance of the quartiles of `us`."""

    us: float
    host_us: float
    spread: float


class GpuClock:
    """CUDA events around each call; the L2 cache is flushed, and the GPU kept busy until the host has enqueued."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)

    def samples(self, call: Callable[[], Any], times: int) -> list[tuple[float, float]]:
        """(device, host) microseconds of each call."""
        call()
        torch.cuda.synchronize(self.device)
        begin = time.perf_counter()
        call()
        lag = (time.perf_counter() - begin) * 1e6
        cycles = max(BUSY_CYCLES, int(4 * lag * CYCLES_PER_US))
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]  # type: ignore[no-untyped-call]
        host = []
        for start, end in events:
            self.flush.zero_()
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
            start.record()
            begin = time.perf_counter()
            call()
            host.append((time.perf_counter() - begin) * 1e6)
            end.record()
        torch.cuda.synchronize(self.device)
        return [(start.elapsed_time(end) * 1e3, us) for (start, end), us in zip(events, host)]


class HostClock:
    """Wall time of single calls: for the interpreter, where device and host are one."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def samples(self, call: Callable[[], Any], times: int) -> list[tuple[float, float]]:
        """(wall, wall) microseconds of each call."""
        found = []
        for _ in range(times):
            begin = time.perf_counter()
            call()
            us = (time.perf_counter() - begin) * 1e6
            found.append((us, us))
        return found


Clock = GpuClock | HostClock


def take_turns(clock: Clock, contestants: dict[str, Contestant], rounds: int, times: int) -> tuple[dict[str, Time], dict[str, str]]:
    """Times of each contestant, and why there are none: `rounds` rounds, each beginning with another one, of `times` calls each."""
    names, found, failed = list(contestants), dict[str, list[tuple[float, float]]](), dict[str, str]()
    for n in range(rounds):
        first = n % max(len(names), 1)
        for name in names[first:] + names[:first]:
            if name not in failed:
                try:
                    with contestants[name].context():
                        found.setdefault(name, []).extend(clock.samples(contestants[name].call, times))
                except Exception as error:  # a peer that cannot: recorded beside the others' times
                    failed[name] = said(error)
    return {name: _time(taken) for name, taken in found.items() if name not in failed}, failed


def said(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _time(taken: Sequence[tuple[float, float]]) -> Time:
    device = [us for us, _ in taken]
    quartiles = statistics.quantiles(device, n=4) if len(device) > 1 else [device[0]] * 3
    return Time(statistics.median(device), statistics.median(us for _, us in taken), (quartiles[2] - quartiles[0]) / 2)


@triton.jit  # type: ignore[untyped-decorator]
def read_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read n words, TIMES tiles of BLOCK a program, and store a number for each program."""
    first = tl.program_id(0).to(tl.int64) * (BLOCK * TIMES) + tl.arange(0, BLOCK)
    most = tl.zeros((BLOCK,), tl.int32)
    for k in tl.static_range(TIMES):
        at = first + k * BLOCK
        most = tl.maximum(most, tl.load(x_ptr + at, mask=at < n, other=0, eviction_policy="evict_first"))
    tl.store(out_ptr + tl.program_id(0), tl.max(most, 0))


class Floor:
    """Plain cold reads of a number of bytes, in the tile that is best for it."""

    def __init__(self, clock: Clock, tiles: Sequence[tuple[int, int, int]] = FLOOR_TILES) -> None:
        self.clock, self.tiles = clock, tiles
        self.words = torch.zeros(0, dtype=torch.int32, device=clock.device)
        self.out = self.words
        self.best: dict[int, tuple[int, int, int]] = {}

    def reader(self, nbytes: int, data: Tensor) -> Contestant:
        """A read of so many bytes: of `data` itself where there is no room for more of them."""
        count = max(1, nbytes // 4)
        words = self._room(count, data)
        count = min(count, len(words))
        if count not in self.best:
            medians = [(self._median(words, count, tile), tile) for tile in self.tiles]
            self.best[count] = min(medians)[1]
        tile = self.best[count]
        return Contestant(lambda: self._read(words, count, tile))

    def _room(self, count: int, data: Tensor) -> Tensor:
        if count > 1 << 30:
            return data.view(-1).view(torch.int32)
        if len(self.words) < count:
            self.words = torch.randint(-(2**31), 2**31 - 1, (count,), dtype=torch.int32, device=self.clock.device)
        return self.words

    def _median(self, words: Tensor, count: int, tile: tuple[int, int, int]) -> float:
        return statistics.median(us for us, _ in self.clock.samples(lambda: self._read(words, count, tile), 15))

    def _read(self, words: Tensor, count: int, tile: tuple[int, int, int]) -> None:
        block, warps, times = tile
        programs = math.ceil(count / (block * times))
        if len(self.out) < programs:
            self.out = torch.empty(programs, dtype=torch.int32, device=self.clock.device)
        read_kernel[(programs,)](words, self.out, count, BLOCK=block, TIMES=times, num_warps=warps)
