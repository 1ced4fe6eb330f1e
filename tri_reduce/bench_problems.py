"""What `bench` measures: the standard list of docs/performance.md, an odd one, and how time scales."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from . import dtypes
from .demo import scaled


@dataclass(frozen=True)
class Case:
    """One problem. `start`: elements by which the input is off an aligned address. `pitch`: elements between rows that are not dense.

    `trans`: gemv by the transposed matrix. `series`: what varies.
    """

    op: str
    shape: tuple[int, ...]
    dims: tuple[int, ...] | None
    dtype: str
    start: int = 0
    pitch: int = 0
    trans: bool = False
    series: str = ""

    def __str__(self) -> str:
        dims = "" if self.op == "gemv" else " all" if self.dims is None else f" {list(self.dims)}"
        notes = f" +{self.start}" * bool(self.start) + f" pitch {self.pitch}" * bool(self.pitch) + " trans" * self.trans
        return f"{self.series}{': ' if self.series else ''}{self.op} {list(self.shape)}{dims} {self.dtype}{notes}"

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of the input."""
        return dtypes.named(self.dtype).torch

    @property
    def reduced(self) -> tuple[int, ...]:
        """The reduced dims, non-negative."""
        rank = len(self.shape)
        if self.op == "gemv":
            return (0 if self.trans else 1,)
        return tuple(range(rank)) if self.dims is None else tuple(d % rank for d in self.dims)

    @property
    def length(self) -> int:
        """Contributions to an output."""
        return math.prod(self.shape[d] for d in self.reduced)

    @property
    def outputs(self) -> int:
        """Results."""
        return math.prod(self.shape) // max(self.length, 1)

    @property
    def nbytes(self) -> int:
        """Bytes read and written, once each; results counted in the input's dtype, indices as int64."""
        size = dtypes.named(self.dtype).itemsize
        written = self.outputs * (8 if self.op.startswith("arg") else size)
        return math.prod(self.shape) * size + written + (self.length * size if self.op == "gemv" else 0)

    def small(self, elements: int) -> Case:
        """The same kind of problem with about so many elements."""
        return replace(self, shape=scaled(self.shape, elements), pitch=0)

    def inputs(self, device: torch.device, seed: int = 0) -> tuple[Tensor, ...]:
        """The tensor that is reduced; for gemv the matrix and the vector. The same values for the same seed and device."""
        generator = torch.Generator(device).manual_seed(seed)
        *outer, row = self.shape
        flat = _values(self.start + math.prod(outer) * max(self.pitch, row), self.torch_dtype, generator)[self.start :]
        x = flat.view(*outer, -1)[..., :row]
        return (x, _values(self.length, self.torch_dtype, generator)) if self.op == "gemv" else (x,)


def _values(count: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(count, dtype=dtype, device=generator.device, generator=generator)
    return torch.randint(-100, 101, (count,), dtype=dtype, device=generator.device, generator=generator)


M = 1 << 20
_ROWS = (
    ((64, 401408), "fp32"), ((1, 64 * M), "fp32"), ((256, 100352), "bf16"), ((32, 50176), "fp32"), ((65536, 49), "fp32"),
    ((M, 64), "bf16"), ((4 * M, 8), "fp32"), ((4 * M, 3), "fp32"), ((2048, 768), "fp32"), ((4096, 4096), "bf16"),
    ((8192, 8192), "fp32"), ((32768, 1024), "bf16"), ((512, 25088), "bf16"), ((8192, 50257), "bf16"),
)  # fmt: skip
_COLUMNS = (((4096, 4096), "bf16"), ((401408, 64), "fp32"), ((65536, 768), "bf16"), ((M, 8), "fp32"), ((8192, 8192), "fp32"))
_MAXIMA = (
    ((64, 401408), 1, "fp32"), ((4096, 4096), 1, "bf16"), ((65536, 49), 1, "fp32"), ((8192, 8192), 1, "fp32"),
    ((4096, 4096), 0, "bf16"), ((8192, 8192), 0, "fp32"),
)  # fmt: skip
_GEMV = (
    (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (128256, 4096), (8192, 8192), (57344, 8192), (8192, 28672), (1024, 1024),
    (256, 65536), (1, M), (65536, 256), (16384, 64), (4096, 4095),
)  # fmt: skip
_GEMV_FP32 = ((4096, 4096), (8192, 8192), (256, 65536), (65536, 256), (1, M))


def standard() -> Iterator[Case]:
    """The 48 problems of docs/performance.md."""
    for shape, dtype in _ROWS:
        yield Case("sum", shape, (1,), dtype)
    for shape, dtype in _COLUMNS:
        yield Case("sum", shape, (0,), dtype)
    yield Case("sum", (32, 64, 112, 112), (0, 2, 3), "bf16")
    yield Case("sum", (32, 256, 56, 56), (0, 2, 3), "fp32")
    yield Case("sum", (128, 2048, 7, 7), (2, 3), "bf16")
    yield Case("sum", (16, 1024, 4096), (1,), "bf16")
    for shape, dim, dtype in _MAXIMA:
        yield Case("max", shape, (dim,), dtype)
    for shape in _GEMV:
        yield Case("gemv", shape, None, "bf16")
    for shape in _GEMV_FP32:
        yield Case("gemv", shape, None, "fp32")


def odd() -> Iterator[Case]:
    """Lengths and strides that are multiples of nothing, few outputs, short rows, misaligned starts, every kind of op."""
    for rows, length, dtype in (
        (8191, 8191, "fp32"),
        (4099, 10007, "bf16"),
        (1021, 65537, "fp16"),
        (12289, 1023, "fp32"),
        (50021, 251, "bf16"),
    ):
        yield Case("sum", (rows, length), (1,), dtype)
        yield Case("sum", (rows, length), (0,), dtype)
    for outputs, length in (
        (1, 33554467),
        (2, 9999991),
        (3, 7000003),
        (5, 2999999),
        (7, 1500007),
        (13, 1000003),
        (24, 700001),
        (40, 500009),
    ):
        yield Case("sum", (outputs, length), (1,), "bf16" if outputs % 2 else "fp32")
    for length, dtype in (
        (2, "fp32"),
        (3, "bf16"),
        (5, "fp32"),
        (7, "fp16"),
        (11, "bf16"),
        (17, "fp32"),
        (31, "int8"),
        (33, "bf16"),
        (40, "fp32"),
    ):
        yield Case("sum", (30_000_001 // length, length), (1,), dtype)
    for outputs in (1, 3, 10, 40):
        yield Case("sum", (2_000_003, outputs), (0,), "fp32")
    for start, dtype in ((1, "fp32"), (3, "bf16"), (1, "fp16"), (5, "int8")):
        yield Case("sum", (8192, 4096), (1,), dtype, start=start)
        yield Case("max", (8192, 4096), (0,), dtype, start=start)
    for pitch, dtype in ((4099, "fp32"), (5001, "bf16"), (4104, "fp16")):
        yield Case("sum", (8192, 4096), (1,), dtype, pitch=pitch)
        yield Case("sum", (8192, 4096), (0,), dtype, pitch=pitch)
    for op in ("mean", "var", "logsumexp", "argmax", "min", "norm"):
        yield Case(op, (8192, 5003), (1,), "bf16" if op in ("mean", "logsumexp", "argmax") else "fp32")
        yield Case(op, (20011, 1543), (0,), "fp16" if op in ("mean", "min") else "fp32")
    yield Case("sum", (31, 129, 57, 55), (0, 2), "fp32")
    yield Case("mean", (63, 257, 28, 28), (2, 3), "fp32")
    yield Case("var", (32, 128, 57, 57), (0, 2, 3), "fp32")
    yield Case("max", (97, 33, 10007), (0, 2), "fp32")
    yield Case("sum", (255, 513, 129), (0, 1), "fp32")
    yield Case("argmax", (17, 1999, 511), (1,), "fp32")
    yield Case("sum", (67_000_001,), None, "fp32")
    for matrix, dtype in (((8192, 8192), "bf16"), ((4097, 11009), "fp32"), ((50257, 768), "fp16"), ((777, 33333), "bf16")):
        yield Case("gemv", matrix, None, dtype, trans=True)
    for matrix, dtype in (((3, 3_000_001), "fp32"), ((17, 999_999), "bf16"), ((2_000_003, 11), "fp32"), ((1_000_003, 37), "fp16")):
        yield Case("gemv", matrix, None, dtype)
    yield Case("gemv", (5003, 5003), None, "bf16")
    yield Case("gemv", (3001, 12345), None, "fp32")
    yield Case("gemv", (8192, 4096), None, "bf16", start=3)
    yield Case("gemv", (8192, 4096), None, "fp32", pitch=4099)


def scaling() -> Iterator[Case]:
    """Bytes from 1 KiB to 64 GiB; rows, and columns, at fixed bytes; neighbours of round sizes."""
    for power in range(10, 37, 2):
        yield Case("sum", (max(1, 2**power // 1024), 256), (1,), "fp32", series="bytes")
    for power in range(22, 33, 2):
        rows = 2**power // 4096
        for count in (rows * 3 // 2, rows + 1, rows - 1):
            yield Case("sum", (count, 1024), (1,), "fp32", series="bytes")
        yield Case("sum", (rows, 1023), (1,), "fp32", series="bytes")
        yield Case("sum", (rows, 1024), (1,), "fp32", start=1, series="bytes")
    for series, dim in (("rows", 1), ("columns", 0)):
        for power in range(0, 25, 2):
            kept, reduced = 2**power, 2 ** (26 - power)
            for length in (reduced, reduced + 1 if power < 20 else reduced * 3 // 2):
                yield Case("sum", (kept, length) if dim else (length, kept), (dim,), "fp32", series=series)
    for power in range(1, 27, 3):
        yield Case("sum", (2 ** (26 - power), 2**power), (1,), "bf16", series="length")


LISTS = {"standard": standard, "odd": odd, "scaling": scaling}
