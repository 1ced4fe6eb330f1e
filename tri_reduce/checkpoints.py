"""A reducer's state as a dict of plain tensors, numbers and strings, which `torch.load(weights_only=True)` takes; and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import ReducerError
from .partials import Partials

FORMAT = 1


def saved(parts: Sequence[Partials], seeds: Sequence[Any], epoch: int, updates: int, fault: Any) -> dict[str, Any]:
    """A snapshot: what later updates do to the reducer does not change it."""
    return {
        "format": FORMAT,
        "ops": [_label(p) for p in parts],
        "states": [[tile.clone() for tile in p.states] for p in parts],
        "seeds": list(seeds),
        "epoch": epoch,
        "updates": updates,
        "fault": None if fault is None else list(fault),
    }


def check(d: Any, parts: Sequence[Partials], about: str) -> None:
    """ReducerError unless `d` is a snapshot of a reducer of the same ops, shape and dtype."""
    wanted = {"format", "ops", "states", "seeds", "epoch", "updates", "fault"}
    if not isinstance(d, dict) or not wanted <= d.keys() or d["format"] != FORMAT:
        raise ReducerError(f"load_state_dict: expected a dict from state_dict() of format {FORMAT} for {about}, got {_seen(d)}")
    mine = [_label(p) for p in parts]
    if d["ops"] != mine:
        raise ReducerError(
            f"load_state_dict: the state is of {d['ops']}, {about} is of {mine}: load it into a Reducer of the same op, shape and dtype"
        )
    for part, tiles in zip(parts, d["states"], strict=True):
        good = [isinstance(t, Tensor) and t.dim() == 2 and t.shape[0] >= 1 and t.shape[1] == part.kind.outputs for t in tiles]
        if len(good) != len(part.states) or not all(good):
            raise ReducerError(
                f"load_state_dict: the states of {part.kind.monoid.name} do not fit {about}: each needs [slots, {part.kind.outputs}]"
            )


def load(d: dict[str, Any], parts: Sequence[Partials]) -> None:
    """Put checked states in the place of those that are there."""
    for part, tiles in zip(parts, d["states"], strict=True):
        here = tuple(t.to(device=part.device, dtype=s.dtype).contiguous() for t, s in zip(tiles, part.states, strict=True))
        if here[0].shape[0] == part.slots:  # the same slots: what follows gives the same bits as without the interruption
            for mine, saved_tile in zip(part.states, here, strict=True):
                mine.copy_(saved_tile)
        else:
            part.reset()
            part.absorb(here)
        part.clear_faults()
        if d["fault"] is not None:
            part.indexed = True
            part.faults[0][0] = torch.tensor(d["fault"])


def _label(part: Partials) -> list[Any]:
    name, param, value, result, _ = part.kind.label
    return [name, param if param is None else str(param), value, result, list(part.kind.shape)]


def _seen(d: Any) -> str:
    return f"keys {sorted(map(str, d))}" if isinstance(d, dict) else type(d).__name__
