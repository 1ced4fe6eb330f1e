"""The reductions of models people run, as the demo and the benchmarks take them.

The matrix-vector products of one Llama-3-8B decode step, the batch statistics of every batch-norm shape of ResNet-50, the bias gradients
of a GPT-2 MLP, a vocabulary logsumexp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

import tri_reduce

REFERENCE_ROWS = 4096  # float64 copies are made this many rows at a time: a real size then fits a small GPU

# (out, in) features of every projection of a decoder layer, and the output head
LLAMA_3_8B = {
    "q and o projection": (4096, 4096),
    "k and v projection": (1024, 4096),
    "gate and up projection": (14336, 4096),
    "down projection": (4096, 14336),
    "output head": (128256, 4096),
}
# (channels, height = width) of the inputs of all 53 batch-norms, each once
RESNET_50 = (
    (64, 112),
    (64, 56),
    (128, 56),
    (256, 56),
    (128, 28),
    (256, 28),
    (512, 28),
    (256, 14),
    (512, 14),
    (1024, 14),
    (512, 7),
    (2048, 7),
)
RESNET_BATCH, PER_CHANNEL = 32, (0, 2, 3)
GPT2_TOKENS, GPT2_WIDTHS = 8192, (3072, 768)  # 8 sequences of 1024 tokens
VOCABULARY = (8192, 50257)

Reference = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Case:
    """One reduction: how ours and eager torch compute it, and what float64 says.

    `reference` maps float64 inputs to (the result, the sum of the contributions' magnitudes), the two numbers that the error bound
    needs; it sees `REFERENCE_ROWS` rows at a time where `by_rows`, since each output then needs one row only.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    reduced: int
    ours: Callable[..., Tensor]
    eager: Callable[..., Tensor]
    reference: Reference
    by_rows: bool = False

    def inputs(self, device: torch.device, seed: int = 0) -> tuple[Tensor, ...]:
        """Normally distributed inputs, the same for the same seed and device."""
        generator = torch.Generator(device).manual_seed(seed)
        return tuple(torch.randn(shape, generator=generator, device=device).to(self.dtype) for shape in self.shapes)

    def expected(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """(result, sum of magnitudes) in float64."""
        first, *rest = inputs
        blocks = torch.split(first, REFERENCE_ROWS) if self.by_rows else (first,)
        parts = [self.reference(block.double(), *(t.double() for t in rest)) for block in blocks]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    @property
    def nbytes(self) -> int:
        """Bytes read once; what is written is noise beside it."""
        return sum(math.prod(shape) for shape in self.shapes) * self.dtype.itemsize


def scaled(shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """The shape with every axis shortened by the same factor, to about `limit` elements; odd lengths stay odd.

    >>> scaled((8192, 50257), 1 << 16)
    (103, 635)
    """
    factor = min(1.0, (limit / math.prod(shape)) ** (1 / len(shape)))
    return tuple(max(1, round(length * factor)) | length % 2 for length in shape)


def cases(limit: int | None = None) -> Iterator[Case]:
    """Every case, at its real size or with at most about `limit` elements."""

    def fit(shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if limit is None else scaled(shape, limit)

    for name, features in LLAMA_3_8B.items():
        m, k = fit(features)
        yield Case(f"Llama-3-8B {name}", ((m, k), (k,)), torch.bfloat16, k, tri_reduce.gemv, torch.mv, _gemv_reference, by_rows=True)
    for channels, size in RESNET_50:
        shape = fit((RESNET_BATCH, channels, size, size))
        reduced = math.prod(shape) // shape[1]
        mean, var = {"dim": PER_CHANNEL}, {"dim": PER_CHANNEL, "correction": 0}
        yield _case("ResNet-50 batch-norm mean", shape, torch.float32, reduced, "mean", mean, _mean_reference)
        yield _case("ResNet-50 batch-norm var", shape, torch.float32, reduced, "var", var, _var_reference)
    for width in GPT2_WIDTHS:
        shape = fit((GPT2_TOKENS, width))
        yield _case("GPT-2 MLP bias gradient", shape, torch.bfloat16, shape[0], "sum", {"dim": 0}, _sum_reference)
    shape = fit(VOCABULARY)
    yield replace(_case("vocabulary logsumexp", shape, torch.bfloat16, shape[1], "logsumexp", {"dim": 1}, _lse_reference), by_rows=True)


def _case(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, reduced: int, op: str, options: dict[str, Any], reference: Reference
) -> Case:
    """A case of an op that tri_reduce and torch spell alike."""
    ours, eager = (partial(getattr(module, op), **options) for module in (tri_reduce, torch))
    return Case(name, (shape,), dtype, reduced, ours, eager, reference)


def _gemv_reference(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return a @ x, a.abs() @ x.abs()


def _mean_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean(PER_CHANNEL), x.abs().mean(PER_CHANNEL)


def _var_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    # each contribution is (x - mean)^2 / R, never negative: their sum is the result
    var = x.var(PER_CHANNEL, correction=0)
    return var, var


def _sum_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(0), x.abs().sum(0)


def _lse_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    # the log turns the relative error of sum(exp(x - max)) into an absolute one; adding max back rounds once at the result's size
    lse = x.logsumexp(1)
    return lse, 1 + lse.abs()
