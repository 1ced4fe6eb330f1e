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


# Triton from 3.3 on reads attributes through a constexpr; before, only of objects that are one.
_OLD = HAS_TRITON and not hasattr(tl, "constexpr_type")
_Base: Any = tl.constexpr if _OLD else object


class Constant(_Base):  # type: ignore[misc]
    """An object that is a compile-time constant: a kernel reads its attributes, in every version of Triton and in the interpreter.

    Subclasses are frozen dataclasses; what compiles is keyed by their `cache_key`.
    """

    @property
    def value(self) -> Constant:
        """What Triton unwraps: the object itself."""
        return self

    @property
    def cache_key(self) -> str:
        """All that a kernel can read."""
        return repr(self)

    def __hash__(self) -> int:
        return hash(self.cache_key)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.cache_key == other.cache_key  # type: ignore[attr-defined]


__all__ = ["HAS_TRITON", "Constant", "jit", "tl", "triton"]
