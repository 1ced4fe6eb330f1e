"""The first tile to try for a reduction kernel that Inductor generated: what is known of the kernel, and a guess for each regime."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .targets import Target

HINTS = ("INNER", "OUTER", "OUTER_TINY", "DEFAULT")
MAX_XBLOCK = 4096  # Inductor's own limit (torch/_inductor/runtime/hints.py): it masks the outputs of x unless this divides x
MAX_R0_BLOCK = 4096  # longer ones were never best, and cost registers
THREAD_ELEMENTS = 4  # of a tile for each thread, where nothing else is said: one 16-byte load of float32
UNMASKED = 4  # shortest R0_BLOCK that is worth choosing for masking nothing
SECTOR_BYTES = 32  # the least that memory is read by
LEAST_THREADS = 64  # a program: a core takes 32 programs, and 2048 threads
ITEM_BYTES = {"fp64": 8, "i64": 8, "u64": 8, "fp32": 4, "i32": 4, "u32": 4, "fp16": 2, "bf16": 2, "i16": 2, "u16": 2}  # others: 1


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


@dataclass(frozen=True)
class Kernel:
    """What is known of a generated kernel.

    x, r: outputs, reduced elements, padded to powers of two. masked: outputs are. even: the longest R0_BLOCK that masks no element.
    loads, folds: in its loop. buffers: its pointers. item: bytes of its narrowest element, masks aside.
    """

    x: int
    r: int
    masked: bool
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
    masked = "x" in dynamic or sizes["x"] % MAX_XBLOCK != 0
    even = 1 if "r0_" in dynamic else sizes["r0_"] & -sizes["r0_"]
    item = min((ITEM_BYTES.get(kind.lstrip("*"), 1) for kind in pointers if kind != "*i1"), default=4)
    return Kernel(x, r, masked, even, hint, loads, folds, len(pointers), item, device.cores)


def first_shape(k: Kernel, persistent: bool, c: Coefficients) -> tuple[str, Shape]:
    """The regime of a kernel, and its first guess."""
    return (_held if persistent else _looped)(k, c)


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
        return "whole rows", _kept_rows(k, c)
    if k.hint == "DEFAULT":  # some inputs lie along the reduced axis: whole lines of the others, and few warps to fold between
        return "whole columns", Shape(c.column_most, k.r, per_thread=c.column_most * k.r / (2 * LEAST_THREADS))
    return "whole columns", Shape(max(c.kept_columns, min(_column_block(k, c), c.kept_row_elements / k.r)), k.r)


def _kept_rows(k: Kernel, c: Coefficients) -> Shape:
    """As many rows as make a tile, but a program for every core."""
    elements = c.kept_row_elements * (2 if k.folds - k.loads >= c.fold_heavy else 1)
    if k.buffers > c.kept_buffers:
        elements = c.kept_heavy_elements
    return Shape(min(elements / k.r, max(k.x / k.cores, LEAST_THREADS / k.r)), k.r)


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

    As timed, a loop whose loads are masked needs several of them in flight within an iteration; others are as fast with one a thread. So
    light kernels take small tiles only without masks, and heavy ones blocks without masks where they can.
    """
    x, wide = _column_block(k, c), _column_block(k, c, share=1 / 2)
    if k.hint == "DEFAULT":
        return Shape(wide, 2 * c.heavy_elements / wide)  # some inputs lie along the reduced axis: whole sectors both ways
    light = _light(k, c, x)
    if k.loads < c.heavy_loads and k.even >= max(UNMASKED, power(light.r0)):
        return light
    wide = max(wide, SECTOR_BYTES / k.item)
    block = power(c.heavy_elements / wide)
    unmasked = min(block, k.even) if k.even >= UNMASKED else block
    return Shape(wide, unmasked, THREAD_ELEMENTS * unmasked / block)


def _light(k: Kernel, c: Coefficients, x: float) -> Shape:
    """A tile of columns for one load and no masks."""
    if k.folds != 3:
        return Shape(x, max(k.r / c.light_steps, 2 * LEAST_THREADS / x))
    per_thread = 1 if k.masked else 2
    return Shape(x, max(k.r / c.moment_steps, per_thread * LEAST_THREADS / x), per_thread)


def _few_columns(k: Kernel, c: Coefficients) -> Shape:
    """Every column over many lanes, one element of an iteration each."""
    return Shape(max(2, c.few_elements / k.r), min(k.r, c.few_elements) / 4, per_thread=1)


def power(n: float) -> int:
    """The power of two nearest to n by ratio, at least 1."""
    return 1 << max(0, round(math.log2(n))) if n > 1 else 1


__all__ = ["FITTED", "HINTS", "Coefficients", "Kernel", "Shape", "first_shape", "kernel_of", "power"]
