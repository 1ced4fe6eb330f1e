"""The element types that the library knows, under torch's name, Triton's name and the short name people type."""

from __future__ import annotations

from typing import NamedTuple

import torch


class DType(NamedTuple):
    """One element type: `name` is Triton's ("fp32"), `storage` the pointee that kernels load (bool is loaded as bytes)."""

    name: str
    torch: torch.dtype
    itemsize: int
    storage: str

    @property
    def is_float(self) -> bool:
        """True for fp16, bf16, fp32 and fp64."""
        return self.torch.is_floating_point


_TABLE = (
    DType("bool", torch.bool, 1, "u8"),
    DType("u8", torch.uint8, 1, "u8"),
    DType("i8", torch.int8, 1, "i8"),
    DType("i16", torch.int16, 2, "i16"),
    DType("i32", torch.int32, 4, "i32"),
    DType("i64", torch.int64, 8, "i64"),
    DType("fp16", torch.float16, 2, "fp16"),
    DType("bf16", torch.bfloat16, 2, "bf16"),
    DType("fp32", torch.float32, 4, "fp32"),
    DType("fp64", torch.float64, 8, "fp64"),
)
BY_TORCH = {d.torch: d for d in _TABLE}
BY_NAME = {d.name: d for d in _TABLE} | {
    "uint8": _TABLE[1],
    "int8": _TABLE[2],
    "int16": _TABLE[3],
    "int32": _TABLE[4],
    "int64": _TABLE[5],
    "float16": _TABLE[6],
    "half": _TABLE[6],
    "bfloat16": _TABLE[7],
    "float32": _TABLE[8],
    "float": _TABLE[8],
    "float64": _TABLE[9],
    "double": _TABLE[9],
}


def of(dtype: torch.dtype, what: str = "input") -> DType:
    """The entry of a torch dtype; TypeError names `what` and the dtype where the library has none (complex, float8, ...)."""
    found = BY_TORCH.get(dtype)
    if found is None:
        kind = "complex tensors are not supported" if dtype.is_complex else "unsupported dtype"
        raise TypeError(f"tri_reduce: {kind}: {what} has dtype {dtype}; supported: {', '.join(str(d.torch) for d in _TABLE)}")
    return found


def named(name: str) -> DType:
    """The entry of a short name ("bf16", "float32", ...); ValueError lists the known ones."""
    if name not in BY_NAME:
        raise ValueError(f"unknown dtype {name!r}: expected one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def limits(dtype: DType) -> tuple[float | int, float | int]:
    """The lowest and the highest value of a dtype: infinities for floats, False and True for bool."""
    if dtype.is_float:
        return float("-inf"), float("inf")
    if dtype.name == "bool":
        return 0, 1
    info = torch.iinfo(dtype.torch)
    return info.min, info.max
