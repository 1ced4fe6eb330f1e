"""Where programs that share outputs meet: words that are all ones between launches, and room for partial states, one of each a stream."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from .geometry import pow2_floor

WORKSPACES: dict[tuple[str, int, int], tuple[Tensor, Tensor, Any]] = {}  # by device and stream, each with the one it replaced
_LOCK = threading.Lock()


def _new_workspace(device: torch.device, marks: int, slots: int) -> tuple[Tensor, Tensor]:
    return torch.full((marks,), -1, dtype=torch.int32, device=device), torch.empty(slots, dtype=torch.int64, device=device)


def _grown(n: int, least: int) -> int:
    """At least n, in steps of half a power of two: what was replaced, which lives on, is together little more than twice the last."""
    step = max(pow2_floor(n) // 2, 1)
    return max(least, -(-n // step) * step)


def workspace(device: torch.device, stream: int, marks: int, slots: int) -> tuple[Tensor, Tensor]:
    """(words of 32 bits, all ones; room for partial states). Launches of a stream follow one another and share it; a graph has its own."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return _new_workspace(device, marks, slots)  # from the graph's pool, filled again by every replay
    key = (device.type, device.index or 0, stream)
    had = WORKSPACES.get(key)
    if had is not None and had[0].numel() >= marks and had[1].numel() >= slots:
        return had[0], had[1]
    with _LOCK:  # what is replaced lives on: another thread may have taken its address and not launched yet
        had = WORKSPACES.get(key)
        if had is not None:
            marks, slots = max(marks, had[0].numel()), max(slots, had[1].numel())
        found = _new_workspace(device, _grown(marks, 4096), _grown(slots, 1 << 16))
        WORKSPACES[key] = (*found, had)
    return found
