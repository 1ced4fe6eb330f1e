"""A reduction as kernels see it: kept and reduced axes with their strides, as few as the layout allows. Pure Python, no device.

`coalesce` turns the dims of a tensor into axes: size-1 dims vanish, neighbours whose strides agree in every operand merge, and the axis
with the smallest input stride comes last (innermost), wherever it stood in the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from . import dtypes

LONG = 512  # a row of gemv whose tiles are mostly whole
MANY_VALUES = 1 << 20  # of columns that start anywhere: reading fewer in vectors saves less than it costs
ABREAST_VALUES, LARGE_STATES = 1 << 22, 4  # reading rows as one may pay for more values than that, or so many times as many
NARROW = 2  # times as many, where rows start on vectors or are shorter than two
ABREAST = (8, 4, 1, 32)  # times the fewest rows that start on a vector together and are long: so on 128 bytes, on 64 or on 16
LINE_BYTES, ROW_BYTES = 128, 4096  # that memory reads at once; of the likeliest such row at least
COLUMN_BYTES = 1024  # of a column of such rows: what its programs leave to be folded is little beside that
MOST_ABREAST = 1 << 18  # elements of such a row: longer ones were never timed
GAP = 16  # elements of a row for each between two rows: read as well, and ignored


class Axis(NamedTuple):
    """`size` elements with a stride, in elements, in each operand: the input first, then what the kernel takes beside it."""

    size: int
    strides: tuple[int, ...]


def coalesce(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[Axis, ...]:
    """The fewest axes, outermost first, that visit the same elements of every operand.

    Args:
        sizes: one for each dim.
        strides: for each operand, one stride for each dim. The first operand decides the order; its broadcast dims (stride 0) go outermost.

    Returns:
        At least one axis: (1, zeros) for a scalar, (0, zeros) where any size is 0.

    Example:
        >>> coalesce((32, 56, 64), [(3584, 64, 1)])
        (Axis(size=114688, strides=(1,)),)
        >>> coalesce((4, 5), [(1, 8)])
        (Axis(size=5, strides=(8,)), Axis(size=4, strides=(1,)))
    """
    if 0 in sizes:
        return (Axis(0, (0,) * len(strides)),)
    axes = [Axis(n, tuple(s[d] for s in strides)) for d, n in enumerate(sizes) if n != 1]
    axes.sort(key=lambda a: (a.strides[0] != 0, *(-s for s in a.strides)))
    merged: list[Axis] = []
    for axis in axes:
        if merged and all(o == i * axis.size for o, i in zip(merged[-1].strides, axis.strides, strict=True)):
            axis = Axis(merged.pop().size * axis.size, axis.strides)
        merged.append(axis)
    return tuple(merged) or (Axis(1, (0,) * len(strides)),)


def normalise_dims(op: str, dim: Any, ndim: int, indexed: bool = False) -> tuple[int, ...]:
    """Distinct, sorted, non-negative dims; None and an empty sequence mean all."""
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        return tuple(range(ndim))
    if indexed and (isinstance(dim, bool) or not isinstance(dim, int)):
        raise TypeError(f"{op}: dim must be one int or None, got {dim!r}")
    given = dim if isinstance(dim, tuple | list) else (dim,)
    found = []
    for d in given:
        if isinstance(d, bool) or not hasattr(d, "__index__"):
            raise TypeError(f"{op}: dim must be an int, several or None, got {dim!r}")
        span = max(ndim, 1)
        if not -span <= d < span:
            raise IndexError(f"{op}: dim {d} is out of range for a tensor of {ndim} dims (expected {-span} to {span - 1})")
        found.append(int(d) % span)
    if len(set(found)) != len(found):
        raise RuntimeError(f"{op}: a dim appears more than once in {tuple(given)}")
    return tuple(sorted(found)) if ndim else ()


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Problem:
    """What decides which kernel runs, with which tile.

    op: "sum", ..., or "gemv". dtype: of the elements read. kept: axes with strides of (input, second operand, [y,] output). reduced: axes
    with strides of (input, second operand, logical position). shift: elements from a 16-byte boundary to the input's first element.
    masked: the second operand is a `where`. tail: only so many outputs have the last contribution; 0: all have.
    """

    op: str
    dtype: dtypes.DType
    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    shift: int = 0
    masked: bool = False
    arity: int = 1
    tail: int = 0

    @cached_property
    def xnumel(self) -> int:
        """Number of outputs."""
        return math.prod(a.size for a in self.kept)

    @cached_property
    def rnumel(self) -> int:
        """Contributions to each output."""
        return math.prod(a.size for a in self.reduced)

    @cached_property
    def layout(self) -> str:
        """Which axis is contiguous in the input: "rows" (a reduced one), "columns" (a kept one) or "strided" (none)."""
        if self.reduced[-1].strides[0] == 1 and self.reduced[-1].size > 1:
            return "rows"
        return "columns" if self.kept[-1].strides[0] == 1 and self.kept[-1].size > 1 else "strided"

    @cached_property
    def vector(self) -> int:
        """Elements in 16 bytes."""
        return 16 // self.dtype.itemsize

    @cached_property
    def row_alignment(self) -> int:
        """Elements: every row starts at a multiple of this power of two, at most `vector`."""
        starts = [self.shift, *(a.strides[0] for a in (*self.kept, *self.reduced[:-1]))]
        return math.gcd(self.vector, *starts)

    @cached_property
    def aligned_rows(self) -> bool:
        """Every row starts on a 16-byte boundary."""
        return self.row_alignment == self.vector

    @cached_property
    def column_vector(self) -> int:
        """Elements of contiguous outputs that one load may read: 16 bytes where all other strides are multiples of that, else one
        element.
        """
        inner, *outer = reversed(self.kept)
        others = [a.strides[0] for a in (*outer, *self.reduced)]
        fits = self.layout == "columns" and self.shift == 0 and all(s % self.vector == 0 for s in others)
        return self.vector if fits and (not outer or inner.size % self.vector == 0) else 1

    @cached_property
    def slanted(self) -> int:
        """Rows after which columns start as far behind a 16-byte boundary again, where no row need start on one; 0 where all do, or where
        reading them in whole vectors is of no use: states of several tiles are bound by instructions.
        """
        row, inner, vector = self.reduced[-1], self.kept[-1], self.vector
        period = vector // math.gcd(vector, row.strides[0])
        ragged = self.layout == "columns" and self.column_vector < vector and not self.masked
        steady = all(a.strides[0] % vector == 0 for a in self.reduced[:-1])
        pays = period == 1 or (self.arity == 1 and not (self.op == "gemv" and inner.strides[1]))  # a vector of each output's own
        many = self.xnumel * self.rnumel >= MANY_VALUES and inner.size >= 2 * vector and row.size >= 2 * period
        return period if ragged and steady and pays and many else 0

    @cached_property
    def abreast(self) -> tuple[int, ...]:
        """Numbers of rows of columns that lie on vectors if they are read as one; likeliest first."""
        row, inner, vector = self.reduced[-1], self.kept[-1], self.vector
        single = len(self.kept) == len(self.reduced) == 1 and self.layout == "columns" and not self.masked and self.op != "gemv"
        close = inner.size <= row.strides[0] <= inner.size + inner.size // GAP
        if not (single and close and self.shift == 0 and self.xnumel * self.rnumel >= self._abreast_values):
            return ()
        fewest = vector // math.gcd(vector, row.strides[0])
        longest = ABREAST[0] * fewest * row.strides[0] * self.dtype.itemsize
        fewest <<= max(0, (ROW_BYTES - 1) // longest).bit_length()
        numbers = [n * fewest for n in ABREAST if 1 < n * fewest <= MOST_ABREAST // row.strides[0]]
        return tuple(n for n in numbers if row.size // n * self.dtype.itemsize >= COLUMN_BYTES)

    @cached_property
    def uneven(self) -> bool:
        """Rows of columns share lines of memory in ever other ways, and are so many that it pays to read several as one."""
        pitch = self.reduced[-1].strides[0] * self.dtype.itemsize
        odd = self.column_vector < self.vector and self.kept[-1].size >= 2 * self.vector
        many = self.xnumel * self.rnumel >= self._abreast_values * (1 if odd else NARROW)
        return bool(self.abreast) and many and pitch % LINE_BYTES > 0 and LINE_BYTES % pitch > 0

    @property
    def _abreast_values(self) -> int:
        return ABREAST_VALUES * (LARGE_STATES if self.arity > 1 else 1)

    def as_one(self, rows: int) -> Problem:
        """The problem of columns of which so many rows are read as one: outputs for each of them, and for what lies between them. The last
        such row may lack some: what no row has is at its end.
        """
        row = self.reduced[-1]
        pitch = rows * row.strides[0]
        values = (row.size - 1) * row.strides[0] + self.kept[-1].size
        kept, reduced = Axis(pitch, (1, 0, 1)), Axis(-(-values // pitch), (pitch, 0, 1))
        return Problem(self.op, self.dtype, (kept,), (reduced,), 0, False, self.arity, values % pitch)

    @cached_property
    def singly(self) -> bool:
        """gemv of long rows that do not start on a 16-byte boundary: the vector starts elsewhere in each and is read singly."""
        return self.op == "gemv" and self.layout == "rows" and not self.aligned_rows and self.reduced[-1].size >= LONG

    @cached_property
    def busy(self) -> bool:
        """Instructions bind, memory does not hide them: states of several tiles, values of one byte."""
        return self.arity > 1 or self.dtype.itemsize == 1

    @cached_property
    def nbytes(self) -> int:
        """Bytes of input read once."""
        return self.xnumel * self.rnumel * self.dtype.itemsize

    @cached_property
    def wide(self) -> bool:
        """Some size, offset or position needs 64 bits (a tile's overhang included)."""
        operands = len(self.kept[0].strides)
        extents = [self.shift * (o == 0) + sum((a.size - 1) * abs(a.strides[o]) for a in self.kept) for o in range(operands)]
        inner = [sum((a.size - 1) * abs(a.strides[o]) for a in self.reduced) for o in range(len(self.reduced[0].strides))]
        both = [e + (inner[o] if o < len(inner) and o < 2 else 0) for o, e in enumerate(extents)]
        return max(*both, *inner, self.xnumel, self.rnumel) >= 2**31 - 2**22


def describe(
    op: str,
    shape: Sequence[int],
    dim: int | Sequence[int] | None = -1,
    dtype: torch.dtype | str = "fp32",
    trans: bool = False,
    pitch: int = 0,
    start: int = 0,
) -> Problem:
    """The problem of an input: what `tri_reduce.reduce(x, op, dim)` or, for "gemv" with shape (M, K), `gemv(a, x)` would plan.

    Args:
        pitch: elements from one row of the input to the next; 0 where rows follow one another.
        start: elements from an aligned address to the first.

    Raises:
        ValueError: an unknown op or dtype, or a shape that is not one.
        IndexError: a dim out of range.

    Example:
        >>> describe("sum", (64, 401408), 1).layout
        'rows'
    """
    kind = dtypes.named(dtype) if isinstance(dtype, str) else dtypes.of(dtype)
    if any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"shape must be non-negative integers, got {tuple(shape)}")
    strides = contiguous_strides([*shape[:-1], pitch or shape[-1]] if shape else shape)
    shift = start % (16 // kind.itemsize)
    if op == "gemv":
        if len(shape) != 2:
            raise ValueError(f"gemv: shape must be (M, K), got {tuple(shape)}")
        m, k = (1, 0) if trans else (0, 1)
        kept = coalesce([shape[m]], [[strides[m]], [0], [0], [1]])  # no y
        return Problem("gemv", kind, kept, coalesce([shape[k]], [[strides[k]], [1]]), shift)
    from .monoids import lookup

    monoid = lookup(op)
    dims = normalise_dims(op, dim, len(shape), monoid.indexed)
    arity = len(monoid.identity_for(kind.torch))
    return of_strides(op, kind, shape, dims, strides, None, None, shift=shift, indexed=monoid.indexed, arity=arity)


def of_strides(
    op: str,
    dtype: dtypes.DType,
    sizes: Sequence[int],
    dims: Sequence[int],
    strides: Sequence[int],
    where: Sequence[int] | None,
    out: Sequence[int] | None,
    *,
    shift: int = 0,
    indexed: bool = False,
    idempotent: bool = False,
    arity: int = 1,
    logical: bool = False,
) -> Problem:
    """The problem of reducing `dims` (distinct, non-negative, sorted) of a strided input.

    Args:
        where: strides of a mask that is broadcast to `sizes`, or None.
        out: strides of the output's dims (the kept ones, in order), or None for a contiguous output.
        indexed: the result is a position, so reduced axes merge only where logical positions do as well.
        idempotent: a broadcast reduced dim need not be read again.
        logical: reduced axes are the reduced dims in their order: the order of contributions then depends on sizes alone, not on strides.
    """
    kept_dims = [d for d in range(len(sizes)) if d not in dims]
    kept_sizes, reduced_sizes = [sizes[d] for d in kept_dims], [sizes[d] for d in dims]
    mask = where if where is not None else (0,) * len(sizes)
    out = contiguous_strides(kept_sizes) if out is None else out
    positions = contiguous_strides(reduced_sizes) if indexed else (0,) * len(dims)
    if idempotent and not indexed and not logical:
        reduced_sizes = [min(n, 1) if strides[d] == 0 and mask[d] == 0 else n for d, n in zip(dims, reduced_sizes, strict=True)]
    kept = coalesce(kept_sizes, [[strides[d] for d in kept_dims], [mask[d] for d in kept_dims], out])
    operands = [[strides[d] for d in dims], [mask[d] for d in dims], positions]
    reduced = coalesce(reduced_sizes, operands)
    if logical and 0 not in reduced_sizes:
        axes = (Axis(n, tuple(s[d] for s in operands)) for d, n in enumerate(reduced_sizes) if n != 1)
        reduced = tuple(axes) or reduced
    return Problem(op, dtype, kept, reduced, shift, where is not None, arity)
