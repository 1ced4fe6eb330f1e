"""What a persistent launch (Ascend) is specialised to: how a tile lies, what lanes beyond an axis hold, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import dtypes
from .geometry import Tile, depth_limit, pow2_floor, tiles_of
from .kernels import functions as fn
from .kernels import vector_functions as vector
from .kernels.compat import tl
from .monoids import BUILT_IN, MONOIDS, DeviceOp, counted, products
from .problem import Problem

# Folds of one primitive each, which tests/ascend find in the compiler's output. It turns any other combine into a primitive of its own
# choice, without a word: |a| + |b| into a sum, a logsumexp into a sum.
_FOLDS = (fn.fold_sum, fn.fold_prod, fn.fold_max, fn.fold_min, fn.fold_and, fn.fold_or, fn.fold_xor, fn.fold_arg, fn.fold_exp)
PROVED_FOLDS = frozenset(f.__name__ for f in (*_FOLDS, fn.fold_counted, fn.fold_moments))


_OWN_OPS = "Ascend's compiler miscompiles folds of more than one primitive: only the library's own ops run"
ROW_LANES = 16  # on chip a tile's last axis is padded to 32 bytes
FEW_OUTPUTS = 16
# Elements of a tile that fit, for: at most FEW_OUTPUTS, more outputs, under where=. Every op has room for 4096 without where=.
ROOM = {
    "add": (16384, 8192, 4096),
    "product": (8192, 8192, 0),
    "flag": (8192, 8192, 2048),
    "int": (16384, 8192, 4096),
    "other": (4096, 4096, 2048),
}


def check(op: DeviceOp, *kinds: dtypes.DType) -> None:
    """Refuse what an Ascend device cannot run, or would run wrong.

    Raises:
        TypeError: float64, as an element type or as the accumulator of the op.
        NotImplementedError: a product of integers; a fold that is not the library's own.
    """
    for kind in kinds:
        if kind.name == "fp64":
            raise TypeError(f"{op.name}: Ascend has no float64: convert to float32")
    if "fp64" in {str(d) for d in op.dtypes}:
        raise TypeError(f"{op.name}: accumulates in float64 for these arguments, which Ascend does not have")
    if op.fold is fn.fold_prod and not str(op.dtypes[0]).startswith("fp"):
        raise NotImplementedError(f"{op.name}: Ascend's compiler has no product of integers: convert to float32")
    if op.parts or getattr(op.fold, "__name__", None) not in PROVED_FOLDS or op.fold is not getattr(fn, op.fold.__name__):
        raise NotImplementedError(
            f"{op.name}: Ascend's compiler miscompiles folds of more than one primitive; only the library's own ops run"
        )


# The vector unit's own form of a function, where `functions.py` has what it does in scalar loops or does not define.
_VECTOR = {
    fn.larger: vector.nan_or_larger,
    fn.smaller: vector.nan_or_smaller,
    fn.fold_max: vector.fold_largest,
    fn.fold_min: vector.fold_smallest,
    fn.lift_argmax: vector.lift_largest,
    fn.lift_argmin: vector.lift_smallest,
    fn.first_of_best: vector.first_of_equals,
    fn.lift_counted: vector.lift_weighted,
    fn.add_moments: vector.merge_moments,
    fn.fold_moments: vector.fold_moments_once,
    fn.finish_var: vector.finish_spread,
    fn.finish_std: vector.finish_root_of_spread,
}


def on_vectors(op: DeviceOp) -> DeviceOp:
    """The op as the vector unit computes it; partial states that would be float64 keep the accumulator's dtype."""
    wider = op.wider
    if wider is not None:
        wider = None if "fp64" in {str(d) for d in wider.dtypes} else on_vectors(wider)
    is_float = str(op.dtypes[0]).startswith("fp")
    folds = 2 if is_float and op.fold in (fn.fold_max, fn.fold_min) else 3 if op.fold is fn.fold_moments else op.folds
    lift, combine, fold, finish = (_VECTOR.get(f, f) for f in (op.lift, op.combine, op.fold, op.finish))
    extra = "weight" if op.lift in (fn.lift_counted, fn.lift_moments) else op.lift_extra
    step = vector.step_moments if op.lift is fn.lift_moments else None
    return replace(op, lift=lift, combine=combine, fold=fold, finish=finish, folds=folds, lift_extra=extra, wider=wider, step=step)


def padding(problem: Problem, op: DeviceOp) -> float | int | None:
    """What an element may hold so that it contributes nothing; None where no element of the dtype does."""
    low, high = dtypes.limits(problem.dtype)
    if op.lift_extra == "weight":
        return 0
    if op.lift_extra == "index":  # beside a real value it counts for nothing, and of equal ones the first wins
        return high if op.name == "argmin" else low
    return op.identity[0] if _holds(problem.dtype, op.identity[0]) else None


def _holds(dtype: dtypes.DType, value: float | int) -> bool:
    low, high = dtypes.limits(dtype)
    return low <= value <= high and (dtype.is_float or value == int(value))


def output_tiles(problem: Problem, tile: Tile) -> int:
    """Tiles of outputs: none crosses the end of the innermost kept axis."""
    inner = problem.kept[-1].size
    return problem.xnumel // inner * -(-inner // tile.x) if inner else 0


_EXACT = (fn.larger, fn.smaller, fn.bit_and, fn.bit_or, fn.bit_xor, fn.first_of_best)


_INT_ORDER = (fn.larger, fn.smaller, vector.nan_or_larger, vector.nan_or_smaller, fn.bit_and, fn.bit_or)  # xor takes three


def group(problem: Problem, tile: Tile, op: DeviceOp) -> int:
    """Tiles whose sums are added up apart, so that no chain of additions is too long; 0 where none is, or none rounds."""
    if op.combine in _EXACT or op.combine in {_VECTOR.get(f) for f in _EXACT} or not str(op.dtypes[0]).startswith("fp"):
        return 0
    _, tiles = tiles_of(problem, tile)
    chain = -(-tiles // tile.split) - 1 + tile.r0.bit_length() - 1
    if chain <= depth_limit(problem):
        return 0
    return 1 << (-(-tiles // tile.split)).bit_length() // 2


def axis(problem: Problem) -> int:
    """Of its tiles, along which contributions lie: the last, unless it is outputs that are contiguous in memory."""
    return 0 if problem.layout == "columns" else 1


def padded(problem: Problem, tile: Tile) -> int:
    """Elements that a tile takes on chip: there its last axis, and each element where that is not contiguous in memory, fills 32 bytes."""
    if problem.layout == "columns":
        return max(tile.x, ROW_LANES) * tile.r0
    return tile.x * (max(tile.r0, ROW_LANES // 2) if problem.layout == "rows" else tile.r0 * ROW_LANES)


def room(op: DeviceOp, problem: Problem, tile: Tile) -> int:
    """Elements of the largest tile that fits the buffer, measured (docs/ascend.md)."""
    kind = "other"
    if problem.op == "gemv":
        kind = "product"
    elif op.arity == 1 and op.lift is fn.lift_nonzero:
        kind = "flag"
    elif op.arity == 1 and op.combine in (fn.add, fn.multiply) and str(op.dtypes[0]).startswith("fp"):
        kind = "add"
    elif op.arity == 1 and op.cast is not None and problem.dtype.name == "i32" and op.combine in _INT_ORDER:
        kind = "int"
    few, many, masked = ROOM[kind]
    if problem.masked:
        return masked
    spare = tile.x > 1 or op.finish_extra is None  # the finish of one output has a row of its own
    return few if tile.x <= FEW_OUTPUTS and spare and not group(problem, tile, op) else many


def in_pieces(op: DeviceOp, problem: Problem, tile: Tile, slots: bool = False) -> Tile:
    """The tile as it is read: in pieces of its reduced lanes where all of them do not fit. slots: beside it there is a slot's state."""
    within = room(op, problem, tile) // (2 ** (op.arity - 1) if slots or problem.wide else 1)
    most = pow2_floor(within / (padded(problem, tile) / tile.r0))
    if problem.dtype.itemsize == 1 and tile.x == 1:  # a row of bytes is widened by way of three more
        most = min(most, 512)
    return replace(tile, r0=min(tile.r0, max(1, most)))


def op_of(problem: Problem) -> DeviceOp:
    """The op that a problem's name and dtype stand for."""
    if problem.op == "gemv":
        return products().device(problem.dtype.torch)
    monoid = counted(MONOIDS[problem.op]) if problem.masked and problem.op in MONOIDS else BUILT_IN.get(problem.op)
    if monoid is None:
        raise NotImplementedError(f"{problem.op}: {_OWN_OPS}")
    return monoid.device(problem.dtype.torch, problem.rnumel >= 2**31 - 1)


def constants(problem: Problem, tile: Tile, op: DeviceOp) -> dict[str, Any]:
    """The compile-time constants that only the persistent kernels have."""
    full = problem.kept[-1].size % tile.x == 0 and problem.reduced[-1].size % tile.r0 == 0 and problem.rnumel > 0
    return {
        "AXIS": axis(problem),
        "PIECE": tile.r0,
        "PAD": padding(problem, op),
        "FULL": full and not problem.masked,
        "POSITION": tl.int64 if problem.rnumel >= 2**31 else tl.int32,
        "GROUP": group(problem, tile, op),
        "SPREAD": problem.op == "gemv" and problem.kept[-1].strides[1] != 0,
    }
