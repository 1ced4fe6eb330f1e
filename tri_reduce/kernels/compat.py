"""Triton where it is installed; where it is not, names that let the modules be imported (CPU tensors then run the reference)."""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl

    HAS_TRITON = True
    jit: Any = triton.jit
except ImportError:  # e.g. macOS: there is no Triton, and no kernel is ever compiled

    class _Absent:
        """Stands for a missing module: any attribute is another stand-in, calling one names what is missing."""

        def __getattr__(self, name: str) -> _Absent:
            if name.startswith("__"):
                raise AttributeError(name)
            return self

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            raise ImportError("this needs Triton: pip install 'tri-reduce[cuda]'")

    triton = tl = _Absent()
    HAS_TRITON = False

    def jit(fn: Any = None, **options: Any) -> Any:
        """Leave a device function as it is: without Triton nothing calls it."""
        return fn if fn is not None else lambda f: f


__all__ = ["HAS_TRITON", "jit", "tl", "triton"]
