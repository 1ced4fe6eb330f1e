"""Policies: how a tile is picked from the selector's candidates, and `force`, which overrules them.

Which tile runs never changes what a result means.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from . import configs, forced, tuning
from .buckets import config_of, key_of, tile_of
from .forced import check_config
from .geometry import Tile
from .nearest import source
from .problem import Problem
from .store import Store, StoreWarning, cache_dir
from .targets import Target
from .tuning import Trial, measure

POLICIES = ("heuristic", "cached", "tune")


@dataclass(frozen=True, eq=False)
class Mode:
    """What is in force: part of every plan's key, so there is one object of each (see `_mode`) and it is compared by identity."""

    policy: str | None = None  # None: the environment's
    again: bool = False
    regime: str | None = None
    split: int | None = None
    config: tuple[tuple[str, int], ...] | None = None


@functools.cache
def _mode(*fields: Any) -> Mode:
    return Mode(*fields)


_DEFAULT = _mode(None, False, None, None, None)
MODE: contextvars.ContextVar[Mode] = contextvars.ContextVar("tri_reduce_mode", default=_DEFAULT)
WHEN_TUNED: list[Callable[[], None]] = []  # called when the store has a new entry
_COUNTS = dict.fromkeys(("hits", "misses", "tuned"), 0)
_COUNTING, _TUNING = threading.Lock(), threading.Lock()


def _known_policy(name: str, source: str) -> str:
    if name not in POLICIES:
        raise ValueError(f"unknown autotune policy {name!r} ({source}): expected one of {', '.join(POLICIES)}")
    return name


def _policy_of(mode: Mode) -> str:
    return mode.policy or policy_of_environment()


def policy_of_environment() -> str:
    """TRI_REDUCE_AUTOTUNE, where nothing else is said. ValueError: it is something else."""
    return _known_policy(os.environ.get("TRI_REDUCE_AUTOTUNE", "heuristic"), "TRI_REDUCE_AUTOTUNE")


@contextlib.contextmanager
def policy(name: str, *, again: bool = False) -> Iterator[None]:
    """Within the context, tiles are picked by "heuristic" (the selector's first), "cached" (a tuned one if there is one) or "tune".

    Args:
        again: "tune" measures also what the store has an entry for.

    Raises:
        ValueError: an unknown policy.

    Example:
        >>> import torch, tri_reduce
        >>> with policy("cached"):
        ...     tri_reduce.sum(torch.ones(3, 4), 1)
        tensor([4., 4., 4.])
    """
    mode = MODE.get()
    token = MODE.set(_mode(_known_policy(name, "argument"), again, mode.regime, mode.split, mode.config))
    try:
        yield
    finally:
        MODE.reset(token)


@contextlib.contextmanager
def force(regime: str | None = None, split: int | None = None, config: dict[str, int] | None = None) -> Iterator[None]:
    """Within the context, every call runs this plan, or raises ValueError with the reason why it is illegal for the problem.

    Args:
        regime: "thread", "rows", "columns" or "strided": how lanes are laid over the problem.
        split: programs that share an output.
        config: any of XBLOCK, R0_BLOCK, R1_BLOCK, SPLIT, AHEAD, ABREAST and num_warps: powers of two but for SPLIT. ABREAST: rows of
            columns that are read as one, 1 for as they are.
    """
    if regime is not None and regime not in configs.REGIMES:
        raise ValueError(f"unknown regime {regime!r}: expected one of {', '.join(configs.REGIMES)}")
    if split is not None and (isinstance(split, bool) or not isinstance(split, int) or split < 1):
        raise ValueError(f"split must be a positive integer, got {split!r}")
    mode = MODE.get()
    token = MODE.set(_mode(mode.policy, mode.again, regime, split, check_config(config)))
    try:
        yield
    finally:
        MODE.reset(token)


def is_forced() -> bool:
    """A `force` is in effect."""
    mode = MODE.get()
    return bool(mode.regime or mode.split or mode.config)


def is_cached(part: object) -> bool:
    """A mode whose policy is "cached": the part of a plan's key that makes it depend on the store."""
    return isinstance(part, Mode) and _policy_of(part) == "cached"


def is_postponed() -> bool:
    """A plan made now would have been tuned, but for the graph that is being captured."""
    return not is_forced() and _policy_of(MODE.get()) == "tune" and tuning.capturing()


def stats() -> dict[str, int]:
    """How many problems were planned since import with an entry of the store ("hits") and without one ("misses"), and were "tuned".

    Example:
        >>> sorted(stats())
        ['hits', 'misses', 'tuned']
    """
    with _COUNTING:
        return dict(_COUNTS)


def _count(what: str) -> None:
    with _COUNTING:
        _COUNTS[what] += 1


@functools.cache
def _opened(directory: str, device: torch.device | None) -> Store:
    return Store(directory, device)


class Choice(NamedTuple):
    """The tile to run, and why this one (for a person)."""

    tile: Tile
    why: str


def pick(problem: Problem, target: Target, trial: Callable[[Tile], Trial], device: torch.device | None = None, kind: str = "call") -> Tile:
    """The tile of `choose`."""
    return choose(problem, target, trial, device, kind).tile


def choose(
    problem: Problem, target: Target, trial: Callable[[Tile], Trial], device: torch.device | None = None, kind: str = "call"
) -> Choice:
    """The tile to run. `trial(tile)` is that tile on scratch outputs; `kind` is "call" or "update" (of a Reducer)."""
    mode = MODE.get()
    if is_forced():
        return Choice(forced.forced(problem, target, mode.regime, mode.split, dict(mode.config or ())), "forced")
    name = _policy_of(mode)
    if name == "heuristic":
        first = configs.first(problem, target)
        timed = source(problem, target, first)
        return Choice(first, f"heuristic: timed as {timed.key}" if timed else "heuristic: the best guess")
    found = configs.candidates(problem, target)
    store, key = _opened(str(cache_dir()), device), key_of(problem, kind)
    tile = None if name == "tune" and mode.again else tile_of(store.get(key), found)
    _count("hits" if tile else "misses")
    if tile is not None:
        return Choice(tile, f"{name}: the store's entry")
    if name == "tune" and not tuning.capturing():
        tile = _tune(problem, target, trial, found, store, key, mode.again)
    return Choice(found[0], f"{name}: no entry, the best guess") if tile is None else Choice(tile, f"{name}: the fastest of {len(found)}")


def _tune(
    problem: Problem, target: Target, trial: Callable[[Tile], Trial], found: Sequence[Tile], store: Store, key: str, again: bool
) -> Tile | None:
    """Measure, remember, tell the plans; None where there is no memory to try tiles in."""
    with _TUNING:  # one at a time: threads would spoil each other's times
        tile = None if again else tile_of(store.get(key), found)
        if tile is not None:
            return tile
        try:
            best, times = tuning.tune(found, trial, target, measure)
        except torch.OutOfMemoryError:
            warnings.warn(f"no memory left to tune {problem.op} of {problem.xnumel} x {problem.rnumel}: its best guess runs", stacklevel=2)
            return None
        about = {"problem": f"{problem.op} {problem.xnumel}x{problem.rnumel} {problem.dtype.name}", "candidates": len(found)}
        us = {"us": round(times[best] * 1e3, 3), "first_us": round(times[0] * 1e3, 3) if 0 in times else None}
        store.put(key, {"config": config_of(found[best]), **us, **about})
        _count("tuned")
        for tell in WHEN_TUNED:
            tell()
        return found[best]


def triton_configs(problem: Problem, target: Target | str, knobs: Sequence[str] = ("XBLOCK", "R0_BLOCK")) -> list[Any]:
    """`configs.select_configs` for a kernel that has only some of the library's knobs: no two the same, best guess first.

    Example:
        >>> from tri_reduce.problem import describe
        >>> [(c.kwargs, c.num_warps) for c in triton_configs(describe("sum", (64, 1000)), "h200")][0]
        ({'XBLOCK': 1, 'R0_BLOCK': 1024}, 4)
    """
    import triton

    distinct: dict[Any, Any] = {}
    for config in configs.select_configs(problem, target):
        kwargs = {name: value for name, value in config.kwargs.items() if name in knobs}
        distinct.setdefault(
            (*kwargs.items(), config.num_warps), triton.Config(kwargs, num_warps=config.num_warps, num_stages=config.num_stages)
        )
    return list(distinct.values())


__all__ = ["POLICIES", "Store", "StoreWarning", "cache_dir", "force", "measure", "policy", "stats", "triton_configs"]
