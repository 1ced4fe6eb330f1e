"""Specialisations of the kernels that work on a reducer's slots, and how many slots an output gets. Pure: no tensors, no device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from . import ascend, dtypes
from .geometry import Tile, fold_tile, pow2_ceil, pow2_floor, row_overhang, share
from .kernels.flat_slots import persistent_combine_kernel, persistent_merge_kernel
from .kernels.segments import segment_kernel
from .kernels.slots import combine_kernel, merge_kernel
from .monoids import DeviceOp
from .problem import Problem, coalesce, contiguous_strides
from .specialization import POINTEES, RUN_TIME, Specialization, axis_values, specialization
from .specialize import of_states
from .targets import Target
from .walk import deep

PROGRAMS_PER_CORE = 8  # that fill a device
FEWEST_PROGRAMS = 64
OUTPUTS = 32  # that a program of an update computes at once where outputs are contiguous
FEW_OUTPUTS = 1 << 18  # so many outputs still get a few slots
INVARIANT_SLOTS = 16
UPDATE_WARPS, UPDATE_PROGRAMS = 4, 4  # of a program, of a core: a quarter of its room; the programs of the next launch find theirs
UPDATE_LANES, UPDATE_ROWS = 4096, 8  # of a tile of rows
LINE = 128  # bytes of neighbouring outputs that a program reads at once


def slot_count(outputs: int, determinism: str, cores: int = 132) -> int:
    """Slots for each output: enough programs to fill a device of so many cores where outputs are few, within about a megabyte for each
    tile of the state.

    With "invariant" the number is fixed, as the order of a fold depends on it.

    Example:
        >>> slot_count(1, "run_to_run"), slot_count(4096, "run_to_run"), slot_count(10**7, "run_to_run")
        (1056, 8, 1)
    """
    if determinism == "invariant":
        return INVARIANT_SLOTS
    programs = max(PROGRAMS_PER_CORE * cores, FEWEST_PROGRAMS)
    return max(min(programs, programs * OUTPUTS // max(outputs, 1)), 4 if outputs <= FEW_OUTPUTS else 1)


def beside(problem: Problem, target: Target, tile: Tile) -> Tile:
    """The tile for a launch beside those before and after it: few warps, and not many programs."""
    inner = problem.reduced[-1].size
    if tile.regime == "columns":
        x = min(pow2_ceil(problem.kept[-1].size), LINE // problem.dtype.itemsize)
        tile = Tile("columns", x, min(pow2_ceil(inner), max(UPDATE_LANES // x, 128)), warps=UPDATE_WARPS, ahead=4)
        return share(problem, target, tile, round(target.cores * UPDATE_PROGRAMS / 2 * x / problem.xnumel))
    if tile.regime == "rows" and len(problem.reduced) == 1:
        x = max(1, min(UPDATE_ROWS, pow2_floor(problem.xnumel / (UPDATE_PROGRAMS * target.cores))))
        r0 = min(pow2_ceil(inner + row_overhang(problem)), UPDATE_LANES // max(x, 2))
        tile = Tile("rows", x, r0, warps=min(UPDATE_WARPS, max(1, x * r0 // 256)))
        return share(problem, target, tile, round(target.cores * UPDATE_PROGRAMS * x / problem.xnumel))
    return replace(tile, warps=min(tile.warps, UPDATE_WARPS))


def _grid(outputs: int, slots: int, arity: int, most: int = 0) -> tuple[Tile, int]:
    """A tile of [outputs, slots] and its number of programs, `most` of a persistent launch. The tile depends on the slots and the state
    alone: so do the bits of a fold.
    """
    if most:
        tile = Tile("combine", 128, min(pow2_ceil(slots), 8), plain=True, programs=most)
        return tile, min(most, -(-outputs // tile.x))
    tile = fold_tile(slots, arity)
    return tile, -(-outputs // tile.x)


def _pointers(op: DeviceOp, names: Sequence[str] = ("p0", "p1", "p2")) -> dict[str, str]:
    return {name: POINTEES[d] for name, d in zip(names, op.dtypes, strict=False)}


def of_combine(
    op: DeviceOp, shape: Sequence[int], slots: int, out: dtypes.DType, strides: Sequence[int], *, seed: float | None, seed_kind: str |
    None, most: int = 0,
) -> Specialization:  # fmt: skip
    """The kernel that ends a stream: slots of the row-major outputs of `shape`, results to an output with these strides.

    most: programs of a persistent launch.
    """
    if most:
        ascend.check(op, out)
        op = ascend.on_vectors(op)
    kept = coalesce(shape, [contiguous_strides(shape), strides])
    outputs = math.prod(shape)
    tile, _ = _grid(outputs, slots, op.arity, most)
    wide = max(outputs * slots, sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) >= 2**31 - 2**22
    fn = persistent_combine_kernel if most else combine_kernel
    return of_states(op, kept, slots, outputs, out, tile, seed=seed, seed_kind=seed_kind, wide=wide, fn=fn)


def of_merge(op: DeviceOp, outputs: int, slots: int, most: int = 0) -> Specialization:
    """The kernel that folds one reducer's slots and combines the state into one slot of another. most: programs of a persistent launch."""
    if most:
        ascend.check(op)
        op = ascend.on_vectors(op)
    tile, programs = _grid(outputs, slots, op.arity, most)
    wide = outputs * slots >= 2**31 - 2**22
    constants = {"OP": op, "WIDE": wide, "SINK": "slot", "XBLOCK": tile.x, "SBLOCK": tile.r0}
    return specialization(
        persistent_merge_kernel if most else merge_kernel, _pointers(op, ("q0_ptr", "q1_ptr", "q2_ptr")) | _pointers(op),
        {"K": outputs, "slots": slots}, constants, wide=wide,
        hints=True, warps=0 if most else 4, programs=programs, slots=slots, outputs=outputs, output_tiles=programs, op=op, tile=tile,
    )  # fmt: skip


def segment_tile(lanes: int, determinism: str) -> Tile:
    """x: lanes along a row's values, r0: rows of a tile; each row is compared with each: about 1024 lanes in all, more spill."""
    x = min(pow2_ceil(lanes), 64)
    rows = 4 if determinism == "invariant" else pow2_floor(math.sqrt(max(1024 // x, 4)))
    return Tile("segment", x, rows, plain=True)


def of_segment(
    op: DeviceOp,
    value: dtypes.DType,
    index: dtypes.DType,
    shape: Sequence[int],
    rows: int,
    strides: tuple[Sequence[int], Sequence[int] | None, int],
    tile: Tile,
    programs: int,
) -> Specialization:
    """The kernel of a segment update into outputs of `shape`, `programs` sharing an output.

    strides: of values and mask, [N, ...], and of the index.
    """
    v, w, i_n = strides
    mask = w if w is not None else (0,) * len(v)
    inner = shape[1:]
    kept = coalesce(inner, [v[1:], mask[1:], contiguous_strides(inner)])
    lanes, outputs = math.prod(inner), math.prod(shape)
    row_tiles, lane_tiles = -(-rows // tile.r0), -(-lanes // tile.x)
    reach = [sum((n - 1) * abs(s) for n, s in zip((rows + tile.r0, *inner), each, strict=True)) for each in (v, mask)]
    wide = max(*reach, (rows + tile.r0) * i_n, outputs * programs) >= 2**31 - 2**22
    ints = {"N": rows, "M": shape[0], "L": lanes, "K": outputs, "v_n": v[0], "i_n": i_n, "w_n": mask[0]}
    ints |= {"row_tiles": row_tiles, "chunk": -(-row_tiles // programs), "lane_tiles": lane_tiles} | axis_values("vwo", kept, "k")
    ints |= {"position": RUN_TIME, "serial": RUN_TIME}
    if len(kept) > 1:
        ints["K0"] = kept[-1].size
    constants = {"OP": op, "KEPT": min(len(kept), 3), "DEEP_KEPT": deep(kept), "MASKED": w is not None, "WIDE": wide, "SINK": "slot"}
    constants |= {"ROWS": tile.r0, "LANES": tile.x}
    pointers = {"v_ptr": value.storage, "index_ptr": index.storage, "fault_ptr": "i64"} | ({"where_ptr": "u8"} if w is not None else {})
    return specialization(
        segment_kernel, pointers | _pointers(op), ints, constants, wide=wide, hints=True, warps=4, programs=programs * lane_tiles,
        slots=programs, outputs=outputs, output_tiles=lane_tiles, op=op, tile=tile, extra_folds=2,
    )  # fmt: skip
