"""The collective over ranks: one c10d collective for each `finalize(group=)`, whatever the monoid, and none where the ranks disagree.

What each rank brings (op, shape, dtype, seed, epoch, an error of its own) is a header of a few hundred bytes. Headers go through the
group's key-value store first, so that ranks whose buffers would not even have one size find out without a collective, and the group stays
usable. Then sums of one tile, and extremes, are reduced by the backend itself; any other state is packed into bytes, gathered and folded in
rank order.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import CollectiveMismatchError
from .partials import Partials, States
from .torch_partials import order_key, value_of_key

SUMS = frozenset({"sum", "abs_sum", "sum_sq", "count_nonzero"})
LARGEST = frozenset({"max", "abs_max", "any"})
SMALLEST = frozenset({"min", "all"})
_WAIT_FOR_READERS = 10.0  # seconds; the rank that hosts the store may be about to leave


def gathered(parts: Sequence[Partials], seeds: Sequence[Any], epoch: int, about: str, error: Exception | None, group: Any) -> list[States]:
    """The states over all ranks, [slots, outputs] a tile, the same bits on each rank; one collective.

    Raises:
        CollectiveMismatchError: on every rank, before any collective, where headers differ or hold an error. On the rank whose own error it
            is, it is an instance of that error's class too.
    """
    if hasattr(group, "get_group"):  # a DeviceMesh of one dim
        group = group.get_group()
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise error or CollectiveMismatchError(f"finalize(group=): this process is not in the group; {about} is unchanged")
    header = {
        "reduction": [[*p.kind.label, p.kind.wide] for p in parts],
        "initial": [None if s is None else repr(s) for s in seeds],
        "epoch": epoch,
        "rows": [p.rows for p in parts],
        "about": about,
        "error": None if error is None else f"{type(error).__name__}: {error}",
    }
    headers = _exchange(json.dumps(header, default=str), rank, world, group)
    wrong = _disagreement(headers)
    if wrong:
        remedy = "Nothing was combined and every reducer is as it was: bring the same reduction and try again"
        message = f"finalize(group=): {'; '.join(wrong)}. {remedy}"
        if error is None:
            raise CollectiveMismatchError(message)
        raise _also(error)(message) from error
    return _reduced(parts, [max(rows) for rows in zip(*(h["rows"] for h in headers), strict=True)], world, group)


def _disagreement(headers: Sequence[dict[str, Any]]) -> list[str]:
    """What stands against a collective, the same on every rank."""
    wrong = [f"rank {n} has an error of its own: {h['error']}" for n, h in enumerate(headers) if h["error"] is not None]
    for what in ("reduction", "initial", "epoch"):
        seen = [h[what] for h in headers]
        if any(s != seen[0] for s in seen):
            wrong.append(f"{what} differs: " + "; ".join(f"rank {n} has {h[what]} ({h['about']})" for n, h in enumerate(headers)))
    return wrong


def _also(error: Exception) -> type[CollectiveMismatchError]:
    """The class of the error on the rank whose own `error` it is: caught by either name."""
    if isinstance(error, CollectiveMismatchError):
        return CollectiveMismatchError
    return type("CollectiveMismatchError", (CollectiveMismatchError, type(error)), {"__module__": CollectiveMismatchError.__module__})


def _store(group: Any) -> Any:
    """The group's own key-value store."""
    found = group if group is not None and group is not dist.group.WORLD else dist.distributed_c10d._get_default_group()
    if hasattr(found, "get_group_store"):
        with contextlib.suppress(Exception):
            return found.get_group_store()
    return dist.distributed_c10d._get_process_group_store(found)


def _exchange(header: str, rank: int, world: int, group: Any) -> list[dict[str, Any]]:
    """Every rank's header, in rank order."""
    store = _store(group)
    call = store.add(f"tri_reduce/calls/{rank}", 1)
    keys = [f"tri_reduce/{call}/{n}" for n in range(world)]
    store.set(keys[rank], header)
    try:
        store.wait(keys, _timeout(group))
    except Exception as late:
        missing = [n for n in range(world) if not store.check([keys[n]])]
        raise CollectiveMismatchError(
            f"finalize(group=): ranks {missing} did not call it within {_timeout(group)}; nothing was combined, the reducer is still active"
        ) from late
    headers = [json.loads(store.get(k)) for k in keys]
    seen = f"tri_reduce/{call}/seen"
    store.add(seen, 1)
    if _disagreement(headers):  # no collective follows: let everyone read before a rank leaves, and with it perhaps the store
        deadline = time.monotonic() + _WAIT_FOR_READERS
        while store.add(seen, 0) < world and time.monotonic() < deadline:
            time.sleep(0.002)
    elif call > 1:  # everyone has read the headers of the last call, else there were none of this one
        with contextlib.suppress(Exception):
            store.delete_key(f"tri_reduce/{call - 1}/{rank}")
            if rank == 0:
                store.delete_key(f"tri_reduce/{call - 1}/seen")
    return headers


def _timeout(group: Any) -> timedelta:
    with contextlib.suppress(Exception):
        found = dist.distributed_c10d._get_default_group() if group is None else group
        return found._get_backend(found._device_types[0]).options._timeout
    return dist.distributed_c10d.default_pg_timeout


def _reduced(parts: Sequence[Partials], rows: Sequence[int], world: int, group: Any) -> list[States]:
    folded = [p.folded(n) for p, n in zip(parts, rows, strict=True)]
    native = _native(parts[0], folded[0]) if len(parts) == 1 else None
    if native is not None:
        tile, op, back = native
        dist.all_reduce(tile, op, group=group)
        return [(tile if back is None else back(tile),)]
    return _gather(folded, world, group)


def _native(part: Partials, state: States) -> Any:
    """(tile, the backend's op, the way back) where the backend's own reduction means the same: it drops NaN, so floats go as ordering
    keys.
    """
    name, tile = part.kind.monoid.name, state[0]
    if not part.kind.builtin or len(state) != 1 or not tile.numel():
        return None
    if name in SUMS:
        return tile, dist.ReduceOp.SUM, None
    if name not in LARGEST | SMALLEST:
        return None
    op = dist.ReduceOp.MAX if name in LARGEST else dist.ReduceOp.MIN
    if not tile.dtype.is_floating_point:
        return tile, op, None
    if name in SMALLEST:  # the largest of the negated: NaN has the largest key of all
        return order_key(-tile), dist.ReduceOp.MAX, lambda key: 0.0 - value_of_key(key, tile.dtype)
    return order_key(tile), op, lambda key: value_of_key(key, tile.dtype)


def _gather(folded: Sequence[States], world: int, group: Any) -> list[States]:
    """Every rank's states in rank order, [ranks * rows, outputs] a tile, from one exchange of bytes."""
    tiles = [t for states in folded for t in states]
    packed = torch.cat([_padded(t.reshape(-1).view(torch.uint8)) for t in tiles])
    received = torch.empty(world * packed.numel(), dtype=torch.uint8, device=packed.device)
    if packed.numel():
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the newer name, where torch has it
        gather(received, packed, group=group)
    rows, at, unpacked = received.view(world, -1), 0, []
    for tile in tiles:
        size = tile.numel() * tile.element_size()
        unpacked.append(rows[:, at : at + size].contiguous().view(tile.dtype).view(world * tile.shape[0], -1))
        at += size + -size % 8
    found = iter(unpacked)
    return [tuple(next(found) for _ in states) for states in folded]


def _padded(x: Tensor) -> Tensor:
    """Bytes to a multiple of eight, so that every tile starts where its dtype may."""
    return torch.nn.functional.pad(x, (0, -x.numel() % 8))
