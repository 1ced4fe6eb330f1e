"""`python -m tri_reduce env`: what was found on this machine, as a report that belongs in an issue."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import tri_reduce

from . import autotune, demo, targets

VARIABLES = (
    "TRI_REDUCE_AUTOTUNE",
    "TRI_REDUCE_CACHE_DIR",
    "TRI_REDUCE_LOG",
    "TRITON_INTERPRET",
    "TRITON_CACHE_DIR",
    "CUDA_VISIBLE_DEVICES",
)


def report() -> dict[str, Any]:
    """Plain values: versions, devices and the target each is, what runs the kernels, the store, variables that are set.

    Example:
        >>> report()["tri_reduce"] == tri_reduce.__version__
        True
    """
    devices, triton = _devices(), _triton()
    return {
        "tri_reduce": tri_reduce.__version__,
        "Python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "triton": triton,
        "numpy": _installed("numpy"),
        "devices": devices,
        "backend": _backend(bool(devices), triton is not None),
        "interpreter": demo.interpreting(),
        "cache": str(autotune.cache_dir()),
        "policy": os.environ.get("TRI_REDUCE_AUTOTUNE", "heuristic"),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def text(found: dict[str, Any]) -> str:
    """The report for a person."""
    devices = [f"{d['device']} {d['name']} (target {d['target']}, {d['cores']} cores)" for d in found["devices"]]
    shown = found | {
        "triton": found["triton"] or "not installed",
        "numpy": found["numpy"] or "not installed",
        "devices": "; ".join(devices) or "none (CPU only)",
        "interpreter": "yes" if found["interpreter"] else "no",
        "variables": " ".join(f"{k}={v}" for k, v in found["variables"].items()) or "none set",
    }
    return "\n".join(f"{key:12} {value}" for key, value in shown.items())


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _triton() -> str | None:
    ascend = _installed("triton-ascend")  # installs as `triton`
    return f"{ascend} (triton-ascend)" if ascend else _installed("triton")


def _devices() -> list[dict[str, Any]]:
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None:
        return []
    return [_device(found.type, index) for index in range(torch.accelerator.device_count())]


def _device(kind: str, index: int) -> dict[str, Any]:
    name = str(torch.get_device_module(kind).get_device_name(index))
    try:
        target = targets.of_device(kind, index)
    except (RuntimeError, AssertionError) as error:  # no Triton, or a kind that the library does not know
        return {"device": f"{kind}:{index}", "name": name, "target": f"none: {error}", "cores": 0}
    return {"device": f"{kind}:{index}", "name": name, "target": target.name, "cores": target.cores}


def _backend(has_device: bool, has_triton: bool) -> str:
    if demo.interpreting():
        return "Triton kernels in the interpreter"
    if has_device and has_triton:
        return "Triton kernels on the device; the PyTorch reference for CPU tensors"
    return "PyTorch reference"
