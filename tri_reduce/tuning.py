"""Timing candidates: all are compiled at once in threads, all get a glance, those that are not hopeless are measured."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from . import targets
from .configs import Tile
from .targets import Target

HOPELESS = 2.0  # times the fastest at a glance: not measured
MARGIN = 0.98  # of the best guess's time: what gains less may be noise, and the guess stays


class Trial(NamedTuple):
    """A tile to try. compile: launches nothing, and other threads may call it. run: launches once, on scratch outputs."""

    compile: Callable[[], object]
    run: Callable[[], None]


class Tuned(NamedTuple):
    """The winner's place among the candidates, and milliseconds of one launch of each that was measured."""

    best: int
    times: dict[int, float]


Measure = Callable[[Callable[[], None], Target], float]


def capturing() -> bool:
    """The current stream records a graph, where nothing can be timed."""
    try:
        return torch.cuda.is_current_stream_capturing()
    except RuntimeError:  # a torch without CUDA
        return False


def measure(run: Callable[[], None], target: Target) -> float:
    """Milliseconds of one launch, the median of some with a cold cache; a single call under the interpreter."""
    if target.backend == "interpreter" or targets.interpreting():
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    return _bench(run, warmup=5, rep=20, mode="median")


def _bench(run: Callable[[], None], warmup: int, rep: int, mode: str) -> float:
    import triton

    return float(triton.testing.do_bench(run, warmup=warmup, rep=rep, return_mode=mode))


def tune(found: Sequence[Tile], trial: Callable[[Tile], Trial], target: Target, measure: Measure = measure) -> Tuned:
    """The fastest of the candidates, best guess first. Those that do not compile, or that the device has no room for, drop out.

    Raises:
        triton.errors.TritonError: that of the first, where none is left.
    """
    trials = [trial(tile) for tile in found]
    glances = [_glance(each.run, error) for each, error in zip(trials, _compile(trials))]
    limit = HOPELESS * min(glance for glance, _ in glances)
    times = {n: measure(trials[n].run, target) for n, (glance, error) in enumerate(glances) if error is None and glance <= limit}
    if not times and glances[0][1] is not None:
        raise glances[0][1]
    best = min(times, key=times.__getitem__)
    return Tuned(0 if 0 in times and times[best] > MARGIN * times[0] else best, times)


def _glance(run: Callable[[], None], error: BaseException | None) -> tuple[float, BaseException | None]:
    """(milliseconds of the fastest launch of a few, None), or infinity and why it cannot run: an error of the compiler's, or more shared
    memory or registers than there are.
    """
    from triton.errors import TritonError

    try:
        if error is not None:
            raise error
        return 0.0 if targets.interpreting() else _bench(run, warmup=0, rep=1, mode="min"), None
    except TritonError as why:
        return math.inf, why


def _compile(trials: Sequence[Trial]) -> list[BaseException | None]:
    """Compile all, in threads: LLVM and ptxas, most of the time, run without the interpreter's lock. The error of each, or None."""
    if targets.interpreting():
        return [None] * len(trials)
    with ThreadPoolExecutor(min(len(trials), len(os.sched_getaffinity(0)))) as pool:
        try:
            return [done.exception() for done in [pool.submit(each.compile) for each in trials]]
        except BaseException:  # interrupted: what has not begun never will
            pool.shutdown(wait=False, cancel_futures=True)
            raise
