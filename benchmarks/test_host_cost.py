"""pytest benchmarks/test_host_cost.py --benchmark-only: the host's time of small calls; without a GPU, Python's part of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from host_cost import Call, pairs, somewhere

WHO = ("ours", "torch")
NAMES = [(name, who) for name, both in pairs(torch.device("cpu")).items() for who, call in zip(WHO, both) if call is not None]


@pytest.fixture(scope="module")
def calls() -> Iterator[dict[str, tuple[Call, Call | None]]]:
    """All of them, where they run."""
    with somewhere() as device:
        yield pairs(device)


@pytest.mark.parametrize(("name", "who"), NAMES, ids=lambda part: part)
def test_host_cost(name: str, who: str, calls: dict[str, tuple[Call, Call | None]], benchmark: Any) -> None:
    """One call, many times."""
    benchmark.group = name
    call = calls[name][who == "torch"]
    assert call is not None
    benchmark(call)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
