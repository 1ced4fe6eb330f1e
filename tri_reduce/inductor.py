"""The selector's candidates in place of Inductor's, for the reduction kernels that `torch.compile` generates.

    with tri_reduce.inductor.patched("pick"):
        compiled(x)  # what is compiled in here

How it holds, in three parts. `cached_autotune`, through which every generated kernel gets its configs, is wrapped. Each kernel's generated
source names the mode, as a call that wraps it in a compile worker too, which loads nothing but that source; so no cache that is keyed by
the source (kernels, autotuning results) is shared with unpatched runs. And torch's own `cache_key_tag` parts the caches of compiled graphs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from . import inductor_list, inductor_tiles
from .inductor_list import inductor_candidates, with_own
from .targets import Target

MODES = ("pick", "tune")
KEY = "tri_reduce"  # of a kernel's inductor_meta, where the mode is
# What only Inductor can answer: deterministic modes choose by the order of additions, the others bound the blocks.
LEFT_ALONE = (
    "deterministic",
    "batch_invariant",
    "force_filter_reduction_configs",
    "are_deterministic_algorithms_enabled",
    "min_xblock",
    "min_rblock",
    "tma_min_block_sizes",
)
KNOBS = {"XBLOCK", "R0_BLOCK", "waves_per_eu"}  # other knobs (RSPLIT, R1_BLOCK, ...) belong to kernels that are not described here


@dataclass
class _State:
    """mode: of this process, None where not installed. pid: of the last process that installed. undo: restores what was replaced."""

    mode: str | None = None
    pid: int | None = None
    undo: list[Callable[[], None]] = field(default_factory=list)


_STATE = _State()


class _Mark(str):
    """A mode that generated source evaluates by calling `in_worker`."""

    def __repr__(self) -> str:
        return f"__import__({__name__!r}, fromlist=['in_worker']).in_worker({str(self)!r})"


def install(mode: str = "pick") -> None:
    """Use the selector's candidates in what `torch.compile` compiles from now on; already compiled functions stay as they are.

    mode: "pick" takes the first candidate, without benchmarking; "tune" has Inductor benchmark the list, with its own candidates in it.
    Installing again changes the mode. Left to Inductor: several reduced axes, cooperative, mixed-order and matrix-product kernels,
    deterministic modes, other devices than GPUs.

    Raises ValueError for an unknown mode, RuntimeError where this torch's Inductor is not the one known here; nothing is changed then.

    Example:
        >>> from tri_reduce import inductor
        >>> inductor.install()
        >>> inductor.uninstall()
    """
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}: expected one of {', '.join(MODES)}")
    heuristics, kernel_class = _checked()
    uninstall()
    from torch.compiler import config

    mark = _Mark(f"{mode}-{_version()}")
    common = kernel_class.__dict__["inductor_meta_common"]
    with_mark = classmethod(lambda cls: {**common.__get__(None, cls)(), KEY: mark})
    tag = config.cache_key_tag
    _wrap(heuristics)
    _replace(kernel_class, "inductor_meta_common", with_mark, common)
    _replace(config, "cache_key_tag", f"{tag}{KEY}-{mark!s}", tag)
    _STATE.mode, _STATE.pid = mode, os.getpid()


def uninstall() -> None:
    """Give Inductor its own candidates back. Without an `install` it does nothing."""
    while _STATE.undo:
        _STATE.undo.pop()()
    _STATE.mode = None


@contextlib.contextmanager
def patched(mode: str = "pick") -> Iterator[None]:
    """`install(mode)` for the length of a with block; what was in force before is in force after it, however it ends.

    Example:
        >>> from tri_reduce import inductor
        >>> with inductor.patched("tune"):
        ...     pass
    """
    before = _STATE.mode
    install(mode)
    try:
        yield
    finally:
        if before is None:
            uninstall()
        else:
            install(before)


def in_worker(mark: str) -> str:
    """For generated source: see to it that the process which loads it gets the candidates too, and return the mark."""
    if os.getpid() != _STATE.pid and not _STATE.undo:
        _wrap(_checked()[0])  # a worker serves Inductor alone: never undone, and without effect on source that has no mark
    return mark


def _version() -> str:
    """Kernels compiled under another formula are other kernels."""
    files = (pathlib.Path(str(name)) for name in (__file__, inductor_list.__file__, inductor_tiles.__file__))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _checked() -> tuple[Any, Any]:
    """(triton_heuristics, TritonKernel) of a torch whose internals are the known ones, else RuntimeError."""
    try:
        from torch._inductor.codegen.triton import TritonKernel
        from torch._inductor.runtime import triton_heuristics as heuristics
        from torch.compiler import config

        for name, wanted in {
            "cached_autotune": ("size_hints", "configs", "triton_meta", "heuristic_type", "filename", "inductor_meta"),
            "reduction": ("size_hints", "reduction_hint", "triton_meta", "filename", "inductor_meta"),
            "persistent_reduction": ("size_hints", "reduction_hint", "triton_meta", "filename", "inductor_meta"),
        }.items():
            function = getattr(heuristics, name)
            found = tuple(inspect.signature(function).parameters)[: len(wanted)]
            if found != wanted:
                raise AttributeError(f"{name} takes {', '.join(found)}")
            if name != "cached_autotune" and "cached_autotune" not in inspect.unwrap(function).__code__.co_names:
                raise AttributeError(f"{name} does not call cached_autotune")
        inspect.signature(heuristics.InductorConfig).bind({}, num_warps=1, num_stages=1)
        inspect.signature(TritonKernel.inductor_meta_common).bind()
        _ = TritonKernel.__dict__["inductor_meta_common"], config.cache_key_tag
        _ = (kinds := vars(heuristics)["HeuristicType"]).REDUCTION, kinds.PERSISTENT_REDUCTION
    except (ImportError, AttributeError, TypeError, ValueError, KeyError) as error:
        raise RuntimeError(
            f"tri_reduce.inductor knows torch 2.9 to 2.13, not the Inductor of torch {torch.__version__}: {error}"
        ) from error
    return heuristics, TritonKernel


def _replace(owner: Any, name: str, value: Any, old: Any) -> None:
    setattr(owner, name, value)
    _STATE.undo.append(lambda: setattr(owner, name, old))


def _wrap(heuristics: Any) -> None:
    """Wrap the functions of triton_heuristics that give configs."""
    original = heuristics.cached_autotune
    signature = inspect.signature(original)

    @functools.wraps(original)
    def cached_autotune(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        asked: Any = {name: call.arguments.get(name) for name in _ASKED}
        if _chosen(heuristics, **asked) is asked["configs"]:
            return original(*args, **kwargs)

        def decorator(function: Any) -> Any:
            call.arguments["configs"] = _chosen(heuristics, **asked, source=inspect.getsource(function.fn))
            call.arguments["inductor_meta"] = {**(asked["inductor_meta"] or {}), **_AS_LISTED}
            return original(*call.args, **call.kwargs)(function)

        return decorator

    _replace(heuristics, "cached_autotune", cached_autotune, original)
    for name, kind in (("reduction", "REDUCTION"), ("persistent_reduction", "PERSISTENT_REDUCTION")):
        listed = getattr(heuristics, name)
        _replace(heuristics, name, _with_list(heuristics, listed, getattr(heuristics.HeuristicType, kind)), listed)


_AS_LISTED = {"dynamic_scale_rblock": False}  # Inductor would benchmark halves of the configs too, whatever they say themselves
_ASKED = ("size_hints", "configs", "triton_meta", "heuristic_type", "inductor_meta")


def _with_list(heuristics: Any, original: Any, kind: Any) -> Any:
    """`reduction` whose `return_configs=True`, the way of kernels that hold several, gives the candidates as well."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def listed(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        if not isinstance(found, list):
            return found
        given = signature.bind(*args, **kwargs).arguments
        meta = {**(given.get("inductor_meta") or {}), "reduction_hint": given.get("reduction_hint")}
        return _chosen(heuristics, given["size_hints"], found, given.get("triton_meta"), kind, meta)

    return listed


def _chosen(
    heuristics: Any, size_hints: Any, configs: Any, triton_meta: Any, heuristic_type: Any, inductor_meta: Any, source: str = ""
) -> Any:
    """The configs to use: ours where the kernel is one we know, otherwise those given. source: the kernel's."""
    meta, types = inductor_meta or {}, heuristics.HeuristicType
    mode = str(meta.get(KEY) or _STATE.mode).partition("-")[0]
    held = heuristic_type == types.PERSISTENT_REDUCTION
    if mode not in MODES or not (held or heuristic_type == types.REDUCTION) or not isinstance(size_hints, dict):
        return configs
    device = (triton_meta or {}).get("device")
    known = set(size_hints) == {"x", "r0_"} and all({"XBLOCK"} <= set(c.kwargs) <= KNOBS for c in configs)
    if not known or getattr(device, "type", None) not in ("cuda", "hip") or triton_meta.get("native_matmul"):
        return configs
    if any(meta.get(name) for name in LEFT_ALONE):
        return configs
    sizes = _sizes(size_hints, source)
    found = inductor_candidates(
        {**size_hints, **sizes},
        getattr(meta.get("reduction_hint"), "name", "DEFAULT"),
        meta.get("num_load", 1),
        meta.get("num_reduction", 1),
        [kind for kind in triton_meta["signature"].values() if kind.startswith("*")],
        persistent=held,
        dynamic=set(size_hints) - set(sizes),
        target=_target(device),
    )
    own = [(c.kwargs["XBLOCK"], c.kwargs.get("R0_BLOCK"), c.num_warps) for c in configs]
    return [_config(heuristics, *c) for c in (found[:1] if mode == "pick" else with_own(found, own))]


def _sizes(size_hints: dict[str, int], source: str) -> dict[str, int]:
    """The true sizes that are constants of the source (hints are padded), without the reduced one where loads have a mask beyond it.

    Such a mask is that of a reduction whose length its parts do not divide: `r0_mask & tmp2`.
    """
    found = {axis: int(size) for axis, size in re.findall(r"^\s*(\w+)numel = (\d+)$", source, re.MULTILINE)}
    if re.search(r"tl\.load\(.*[,&] tmp\d", source):
        found.pop("r0_", None)
    return {axis: size for axis, size in found.items() if size > 0 and 1 << (size - 1).bit_length() == size_hints.get(axis)}


def _config(heuristics: Any, xblock: int, r0_block: int | None, warps: int) -> Any:
    """Inductor's Config."""
    blocks = {"XBLOCK": xblock} if r0_block is None else {"XBLOCK": xblock, "R0_BLOCK": r0_block}
    return heuristics.InductorConfig(blocks, num_warps=warps, num_stages=1)


def _target(device: Any) -> Target:
    """Inductor's DeviceProperties as a Target."""
    arch = device.cc if device.type == "cuda" else str(device.cc)
    return Target("inductor", device.type, arch, device.warp_size or 32, device.multi_processor_count, 1e12)


__all__ = ["MODES", "in_worker", "install", "patched", "uninstall"]
