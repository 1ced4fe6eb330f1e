"""A lattice of configs in every reduction kernel that torch.compile generates: Inductor's own, tri_reduce's and their neighbours.

Inductor then compiles them all in its own workers and is about to benchmark them when a kernel is first called: `kernels_of` gets each
kernel there, with the arguments of that call, and lets it go on with Inductor's first config.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tri_reduce import inductor

Config = tuple[int, int | None, int]  # XBLOCK, R0_BLOCK (None: persistent), num_warps
KEY = "tri_reduce_lattice"  # of a kernel's inductor_meta: the size of the lattice in its source, then what is in it
OURS = 10  # of tri_reduce's list: the rest of the lattice are neighbours
MAX_TILE = 16384
MAX_WARPS = 16


def lattice(sizes: Mapping[str, int], own: Sequence[Config], ours: Sequence[Config], limit: int) -> list[Config]:
    """At most `limit` configs, own first: own and their halves, the best of ours, then what is nearest to the first of own or of ours.

    sizes: Inductor's hints, `{"x": ..., "r0_": ...}`. A distance is a number of halvings and doublings.

    Example:
        >>> lattice({"x": 4096, "r0_": 1024}, [(1, None, 1)], [(4, None, 16)], 6)
        [(1, None, 1), (4, None, 16), (1, None, 2), (2, None, 1), (2, None, 16), (4, None, 8)]
    """
    anchors = (own[0], ours[0])
    halves = [half(config) for config in own if config[1]]
    near = sorted(_legal(sizes, anchors), key=lambda config: min(_distance(config, anchor) for anchor in anchors))
    return list(dict.fromkeys([*own, *halves, *ours[:OURS], *near]))[: max(limit, len(own))]


def half(config: Config) -> Config:
    """The config that Inductor adds where registers keep programs from a core."""
    x, r0, warps = config
    return x, max(1, (r0 or 1) // 2), warps


def halved(own: Iterable[Config], regs: Mapping[Config, int], x: int, cores: int) -> list[Config]:
    """The halves that Inductor would add to its own on a GPU with 65536 registers a core (CachingAutotuner._dynamic_scale_rblock)."""
    crowded = [c for c in own if c[1] and c[1] > 64 and regs.get(c, 0) > 32]
    return [half(c) for c in crowded if -(-x // c[0]) > max(65536 // (regs[c] * 32 * c[2]), 1) * cores]


def _legal(sizes: Mapping[str, int], anchors: Iterable[Config]) -> Iterator[Config]:
    """Every config of the anchors' kind within two steps of one of them."""
    for x, r0, warps in anchors:
        for i in range(-2, 3):
            for j in range(-2, 3) if r0 else (0,):
                for k in range(-2, 3):
                    near = int(x * 2.0**i), int(r0 * 2.0**j) if r0 else None, int(warps * 2.0**k)
                    block = sizes["r0_"] if near[1] is None else near[1]
                    within = 1 <= near[0] <= sizes["x"] and 1 <= block <= sizes["r0_"] and 1 <= near[2] <= MAX_WARPS
                    if within and 32 * near[2] <= max(near[0] * block, 64) and near[0] * block <= max(MAX_TILE, sizes["r0_"]):
                        yield near


def _distance(one: Config, other: Config) -> float:
    return sum(abs(math.log2((a or 1) / (b or 1))) for a, b in zip(one, other))


class Captured(NamedTuple):
    """A kernel with a launcher for every config that compiled, and the arguments of its first call."""

    tuner: Any
    launchers: list[Any]
    args: tuple[Any, ...]


class _Mark(str):
    """A lattice's size that generated source evaluates by calling `in_worker`."""

    def __repr__(self) -> str:
        return f"__import__({__name__!r}).in_worker({str(self)!r})"


_WRAPPED: list[Any] = []


def in_worker(mark: str) -> str:
    """For generated source: a compile worker gets the lattice too."""
    if not _WRAPPED:
        _wrap(inductor._checked()[0])
    return mark


@contextlib.contextmanager
def kernels_of(limit: int) -> Iterator[list[Captured]]:
    """The reduction kernels that are first called in the block, with lattices of at most `limit` configs."""
    heuristics, kernel_class = inductor._checked()
    own, tuner = kernel_class.__dict__["inductor_meta_common"], heuristics.CachingAutotuner
    autotune, original = tuner.autotune_to_one_config, heuristics.cached_autotune
    found: list[Captured] = []

    def capture(self: Any, *args: Any, **kwargs: Any) -> None:
        if KEY in self.inductor_meta:
            found.append(Captured(self, list(self.launchers), args))
            self.launchers = self.launchers[:1]
        else:
            autotune(self, *args, **kwargs)

    _wrap(heuristics)
    tuner.autotune_to_one_config = capture
    kernel_class.inductor_meta_common = classmethod(lambda cls: {**own.__get__(None, cls)(), KEY: _Mark(limit)})
    try:
        yield found
    finally:
        kernel_class.inductor_meta_common, tuner.autotune_to_one_config, heuristics.cached_autotune = own, autotune, original
        _WRAPPED.clear()


def _wrap(heuristics: Any) -> None:
    """Widen the lists of configs that reach `cached_autotune`."""
    original = heuristics.cached_autotune
    signature = inspect.signature(original)

    @functools.wraps(original)
    def cached_autotune(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        if KEY not in (call.arguments.get("inductor_meta") or {}):
            return original(*args, **kwargs)

        def decorator(function: Any) -> Any:
            _widen(heuristics, call.arguments, inspect.getsource(function.fn))
            return original(*call.args, **call.kwargs)(function)

        return decorator

    heuristics.cached_autotune = cached_autotune
    _WRAPPED.append(original)


def _widen(heuristics: Any, given: dict[str, Any], source: str) -> None:
    """Put the lattice in place of the configs, where the kernel is one that tri_reduce knows; no mark is left otherwise."""
    meta = dict(given["inductor_meta"])
    limit = int(meta.pop(KEY))
    asked = {name: given.get(name) for name in ("size_hints", "configs", "triton_meta", "heuristic_type")}
    chosen = inductor._chosen(heuristics, **asked, inductor_meta={**meta, inductor.KEY: "tune"}, source=source)
    if chosen is not given["configs"]:
        own, ours = ([_key(config) for config in configs] for configs in (given["configs"], chosen))
        tried = lattice(given["size_hints"], own, ours, limit)
        given["configs"] = [inductor._config(heuristics, *config) for config in tried]
        meta.update({KEY: {"own": own, "ours": ours}, "dynamic_scale_rblock": False})  # Inductor would halve every one of them
    given["inductor_meta"] = meta


def _key(config: Any) -> Config:
    return config.kwargs.get("XBLOCK", 1), config.kwargs.get("R0_BLOCK"), config.num_warps


def keys(launchers: Iterable[Any]) -> list[Config]:
    """Their configs."""
    return [_key(launcher.config) for launcher in launchers]
