"""From a specialised kernel to the call that launches it: compiled once, and told of no more than its binary takes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import targets
from .kernels.compat import ast_source


@functools.lru_cache(maxsize=4096)
def compiled(spec_key: tuple[Any, ...], target: targets.Target, device_index: int) -> Any:
    """The compiled kernel, for a device."""
    import triton

    fn, signature, constexprs, divisible, warps = spec_key
    names = fn.arg_names
    source = ast_source(fn, dict(signature), dict(constexprs), {(names.index(n),): [["tt.divisibility", 16]] for n in divisible})
    return triton.compile(source, target=targets.compiler_target(target), options={"num_warps": warps} if warps else {})


@dataclass(frozen=True)
class Passed:
    """What a compiled launcher is told of a kernel in place of its source: the arguments that the binary takes, without the constants.

    All pointers look alike to it, so that few launchers are compiled. Parsing 30 constants took 0.4 us of every launch.
    """

    signature: dict[int, str]
    constants: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, signature: tuple[tuple[str, str], ...]) -> Passed:
        """The arguments of a signature that are no constants."""
        kinds = [kind for _, kind in signature if kind != "constexpr"]
        return cls(dict(enumerate("*i8" if kind.startswith("*") else kind for kind in kinds)))


_LOADING = threading.Lock()  # a kernel that another thread is just loading has a `run` before it has a `function`
MIDDLE = ("function", "cooperative", "launch_pdl", "", "", "metadata", "", "", "")  # what the compiled launcher takes before the arguments


def launcher(kernel: Any) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """(launch, middle), to be called as `launch(grid, 1, 1, stream, *middle, *arguments)`.

    It is the compiled launcher itself where this Triton's is known, else its public wrapper.
    """
    with _LOADING:
        run = kernel.run
    direct = None if hasattr(run, "arg_annotations") else getattr(run, "launch", None)  # Triton 3.9 takes the arguments otherwise
    if direct is not None and hasattr(run, "launch_pdl") and hasattr(run, "profile_scratch_size") and run.global_scratch_size == 0:
        return direct, (kernel.function, run.launch_cooperative_grid, run.launch_pdl, None, None, kernel.packed_metadata, None, None, None)
    return run, (kernel.function, kernel.packed_metadata, None, None, None)
