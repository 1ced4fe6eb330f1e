"""What torch.autocast means for reductions: torch's own table, no more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# torch's documentation, "CUDA Ops that can autocast to float32" and the same for the CPU; tests compare it with the dispatcher.
WIDENED = {"cuda": frozenset({"sum", "prod", "norm", "logsumexp"}), "cpu": frozenset({"prod"})}

autocasting = torch._C._is_any_autocast_enabled  # on any device: cheap enough to ask in every call


def widened(x: Any, op: Any) -> torch.dtype | None:
    """The dtype that autocast makes a reduction's result where the call names none: float32 for 16-bit floats, or None."""
    if not isinstance(x, Tensor) or x.dtype not in (torch.float16, torch.bfloat16) or not isinstance(op, str):
        return None
    kind = x.device.type
    return torch.float32 if op in WIDENED.get(kind, ()) and torch.is_autocast_enabled(kind) else None
