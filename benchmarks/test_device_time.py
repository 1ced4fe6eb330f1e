"""pytest benchmarks/test_device_time.py --benchmark-only: every problem of `bench`'s standard and odd lists, on a GPU.

The benchmark is the wall time of one cold call, to its end; `extra_info` has the device's own time, the floor's and their ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tri_reduce.bench import Bench
from tri_reduce.bench_contestants import OURS, PEERS, result_of
from tri_reduce.bench_problems import LISTS, Case

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CASES = [*LISTS["standard"](), *LISTS["odd"]()]
WHO = ("heuristic", "eager")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """The clock and the floor."""
    yield Bench(torch.device("cuda", torch.cuda.current_device()), WHO, 30)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("who", WHO)
def test_device_time(case: Case, who: str, bench: Bench, benchmark: Any) -> None:
    """One contestant on one problem."""
    benchmark.group = str(case)
    inputs = case.inputs(bench.clock.device)
    made = (OURS | PEERS)[who](case, inputs)
    assert made is not None
    assert who != "heuristic" or bench.share(case, inputs, made) <= 1
    times = bench.times_of({"floor": bench.floor.reader(case.nbytes, inputs[0]), who: made})
    us, floor = times[who].us, times["floor"].us
    benchmark.extra_info |= {"device_us": us, "floor_us": floor, "over the floor": us / floor, "GB/s": case.nbytes / us / 1e3}

    def call() -> None:
        result_of(made)
        torch.cuda.synchronize()

    def cold() -> None:
        bench.clock.samples(lambda: None, 1)

    benchmark.pedantic(call, setup=cold, rounds=10, warmup_rounds=1)
