"""Who is measured: this library under each policy, torch, torch.compile, and other libraries where they can be imported.

A contestant that does not do a problem is None; one that fails says so beside the others' times.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import autotune, functional
from .bench_clock import Contestant
from .bench_problems import Case

EAGER: dict[str, Callable[..., Tensor]] = {
    "sum": torch.sum,
    "max": torch.amax,
    "min": torch.amin,
    "mean": torch.mean,
    "var": torch.var,
    "logsumexp": torch.logsumexp,
    "argmax": torch.argmax,
    "norm": lambda x, dims: torch.linalg.vector_norm(x, 2, dims),
}
Make = Callable[[Case, tuple[Tensor, ...]], Contestant | None]


def _dims(case: Case) -> Any:
    return case.reduced[0] if case.op.startswith("arg") and len(case.reduced) == 1 else case.reduced


def _eager(case: Case) -> Callable[..., Tensor]:
    if case.op == "gemv":
        return (lambda a, v: torch.mv(a.T, v)) if case.trans else torch.mv
    op, dims = EAGER[case.op], _dims(case)
    return lambda x: op(x, dims)


def _ours(policy: str) -> Make:
    def make(case: Case, inputs: tuple[Tensor, ...]) -> Contestant:
        dims = None if case.dims is None else _dims(case)
        x, context = inputs[0], functools.partial(autotune.policy, policy)
        if case.op == "gemv":
            return Contestant(lambda: functional.gemv(x, inputs[1], trans=case.trans), context)
        return Contestant(lambda: functional.reduce(x, case.op, dims), context)

    return make


def _torch(case: Case, inputs: tuple[Tensor, ...]) -> Contestant:
    eager = _eager(case)
    return Contestant(lambda: eager(*inputs))


def _linear(case: Case, inputs: tuple[Tensor, ...]) -> Contestant | None:
    if case.op != "gemv" or case.trans:
        return None
    a, row = inputs[0], inputs[1][None]
    return Contestant(lambda: torch.nn.functional.linear(row, a)[0])


def _compiled(mode: str) -> Make:
    def make(case: Case, inputs: tuple[Tensor, ...]) -> Contestant:
        call = torch.compile(_eager(case), dynamic=False, mode=mode)
        call(*inputs)
        return Contestant(lambda: call(*inputs))

    return make


def _flag_gems(case: Case, inputs: tuple[Tensor, ...]) -> Contestant:
    eager, gems = _eager(case), importlib.import_module("flag_gems")
    return Contestant(lambda: eager(*inputs), gems.use_gems)


def _cupy(case: Case, inputs: tuple[Tensor, ...]) -> Contestant | None:
    cupy = importlib.import_module("cupy")
    names = {"sum": "sum", "max": "amax", "min": "amin", "mean": "mean", "argmax": "argmax"}
    if inputs[0].dtype == torch.bfloat16 or (case.op != "gemv" and case.op not in names):
        return None
    first, *others = (cupy.from_dlpack(t) for t in inputs)
    if case.op == "gemv":
        return Contestant(lambda: (first.T if case.trans else first) @ others[0])
    op, dims = getattr(cupy, names[case.op]), _dims(case)
    return Contestant(lambda: op(first, axis=dims))


def _cuda_compute(case: Case, inputs: tuple[Tensor, ...]) -> Contestant | None:
    """CUB's segmented reduction: rows."""
    import numpy as np

    kinds = {"sum": ("PLUS", 0.0), "max": ("MAXIMUM", -float("inf")), "min": ("MINIMUM", float("inf"))}
    rows_only = len(case.shape) == 2 and case.reduced == (1,) and not case.pitch
    if case.op not in kinds or not rows_only or case.dtype not in ("fp32", "fp16"):
        return None
    compute, x = importlib.import_module("cuda.compute"), inputs[0]
    rows, length = case.shape
    kind, identity = kinds[case.op]
    op, out = getattr(compute.OpKind, kind), torch.empty(rows, dtype=x.dtype, device=x.device)
    offsets = torch.arange(rows + 1, device=x.device) * length
    initial = np.array([identity], dtype=np.float32 if case.dtype == "fp32" else np.float16)
    given = {"d_in": x.view(-1), "d_out": out, "start_offsets_in": offsets[:-1], "end_offsets_in": offsets[1:]}

    def call() -> Tensor:
        compute.segmented_reduce(**given, op=op, h_init=initial, num_segments=rows)
        return out

    return Contestant(call)


def _tilelang(case: Case, inputs: tuple[Tensor, ...]) -> Contestant | None:
    """A row sum in TileLang, the better of two tiles left to its defaults."""
    if case.op != "sum" or len(case.shape) != 2 or case.reduced != (1,) or case.pitch or case.start or case.dtype == "int8":
        return None
    kernel = importlib.import_module("tri_reduce.bench_tilelang").row_sum(*case.shape, case.torch_dtype)
    return Contestant(lambda: kernel(inputs[0]))


OURS: dict[str, Make] = {"heuristic": _ours("heuristic"), "tuned": _ours("tune")}
PEERS: dict[str, Make] = {
    "eager": _torch,
    "linear": _linear,
    "compile": _compiled("default"),
    "max-autotune": _compiled("max-autotune-no-cudagraphs"),
    "flag_gems": _flag_gems,
    "cupy": _cupy,
    "cuda.compute": _cuda_compute,
    "tilelang": _tilelang,
}
MODULES = {"flag_gems": "flag_gems", "cupy": "cupy", "cuda.compute": "cuda.compute", "tilelang": "tilelang"}


def importable(name: str) -> bool:
    """The peer's library is here."""
    try:
        return name not in MODULES or importlib.util.find_spec(MODULES[name]) is not None
    except ModuleNotFoundError:
        return False


def result_of(contestant: Contestant) -> Tensor:
    """What one call gives, as a torch tensor."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contestant.context())
        result = contestant.call()
    return result if isinstance(result, Tensor) else torch.utils.dlpack.from_dlpack(result)
