"""Policies: how a tile is picked from the selector's candidates, and `force`, which overrules them."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import configs, forced, targets
from .configs import Tile
from .forced import check_config
from .problem import Problem
from .targets import Target

POLICIES = ("heuristic", "cached", "tune")
Trial = Callable[[Tile], Callable[[], None]]


@dataclass(frozen=True, eq=False)
class Mode:
    """What is in force: part of every plan's key, so there is one object of each (see `_mode`) and it is compared by identity."""

    policy: str | None = None  # None: the environment's
    regime: str | None = None
    split: int | None = None
    config: tuple[tuple[str, int], ...] | None = None


@functools.cache
def _mode(policy: str | None, regime: str | None, split: int | None, config: tuple[tuple[str, int], ...] | None) -> Mode:
    return Mode(policy, regime, split, config)


_DEFAULT = _mode(None, None, None, None)
MODE: contextvars.ContextVar[Mode] = contextvars.ContextVar("tri_reduce_mode", default=_DEFAULT)
_TUNED: dict[Any, Tile] = {}


def cache_dir() -> Path:
    """Where tuned entries are kept: TRI_REDUCE_CACHE_DIR, or the user's cache directory."""
    given = os.environ.get("TRI_REDUCE_CACHE_DIR")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tri_reduce"


def _known_policy(name: str, source: str) -> str:
    if name not in POLICIES:
        raise ValueError(f"unknown autotune policy {name!r} ({source}): expected one of {', '.join(POLICIES)}")
    return name


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    """Within the context, tiles are picked by "heuristic" (the selector's first), "cached" (a tuned one if there is one) or "tune".

    Raises:
        ValueError: an unknown policy.
    """
    mode = MODE.get()
    token = MODE.set(_mode(_known_policy(name, "argument"), mode.regime, mode.split, mode.config))
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
        config: any of XBLOCK, R0_BLOCK, R1_BLOCK, SPLIT (powers of two but for SPLIT) and num_warps.
    """
    if regime is not None and regime not in configs.REGIMES:
        raise ValueError(f"unknown regime {regime!r}: expected one of {', '.join(configs.REGIMES)}")
    if split is not None and (isinstance(split, bool) or not isinstance(split, int) or split < 1):
        raise ValueError(f"split must be a positive integer, got {split!r}")
    mode = _mode(MODE.get().policy, regime, split, check_config(config))
    token = MODE.set(mode)
    try:
        yield
    finally:
        MODE.reset(token)


def is_forced() -> bool:
    """A `force` is in effect."""
    mode = MODE.get()
    return bool(mode.regime or mode.split or mode.config)


def pick(problem: Problem, target: Target, trial: Trial) -> Tile:
    """The tile to run. `trial(tile)` gives a call that runs it on scratch outputs."""
    mode = MODE.get()
    if is_forced():
        return forced.forced(problem, target, mode.regime, mode.split, dict(mode.config or ()))
    name = mode.policy or _known_policy(os.environ.get("TRI_REDUCE_AUTOTUNE", "heuristic"), "TRI_REDUCE_AUTOTUNE")
    found = configs.candidates(problem, target)
    if name == "heuristic":
        return found[0]
    key = (problem, target)
    if name == "tune" and key not in _TUNED and not (target.backend == "cuda" and torch.cuda.is_current_stream_capturing()):
        times = [(measure(trial(tile), target), n) for n, tile in enumerate(found)]
        _TUNED[key] = found[min(times)[1]]
    return _TUNED.get(key, found[0])


def measure(run: Callable[[], None], target: Target) -> float:
    """Milliseconds of one launch, the median of some with a cold cache; a single call under the interpreter."""
    if target.backend == "interpreter" or targets.interpreting():
        import time

        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    import triton

    return float(triton.testing.do_bench(run, warmup=5, rep=20, return_mode="median"))
