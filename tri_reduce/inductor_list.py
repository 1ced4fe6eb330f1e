"""Which tiles to try for a reduction kernel that Inductor generated: a formula, best guess first. Pure Python.

XBLOCK outputs by R0_BLOCK reduced elements, as Inductor names them. How the coefficients were found, and what they are worth on kernels
kept out of the fit: docs/inductor.md; `benchmarks/fit_inductor.py` makes its tables again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .targets import H200, Target, by_name

HINTS = ("INNER", "OUTER", "OUTER_TINY", "DEFAULT")
MAX_XBLOCK = 4096  # Inductor's own limit (torch/_inductor/runtime/hints.py)
MAX_R0_BLOCK = 4096  # longer ones were never best, and cost registers
MAX_TILE = 16384  # values a program holds: 32 a thread at 512 threads
MAX_CANDIDATES = 10
HIP_THREADS = 2**31  # of a launch: HIP counts threads where CUDA counts programs
# The lattices were timed with the warps that these two give, as Inductor's own lists have them: they are not fitted.
THREAD_ELEMENTS = 4  # of a tile for each thread: one 16-byte load of float32
MOST_THREADS = 512  # a program: more halve the programs that a core can hold
ITEM_BYTES = {"fp64": 8, "i64": 8, "u64": 8, "fp32": 4, "i32": 4, "u32": 4, "fp16": 2, "bf16": 2, "i16": 2, "u16": 2}  # others: 1


@dataclass(frozen=True)
class Coefficients:
    """What was fitted. Each name says what it is a number of."""

    row_bytes: int = 8192  # of one input that a program reads at a time: 16 a thread at 512 threads, one full vector load
    row_steps: int = 4  # iterations of a row's loop: fewer leave nothing to overlap a load with
    row_block: int = 2048  # longest R0_BLOCK picked first: beyond it registers cost more than iterations
    kept_row_elements: int = 4096  # of a tile of whole rows: 8 a thread at 512 threads ...
    fold_heavy: int = 2  # ... and twice as many once a kernel folds this often more than it loads: rows hide each other's folds
    row_programs: int = 8  # that short rows are at least cut into
    column_programs: int = 16  # a core's: enough to hide the loads, since a column's walk has little in flight
    column_least: int = 4  # narrowest XBLOCK of columns: narrower ones read a part of each 32-byte sector
    column_most: int = 64  # widest one: a row of 64 is read in whole 128-byte lines, more only makes programs fewer
    heavy_loads: int = 4  # loads from which columns are walked in large tiles: the loop's own cost is shared by more loads in flight
    heavy_elements: int = 512  # ... of this size, in half as many programs
    light_steps: int = 32  # iterations over a column of lighter kernels: short chains in many lanes cost a wider fold
    moment_steps: int = 64  # ... of those with three states and one load (Welford): the fold of three states is dearer still
    few_columns: int = 8  # outputs a core, under which every column gets many lanes: there are no programs to fill the device with
    few_elements: int = 1024  # ... of tiles this large: 8 warps, 4 elements a thread
    kept_columns: int = 16  # XBLOCK where whole columns are held: whole sectors, and the fold stays in one warp


FITTED = Coefficients()


@dataclass(frozen=True)
class Kernel:
    """What is known of a generated kernel: padded sizes, loads and reductions in its loop, bytes of its widest loaded element."""

    x: int
    r: int
    hint: str
    loads: int
    folds: int
    item: int
    cores: int


class Shape(NamedTuple):
    """A tile before it is made legal: sizes are not yet powers of two."""

    x: float
    r0: float
    per_thread: int = THREAD_ELEMENTS


def inductor_candidates(
    size_hints: Mapping[str, int],
    reduction_hint: str,
    num_load: int,
    num_reduction: int,
    pointer_types: Sequence[str],
    *,
    persistent: bool = False,
    target: str | Target | None = None,
) -> list[tuple[int, int | None, int]]:
    """The (XBLOCK, R0_BLOCK, num_warps) to try for a generated reduction kernel, best guess first, at most 10 of them.

    size_hints: Inductor's, `{"x": outputs, "r0_": reduced elements}`, padded here to powers of two. reduction_hint: INNER (the reduced axis
    is contiguous), OUTER, OUTER_TINY (a kept one is) or DEFAULT. pointer_types: of the kernel's arguments, inputs first, such as
    `["*bf16", "*fp32"]`. persistent: the program holds all of r0_, and R0_BLOCK is None. target: a name or Target (None: H200, where the
    formula was fitted; other GPUs are scaled by their number of cores).

    Raises ValueError for sizes that are not positive, other axes than x and r0_, an unknown hint or target, or one without warps.

    Example:
        >>> inductor_candidates({"x": 1024, "r0_": 32768}, "INNER", 1, 1, ["*fp32", "*fp32"])[0]
        (1, 2048, 16)
        >>> inductor_candidates({"x": 4096, "r0_": 32}, "OUTER", 3, 1, ["*bf16", "*fp32"], persistent=True)[0]
        (16, None, 4)
    """
    device = H200 if target is None else by_name(target)
    if not device.warp:
        raise ValueError(f"target {device.name!r} has no warps: configs.select_candidates is its list")
    return candidates_of(kernel_of(size_hints, reduction_hint, num_load, num_reduction, pointer_types, device), device, persistent, FITTED)


def candidates_of(kernel: Kernel, device: Target, persistent: bool, c: Coefficients) -> list[tuple[int, int | None, int]]:
    """The list for a kernel under other coefficients than the fitted ones."""
    shapes = _held(kernel, c) if persistent else _looped(kernel, c)
    return list(dict.fromkeys(_legal(kernel, device, shape, persistent) for shape in shapes))[:MAX_CANDIDATES]


def kernel_of(sizes: Mapping[str, int], hint: str, loads: int, folds: int, pointers: Sequence[str], device: Target) -> Kernel:
    """The checked description of a kernel."""
    if set(sizes) != {"x", "r0_"}:
        raise ValueError(f"size_hints must have exactly the axes x and r0_, got {sorted(sizes)}")
    if any(size <= 0 for size in sizes.values()):
        raise ValueError(f"size_hints must be positive, got {dict(sizes)}")
    if hint not in HINTS:
        raise ValueError(f"unknown reduction_hint {hint!r}: expected one of {', '.join(HINTS)}")
    first = pointers[0].lstrip("*") if pointers else "fp32"
    x, r = (1 << (size - 1).bit_length() for size in (sizes["x"], sizes["r0_"]))
    return Kernel(x, r, hint, loads, folds, ITEM_BYTES.get(first, 1), device.cores)


def _looped(k: Kernel, c: Coefficients) -> Iterable[Shape]:
    if k.hint == "INNER":
        return _rows(k, c)
    return _few_columns(k, c) if k.x <= c.few_columns * k.cores else _columns(k, c)


def _held(k: Kernel, c: Coefficients) -> Iterator[Shape]:
    """Whole rows or columns in registers: only XBLOCK is free, so the list is the best guess and its neighbours."""
    if k.hint == "INNER":
        elements = c.kept_row_elements * (2 if k.folds - k.loads >= c.fold_heavy else 1)
        x = min(elements / k.r, k.x / c.row_programs)
    else:
        x = max(c.kept_columns, min(_column_block(k, c), c.kept_row_elements / k.r))
    for factor in (1, 1 / 2, 2, 1 / 4, 4, 1 / 16, 1 / 8, 8):
        yield Shape(x * factor, k.r)


def _rows(k: Kernel, c: Coefficients) -> Iterator[Shape]:
    """A row's tile is as long as leaves some iterations, and as many rows as fill the bytes in flight; then shorter and longer tiles."""
    r0 = min(c.row_block, k.r / c.row_steps, c.row_bytes / k.item)
    x = c.row_bytes / k.item / r0
    yield Shape(x, r0)
    yield Shape(1, r0 * 2)
    yield Shape(4 * x, r0 / 4)
    yield Shape(1, r0 / 8)
    yield Shape(1, r0 / 2)
    yield Shape(x / 2, r0)
    yield Shape(x, r0 / 2)
    yield Shape(1, r0)
    yield Shape(2 * x, r0 / 2)
    yield Shape(1, r0 / 4)


def _column_block(k: Kernel, c: Coefficients, share: float = 1) -> float:
    """XBLOCK that leaves `share` of column_programs to each core."""
    return max(c.column_least, min(c.column_most, k.x / (share * c.column_programs * k.cores)))


def _columns(k: Kernel, c: Coefficients) -> Iterator[Shape]:
    """Columns are walked in tiles as small as the kernel is light; then other tiles of both widths."""
    x, wide = _column_block(k, c), _column_block(k, c, share=1 / 2)
    if k.hint == "DEFAULT":
        yield Shape(wide, 2 * c.heavy_elements / wide)  # some inputs lie along the reduced axis: whole sectors both ways
    elif k.loads >= c.heavy_loads:
        yield Shape(wide, c.heavy_elements / wide)
    elif k.loads == 1 and k.folds == 3:
        yield Shape(x, max(k.r / c.moment_steps, 64 / x))  # 64, 128: the least that gives every thread of 2 warps work
    else:
        yield Shape(x, max(k.r / c.light_steps, 128 / x))
    yield Shape(wide, c.heavy_elements / wide)
    yield Shape(x, 256 / x)
    yield Shape(x, 64 / x)
    yield Shape(c.column_most, 4, per_thread=1)  # on 8 warps, no thread folds anything
    yield Shape(x, 128 / x)
    yield Shape(x, 512 / x)
    yield Shape(wide, 256 / wide)
    yield Shape(x / 2, 512 / x)
    yield Shape(wide, 1024 / wide)
    yield Shape(2 * wide, 256 / wide)
    yield Shape(16 * wide, 512 / wide)  # many columns: long pieces of a memory page at a time


def _few_columns(k: Kernel, c: Coefficients) -> Iterator[Shape]:
    """Every column over many lanes, in one step where it fits."""
    r0 = min(k.r, c.few_elements)
    yield Shape(c.few_elements / r0, r0)
    yield Shape(4, r0)
    yield Shape(2, r0)
    yield Shape(4, r0 / 4)
    yield Shape(8, r0)
    yield Shape(16, r0 / 2)
    yield Shape(2, r0 / 4)
    yield Shape(4, r0 / 16)
    yield Shape(1, r0)


def _legal(k: Kernel, device: Target, shape: Shape, held: bool) -> tuple[int, int | None, int]:
    """Powers of two within the sizes and the limits, and the warps they need."""
    r0 = k.r if held else min(_power(shape.r0), k.r, MAX_R0_BLOCK)
    x = min(_power(shape.x), k.x, MAX_XBLOCK, max(1, MAX_TILE // r0))
    most = MOST_THREADS if r0 <= 8192 else 2 * MOST_THREADS  # as Inductor does: whole rows this long spill otherwise
    warps = min(most // device.warp, max(64 // device.warp, _power(x * r0 / (shape.per_thread * device.warp))))
    while device.backend == "hip" and -(-k.x // x) * warps * device.warp > HIP_THREADS and warps > 1:
        warps //= 2
    programs = min(device.max_programs, HIP_THREADS // (warps * device.warp) if device.backend == "hip" else device.max_programs)
    while -(-k.x // x) > programs and x < min(k.x, MAX_XBLOCK):
        x *= 2
    return x, None if held else r0, warps


def _power(n: float) -> int:
    """The power of two nearest to n by ratio, at least 1."""
    return 1 << max(0, round(math.log2(n))) if n > 1 else 1


__all__ = ["FITTED", "HINTS", "Coefficients", "inductor_candidates"]
