"""Triton where it is installed; where it is not, names that let the modules be imported (CPU tensors then run the reference)."""

from __future__ import annotations

import inspect
from typing import Any

try:
    import triton
    import triton.language as tl

    HAS_TRITON = True
    jit: Any = triton.jit
    try:
        from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
    except ImportError:
        gdc_launch_dependents = gdc_wait = None
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
    gdc_launch_dependents = gdc_wait = None
    HAS_TRITON = False

    def jit(fn: Any = None, **options: Any) -> Any:
        """Leave a device function as it is, with the names that the table of monoids asks it for: without Triton nothing calls it."""
        if fn is None:
            return jit
        fn.arg_names = list(inspect.signature(fn).parameters)
        return fn


class Constant:
    """An object that is a compile-time constant: a kernel reads its attributes. What compiles is keyed by `cache_key`.

    Subclasses are frozen dataclasses.
    """

    @property
    def cache_key(self) -> str:
        """All that a kernel can read."""
        return repr(self)

    def __hash__(self) -> int:
        return hash(self.cache_key)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.cache_key == other.cache_key


def _attribute(constant: Any, name: str) -> Any:
    """An attribute of a constexpr's value, as Triton 3.3 and later read it; plain ones are constexprs, as only those can be compared."""
    if name.startswith("_") or name == "value":
        raise AttributeError(name)
    found = getattr(constant.value, name)
    return tl.constexpr(found) if found is None or isinstance(found, bool | int | str) else found


def _item(constant: Any, index: Any) -> Any:
    """An item of a constexpr's value, as Triton 3.3 and later read it."""
    return tl.constexpr(constant.value[getattr(index, "value", index)])


if HAS_TRITON and not hasattr(tl, "constexpr_type"):  # Triton 3.2 (Ascend): a constexpr hides its value's attributes and items
    tl.constexpr.__getattr__ = _attribute
    tl.constexpr.__getitem__ = _item


def ast_source(fn: Any, signature: dict[str, str], constants: dict[str, Any], attrs: dict[tuple[int], list[list[Any]]]) -> Any:
    """What `triton.compile` takes, from a signature with "constexpr" for the constants, as Triton 3.3 and later write it."""
    from triton.compiler.compiler import ASTSource

    if "constexprs" in inspect.signature(ASTSource.__init__).parameters:
        return ASTSource(fn, signature=signature, constexprs=constants, attrs=attrs)
    from triton.backends.compiler import AttrsDescriptor  # Triton 3.2

    hints = AttrsDescriptor()
    hints.arg_properties["tt.divisibility"] = [index for (index,) in attrs]
    hints._init_slots()
    return ASTSource(fn, signature={n: t for n, t in signature.items() if n not in constants}, constants=constants, attrs=hints)


__all__ = ["HAS_TRITON", "Constant", "ast_source", "gdc_launch_dependents", "gdc_wait", "jit", "tl", "triton"]
