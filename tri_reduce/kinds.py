"""What a reducer reduces: the monoid, the dtypes and the shape, and from them how its states are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from . import targets
from .monoids import MONOIDS, Monoid, counted, lookup


@dataclass(frozen=True)
class Kind:
    """What two reducers must share to be merged: the monoid, dtype of the values, dtype and shape of the result.

    wide: states are kept in float64. builtin: the monoid is the library's own.
    """

    monoid: Monoid
    value: torch.dtype
    result: torch.dtype
    shape: tuple[int, ...]
    wide: bool
    builtin: bool

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return math.prod(self.shape)

    @property
    def kept_in(self) -> torch.dtype:
        """The values' dtype that decides the states' dtypes."""
        return torch.float64 if self.wide else self.value

    @property
    def label(self) -> tuple[object, ...]:
        """Equal for kinds that mean the same, also in another process."""
        return (self.monoid.name, self.monoid.param, str(self.value), str(self.result), self.shape)

    def identities(self) -> tuple[tuple[float | int, torch.dtype], ...]:
        """(identity, dtype) of each tile of a kept state."""
        return tuple(zip(self.monoid.identity_for(self.kept_in), self.monoid.acc_for(self.kept_in), strict=True))


def kind_of(op: str | Monoid, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device, correction: float, order: float) -> Kind:
    """The kind of a reducer; TypeError where the op does not take the dtype."""
    monoid = counted(lookup(op, correction, order))
    name, builtin = monoid.name, isinstance(op, str) and op in MONOIDS
    if (monoid.floats_only or name == "logsumexp") and not dtype.is_floating_point:
        raise TypeError(f"Reducer: {op} has a floating-point result, got dtype={dtype}")
    if monoid.ints_only and dtype.is_floating_point:
        raise TypeError(f"Reducer: {op} is bitwise and needs an integer or bool dtype, got {dtype}")
    if getattr(monoid.device(dtype), "finish_extra", None) == "count":
        raise ValueError(f"Reducer: {name}'s finish takes count, which a stream does not know beforehand: keep a count in its state")
    fixed = not builtin or monoid.indexed or monoid.lift_raw
    result = torch.bool if name in ("any", "all") and builtin else monoid.out_for(dtype) if fixed else dtype
    sums = dtype.is_floating_point and not monoid.idempotent and not monoid.indexed
    has_wide = not targets.runs_kernels(device) or targets.of_device(device.type, device.index or 0).wide_floats
    return Kind(monoid, dtype, result, shape, builtin and sums and has_wide and dtype != torch.float64, builtin)
