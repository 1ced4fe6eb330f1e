"""What `triton.compile` and a launcher need to know of one kernel, and no tensor: what is constant, what may be assumed of what is not.

`specialize.py` makes them from problems and tiles, `launch.py` runs them, `verify.py` inspects them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import torch

from .geometry import Tile
from .kernels.compat import tl
from .monoids import DeviceOp
from .problem import Axis

ALIGNED = ("x_ptr", "a_ptr", "p0", "p1", "p2", "ticket_ptr")  # launched with pointers rounded down to 16 bytes
_UNIT_STRIDES = ("x_k0", "x_r0", "a_k0", "a_r0", "w_k0", "w_r0", "o_k0", "y_k0", "v_r0", "i_r0")
_SCALARS = ("follows", "seed", "alpha", "beta", "count")  # bits, or what is converted: never folded into the kernel
RUN_TIME = 2**62 + 1  # stands for an integer that each launch passes: 64 bits wide, of any alignment
POINTEES = {tl.float32: "fp32", tl.float64: "fp64", tl.int32: "i32", tl.int64: "i64"} if hasattr(tl.float32, "name") else {}


@dataclass(frozen=True)
class Specialization:
    """A kernel with its constants. `values` has the run-time integers, in order of the signature; `slots` programs share an output."""

    fn: Any
    signature: tuple[tuple[str, str], ...]
    constexprs: tuple[tuple[str, Any], ...]
    divisible: tuple[str, ...]
    warps: int
    values: tuple[tuple[str, int], ...]
    programs: int
    slots: int
    outputs: int
    output_tiles: int
    op: DeviceOp
    tile: Tile
    extra_folds: int = 0
    fold: Specialization | None = None  # of the launch behind it, which folds the states that this one leaves
    marks: int = 0  # words of 32 bits that programs meet in, all ones between launches: states that say that they are there

    @property
    def attrs(self) -> dict[tuple[int], list[list[Any]]]:
        """What `ASTSource` takes: the arguments that are multiples of 16."""
        names = self.fn.arg_names
        return {(names.index(n),): [["tt.divisibility", 16]] for n in self.divisible}

    @property
    def options(self) -> dict[str, int]:
        """What `triton.compile` takes; nothing where the target has no warps."""
        return {"num_warps": self.warps} if self.warps else {}

    @property
    def num_reduce(self) -> int:
        """`tt.reduce` operations in the kernel: the folds of a program, and once more those of the last to arrive."""
        return self.op.folds * (2 if dict(self.constexprs)["SINK"] in ("split", "words") else 1) + self.extra_folds


def bits_of(value: float, dtype: Any) -> int:
    """The scalar as the bits of a device dtype: kernels take no floating-point arguments."""
    if dtype == tl.float64:
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    if dtype == tl.float32:
        return int(struct.unpack("<i", struct.pack("<f", torch.tensor(value, dtype=torch.float32).item()))[0])
    return int(value)


def axis_values(prefixes: str, axes: tuple[Axis, ...], letter: str) -> dict[str, int]:
    """{"x_k0": ..., "x_k1": ...}: strides of the innermost axis and, where there are just two, of the other."""
    found = {}
    for operand, prefix in enumerate(prefixes):
        found[f"{prefix}_{letter}0"] = axes[-1].strides[operand]
        if len(axes) == 2:
            found[f"{prefix}_{letter}1"] = axes[0].strides[operand]
    return found


def specialization(
    fn: Any,
    pointers: dict[str, str],
    ints: dict[str, int],
    constants: dict[str, Any],
    *,
    wide: bool,
    hints: bool,
    aligned: tuple[str, ...] = (),
    zeros: bool = True,
    **rest: Any,
) -> Specialization:
    """zeros: an integer 0 is a constant, which Ascend's compiler crashes on where it multiplies a tile."""
    signature, constexprs, divisible, values = [], [], [], []
    for name in fn.arg_names:
        if name in pointers:
            signature.append((name, "*" + pointers[name]))
            if hints and (name in ALIGNED or name in aligned):
                divisible.append(name)
        elif name in constants:
            signature.append((name, "constexpr"))
            constexprs.append((name, constants[name]))
        elif (
            name not in ints
            or (zeros and ints[name] == 0 and name not in _SCALARS)
            or (hints and ints[name] == 1 and name in _UNIT_STRIDES)
        ):
            signature.append((name, "constexpr"))
            constexprs.append((name, ints.get(name)))
        else:
            value = ints[name]
            signature.append((name, "i64" if wide or not -(2**31) <= value < 2**31 else "i32"))
            values.append((name, value))
            if hints and value % 16 == 0:
                divisible.append(name)
    return Specialization(fn, tuple(signature), tuple(constexprs), tuple(divisible), values=tuple(values), **rest)
