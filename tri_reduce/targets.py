"""Hardware facts. The only place that knows which backend this is: the selector asks a Target for numbers, not for a name."""

from __future__ import annotations

import contextlib
import functools
import re
from dataclasses import dataclass, replace
from typing import Any

import torch

from .kernels.compat import HAS_TRITON, gdc_wait, triton

HIP_THREADS = 2**31  # of a launch: HIP counts threads where CUDA counts programs
PLAIN_READ = 0.92  # of what memory can transfer: 4.4 of 4.8 TB/s on an H200
UNKNOWN = 1e12  # bytes a second, where the driver does not say


@dataclass(frozen=True)
class Target:
    """One kind of device.

    cores: multiprocessors (CUDA), compute units (ROCm) or vector cores (Ascend). bandwidth: bytes a second that a plain read reaches.
    max_programs, max_threads: in one launch. max_tile: elements in one tile. warp: threads in a warp, 0 where there are none.
    latency: microseconds of a round of loads. registers: of 32 bits in a core, 0 where that means nothing. arch: what the compiler is
    told. tickets: programs may meet at an atomic counter within a launch. wide_floats: has float64.
    apart: a launch may be followed by one that folds what its programs left.
    persistent: a launch has as many programs as cores, each walks tiles of outputs. buffer: bytes on chip that hold a program's tiles, 0
    where the compiler spills instead of failing. timed: names the table of problems that were timed on it (`nearest`), if there is one.
    """

    name: str
    backend: str
    arch: int | str
    warp: int
    cores: int
    bandwidth: float
    max_programs: int = 2**31 - 1
    max_threads: int = 2**63 - 1
    max_tile: int = 16384
    latency: float = 0.9
    registers: int = 65536
    tickets: bool = True
    wide_floats: bool = True
    apart: bool = False
    persistent: bool = False
    buffer: int = 0
    timed: str = ""

    @property
    def overlaps(self) -> bool:
        """A launch may begin before the one before it ends, where a kernel says when to wait."""
        return self.backend == "cuda" and isinstance(self.arch, int) and self.arch >= 90 and gdc_wait is not None

    @property
    def words(self) -> bool:
        """A program may wait for a word that another, which has begun, is about to leave in memory: by PTX, or one after another."""
        return self.backend in ("cuda", "interpreter")

    @property
    def key(self) -> str:
        """Names the kind of device: what is tuned on one is not used on another."""
        return f"{self.name}-{self.backend}-{self.arch}-{self.cores}"


H200 = Target("h200", "cuda", 90, 32, 132, 4.4e12, apart=True, timed="h200")
_UNTIMED = replace(H200, timed="")
_KNOWN = {
    "h200": H200,
    "h100": replace(_UNTIMED, name="h100", bandwidth=3.0e12),
    "a100": replace(_UNTIMED, name="a100", arch=80, apart=False, cores=108, bandwidth=1.8e12),
    "b200": replace(_UNTIMED, name="b200", arch=100, cores=148, bandwidth=7.0e12),
    "mi300x": Target("mi300x", "hip", "gfx942", 64, 304, 4.5e12, max_programs=2**24 - 1, max_threads=HIP_THREADS, registers=131072),
    "ascend": Target(
        "ascend",
        "npu",
        "Ascend910B3",
        0,
        40,
        1.2e12,
        max_programs=65535,
        registers=0,
        tickets=False,
        wide_floats=False,
        persistent=True,
        buffer=192 * 1024,
    ),
    "interpreter": Target("interpreter", "interpreter", 0, 32, 2, 1e9, max_tile=4096, registers=0, apart=True),
}
_ALIASES = {"cuda:90": "h200", "cuda:80": "a100", "cuda:100": "b200", "hip:gfx942": "mi300x", "ascend910b3": "ascend"}


def by_name(name: str | Target) -> Target:
    """A known target: ValueError lists the names.

    Example:
        >>> by_name("h200").cores
        132
    """
    if isinstance(name, Target):
        return name
    found = _KNOWN.get(_ALIASES.get(name.lower(), name.lower()))
    if found is None:
        raise ValueError(f"unknown target {name!r}: expected one of {', '.join([*_KNOWN, *_ALIASES])}")
    return found


def interpreting() -> bool:
    """Triton's interpreter runs the kernels (TRITON_INTERPRET=1, read when the kernels are first imported)."""
    from .kernels.reduce import reduce_kernel

    return HAS_TRITON and type(reduce_kernel).__name__ == "InterpretedFunction"


def runs_kernels(device: torch.device) -> bool:
    """Tensors of this device go to the kernels (True) or to the reference in torch (False: CPU without the interpreter, and meta)."""
    return device.type in ("cuda", "npu") or (device.type == "cpu" and interpreting())


@functools.cache
def of_device(device_type: str, index: int) -> Target:
    """The target that a tensor's device is."""
    if device_type == "cpu" or interpreting():
        return _KNOWN["interpreter"]
    if not HAS_TRITON:
        raise RuntimeError("tri_reduce needs Triton for tensors of a GPU: pip install 'tri-reduce[cuda]'")
    if device_type == "npu":
        return _of_npu(index)
    facts = torch.cuda.get_device_properties(index)
    name = facts.name.lower()
    known = next((t for key, t in _KNOWN.items() if key in name), None)
    if known is not None and known.cores == facts.multi_processor_count:
        itself = re.search(rf"\b{known.name}\b", name)  # a GH200 is much like an H200, but what was timed on one is not of the other
        return known if itself else replace(known, name=name, timed="")
    if torch.version.hip:
        return Target(
            name, "hip", facts.gcnArchName.split(":")[0], facts.warp_size, facts.multi_processor_count, _bandwidth(index),
            max_programs=2**24 - 1, max_threads=HIP_THREADS, registers=131072,
        )  # fmt: skip
    found = Target(name, "cuda", facts.major * 10 + facts.minor, 32, facts.multi_processor_count, _bandwidth(index))
    return replace(found, apart=found.overlaps)


def _bandwidth(index: int) -> float:
    """Bytes a second that a plain read reaches on a card that is not known here: most of what the driver says that its memory transfers."""
    from triton.testing import get_dram_gbps

    return PLAIN_READ * 1e9 * get_dram_gbps(index) or UNKNOWN


def _of_npu(index: int) -> Target:
    """What Triton's active driver says of an Ascend device; RuntimeError where it is not Ascend's."""
    try:
        from triton.runtime import driver

        arch = driver.active.get_current_target().arch
        cores = driver.active.utils.get_device_properties(index)["num_vectorcore"]
        if not str(arch).startswith("Ascend"):
            raise RuntimeError(f"the active driver is for {arch}")
    except Exception as error:  # no triton-ascend, no CANN, another backend: whatever it is, this is not an Ascend that kernels run on
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RuntimeError(f"tri_reduce needs triton-ascend and CANN for tensors of an NPU (docs/ascend.md): {why}") from error
    known = _KNOWN["ascend"]
    return known if (arch, cores) == (known.arch, known.cores) else replace(known, name=str(arch).lower(), arch=arch, cores=cores)


def current(device: torch.device) -> Any:
    """A context in which an NPU is the current one; others are left to their own launchers."""
    return torch.npu.device(device.index or 0) if device.type == "npu" else contextlib.nullcontext()  # type: ignore[attr-defined]


def compiler_target(target: Target) -> object:
    """What `triton.compile` takes."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget(target.backend, target.arch, target.warp)


def named_device(device: Any) -> torch.device:
    """The device that an argument names; None is torch's default, "cuda" the current one."""
    found = torch.get_default_device() if device is None else torch.device(device)
    return torch.device("cuda", torch.cuda.current_device()) if found.type == "cuda" and found.index is None else found


__all__ = ["H200", "Target", "by_name", "compiler_target", "current", "interpreting", "named_device", "of_device", "runs_kernels", "triton"]
