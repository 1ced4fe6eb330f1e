"""Proofs without a GPU that reductions are deferred: local accumulation in the loops, one collective after them.

`assert_deferred` compiles any kernel and looks at its TTIR; `library_kernels` lists every kernel that the library launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import targets
from .dataflow import Flow, Reduction
from .inventory import KernelRecord, library_kernels, target_of
from .kernels.compat import ast_source
from .targets import Target
from .ttir import Frame

__all__ = ["KernelRecord", "NotDeferredError", "assert_deferred", "compile_kernel", "library_kernels"]


class NotDeferredError(AssertionError):
    """A kernel folds inside a loop over the reduced axis, or another number of times than it should."""


def compile_kernel(
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[Any, Any],
    target: str | Target = "cuda:90",
    *,
    attrs: Mapping[Any, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a jit function for a target that need not be there: Triton's compiled kernel, with its `.asm`.

    Args:
        kernel: a `@triton.jit` function, tuned or not.
        signature: argument name -> Triton type ("*fp32", "i32"); arguments in `constexprs` may be left out.
        constexprs: argument name -> value.
        target: "cuda:90", "hip:gfx942", "ascend", any other compute capability, or a `targets.Target`.
        attrs: as `triton.compiler.ASTSource` takes them, e.g. `{(0,): [["tt.divisibility", 16]]}`.
        options: num_warps and so on.

    Raises:
        RuntimeError: this process interprets kernels, or its Triton has no backend for the target.
    """
    import triton

    kernel = _jit_function(kernel)
    if not hasattr(kernel, "cache_key"):
        raise RuntimeError("kernels are interpreted in this process and cannot be compiled: run it without TRITON_INTERPRET")
    compiler_target = targets.compiler_target(target_of(target))
    if not any(b.compiler.supports_target(compiler_target) for b in triton.backends.backends.values()):
        raise RuntimeError(
            f"Triton {triton.__version__} has no backend for {target!r} (Ascend needs triton-ascend, in its own environment)"
        )
    constants = {k if isinstance(k, str) else kernel.arg_names[k[0]]: v for k, v in constexprs.items()}
    missing = [n for n in kernel.arg_names if n not in constants and n not in signature]
    if missing:
        raise ValueError(f"{kernel.__name__}: neither signature nor constexprs has {', '.join(missing)}")
    whole = {n: "constexpr" if n in constants else signature[n] for n in kernel.arg_names}
    source = ast_source(kernel, whole, constants, dict(attrs or {}))
    return triton.compile(source, target=compiler_target, options=dict(options or {}))


def _jit_function(kernel: Any) -> Any:
    """What @triton.autotune and @triton.heuristics wrap."""
    while type(kernel).__name__ in ("Autotuner", "Heuristics"):
        kernel = kernel.fn
    return kernel


def assert_deferred(
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[Any, Any],
    target: str | Target = "cuda:90",
    *,
    num_reduce: int | None = None,
    attrs: Mapping[Any, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Prove, without a GPU, that a kernel's reductions are deferred; arguments are those of `compile_kernel`.

    No reduction may be nested deeper than the stores of its results, noinline calls included. A store is inside a loop if each iteration
    may write elsewhere: a persistent loop over output tiles may hold a fold with its store; one that writes in one place accumulates.

    Args:
        num_reduce: how many `tt.reduce` there must be.

    Returns:
        The number of `tt.reduce`.

    Raises:
        NotDeferredError: with the file and line of each reduction at fault.
    """
    kernel = _jit_function(kernel)
    flow = Flow(compile_kernel(kernel, signature, constexprs, target, attrs=attrs, options=options).asm["ttir"])
    faults = [f"{_line(r.frames)}: {why}" for r in flow.reductions if (why := _nested(flow, r))]
    if faults:
        raise NotDeferredError(f"{kernel.__name__} folds before its loop is over:" + "".join(f"\n  {f}" for f in dict.fromkeys(faults)))
    found = {id(r.op): _line(r.frames) for r in flow.reductions}
    if num_reduce is not None and len(found) != num_reduce:
        lines = "".join(f"\n  {line}" for line in found.values())
        raise NotDeferredError(f"{kernel.__name__} has {len(found)} tt.reduce, not {num_reduce}:{lines}")
    return len(found)


def _nested(flow: Flow, reduction: Reduction) -> str | None:
    """What is wrong with where a reduction stands."""
    reached = flow.reached(reduction.results)
    writes = [w for w in flow.writes if w.node in reached]
    for loop in reduction.loops:
        around = f"a fold inside the loop at {_line(flow.loop_frames[loop])}"
        if not writes:
            return f"{around}, whose result is stored nowhere"
        for write in writes:
            if loop not in write.loops:
                return f"{around}, whose result is stored after the loop, at {_line(write.frames)}"
            if not flow.advances(loop, write):
                return f"{around}, whose result goes to the same place in every iteration, at {_line(write.frames)}"
    return None


def _line(frames: Sequence[Frame]) -> str:
    """The kernel's own line, then the helpers' down to the fold."""
    lines = [f"{file}:{line}" for file, line in reversed(frames)]
    return " > ".join(lines) if lines else "an unknown line"
