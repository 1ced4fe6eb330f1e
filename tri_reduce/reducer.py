"""`Reducer`: a reduction deferred over many launches.

Contributions go in by `update`, each counted once; only `finalize` makes a result.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import checkpoints, collectives, dtypes, guards, targets, validate
from .autotune import MODE
from .contributions import caller, check_merge, check_update, one_seed, position_of, seeds_of
from .errors import DoubleFinalizeError, ReducerError, UpdateAfterFinalizeError
from .kinds import kind_of
from .monoids import Monoid
from .opaque import Opaque
from .outputs import outputs
from .partials import Bound, States, bind_all, partials_of

MAX_BOUND = 1024  # layouts that a reducer remembers
Ops = str | Monoid | Sequence[str | Monoid]


class Reducer(Opaque):
    """A deferred reduction: many updates, one result.

    Args:
        op: any op of `tri_reduce.reduce`, a Monoid, or several of them: the result is then a tuple.
        shape: [...] of the result.
        dtype: of the result; for argmax, argmin (int64), any, all (bool) and count_nonzero (int64) that of the values.
        device: of the values and the result; None is torch's default.
        initial: a seed, combined once into every output by `finalize`; for several ops one for all, or a list.
        correction: var and std divide by count - correction.
        ord: of norm.
        determinism: as in `reduce`.

    Raises:
        ValueError: an unknown op or determinism, a seed for an op that takes none.
        TypeError: a dtype that the op does not take.

    Example:
        >>> import torch, tri_reduce
        >>> r = tri_reduce.Reducer("sum", (3,), torch.float32)
        >>> for tile in torch.ones(10, 4, 3):
        ...     r.update(tile)  # [4, 3]: the leading dim is reduced
        >>> r.finalize()
        tensor([40., 40., 40.])
    """

    _state, _updates = "unmade", 0  # what __del__ finds where __init__ raised

    def __init__(
        self,
        op: Ops,
        shape: Sequence[int] | int,
        dtype: torch.dtype,
        device: torch.device | str | None = None,
        *,
        initial: Any = None,
        correction: float = 1,
        ord: float = 2,
        determinism: str = "run_to_run",
    ) -> None:
        validate.check_determinism(determinism)
        self._many = not isinstance(op, str | Monoid)
        ops: tuple[str | Monoid, ...] = (op,) if isinstance(op, str | Monoid) else tuple(op)
        self.op: Any = ops if self._many else op
        self.shape = torch.Size((shape,) if isinstance(shape, int) else shape)
        self.device = targets.named_device(device)
        if not ops or any(n < 0 for n in self.shape):
            raise ValueError(f"Reducer: expected at least one op and sizes >= 0, got op={op!r}, shape={tuple(self.shape)}")
        self.dtype = dtypes.of(dtype, "Reducer's dtype").torch
        kinds = [kind_of(o, dtype, tuple(self.shape), self.device, correction, ord) for o in ops]
        self._seeds = seeds_of(kinds, initial, self._many)
        self._parts = tuple(partials_of(k, self.device, determinism) for k in kinds)
        self._counts = any(k.monoid.indexed for k in kinds)
        self._site = caller()
        self._bound: dict[Any, list[tuple[Bound, bool]]] = {}  # updates by the layout of their tensors
        self._recent: Any = None  # one of them that was repeated, and torch's guard of it
        self._guards_left = 4
        self._outs_seen: set[Any] = set()  # layouts of outs that passed the checks
        self._value: Any = None
        self.epoch, self._state = 0, "active"

    def update(
        self, values: Tensor, dim: Any = None, *, where: Tensor | None = None, index: Tensor | None = None, offset: int | None = None
    ) -> None:
        """Reduce `dim` of values into the partial states: one launch (for several ops, one for each three of one-tile state).

        Args:
            values: any strides; a dtype with `torch.promote_types(values.dtype, r.dtype) == r.dtype`.
            dim: what to reduce; None: the leading `values.dim() - len(shape)` dims. What is left must have the reducer's shape.
            where: bool, broadcastable to values: what is False contributes nothing.
            index: int32 or int64, [values.shape[0]]: each values[i, ...] contributes to output index[i] instead.
            offset: argmax and argmin: position in the stream of the first value along the reduced dim; needed from the second update on.

        Raises:
            UpdateAfterFinalizeError, ReducerShapeError, ReducerDtypeError: see the classes.
            ReducerError: offset missing, or given to another op; values on another device.
        """
        recent = self._recent
        if recent is not None and where is None and index is None and offset is None and self._state == "active":
            fits, known_dim, mode, away, call = recent  # the shortest path: like the update before
            if (
                type(values) is Tensor and not values.is_nested and fits(values)
                and dim is known_dim and mode is MODE.get() and values.data_ptr() & 15 == away
            ):  # fmt: skip
                call(values, None)
                self._updates += 1
                return
        if type(values) is Tensor and values.is_neg():  # z.conj().imag, negated when read
            values = values.resolve_neg()
        key: Any = None
        if index is None and self._state == "active":
            try:  # the short path: tensors laid out as in an update before
                key = (values.shape, values.stride(), values.dtype, values.device, values.data_ptr() & 15, dim, MODE.get(), type(values))
                key += (None if dim is None or type(dim) is int else (type(dim), *map(type, dim)),)  # 1 == 1.0 == True
                key += (None,) if where is None else (where.shape, where.stride(), where.dtype, where.device)
                calls = self._bound.get(key)
            except (TypeError, AttributeError, RuntimeError):  # what cannot be hashed or has no memory: the checks name it
                key = calls = None
            if calls is not None and (offset is None or self._counts):
                if self._guards_left:
                    self._note(calls, values, dim, where)
                self._run(calls, values, where, position_of(offset, True, self._updates > 0, self._about) if self._counts else 0)
                return
        self._require_active("update")
        dims, position = check_update(self, values, dim, where, index, offset)
        if not values.numel():
            self._updates += 1
        elif index is not None:
            for launch in [p.segment(values, index, where) for p in self._parts]:  # all are planned before the first changes anything
                launch(position, self._updates + 1)
            self._updates += 1
        else:
            calls = bind_all(self._parts, values, dims, where)
            self._run(calls, values, where, position)
            if len(self._bound) >= MAX_BOUND:
                self._bound.clear()
            if key is not None:
                self._bound[key] = calls

    def _note(self, calls: Sequence[tuple[Bound, bool]], values: Tensor, dim: Any, where: Tensor | None) -> None:
        """An update like one before is likely to be followed by more: those take the shortest path."""
        self._guards_left -= 1  # a guard takes longer to make than it saves in one update: streams whose tiles differ make few
        if len(calls) == 1 and not calls[0][1] and where is None and not values.requires_grad:
            fits = guards.guard(values)
            self._recent = None if fits is None else (fits, dim, MODE.get(), values.data_ptr() & 15, calls[0][0])

    def _run(self, calls: Sequence[tuple[Bound, bool]], values: Tensor, where: Tensor | None, position: int) -> None:
        for call, counts in calls:
            if counts:
                call(values, where, position)
            else:
                call(values, where)
        self._updates += 1

    def merge(self, other: Reducer) -> None:
        """Fold another active reducer in; it is then consumed. A refused merge changes nothing.

        Raises:
            UpdateAfterFinalizeError: either is not active.
            ReducerMergeError: another op, shape, dtype, device or seed, or the same reducer.
        """
        if not isinstance(other, Reducer):
            raise TypeError(f"merge: expected a Reducer, got {type(other).__name__}")
        self._require_active("merge")
        other._require_active("merge of another reducer")
        self._seeds = check_merge(self, other)
        for mine, theirs in zip(self._parts, other._parts, strict=True):
            mine.absorb(theirs.states)
            mine.take_faults(theirs)
        self._updates += other._updates
        other._state = "consumed"

    def finalize(self, out: Any = None, *, group: Any = None) -> Any:
        """Fold the partial states, combine the seed once, finish: the only collective of the stream. After any error the reducer is still
        active.

        Args:
            out: a tensor of the reducer's shape, any strides (a tuple of them for several ops), checked before anything changes.
            group: a `torch.distributed` group: every rank calls this with its own reducer and gets the result over all, the same bits,
                from one collective. The seed counts once, not once a rank.

        Returns:
            The result (a tuple for several ops); also `.value` from then on.

        Raises:
            DoubleFinalizeError: it is finalized already.
            IndexError: an update's index was out of range; the message names the first.
            ValueError, TypeError, RuntimeError: `out` has another shape, a dtype the result cannot be cast to, another device.
            CollectiveMismatchError: on every rank, when the ranks do not bring the same reduction or one of them has an error of its own.
        """
        outs, error = self._ready(out)
        if group is not None:
            states = collectives.gathered(self._parts, self._seeds, self.epoch, self._about(), error, group)
        elif error is not None:
            raise error
        else:
            states = [p.states for p in self._parts]
        return self._finish(states, self._seeds, outs)

    def reset(self) -> None:
        """A new epoch: identities again, the seed again, active again."""
        for part in self._parts:
            part.reset()
        self._value, self._updates, self._state = None, 0, "active"
        self.epoch += 1

    def state_dict(self) -> dict[str, Any]:
        """A snapshot of an active reducer: plain tensors, numbers and strings, for `torch.save` and `torch.load(weights_only=True)`.

        Raises:
            ReducerError: it is not active.
        """
        if self._state != "active":
            raise ReducerError(
                f"state_dict: {self._about()} is {self._state}: there is no reduction to go on with; save its result, or reset() it"
            )
        return checkpoints.saved(self._parts, self._seeds, self.epoch, self._updates, self._parts[0].fault())

    def load_state_dict(self, d: dict[str, Any]) -> None:
        """Go on from a snapshot, in place of what this reducer holds.

        Raises:
            UpdateAfterFinalizeError: it is not active.
            ReducerError: the snapshot is of another op, shape, dtype or seed, or none.
        """
        self._require_active("load_state_dict")
        checkpoints.check(d, self._parts, self._about())
        self._seeds = tuple(
            one_seed("load_state_dict", a, b, self._about(), "the state") for a, b in zip(self._seeds, d["seeds"], strict=True)
        )
        checkpoints.load(d, self._parts)
        self.epoch, self._updates = int(d["epoch"]), int(d["updates"])

    def __repr__(self) -> str:
        return f"<{self._about()}: {self._state}, {self._updates} updates, epoch {self.epoch}>"

    def __del__(self) -> None:
        if self._state == "active" and self._updates:
            lost = f"{self._about()} was never finalized: {self._updates} updates are lost"
            warnings.warn(lost, ResourceWarning, stacklevel=2, source=self)

    def _about(self) -> str:
        op = [getattr(o, "name", o) for o in self.op] if self._many else getattr(self.op, "name", self.op)
        return f"Reducer({op!r}, {tuple(self.shape)}, {self.dtype}) created at {self._site}"

    def _require_active(self, what: str) -> None:
        if self._state != "active":
            raise UpdateAfterFinalizeError(f"{what}: {self._about()} is {self._state}; reset() starts a new epoch")

    def _finish(self, states: Sequence[States], seeds: Sequence[Any], outs: Sequence[Tensor]) -> Any:
        for part, state, seed, target in zip(self._parts, states, seeds, outs, strict=True):
            if target.numel():
                written = torch.empty_like(target) if target.is_neg() else target
                part.finish(state, seed, written)
                if written is not target:
                    target.copy_(written)
        self._value, self._state = tuple(outs) if self._many else outs[0], "finalized"
        return self._value

    def _ready(self, out: Any) -> tuple[list[Tensor], Exception | None]:
        """(where the results go, what forbids to finalize)."""
        try:
            if self._state == "finalized":
                raise DoubleFinalizeError(
                    f"finalize: {self._about()} is finalized already; its result is .value, reset() starts a new epoch"
                )
            if self._state == "consumed":
                raise ReducerError(
                    f"finalize: {self._about()} was consumed by merge(): finalize the reducer it went into, or reset() this one"
                )
            fault = self._parts[0].fault()
            if fault is not None:
                raise IndexError(
                    f"finalize: index {fault[2]} at row {fault[1]} of update {fault[0]} is out of range for the {self.shape[0]} outputs of "
                    f"{self._about()}; such rows were not counted: reset() and update again"
                )
            return outputs(out, self._parts, self._many, self._about, self._outs_seen), None
        except Exception as error:
            return [], error
