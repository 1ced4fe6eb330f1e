"""`with tri_reduce.override_torch():` torch's own reductions and matrix-vector products, run by tri_reduce.

A torch function mode sees every call of the block and routes those in `ROUTES` that tri_reduce takes; all others go through untouched. A
route answers NotImplemented for what it does not take: torch then answers, with its own result or error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from . import functional

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
NUMBERS = FLOATS | INTEGERS
ANYTHING = NUMBERS | {torch.bool}
ALIASES = {"self": "input", "axis": "dim", "keepdims": "keepdim"}  # NumPy's names, which torch takes too
_HAS_NAMES = getattr(torch.Tensor, "has_names", None)  # torch 2.13 has no named tensors any more
Route = Callable[[frozenset[str], tuple[Any, ...], dict[str, Any]], Any]


@contextlib.contextmanager
def override_torch(devices: str | Iterable[str] = ("cuda",)) -> Iterator[None]:
    """Run torch's reductions, and the products with a single vector, by tri_reduce for the length of a with block, in this thread.

    devices: types of device whose tensors are meant. Routed are sum, prod, amax, amin, max and min of everything, mean, any, all, argmax,
    argmin, var, std, logsumexp, norm, linalg.vector_norm, count_nonzero, mv, addmv, and matmul, @ and nn.functional.linear where an operand
    is one vector; as functions and as methods. What tri_reduce does not take goes to torch: complex, named, sparse, empty and subclassed
    tensors, out=, max and min along a dim, other spellings.

    Raises RuntimeError for a type of device that torch does not know.

    Example:
        >>> import torch, tri_reduce
        >>> with tri_reduce.override_torch(devices=("cuda", "cpu")):
        ...     torch.ones(2, 3).sum(1)
        tensor([3., 3.])
    """
    kinds = frozenset(torch.device(d).type for d in ((devices,) if isinstance(devices, str) else devices))
    with _Override(kinds):
        yield


class _Override(TorchFunctionMode):
    """Torch takes the mode away while it runs, so a route may use torch."""

    def __init__(self, devices: frozenset[str]) -> None:
        super().__init__()
        self.devices = devices

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        route = ROUTES.get(func)
        if route is not None:
            result = route(self.devices, args, kwargs or {})
            if result is not NotImplemented:
                return result
        return func(*args, **(kwargs or {}))


def _named(names: tuple[str, ...], only: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments by torch's names, or None for a spelling that is not one of these."""
    given = {ALIASES.get(name, name): value for name, value in kwargs.items()}
    found = {**dict(zip(names, args)), **given}
    fits = len(args) <= len(names) and len(found) == len(args) + len(kwargs) and found.keys() <= {*names, *only}
    return found if fits else None


def _is_ours(t: Any, devices: frozenset[str], dtypes: frozenset[torch.dtype]) -> bool:
    """A plain, dense tensor of those devices and dtypes that holds something."""
    return (
        type(t) in (Tensor, torch.nn.Parameter)
        and t.device.type in devices
        and t.dtype in dtypes
        and t.layout == torch.strided
        and not (_HAS_NAMES is not None and _HAS_NAMES(t))
        and t.numel() > 0
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_dims(dim: Any) -> bool:
    """None, an int, or several: no dims at all mean different things to different ops of torch."""
    return dim is None or _is_int(dim) or (isinstance(dim, tuple | list) and len(dim) > 0 and all(_is_int(d) for d in dim))


def _reduction(
    ours: Callable[..., Tensor],
    dtypes: frozenset[torch.dtype],
    names: tuple[str, ...] = ("dim", "keepdim"),
    only: tuple[str, ...] = (),
    accepts: Callable[[Tensor, dict[str, Any]], bool] = lambda x, options: True,
) -> Route:
    """Route calls whose arguments are the input, `names` by position or name, `only` by name."""

    def route(devices: frozenset[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        options = _named(("input", *names), (*only, "out"), args, kwargs)
        if options is None or options.pop("out", None) is not None:
            return NotImplemented
        x = options.pop("input", None)
        if not isinstance(options.get("keepdim", False), bool) or not _is_ours(x, devices, dtypes) or not accepts(x, options):
            return NotImplemented
        return ours(x, **options)

    return route


def _with_dims(x: Tensor, options: dict[str, Any]) -> bool:
    return _is_dims(options.get("dim"))


def _one_dim(x: Tensor, options: dict[str, Any]) -> bool:
    return options.get("dim") is None or _is_int(options["dim"])


def _sums(x: Tensor, options: dict[str, Any]) -> bool:
    return _with_dims(x, options) and options.get("dtype") in {None, *NUMBERS}


def _products(x: Tensor, options: dict[str, Any]) -> bool:
    return _one_dim(x, options) and options.get("dtype") in {None, *NUMBERS} and ("dim" not in options or options["dim"] is not None)


def _means(x: Tensor, options: dict[str, Any]) -> bool:
    return _with_dims(x, options) and (options.get("dtype") or x.dtype) in FLOATS


def _spreads(x: Tensor, options: dict[str, Any]) -> bool:
    """torch's var(x, dim, unbiased, keepdim), var(x, unbiased) and var(x, dim, correction=)."""
    dim, unbiased, correction = (options.get(name) for name in ("dim", "unbiased", "correction"))
    if isinstance(dim, bool):
        return len(options) == 1
    known = unbiased is None or (isinstance(unbiased, bool) and "correction" not in options)
    return known and _is_dims(dim) and (correction is None or isinstance(correction, int | float))


def _given_dims(x: Tensor, options: dict[str, Any]) -> bool:
    return options.get("dim") is not None and _is_dims(options["dim"])


def _norms(x: Tensor, options: dict[str, Any]) -> bool:
    """Vector norms: a numeric order, or "fro", which `torch.norm` means by default."""
    options["ord"] = options.pop("p", options.get("ord", 2))
    dtype = options.get("dtype")
    wider = dtype is None or (dtype in FLOATS and torch.promote_types(x.dtype, dtype) == dtype)
    numeric = isinstance(options["ord"], int | float) and not isinstance(options["ord"], bool)
    return wider and _with_dims(x, options) and (options["ord"] == "fro" or numeric)


def _product(a: Any, x: Any, devices: frozenset[str], trans: bool = False, **more: Any) -> Any:
    """a @ x (a.mT @ x) where the shapes fit as they are, in the dtype that autocast would give."""
    if not (_is_ours(a, devices, FLOATS) and _is_ours(x, devices, FLOATS)) or a.dim() < 2 or x.dim() < 1:
        return NotImplemented
    kind = a.device.type
    cast = torch.is_autocast_enabled(kind) and a.dtype not in (torch.float64, torch.get_autocast_dtype(kind))
    if cast or a.dtype != x.dtype or a.device != x.device or a.shape[-2 if trans else -1] != x.shape[-1]:
        return NotImplemented
    return functional.gemv(a, x, trans=trans, **more)


def _mv(devices: frozenset[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = _named(("input", "vec"), (), args, kwargs)
    if given is None or len(given) != 2 or getattr(given["input"], "ndim", 0) != 2 or getattr(given["vec"], "ndim", 0) != 1:
        return NotImplemented
    return _product(given["input"], given["vec"], devices)


def _addmv(devices: frozenset[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = _named(("input", "mat", "vec"), ("alpha", "beta"), args, kwargs)
    if given is None or not {"input", "mat", "vec"} <= given.keys():
        return NotImplemented
    y, a, x = (given[name] for name in ("input", "mat", "vec"))
    fits = all(_is_ours(t, devices, FLOATS) for t in (y, a, x)) and a.dim() == 2 and x.dim() == 1 and y.shape == a.shape[:1]
    if not fits or y.dtype != a.dtype or y.device != a.device:
        return NotImplemented
    return _product(a, x, devices, y=y, alpha=given.get("alpha", 1), beta=given.get("beta", 1))


def _matmul(devices: frozenset[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = _named(("input", "other"), (), args, kwargs)
    if given is None or len(given) != 2 or not all(isinstance(t, Tensor) for t in given.values()):
        return NotImplemented
    a, b = given["input"], given["other"]
    if b.dim() == 1:
        return _product(a, b, devices)
    if a.dim() == 1:
        return _product(b, a, devices, trans=True)
    if a.dim() == b.dim() == 2 and b.shape[1] == 1:
        return _unsqueezed(_product(a, b[:, 0], devices), 1)
    if a.dim() == b.dim() == 2 and a.shape[0] == 1:
        return _unsqueezed(_product(b, a[0], devices, trans=True), 0)
    return NotImplemented


def _unsqueezed(y: Any, dim: int) -> Any:
    return y if y is NotImplemented else y.unsqueeze(dim)


def _rmatmul(devices: frozenset[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _matmul(devices, args[::-1], kwargs) if len(args) == 2 else NotImplemented


def _linear(devices: frozenset[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = _named(("input", "weight", "bias"), (), args, kwargs)
    if given is None or not {"input", "weight"} <= given.keys():
        return NotImplemented
    x, weight, bias = given["input"], given["weight"], given.get("bias")
    one = _is_ours(x, devices, FLOATS) and x.dim() > 0 and x.numel() == x.shape[-1] and getattr(weight, "ndim", 0) == 2
    if not one:
        return NotImplemented
    more = {}
    if bias is not None:
        if not _is_ours(bias, devices, FLOATS) or bias.shape != weight.shape[:1] or bias.dtype != x.dtype or bias.device != x.device:
            return NotImplemented
        more = {"y": bias, "beta": 1}
    y = _product(weight, x.reshape(-1), devices, **more)
    return y if y is NotImplemented else y.reshape(*x.shape[:-1], weight.shape[0])


def _routes() -> dict[Any, Route]:
    by_name: dict[str, Route] = {
        "sum": _reduction(functional.sum, ANYTHING, only=("dtype",), accepts=_sums),
        "prod": _reduction(functional.prod, ANYTHING, only=("dtype",), accepts=_products),
        "amax": _reduction(functional.amax, ANYTHING, accepts=_with_dims),
        "amin": _reduction(functional.amin, ANYTHING, accepts=_with_dims),
        "max": _reduction(functional.amax, ANYTHING, names=()),
        "min": _reduction(functional.amin, ANYTHING, names=()),
        "mean": _reduction(functional.mean, ANYTHING, only=("dtype",), accepts=_means),
        "any": _reduction(functional.any, ANYTHING, accepts=_with_dims),
        "all": _reduction(functional.all, ANYTHING, accepts=_with_dims),
        "argmax": _reduction(functional.argmax, NUMBERS, accepts=_one_dim),
        "argmin": _reduction(functional.argmin, NUMBERS, accepts=_one_dim),
        "var": _reduction(functional.var, FLOATS, names=("dim", "unbiased", "keepdim"), only=("correction",), accepts=_spreads),
        "std": _reduction(functional.std, FLOATS, names=("dim", "unbiased", "keepdim"), only=("correction",), accepts=_spreads),
        "logsumexp": _reduction(functional.logsumexp, FLOATS, accepts=_given_dims),
        "count_nonzero": _reduction(functional.count_nonzero, ANYTHING, names=("dim",), accepts=_with_dims),
        "mv": _mv,
        "addmv": _addmv,
        "matmul": _matmul,
    }
    norm = _reduction(functional.norm, FLOATS, names=("p", "dim", "keepdim"), only=("dtype",), accepts=_norms)
    vector_norm = _reduction(functional.norm, FLOATS, names=("ord", "dim", "keepdim"), only=("dtype",), accepts=_norms)
    methods = {getattr(torch.Tensor, name): route for name, route in by_name.items()}
    functions = {getattr(torch, name): route for name, route in by_name.items()}
    return {
        **methods,
        **functions,
        torch.norm: norm,
        torch.Tensor.norm: norm,
        torch.linalg.vector_norm: vector_norm,
        torch.Tensor.__matmul__: _matmul,
        torch.Tensor.__rmatmul__: _rmatmul,
        F.linear: _linear,
    }


ROUTES = _routes()
"""What is routed: torch's function or method, and how. Never changed."""

__all__ = ["override_torch"]
