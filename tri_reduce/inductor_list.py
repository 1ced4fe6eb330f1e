"""Which tiles to try for a reduction kernel that Inductor generated: a formula, best guess first. Pure Python.

XBLOCK outputs by R0_BLOCK reduced elements, as Inductor names them. How the coefficients were found, and what they are worth on kernels
kept out of the fit: docs/inductor.md; `benchmarks/fit_inductor.py` makes its tables again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from .inductor_tiles import (
    FITTED,
    HINTS,
    LEAST_THREADS,
    MAX_R0_BLOCK,
    MAX_XBLOCK,
    Coefficients,
    Kernel,
    Shape,
    first_shape,
    kernel_of,
    power,
)
from .targets import H200, Target, by_name

MAX_TILE = 16384  # values a program holds: 32 a thread at 512 threads
MAX_CANDIDATES = 10
MOST_THREADS = 512  # a program: more halve the programs that a core can hold

Config = tuple[int, int | None, int]  # XBLOCK, R0_BLOCK (None where it is persistent), warps
Tile = tuple[int, int, int]  # the same (R0_BLOCK: all of r0_ where it is persistent)
Factors = tuple[float, float, float]  # of a tile


# Of the first candidate, the most useful first.
NEIGHBOURS: dict[str, tuple[Factors, ...]] = {
    "rows": ((1, 2, 1), (4, 1 / 4, 1), (1, 1, 1 / 2), (1 / 4, 4, 1)),
    "whole rows": ((4, 1, 1 / 8), (1, 1, 1 / 4), (1, 1, 1 / 2), (2, 1, 1)),
    "columns": (
        *((1, 2, 1 / 2), (1, 1 / 2, 1 / 2), (1, 1 / 2, 1), (1 / 2, 1, 1)),
        *((1, 1, 1 / 2), (1 / 2, 1 / 2, 1 / 2), (1, 2, 1), (1, 1, 1 / 4)),
    ),
    "few columns": ((2, 2, 1), (1, 4, 1), (4, 4, 1), (1, 4, 1 / 4), (2, 2, 1 / 2), (1 / 4, 1, 1 / 4)),
    "whole columns": ((1 / 2, 1, 1), (1, 1, 1 / 4), (1 / 4, 1, 1 / 2), (2, 1, 1), (1 / 2, 1, 2), (1 / 16, 1, 1 / 4)),
}


def inductor_candidates(
    size_hints: Mapping[str, int],
    reduction_hint: str,
    num_load: int,
    num_reduction: int,
    pointer_types: Sequence[str],
    *,
    persistent: bool = False,
    dynamic: Collection[str] = (),
    target: str | Target | None = None,
) -> list[Config]:
    """The (XBLOCK, R0_BLOCK, num_warps) to try for a generated reduction kernel, best guess first, at most 10 of them.

    size_hints: `{"x": outputs, "r0_": reduced elements}`, the true sizes where they are known: what Inductor pads to powers of two, it
    masks. reduction_hint: INNER (the reduced axis is contiguous), OUTER, OUTER_TINY (a kept one is) or DEFAULT. pointer_types: of the
    kernel's arguments, such as `["*bf16", "*fp32"]`. persistent: the program holds all of r0_, and R0_BLOCK is None. dynamic: axes
    whose sizes the kernel gets as arguments, so that every element is masked. target: a name or Target (None: H200, where the formula was
    fitted; other GPUs are scaled by their number of cores).

    Raises ValueError for sizes that are not positive, other axes than x and r0_, an unknown hint or target, or one without warps.

    Example:
        >>> inductor_candidates({"x": 1024, "r0_": 32768}, "INNER", 1, 1, ["*fp32", "*fp32"])[0]
        (1, 2048, 16)
        >>> inductor_candidates({"x": 4096, "r0_": 32}, "OUTER", 3, 1, ["*bf16", "*fp32"], persistent=True)[0]
        (16, None, 4)
        >>> [inductor_candidates({"x": 51200, "r0_": r}, "OUTER", 1, 3, ["*bf16", "*fp32"])[0] for r in (126, 128)]
        [(64, 8, 4), (32, 2, 2)]
    """
    device = H200 if target is None else by_name(target)
    if not device.warp:
        raise ValueError(f"target {device.name!r} has no warps: configs.select_candidates is its list")
    kernel = kernel_of(size_hints, reduction_hint, num_load, num_reduction, pointer_types, device, dynamic)
    return candidates_of(kernel, device, persistent, FITTED)


def candidates_of(
    kernel: Kernel, device: Target, persistent: bool, c: Coefficients, neighbours: Mapping[str, Sequence[Factors]] = NEIGHBOURS
) -> list[Config]:
    """The list for a kernel under other coefficients and neighbours than the fitted ones."""
    regime, shape = first_shape(kernel, persistent, c)
    first = _legal(kernel, device, shape, persistent)
    tiles = (_launchable(kernel, device, tile) for tile in (first, *_near(kernel, device, first, neighbours[regime])))
    return [(x, None if persistent else r0, warps) for x, r0, warps in dict.fromkeys(tiles)][:MAX_CANDIDATES]


def with_own(found: list[Config], own: Iterable[Config]) -> list[Config]:
    """A list with Inductor's own candidates behind the first one: they are good, and known to be."""
    return list(dict.fromkeys([*found[:1], *own, *found[1:]]))[:MAX_CANDIDATES]


def _legal(k: Kernel, device: Target, shape: Shape, held: bool) -> Tile:
    """Powers of two within the sizes and the limits, and the warps they need."""
    r0 = k.r if held else min(power(shape.r0), k.r, MAX_R0_BLOCK)
    x = min(power(shape.x), k.x, MAX_XBLOCK, max(1, MAX_TILE // r0))
    threads = power(x * r0 / shape.per_thread)
    if shape.per_thread < 2:
        threads = min(threads, MOST_THREADS // 2)  # those of a single element mostly wait for the fold
    return x, r0, max(LEAST_THREADS, min(threads, _most_threads(r0))) // device.warp


def _near(k: Kernel, device: Target, first: Tile, neighbours: Iterable[Factors]) -> Iterator[Tile]:
    """The neighbours of the first candidate that are within the sizes and the limits, and leave no thread idle."""
    for factors in neighbours:
        x, r0, warps = (int(size * factor) for size, factor in zip(first, factors))
        fits = 1 <= x <= min(k.x, MAX_XBLOCK) and 1 <= r0 <= max(first[1], min(k.r, MAX_R0_BLOCK)) and x * r0 <= max(MAX_TILE, first[1])
        if fits and device.warp <= warps * device.warp <= min(_most_threads(r0), max(x * r0, LEAST_THREADS)):
            yield x, r0, warps


def _most_threads(r0: int) -> int:
    return MOST_THREADS if r0 <= 8192 else 2 * MOST_THREADS  # as Inductor does: whole rows this long spill otherwise


def _launchable(k: Kernel, device: Target, tile: Tile) -> Tile:
    """The tile with so few threads and so many outputs a program that a grid may have them all."""
    x, r0, warps = tile
    while -(-k.x // x) * warps * device.warp > device.max_threads and warps > 1:
        warps //= 2
    programs = min(device.max_programs, device.max_threads // (warps * device.warp))
    while -(-k.x // x) > programs and x < min(k.x, MAX_XBLOCK):
        x *= 2
    return x, r0, warps


__all__ = ["FITTED", "HINTS", "Coefficients", "inductor_candidates"]
