"""The table of docs/accuracy.md: the largest error of each op against float64, beside the bound and beside eager torch on the CPU.

    TRITON_INTERPRET=1 python benchmarks/accuracy.py    # the kernels in Triton's interpreter (minutes)
    python benchmarks/accuracy.py                       # on the GPU where there is one

An error is given in units of the last place of the result's dtype at the result, and as a share of the bound
`4 eps(acc) log2(R) S + ulp(out) / 2`, where S is the sum of the contributions' magnitudes (for
var the variance, for logsumexp 1 + |result|).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import tri_reduce

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
LENGTHS = (1000, 100_003)
ROWS, UPDATES = 4, 250
Fn = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Op:
    """ours and eager on the values, exact and magnitude on their float64 copy."""

    name: str
    ours: Fn
    eager: Fn
    exact: Fn
    magnitude: Fn


def _stream(x: Tensor) -> Tensor:
    r = tri_reduce.Reducer("sum", (len(x),), x.dtype, x.device)
    for tile in torch.split(x, -(-x.shape[1] // UPDATES), 1):
        r.update(tile, 1)
    result: Tensor = r.finalize()
    return result


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x[0].flip(0)


OPS = (
    Op("sum", lambda x: tri_reduce.sum(x, 1), lambda x: x.sum(1), lambda x: x.sum(1), lambda x: x.abs().sum(1)),
    Op(f"Reducer sum, {UPDATES} updates", _stream, lambda x: x.sum(1), lambda x: x.sum(1), lambda x: x.abs().sum(1)),
    Op("mean", lambda x: tri_reduce.mean(x, 1), lambda x: x.mean(1), lambda x: x.mean(1), lambda x: x.abs().mean(1)),
    Op(
        "gemv",
        lambda x: tri_reduce.gemv(*_halves(x)),
        lambda x: torch.mv(*_halves(x)),
        lambda x: torch.mv(*_halves(x)),
        lambda x: x.abs() @ x[0].flip(0).abs(),
    ),
    Op("var", lambda x: tri_reduce.var(x, 1), lambda x: x.var(1), lambda x: x.var(1), lambda x: x.var(1)),
    Op(
        "logsumexp",
        lambda x: tri_reduce.logsumexp(x, 1),
        lambda x: x.logsumexp(1),
        lambda x: x.logsumexp(1),
        lambda x: 1 + x.logsumexp(1).abs(),
    ),
)


def inputs(length: int, dtype: torch.dtype) -> Iterator[Tensor]:
    """Values of both signs, values that all add up, and values far from zero."""
    g = torch.Generator().manual_seed(length)
    yield torch.randn(ROWS, length, generator=g, dtype=torch.float64).to(dtype)
    yield torch.rand(ROWS, length, generator=g, dtype=torch.float64).to(dtype)
    yield (100 + torch.randn(ROWS, length, generator=g, dtype=torch.float64)).to(dtype)


def errors(got: Tensor, want: Tensor, magnitude: Tensor, length: int) -> tuple[float, float]:
    """(in units of the last place, as a share of the bound): the largest."""
    finfo = torch.finfo(got.dtype)
    ulp = torch.ldexp(torch.full_like(want, finfo.eps), torch.frexp(want.abs().clamp(min=finfo.tiny)).exponent - 1)
    error = (got.double() - want).abs()
    bound = 4 * torch.finfo(torch.float32).eps * math.log2(length) * magnitude + ulp / 2
    return (error / ulp).max().item(), (error / bound).max().item()


def rows(device: torch.device) -> Iterator[str]:
    """Lines of the table."""
    yield "| op | dtype | R | error, ulp | share of the bound | eager torch on the CPU, ulp |"
    yield "|---|---|---|---|---|---|"
    for op in OPS:
        for name, dtype in DTYPES.items():
            for length in LENGTHS:
                worst, share, eager = 0.0, 0.0, 0.0
                for x in inputs(length, dtype):
                    want, magnitude = op.exact(x.double()), op.magnitude(x.double())
                    if not want.to(x.dtype).isfinite().all():
                        continue  # fp16 sums that overflow: both give inf
                    found = errors(op.ours(x.to(device)).cpu(), want, magnitude, length)
                    worst, share = max(worst, found[0]), max(share, found[1])
                    eager = max(eager, errors(op.eager(x), want, magnitude, length)[0])
                yield f"| {op.name} | {name} | {length} | {worst:.2g} | {share:.2g} | {eager:.2g} |"


if __name__ == "__main__":
    for line in rows(torch.device("cuda" if torch.cuda.is_available() else "cpu")):
        print(line, flush=True)
