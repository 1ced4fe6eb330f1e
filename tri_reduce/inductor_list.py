"""Which tiles to try for a reduction kernel that Inductor generated: a formula, best guess first. Pure Python.

XBLOCK outputs by R0_BLOCK reduced elements, as Inductor names them. How the coefficients were found, and what they are worth on kernels
kept out of the fit: docs/inductor.md; `benchmarks/fit_inductor.py` makes its tables again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .targets import H200, Target, by_name

HINTS = ("INNER", "OUTER", "OUTER_TINY", "DEFAULT")
MAX_XBLOCK = 4096  # Inductor's own limit (torch/_inductor/runtime/hints.py): it masks the outputs of x unless this divides x
MAX_R0_BLOCK = 4096  # longer ones were never best, and cost registers
MAX_TILE = 16384  # values a program holds: 32 a thread at 512 threads
MAX_CANDIDATES = 10
THREAD_ELEMENTS = 4  # of a tile for each thread, where nothing else is said: one 16-byte load of float32
UNMASKED = 4  # shortest R0_BLOCK that is worth choosing for masking nothing
SECTOR_BYTES = 32  # the least that memory is read by
LEAST_THREADS = 64  # a program: a core takes 32 programs, and 2048 threads
MOST_THREADS = 512  # a program: more halve the programs that a core can hold
ITEM_BYTES = {"fp64": 8, "i64": 8, "u64": 8, "fp32": 4, "i32": 4, "u32": 4, "fp16": 2, "bf16": 2, "i16": 2, "u16": 2}  # others: 1

Config = tuple[int, int | None, int]  # XBLOCK, R0_BLOCK (None where it is persistent), warps
Tile = tuple[int, int, int]  # the same (R0_BLOCK: all of r0_ where it is persistent)
Factors = tuple[float, float, float]  # of a tile


@dataclass(frozen=True)
class Coefficients:
    """What was fitted. Each name says what it is a number of."""

    row_bytes: int = 8192  # of one input that a program reads at a time: 16 a thread at 512 threads, one full vector load
    row_steps: int = 4  # iterations of a row's loop: fewer leave nothing to overlap a load with
    row_loads: int = 4  # loads from which half as many do: those of an iteration overlap with one another
    row_block: int = 2048  # longest R0_BLOCK picked first: beyond it registers cost more than iterations
    kept_row_elements: int = 4096  # of a tile of whole rows: 8 a thread at 512 threads ...
    fold_heavy: int = 2  # ... and twice as many once a kernel folds this often more than it loads: rows hide each other's folds
    kept_buffers: int = 5  # pointers of a kernel up to which that holds: with more of them, each value takes registers for every one
    kept_heavy_elements: int = 1024  # of their tiles: 4 a thread at 256 threads
    column_programs: int = 16  # a core's: enough to hide the loads, since a column's walk has little in flight
    column_least: int = 4  # narrowest XBLOCK of columns: narrower ones read a part of each 32-byte sector
    column_most: int = 64  # widest one: a row of 64 is read in whole 128-byte lines, more only makes programs fewer
    heavy_loads: int = 2  # loads from which columns are walked in large tiles: the loop's own cost is shared by more loads in flight
    heavy_elements: int = 512  # ... of this size, in half as many programs
    light_steps: int = 32  # iterations over a column with one load: short chains in many lanes cost a wider fold
    moment_steps: int = 128  # ... and three states (Welford): the fold of three states is dearer still
    few_columns: int = 8  # outputs a core, under which every column gets many lanes: there are no programs to fill the device with
    few_elements: int = 1024  # ... of this many loads in flight: four iterations that the compiler unrolls
    kept_columns: int = 16  # XBLOCK where whole columns are held: whole sectors, and the fold stays in one warp


FITTED = Coefficients()

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


@dataclass(frozen=True)
class Kernel:
    """What is known of a generated kernel.

    x, r: outputs, reduced elements, padded to powers of two. full: no output is masked. even: longest R0_BLOCK that masks no element.
    loads, folds: in its loop. buffers: its pointers. item: bytes of its narrowest element, masks aside.
    """

    x: int
    r: int
    full: bool
    even: int
    hint: str
    loads: int
    folds: int
    buffers: int
    item: int
    cores: int


class Shape(NamedTuple):
    """A tile before it is made legal: sizes are not yet powers of two."""

    x: float
    r0: float
    per_thread: float = THREAD_ELEMENTS


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
    regime, shape = (_held if persistent else _looped)(kernel, c)
    first = _legal(kernel, device, shape, persistent)
    tiles = (_launchable(kernel, device, tile) for tile in (first, *_near(kernel, device, first, neighbours[regime])))
    return [(x, None if persistent else r0, warps) for x, r0, warps in dict.fromkeys(tiles)][:MAX_CANDIDATES]


def with_own(found: list[Config], own: Iterable[Config]) -> list[Config]:
    """A list with Inductor's own candidates behind the first one: they are good, and known to be."""
    return list(dict.fromkeys([*found[:1], *own, *found[1:]]))[:MAX_CANDIDATES]


def kernel_of(
    sizes: Mapping[str, int],
    hint: str,
    loads: int,
    folds: int,
    pointers: Sequence[str],
    device: Target,
    dynamic: Collection[str] = (),
) -> Kernel:
    """The checked description of a kernel."""
    if set(sizes) != {"x", "r0_"}:
        raise ValueError(f"size_hints must have exactly the axes x and r0_, got {sorted(sizes)}")
    if any(size <= 0 for size in sizes.values()):
        raise ValueError(f"size_hints must be positive, got {dict(sizes)}")
    if hint not in HINTS:
        raise ValueError(f"unknown reduction_hint {hint!r}: expected one of {', '.join(HINTS)}")
    x, r = (1 << (size - 1).bit_length() for size in (sizes["x"], sizes["r0_"]))
    full = "x" not in dynamic and sizes["x"] % MAX_XBLOCK == 0
    even = 1 if "r0_" in dynamic else sizes["r0_"] & -sizes["r0_"]
    item = min((ITEM_BYTES.get(kind.lstrip("*"), 1) for kind in pointers if kind != "*i1"), default=4)
    return Kernel(x, r, full, even, hint, loads, folds, len(pointers), item, device.cores)


def _looped(k: Kernel, c: Coefficients) -> tuple[str, Shape]:
    """The regime and the first guess of a kernel that walks its rows or columns."""
    if k.hint == "INNER":
        return "rows", _rows(k, c)
    if k.x <= c.few_columns * k.cores:
        return "few columns", _few_columns(k, c)
    return "columns", _columns(k, c)


def _held(k: Kernel, c: Coefficients) -> tuple[str, Shape]:
    """The regime and the first guess of a kernel that has whole rows or columns in registers: only XBLOCK and the warps are free."""
    if k.hint == "INNER":
        return "whole rows", Shape(min(_kept_elements(k, c) / k.r, max(k.x / k.cores, LEAST_THREADS / k.r)), k.r)
    if k.hint == "DEFAULT":  # some inputs lie along the reduced axis: whole lines of the others, and few warps to fold between
        return "whole columns", Shape(c.column_most, k.r, per_thread=c.column_most * k.r / (2 * LEAST_THREADS))
    return "whole columns", Shape(max(c.kept_columns, min(_column_block(k, c), c.kept_row_elements / k.r)), k.r)


def _kept_elements(k: Kernel, c: Coefficients) -> int:
    """Of a tile of whole rows."""
    if k.buffers > c.kept_buffers:
        return c.kept_heavy_elements
    return c.kept_row_elements * (2 if k.folds - k.loads >= c.fold_heavy else 1)


def _rows(k: Kernel, c: Coefficients) -> Shape:
    """A row's tile is as long as leaves some iterations, and as many rows as fill the bytes in flight."""
    if k.x < k.cores:  # no other program shares the core: all of the row in flight
        return Shape(1, MAX_R0_BLOCK)
    steps = c.row_steps / (2 if k.loads >= c.row_loads else 1)
    r0 = min(c.row_block, k.r / steps, c.row_bytes / k.item)
    return Shape(c.row_bytes / k.item / r0, r0)


def _column_block(k: Kernel, c: Coefficients, share: float = 1) -> float:
    """XBLOCK that leaves `share` of column_programs to each core."""
    return max(c.column_least, min(c.column_most, k.x / (share * c.column_programs * k.cores)))


def _columns(k: Kernel, c: Coefficients) -> Shape:
    """Columns are walked in tiles as small as the kernel is light.

    Loads that are not masked are hoisted out of their iteration by the compiler, which unrolls the loop; masked ones have to be in flight
    together within an iteration. So light kernels take small tiles only without masks, and heavy ones blocks without masks where they can.
    """
    x, wide = _column_block(k, c), _column_block(k, c, share=1 / 2)
    if k.hint == "DEFAULT":
        return Shape(wide, 2 * c.heavy_elements / wide)  # some inputs lie along the reduced axis: whole sectors both ways
    wide = max(wide, SECTOR_BYTES / k.item)
    block = _power(c.heavy_elements / wide)
    if k.loads >= c.heavy_loads or k.even < UNMASKED:
        unmasked = min(block, k.even) if k.even >= UNMASKED else block
        return Shape(wide, unmasked, THREAD_ELEMENTS * unmasked / block)
    if k.folds == 3:
        per_thread = 2 if k.full else 1
        return Shape(x, max(k.r / c.moment_steps, per_thread * LEAST_THREADS / x), per_thread)
    return Shape(x, max(k.r / c.light_steps, 2 * LEAST_THREADS / x))


def _few_columns(k: Kernel, c: Coefficients) -> Shape:
    """Every column over many lanes, one element of an iteration each."""
    return Shape(max(2, c.few_elements / k.r), min(k.r, c.few_elements) / 4, per_thread=1)


def _legal(k: Kernel, device: Target, shape: Shape, held: bool) -> Tile:
    """Powers of two within the sizes and the limits, and the warps they need."""
    r0 = k.r if held else min(_power(shape.r0), k.r, MAX_R0_BLOCK)
    x = min(_power(shape.x), k.x, MAX_XBLOCK, max(1, MAX_TILE // r0))
    threads = _power(x * r0 / shape.per_thread)
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


def _power(n: float) -> int:
    """The power of two nearest to n by ratio, at least 1."""
    return 1 << max(0, round(math.log2(n))) if n > 1 else 1


__all__ = ["FITTED", "HINTS", "Coefficients", "inductor_candidates"]
