"""Every kernel that the library launches, as `verify.assert_deferred` takes it: what plans specialise, without tensors or a device."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from . import dtypes, targets
from .configs import candidates, config
from .geometry import Tile
from .kinds import kind_of
from .monoids import MONOIDS, counted, lookup, products
from .problem import Problem, describe
from .slot_plans import beside, of_combine, of_merge, of_segment, segment_tile, slot_count
from .specialization import Specialization
from .specialize import of_gemv, of_reduce
from .targets import Target
from .validate import value_types


class KernelRecord(NamedTuple):
    """A kernel as the library launches it, with what `assert_deferred` takes.

    num_reduce: None for a user's monoid, whose fold may have any number. role: "main", or "combine" for a Reducer's.
    """

    name: str
    fn: Any
    signature: dict[str, str]
    constexprs: dict[str, Any]
    attrs: dict[tuple[int], list[list[Any]]]
    options: dict[str, int]
    num_reduce: int | None
    problem: Problem
    config: Any
    role: str


CUDA = ("cuda:80", "cuda:90", "cuda:100")
PROBLEMS: tuple[Any, ...] = (
    *((op, (4096, 4096), 1, "i32" if monoid.ints_only else "fp32") for op, monoid in MONOIDS.items()),
    *((op, (4096, 768), 0, "fp32") for op in ("sum", "argmax", "var", "logsumexp")),
    ("sum", (64, 401408), 1, "fp32"),
    ("sum", (65536, 8), 1, "bf16"),
    ("sum", (8192, 50257), 1, "bf16"),
    ("sum", (32, 64, 56, 56), (0, 2, 3), "bf16"),
    ("gemv", (4096, 4096), False, "bf16"),
    ("gemv", (4096, 4096), True, "bf16"),
    ("gemv", (1024, 4095), False, "fp32"),
)


def library_kernels(target: str | Target, *, problems: Sequence[Any] | None = None) -> Iterator[KernelRecord]:
    """Every kernel that the library launches for some problems on a target, as `assert_deferred` takes it.

    Args:
        target: "cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "ascend", ...
        problems: `(op, shape, dim, dtype)` or `("gemv", (M, K), trans, dtype)`, contiguous, or a `Problem`; the default has every op.

    Yields:
        For each problem that the target can run one "main" record per candidate of `configs.select_configs`, best guess first, with the
        "combine" record of what folds behind it, if anything does; then "combine" records: what a Reducer of that op launches.

    Example:
        >>> next(library_kernels("cuda:90", problems=[("sum", (1000, 4), 1, "fp32")])).name
        'sum-1000x4-dim1-fp32-0'
    """
    import triton

    facts = target_of(target)
    for given in dict.fromkeys(PROBLEMS if problems is None else problems):
        name, problem = _named(given)
        for n, tile in enumerate(candidates(problem, facts)):
            try:
                spec = specialized(problem, tile, facts.words)
            except (TypeError, NotImplementedError):  # a call with this problem raises it as well
                break
            yield _record(f"{name}-{n}", spec, problem, config(tile, facts), "main")
            if spec.fold is not None:
                yield _record(f"{name}-{n}-fold", spec.fold, problem, config(spec.fold.tile, facts), "combine")
        else:
            # an update's programs own slots: they need not meet
            shared = candidates(problem, dataclasses.replace(facts, tickets=True, apart=False))[0]
            for kind, spec in _stream(problem, shared, facts):
                end = triton.Config({"XBLOCK": spec.tile.x, "R0_BLOCK": spec.tile.r0}, **spec.options)
                yield _record(f"{name}-{kind}", spec, problem, end, "combine")


def target_of(target: str | Target) -> Target:
    """A known target, or any other compute capability."""
    other = re.fullmatch(r"cuda:(\d+)", target) if isinstance(target, str) and target not in CUDA else None
    return dataclasses.replace(targets.H200, name=str(target), arch=int(other[1])) if other else targets.by_name(target)


def _named(given: Any) -> tuple[str, Problem]:
    if isinstance(given, Problem):
        axes = "-".join("x".join(f"{a.size}@{a.strides[0]}" for a in side) for side in (given.kept, given.reduced))
        return f"{given.op}-{axes}-{given.dtype.name}" + f"-shift{given.shift}" * bool(given.shift) + "-masked" * given.masked, given
    op, shape, dim, dtype = given
    which = "x".join(map(str, dim)) if isinstance(dim, tuple | list) else dim
    name = f"{op}-{'x'.join(map(str, shape))}-{'trans' * bool(dim) or 'plain' if op == 'gemv' else f'dim{which}'}-{dtype}"
    return name, describe(op, shape, -1 if op == "gemv" else dim, dtype, trans=op == "gemv" and bool(dim))


def specialized(problem: Problem, tile: Tile, words: bool = True) -> Specialization:
    """What `plans.py` would run on fresh tensors. words: the target's programs may wait for words in memory."""
    kind = problem.dtype
    if problem.op == "gemv":
        out = kind if kind.is_float else dtypes.named("i32")
        return of_gemv(problem, tile, products().device(kind.torch), kind, out, 1, 0, words=words)
    monoid = lookup(problem.op)
    value, _, result = value_types(monoid, kind.torch, None)
    op = (counted(monoid) if problem.masked else monoid).device(value, problem.rnumel >= 2**31 - 1)
    return of_reduce(problem, tile, op, dtypes.of(result), words=words)


def _stream(problem: Problem, tile: Tile, target: Target) -> Iterator[tuple[str, Specialization]]:
    """What a Reducer with as many outputs launches: updates (of values, of segments), the merge with another, the end."""
    dtype, shape = problem.dtype, (problem.xnumel,)
    try:
        kind = kind_of(problem.op, dtype.torch, shape, torch.device("cpu"), 1, 2)
    except (TypeError, ValueError):  # an op that does not stream (values of this dtype)
        return
    kept = kind.monoid.device(kind.kept_in if target.wide_floats else kind.value)
    slots, result = slot_count(kind.outputs, "run_to_run", target.cores), dtypes.of(kind.result)
    op = dataclasses.replace(kind.monoid.device(kind.value), wider=kept)
    tile = beside(problem, target, tile) if target.overlaps else tile
    shared = dataclasses.replace(tile, split=min(tile.split, slots))
    yield "update", of_reduce(problem, shared, op, result, slot_count=slots, early=target.overlaps)
    most = target.cores if target.persistent else 0
    if not target.persistent:
        rows = segment_tile(1, "run_to_run")
        yield "segment", of_segment(kept, dtype, dtypes.named("i64"), shape, 4096, ((1,), None, 1), rows, min(slots, 64))
    yield "merge", of_merge(kept, kind.outputs, slots, most)
    yield "end", of_combine(kept, shape, slots, result, (1,), seed=None, seed_kind=None, most=most)


def _record(name: str, spec: Specialization, problem: Problem, config: Any, role: str) -> KernelRecord:
    signature, constexprs, options = dict(spec.signature), dict(spec.constexprs), spec.options
    count = spec.num_reduce if problem.op in (*MONOIDS, "gemv") else None
    return KernelRecord(name, spec.fn, signature, constexprs, spec.attrs, options, count, problem, config, role)
