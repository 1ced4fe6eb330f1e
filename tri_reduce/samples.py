"""Arguments to check every operator with: small, valid, and between them every op, layout and option that changes what a rule does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .monoids import MONOIDS

Sample = tuple[tuple[Any, ...], dict[str, Any]]


def samples(device: str | torch.device = "cpu") -> dict[str, list[Sample]]:
    """Small valid arguments of every operator, for `torch.library.opcheck`: {name in torch.ops.tri_reduce: [(args, kwargs), ...]}.

    Example:
        >>> sorted(samples())
        ['gemv', 'gemv_out', 'reduce', 'reduce_out']
    """

    def values(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
        n = torch.Size(shape).numel()
        found = (torch.arange(n, device=device) * 7 % 11 - 4).reshape(shape)
        return (found > 0 if dtype == torch.bool else found.to(dtype)).requires_grad_(grad)

    bits = ("and", "or", "xor")
    reductions: list[Sample] = [((values(3, 4, grad=True), op, [-1]), {}) for op in MONOIDS if op not in bits]
    reductions += [((values(3, 4, dtype=torch.int16), op, [0], True), {}) for op in (*bits, "sum", "max")]
    reductions += [
        ((values(2, 3, 4, grad=True).transpose(0, 2), "sum", [0, 2], True, values(3, 1, dtype=torch.bool)), {"dtype": torch.float64}),
        ((values(2, 3, 4, grad=True)[:, ::2], "logsumexp", None), {"initial": 0.5}),
        ((values(3, 4, grad=True), "norm", [1], False, values(4, dtype=torch.bool)), {"ord": 3.0}),
        ((values(3, 4, grad=True), "std", [0]), {"correction": 0}),
        ((values(3, 4, dtype=torch.bfloat16), "mean", []), {"determinism": "invariant"}),
        ((values(4), "argmin", None, True), {}),
        ((values(grad=True), "prod", None), {}),
    ]
    writing: list[Sample] = [
        ((values(3, 4), "sum", [1]), {"out": values(3)}),
        ((values(3, 4), "max", [0], True, values(3, 4, dtype=torch.bool)), {"out": values(2, 4)[:1], "initial": 2.0}),
        ((values(3, 4), "sum", [1]), {"out": values(6)[::2], "accumulate": True}),
    ]
    products: list[Sample] = [
        ((values(3, 4, grad=True), values(4, grad=True)), {}),
        ((values(3, 4, grad=True), values(3, grad=True), values(4, grad=True)), {"alpha": 2.0, "beta": -1.0, "trans": True}),
        ((values(2, 1, 3, 4, grad=True), values(5, 4, grad=True)), {"alpha": 0.5}),
        ((values(3, 4, dtype=torch.int8), values(4, dtype=torch.int8)), {}),
    ]
    return {
        "reduce": reductions,
        "reduce_out": writing,
        "gemv": products,
        "gemv_out": [
            ((values(3, 4), values(4), values(3)), {"beta": 1.0, "out": values(3)}),
            ((values(3, 4).mT, values(3)), {"out": values(8)[::2]}),
        ],
    }
