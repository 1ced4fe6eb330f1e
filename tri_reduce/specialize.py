"""From a problem and a tile to one kernel: which function, with which constants."""

from __future__ import annotations

import math
from typing import Any

from . import ascend, dtypes
from .geometry import Tile, fold_tile, output_tiles, seen, tiles_of
from .kernels.compat import tl
from .kernels.gemv import gemv_kernel
from .kernels.persistent import persistent_reduce_kernel
from .kernels.persistent_gemv import persistent_gemv_kernel
from .kernels.reduce import reduce_kernel
from .kernels.slots import combine_kernel
from .lanes import narrow, valued
from .meeting import folded_together, is_brief, pointers_of, sink_of
from .monoids import DeviceOp
from .problem import Axis, Problem
from .specialization import POINTEES, RUN_TIME, Specialization, axis_values, bits_of, specialization
from .walk import deep, walk_of


def _common(problem: Problem, tile: Tile, op: DeviceOp, sink: str, slots: int, **more: Any) -> tuple[dict[str, int], dict[str, Any]]:
    """The integers and constants that both kernels share."""
    inner_tiles, tiles = tiles_of(problem, tile)
    brief = is_brief(problem, tile, op, sink)
    how = walk_of(problem, tile, brief=brief + (brief and output_tiles(problem, tile) == 1), **more)
    problem = seen(problem, tile)
    ints = {
        "shift": problem.shift,
        "K": problem.xnumel,
        "K0": problem.kept[-1].size,
        "R0": problem.reduced[-1].size - (problem.tail > 0),
        "tail": problem.tail,
        "inner_tiles": inner_tiles,
        "tiles": tiles,
        "chunk": -(-tiles // tile.split),
        "slots": slots,
    }
    unused = [("K0", len(problem.kept) == 1), ("inner_tiles", len(problem.reduced) == 1), ("slots", sink == "own")]
    for name in (n for n, is_unused in unused if is_unused):
        del ints[name]
    constants = {
        "OP": op,
        "HOW": how,
        "SINK": sink,
        "XBLOCK": tile.x,
        "R0_BLOCK": tile.r0,
        "SBLOCK": folded_together(tile, op),
    }
    return ints, constants


def of_reduce(
    problem: Problem,
    tile: Tile,
    op: DeviceOp,
    out: dtypes.DType,
    *,
    precast: dtypes.DType | None = None,
    seed: float | None = None,
    seed_kind: str | None = None,
    accumulate: bool = False,
    slot_count: int = 0,
    early: bool = True,
    words: bool = False,
    kinds: tuple[dtypes.DType, ...] = (),
) -> Specialization:
    """The reduce kernel for a problem. `slot_count`: states stay in a Reducer's slots, so many for each output, and nothing is finished.

    `early`: the target's launches may overlap, and where another kernel follows this one says when that may begin. `words`: its programs
    may wait for words in memory.
    """
    op = narrow(op, problem)
    if not tile.programs and not slot_count:
        op = valued(op, problem)
    if tile.programs:
        ascend.check(op, problem.dtype, out)
        op, config, tile = ascend.on_vectors(op), tile, ascend.in_pieces(op, problem, tile, slot_count > 0)
    sink = "slot" if slot_count else "apart" if tile.abreast else sink_of(problem, tile, op, words)
    slots = tile.split
    assert not slot_count or slots <= slot_count, "a program without a slot of its own"
    whole, problem = problem, seen(problem, tile)
    fold = None
    if sink == "apart":
        fold = of_fold(whole, tile, op.partial, out, seed, seed_kind, accumulate, early)
        seed, accumulate = None, False
    single = len(problem.reduced) == 1
    ints, constants = _common(
        whole, tile, op, sink, slots,
        precast=None if precast is None else tl.int1 if precast.name == "bool" else _triton_dtype(precast),
        masked=problem.masked, seed=seed_kind if seed is not None else None, accumulate=accumulate, truth=out.name == "bool" and not
        slot_count, early=early and sink in ("slot", "apart"),
        kinds=tuple(tl.uint8 if k.name == "bool" else _triton_dtype(k) for k in kinds), truths=tuple(k.name == "bool" for k in kinds),
    )  # fmt: skip
    ints |= {"count": problem.rnumel, "R1": problem.rnumel // max(problem.reduced[-1].size, 1)}
    ints |= axis_values("xwo", problem.kept, "k") | axis_values("xwi", problem.reduced, "r")
    constants["R1_BLOCK"] = tile.r1
    if op.finish_extra != "count" or sink == "apart":
        del ints["count"]
    if single:
        del ints["R1"]
    if seed is not None:
        ints["seed"] = bits_of(seed, op.partial.dtypes[0])
    if slot_count and op.lift_extra == "index":
        ints["seed"] = RUN_TIME  # each launch passes its position in the stream
    if constants["HOW"].early and slot_count:
        ints["follows"] = 0  # each launch passes whether it follows another update directly
    pointers = {"x_ptr": problem.dtype.storage}
    if problem.masked:
        pointers["where_ptr"] = "u8"
    if sink not in ("slot", "apart"):
        pointers["out_ptr"] = out.storage
    meeting, marks = pointers_of(sink, problem, op, slots)
    pointers |= meeting
    if tile.programs:
        return _persistent(persistent_reduce_kernel, problem, tile, config, op, pointers, ints, constants)
    programs = output_tiles(whole, tile)
    return specialization(
        reduce_kernel, pointers, ints, constants, wide=problem.wide, hints=not tile.plain, warps=tile.warps,
        programs=programs * tile.split, slots=slots, outputs=problem.xnumel, output_tiles=programs, op=op, tile=tile,
        extra_folds=op.folds * (constants["HOW"].slanted > 1), fold=fold, marks=marks,
    )  # fmt: skip


def of_fold(
    problem: Problem, tile: Tile, op: DeviceOp, out: dtypes.DType, seed: float | None, seed_kind: str | None, accumulate: bool, early: bool
) -> Specialization:
    """The kernel behind one that reads rows as one: folds, finishes and stores the states that its programs left.

    `early`: it may begin while those run, and waits for them.
    """
    slots, step = tile.split * tile.abreast, problem.reduced[-1].strides[0]
    kept = tuple(Axis(a.size, (1, a.strides[2])) for a in problem.kept)
    wide = max(step * slots, problem.xnumel * kept[-1].strides[1], problem.rnumel) >= 2**31 - 2**22
    return of_states(
        op, kept, slots, step, out, fold_tile(slots, op.arity), seed=seed, seed_kind=seed_kind, wide=wide, count=problem.rnumel,
        accumulate=accumulate, late=early,
    )  # fmt: skip


def of_states(
    op: DeviceOp,
    kept: tuple[Axis, ...],
    slots: int,
    step: int,
    out: dtypes.DType,
    tile: Tile,
    *,
    seed: float | None,
    seed_kind: str | None,
    wide: bool,
    count: int | None = None,
    accumulate: bool = False,
    late: bool = False,
    fn: Any = combine_kernel,
) -> Specialization:
    """The kernel that only folds: states of outputs, `slots` for each and `step` apart, to results.

    kept: axes with strides of (states, output). late: the launch before may still be writing the states. fn: or its persistent twin.
    """
    outputs = math.prod(a.size for a in kept)
    programs = -(-outputs // tile.x)
    ints = {"K": outputs, "step": step, "slots": slots} | axis_values("so", kept, "k")
    if len(kept) > 1:
        ints["K0"] = kept[-1].size
    if seed is not None:
        ints["seed"] = bits_of(seed, op.dtypes[0])
    if count is not None and op.finish_extra == "count":
        ints["count"] = count
    constants = {
        "OP": op,
        "KEPT": min(len(kept), 3),
        "DEEP_KEPT": deep(kept),
        "SEED": seed_kind if seed is not None else None,
        "TRUTH": out.name == "bool",
        "ACCUMULATE": accumulate,
        "LATE": late,
        "WIDE": wide,
        "SINK": "own",
        "XBLOCK": tile.x,
        "SBLOCK": tile.r0,
    }
    pointers = {"out_ptr": out.storage} | {f"p{n}": POINTEES[d] for n, d in enumerate(op.dtypes)}
    return specialization(
        fn, pointers, ints, constants, wide=wide, hints=True, warps=0 if tile.programs else 4, zeros=not tile.programs,
        programs=min(tile.programs or programs, programs), slots=slots, outputs=outputs, output_tiles=programs, op=op, tile=tile,
    )  # fmt: skip


def _persistent(
    fn: Any, problem: Problem, tile: Tile, config: Tile, op: DeviceOp, pointers: dict[str, str], ints: dict[str, int], constants:
    dict[str, Any],
) -> Specialization:  # fmt: skip
    """One of the kernels that walk tiles of outputs. `tile` is what it reads at once of a tile of `config`."""
    constants |= ascend.constants(problem, tile, op) | {"R0_BLOCK": config.r0}
    programs = ascend.output_tiles(problem, tile)
    return specialization(
        fn, pointers, ints, constants, wide=problem.wide, hints=True, zeros=False, warps=0,
        programs=min(tile.programs, programs * tile.split), slots=tile.split, outputs=problem.xnumel, output_tiles=programs, op=op,
        tile=config,
    )  # fmt: skip


def of_gemv(
    problem: Problem,
    tile: Tile,
    op: DeviceOp,
    x: dtypes.DType,
    out: dtypes.DType,
    alpha: float,
    beta: float,
    aligned_vector: bool = True,
    words: bool = False,
) -> Specialization:
    """The gemv kernel for a problem whose operands are a, x, y and out. `aligned_vector`: x starts on a 16-byte boundary. `words`: the
    target's programs may wait for words in memory.
    """
    if tile.programs:
        ascend.check(op, problem.dtype, out)
        op, config, tile = ascend.on_vectors(op), tile, ascend.in_pieces(op, problem, tile)
    sink = sink_of(problem, tile, op, words)
    spread = problem.layout == "rows" and tile.warps > 0  # laid out as the matrix is
    vector_2d = spread or any(a.strides[1] for a in problem.kept) or (problem.layout == "rows" and not problem.aligned_rows)
    ints, constants = _common(problem, tile, op, sink, tile.split, scaled=alpha != 1, adds=beta != 0, vector_2d=vector_2d)
    ints |= axis_values("avyo", problem.kept, "k") | axis_values("av", problem.reduced, "r")
    if alpha != 1:
        ints["alpha"] = bits_of(alpha, op.dtypes[0])
    if beta != 0:
        ints["beta"] = bits_of(beta, op.dtypes[0])
    pointers = {"a_ptr": problem.dtype.storage, "v_ptr": x.storage, "out_ptr": out.storage}
    if beta != 0:
        pointers["y_ptr"] = out.storage
    meeting, marks = pointers_of(sink, problem, op, tile.split)
    pointers |= meeting
    if tile.programs:
        return _persistent(persistent_gemv_kernel, problem, tile, config, op, pointers, ints, constants)
    programs = output_tiles(problem, tile)
    found = specialization(
        gemv_kernel, pointers, ints, constants, wide=problem.wide, hints=not tile.plain, aligned=("v_ptr",) * aligned_vector,
        warps=tile.warps, programs=programs * tile.split, slots=tile.split, outputs=problem.xnumel, output_tiles=programs, op=op,
        tile=tile, extra_folds=op.folds * (constants["HOW"].slanted > 1), marks=marks,
    )  # fmt: skip
    return found


def _triton_dtype(dtype: dtypes.DType) -> Any:
    return getattr(tl, str(dtype.torch).removeprefix("torch."))
