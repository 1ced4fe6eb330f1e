"""A hash of kernel sources: part of every key under which something compiled or tuned is remembered."""

from __future__ import annotations

import functools
import hashlib
import pathlib

_KERNELS = pathlib.Path(__file__).parent / "kernels"


@functools.cache
def sources(*names: str) -> str:
    """Sixteen hex digits over the named files of tri_reduce/kernels (all of them when none is named)."""
    digest = hashlib.sha256()
    for name in names or sorted(p.name for p in _KERNELS.glob("*.py")):
        digest.update((_KERNELS / name).read_bytes())
    return digest.hexdigest()[:16]
