"""Compile the kernel of a problem and a tile into Triton's cache, in a process that never touches the device."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any

import torch
from corpus import Case
from lattice import lattice

from tri_reduce import dtypes, targets
from tri_reduce.geometry import Tile
from tri_reduce.launcher import Passed, compiled
from tri_reduce.monoids import products
from tri_reduce.problem import Problem
from tri_reduce.specialization import Specialization
from tri_reduce.specialize import of_gemv, of_reduce
from tri_reduce.targets import Target
from tri_reduce.validate import reduction


@functools.lru_cache(maxsize=256)
def _facts(case: Case) -> tuple[Problem, Any]:
    """(the problem, the validated reduction), as a call would plan them."""
    problem = case.problem
    if case.op == "gemv":
        return problem, None
    x = torch.empty(case.shape, dtype=problem.dtype.torch, device="meta")
    return problem, reduction(x, case.op, case.dim, False, None, None, False, None, None, 1, 2, "run_to_run")


def result_of(case: Case) -> torch.dtype:
    """What a call of the library would give."""
    problem, r = _facts(case)
    return problem.dtype.torch if r is None else r.result


def specialise(case: Case, tile: Tile) -> Specialization:
    """The kernel that a call of the library would run with this tile."""
    problem, r = _facts(case)
    if r is None:
        return of_gemv(problem, tile, products().device(problem.dtype.torch), problem.dtype, problem.dtype, 1, 0, words=True)
    op = r.monoid.device(r.value, problem.rnumel >= 2**31 - 1)
    return of_reduce(
        problem,
        tile,
        op,
        dtypes.of(r.result),
        precast=dtypes.of(r.precast) if r.precast else None,
        seed_kind=r.monoid.seed,
        early=not targets.interpreting(),
        words=True,
    )


def start() -> None:
    """A compiling process: one thread of torch."""
    torch.set_num_threads(1)


def started() -> None:
    """Takes long enough that each of several calls gets a process of its own."""
    time.sleep(0.2)


def lattice_of(case: Case, target: Target, limit: int) -> list[Tile]:
    """The first tiles of a problem."""
    return lattice(case.problem, target, limit, case.key)


def compile_tile(case: Case, tile: Tile, target: Target) -> str:
    """ "" once the kernel and its launcher lie in Triton's cache, else why not."""
    spec = specialise(case, tile)
    try:
        kernel = compiled((spec.fn, spec.signature, spec.constexprs, spec.divisible, spec.warps), target, 0)
    except Exception as reason:  # out of registers or shared memory, a limit of the compiler: recorded with the tile
        return f"{type(reason).__name__}: {reason}"
    if target.backend == "cuda":
        with contextlib.suppress(Exception):  # loading the kernel does it again, and says so
            _launcher(kernel, spec.signature)
    return ""


_LAUNCHERS: set[Any] = set()


def _launcher(kernel: Any, signature: tuple[tuple[str, str], ...]) -> None:
    """The C launcher of a signature is compiled when a kernel is loaded: here, lest the timing process waits for it."""
    from triton.backends.nvidia.driver import CudaLauncher

    passed = Passed.of(signature)
    if (kinds := tuple(passed.signature.values())) not in _LAUNCHERS:
        _LAUNCHERS.add(kinds)
        CudaLauncher(passed, kernel.metadata)
