"""What keeps a reducer from being taken for a tensor: until it is finalized every way to read it, store into it or copy it is an error."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_map

from .errors import ReadBeforeFinalizeError, ReducerError, UpdateAfterFinalizeError
from .untraced import untraced

_UNARY = ("neg", "pos", "abs", "invert")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_COMPARE = ("lt", "le", "gt", "ge")


class Opaque:
    """Base of `Reducer`: reads go through `_read`, which raises unless there is a result."""

    _state: str
    _value: Any

    def __init_subclass__(cls) -> None:
        """Everything that a reducer does changes its state: torch.compile breaks the graph there, and traces nothing of it."""
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType):
                setattr(cls, name, untraced(method, "a tri_reduce.Reducer keeps state over calls: use it outside of the compiled graph"))

    def _about(self) -> str:
        raise NotImplementedError

    def _read(self, what: str) -> Any:
        """The result, for the access that `what` names."""
        if self._state == "finalized":
            return self._value
        remedy = (
            "call finalize() first"
            if self._state == "active"
            else "its contributions are in the reducer that it was merged into: read that one"
        )
        raise ReadBeforeFinalizeError(f"{what}: {self._about()} is {self._state} and holds partial states, not a result; {remedy}")

    def _refuse_store(self, what: str) -> NoReturn:
        error = ReadBeforeFinalizeError if self._state == "active" else UpdateAfterFinalizeError
        raise error(f"{what}: {self._about()} is {self._state} and takes no stores; contributions go in by update(), while it is active")

    @property
    def value(self) -> Any:
        """The result, a tensor (a tuple of them for several ops), once `finalize` has made it."""
        return self._read("reading .value")

    @value.setter
    def value(self, new: Any) -> None:
        self._refuse_store("assigning .value")

    def __getitem__(self, key: Any) -> Any:
        return self._read("indexing")[key]

    def __setitem__(self, key: Any, new: Any) -> None:
        self._refuse_store("assigning an element")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read("iterating"))

    def __len__(self) -> int:
        return len(self._read("len()"))

    def __contains__(self, item: Any) -> bool:
        return item in self._read("'in'")

    def __bool__(self) -> bool:
        return bool(self._read("bool()"))

    def __float__(self) -> float:
        return float(self._read("float()"))

    def __int__(self) -> int:
        return int(self._read("int()"))

    def __complex__(self) -> complex:
        return complex(self._read("complex()"))

    def __index__(self) -> int:
        return operator.index(self._read("use as an index"))

    def __round__(self, digits: int = 0) -> Any:
        return torch.round(self._read("round()"), decimals=digits)

    def __eq__(self, other: object) -> Any:
        return NotImplemented if isinstance(other, Opaque) else self._read("comparing") == other

    def __ne__(self, other: object) -> Any:
        return NotImplemented if isinstance(other, Opaque) else self._read("comparing") != other

    __hash__ = object.__hash__

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._read("conversion to an array").cpu().numpy().astype(dtype or self._value.cpu().numpy().dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self._read("__dlpack__").__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._read("__dlpack_device__").__dlpack_device__()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A torch function that meets a reducer reads it."""
        what = f"torch's {getattr(function, '__name__', function)}"

        def read(x: Any) -> Any:
            return x._read(what) if isinstance(x, Opaque) else x

        return function(*tree_map(read, args), **tree_map(read, kwargs or {}))

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        remedy = "save state_dict() and load it into a new Reducer" if self._state == "active" else "copy or pickle its result instead"
        raise ReducerError(f"pickling or copying: {self._about()} is {self._state} and owns its memory; {remedy}")

    def __copy__(self) -> NoReturn:
        self.__reduce_ex__(2)

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.__reduce_ex__(2)


def _reader(name: str, swapped: bool) -> Callable[..., Any]:
    function = getattr(operator, f"{name}_" if name in ("and", "or") else name)

    def read(self: Opaque, *others: Any) -> Any:
        mine = self._read(f"arithmetic ({name})")
        return function(*others, mine) if swapped else function(mine, *others)

    return read


def _storer(name: str) -> Callable[..., Any]:
    def store(self: Opaque, other: Any) -> NoReturn:
        self._refuse_store(f"in-place arithmetic (i{name})")

    return store


for _name in (*_UNARY, *_BINARY, *_COMPARE):
    setattr(Opaque, f"__{_name}__", _reader(_name, False))
for _name in _BINARY:
    setattr(Opaque, f"__r{_name}__", _reader(_name, True))
    setattr(Opaque, f"__i{_name}__", _storer(_name))
