"""Where a reducer's results go: new tensors, or those that were given, checked before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import validate
from .partials import Partials


def outputs(out: Any, parts: Sequence[Partials], many: bool, about: Callable[[], str], seen: set[Any]) -> list[Tensor]:
    """A tensor for each part. `seen` holds the layouts that have passed, and grows."""
    kinds = [p.kind for p in parts]
    if out is None:
        return [torch.empty(k.shape, dtype=k.result, device=p.device) for k, p in zip(kinds, parts, strict=True)]
    outs = list(out) if many and isinstance(out, list | tuple) else [out]
    key = tuple((type(t), t.shape, t.stride(), t.dtype, t.device) if isinstance(t, Tensor) else None for t in outs)
    if key in seen:
        return outs
    if len(outs) != len(kinds):
        raise ValueError(f"finalize: {about()} has {len(kinds)} results, out has {len(outs)} tensors")
    for target, kind, part in zip(outs, kinds, parts, strict=True):
        validate.check_out("finalize", target, kind.shape, kind.result, part.device)
    seen.add(key)
    return outs
