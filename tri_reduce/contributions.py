"""What may go into a reducer: every argument of `Reducer.update`, checked before anything is written.

`about` names the reducer in messages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import dtypes, validate
from .errors import ReducerDtypeError, ReducerError, ReducerMergeError, ReducerShapeError
from .kinds import Kind
from .problem import normalise_dims

About = Callable[[], str]


def check_values(values: Any, dtype: torch.dtype, device: torch.device, about: About) -> None:
    """A tensor on the reducer's device whose dtype promotes to the reducer's."""
    if not isinstance(values, Tensor):
        raise TypeError(f"update: values must be a tensor, got {type(values).__name__}")
    if hasattr(values, "to_local"):
        raise ReducerError(
            f"update: values are a DTensor, {about()} takes local tensors: see tri_reduce.dtensors, or give values.to_local()"
        )
    if values.device != device:
        raise ReducerError(f"update: values are on {values.device}, {about()} is on {device}: move them there")
    if values.dtype not in dtypes.BY_TORCH or torch.promote_types(values.dtype, dtype) != dtype:
        raise ReducerDtypeError(
            f"update: values of {values.dtype} cannot join {about()} of {dtype} without loss: convert them, or make a wider reducer"
        )


def check_where(where: Any, values: Tensor, about: About) -> None:
    """A bool mask on the values' device that broadcasts to them."""
    if not isinstance(where, Tensor) or where.dtype != torch.bool:
        raise ReducerDtypeError(f"update: where must be a bool tensor, got {getattr(where, 'dtype', type(where).__name__)} for {about()}")
    if where.device != values.device:
        raise ReducerError(f"update: where is on {where.device}, {about()} is on {values.device}")
    if where.dim() > values.dim() or any(w not in (1, n) for w, n in zip(where.shape[::-1], values.shape[::-1], strict=False)):
        raise ReducerShapeError(
            f"update: where of shape {tuple(where.shape)} does not broadcast to values of shape {tuple(values.shape)}, for {about()}"
        )


def reduced_dims(values: Tensor, dim: Any, shape: torch.Size, indexed: bool, about: About) -> tuple[int, ...]:
    """The dims to reduce; what is left of the values' shape is the reducer's."""
    if values.dim() < len(shape):
        raise ReducerShapeError(f"update: values of shape {tuple(values.shape)} have fewer dims than {about()} of shape {tuple(shape)}")
    if dim is None:
        dims: tuple[int, ...] = tuple(range(values.dim() - len(shape)))
    else:
        dims = normalise_dims("update", dim, values.dim(), indexed)
    left = tuple(n for d, n in enumerate(values.shape) if d not in dims)
    if left != tuple(shape):
        raise ReducerShapeError(
            f"update: values of shape {tuple(values.shape)} reduced over dims {dims} leave {left}, but {about()} has shape {tuple(shape)}"
        )
    return dims


def check_index(index: Any, values: Tensor, dim: Any, shape: torch.Size, about: About) -> None:
    """An index for each row of values, whose rows have the shape of one of the reducer's."""
    if dim is not None:
        raise ReducerError(f"update: give dim or index, not both: with index each values[i, ...] goes to one output of {about()}")
    if not isinstance(index, Tensor) or index.dtype not in (torch.int32, torch.int64):
        raise ReducerDtypeError(
            f"update: index must be an int32 or int64 tensor, got {getattr(index, 'dtype', type(index).__name__)} for {about()}"
        )
    if index.device != values.device:
        raise ReducerError(f"update: index is on {index.device}, {about()} is on {values.device}")
    if not shape or values.dim() != len(shape) or values.shape[1:] != shape[1:]:
        wanted = ", ".join(map(str, ("N", *shape[1:]))) if shape else "no index: there is one output"
        raise ReducerShapeError(
            f"update: with index, values must be [{wanted}], got shape {tuple(values.shape)} for {about()} of shape {tuple(shape)}"
        )
    if tuple(index.shape) != (values.shape[0],):
        raise ReducerShapeError(
            f"update: index of shape {tuple(index.shape)} for values of shape {tuple(values.shape)}: one is needed for each row"
        )


def position_of(offset: Any, counts: bool, started: bool, about: About) -> int:
    """Position in the stream of the first value of an update; `counts`: the op needs positions, `started`: this is not the first update."""
    if offset is None:
        if counts and started:
            raise ReducerError(
                f"update: {about()} needs offset= from its second update on: the position of the tile's first value in the stream"
            )
        return 0
    if not counts:
        raise ReducerError(f"update: offset= is for argmax and argmin; {about()} counts no positions")
    if isinstance(offset, bool) or not hasattr(offset, "__index__") or int(offset) < 0:
        raise ReducerError(f"update: offset must be a non-negative int, got {offset!r} for {about()}")
    return int(offset)


def one_seed(what: str, a: Any, b: Any, mine: str, other: str) -> Any:
    """The seed of two reducers that become one: both are equal, or one has none."""
    if a is None or b is None or a == b or (a != a and b != b):
        return b if a is None else a
    error = ReducerMergeError if what == "merge" else ReducerError
    raise error(f"{what}: seeds differ: {mine} has initial={a!r}, {other} has initial={b!r}; give one of them, or both the same")


def check_update(r: Any, values: Any, dim: Any, where: Any, index: Any, offset: Any) -> tuple[tuple[int, ...], int]:
    """(dims that an update of reducer `r` reduces, position of its first value), everything checked."""
    check_values(values, r.dtype, r.device, r._about)
    position = position_of(offset, r._counts, r._updates > 0, r._about)
    dims: tuple[int, ...] = ()
    if index is not None:
        check_index(index, values, dim, r.shape, r._about)
    else:
        dims = reduced_dims(values, dim, r.shape, r._counts, r._about)
    if where is not None:
        check_where(where, values, r._about)
    return dims, position


def seeds_of(kinds: Sequence[Kind], initial: Any, many: bool) -> tuple[Any, ...]:
    """A seed, or None, for each kind: `initial` is one for all, or for `many` a list."""
    given = initial if many and isinstance(initial, list | tuple) else [initial] * len(kinds)
    if len(given) != len(kinds):
        raise ValueError(f"Reducer: {len(given)} values of initial for {len(kinds)} ops")
    return tuple(None if i is None else validate.check_seed(k.monoid, k.value, i) for k, i in zip(kinds, given, strict=True))


def check_merge(mine: Any, other: Any) -> tuple[Any, ...]:
    """The seeds of two reducers that may be merged; ReducerMergeError says why where they may not."""
    if other is mine:
        raise ReducerMergeError(f"merge: {mine._about()} cannot be merged with itself: each contribution would count twice")
    for what in ("op", "shape", "dtype", "device"):
        a, b = getattr(mine, what), getattr(other, what)
        if a != b:
            raise ReducerMergeError(f"merge: {what} differs: {mine._about()} has {a}, {other._about()} has {b}")
    if any(a.kind.label != b.kind.label for a, b in zip(mine._parts, other._parts, strict=True)):
        raise ReducerMergeError(f"merge: correction or ord differ between {mine._about()} and {other._about()}")
    return tuple(one_seed("merge", a, b, mine._about(), other._about()) for a, b in zip(mine._seeds, other._seeds, strict=True))


def caller() -> str:
    """file:line of the first frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "tri_reduce":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
