"""What goes wrong with a `Reducer`: one class for each misuse. A message says what was done, the state it met, and what to do instead."""

from __future__ import annotations


class ReducerError(RuntimeError):
    """Any misuse of a `Reducer`; the base of all the others.

    Example:
        >>> import torch, tri_reduce
        >>> r = tri_reduce.Reducer("sum", (), torch.float32)
        >>> try:
        ...     r.value
        ... except tri_reduce.ReducerError as error:
        ...     print(type(error).__name__)
        ReadBeforeFinalizeError
    """


class ReadBeforeFinalizeError(ReducerError):
    """A reducer was read while it was still a set of partial states: `finalize()` it first."""


class UpdateAfterFinalizeError(ReducerError):
    """An update, a merge or a load met a reducer that is finalized or consumed: `reset()` starts a new epoch."""


class DoubleFinalizeError(ReducerError):
    """A second `finalize()`: the result is `.value`, and `reset()` starts a new epoch."""


class ReducerShapeError(ReducerError, ValueError):
    """Values, a mask or an index whose shape does not fit the reducer's; the message has both shapes."""


class ReducerDtypeError(ReducerError, TypeError):
    """Values whose dtype cannot join the reducer's without loss, an index that is not integer, a mask that is not bool."""


class ReducerMergeError(ReducerError):
    """Two reducers that are not of one kind (op, shape, dtype, device, seed), or a reducer with itself; nothing was changed."""


class CollectiveMismatchError(ReducerError):
    """The ranks of a group did not all bring the same reduction to `finalize(group=)`. Raised on every rank; all stay active."""


ALL = (
    ReducerError,
    ReadBeforeFinalizeError,
    UpdateAfterFinalizeError,
    DoubleFinalizeError,
    ReducerShapeError,
    ReducerDtypeError,
    ReducerMergeError,
    CollectiveMismatchError,
)
