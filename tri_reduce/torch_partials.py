"""A reducer's partial states in PyTorch, for CPU tensors where no kernel runs: the same states as in `kernels/functions.py`, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import reference
from .kinds import Kind
from .partials import Bound, Partials, States


def _flat(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """[outputs, contributions]."""
    kept = [d for d in range(x.dim()) if d not in dims]
    return x.permute([*kept, *dims]).reshape(math.prod(x.shape[d] for d in kept), math.prod(x.shape[d] for d in dims))


def order_key(x: Tensor) -> Tensor:
    """Integers that order like the values, every NaN above all; see `kernels.functions.order_key`."""
    if not x.dtype.is_floating_point:
        return x
    x = (x if x.dtype == torch.float64 else x.float()) + 0.0  # -0.0 and 0.0 are equal
    kind = torch.int64 if x.dtype == torch.float64 else torch.int32
    bits, top = x.view(kind), torch.iinfo(kind).max
    return torch.where(x.isnan(), top, bits ^ ((bits >> (63 if kind == torch.int64 else 31)) & top))


def value_of_key(key: Tensor, dtype: torch.dtype) -> Tensor:
    """The float that a key of `order_key` stands for."""
    bits = 63 if key.dtype == torch.int64 else 31
    return (key ^ ((key >> bits) & torch.iinfo(key.dtype).max)).view(dtype)


class TorchPartials(Partials):
    """States of a stream, one slot an output."""

    def bind(self, values: Tensor, dims: tuple[int, ...], where: Tensor | None) -> Bound:
        return lambda values, where, position=0: self._add(values, dims, where, position)

    def _add(self, values: Tensor, dims: tuple[int, ...], where: Tensor | None, position: int) -> None:
        x = _flat(values.detach(), dims)
        mask = torch.ones((), dtype=torch.bool).expand(x.shape) if where is None else _flat(where.expand(values.shape), dims)
        self._combine(0, self._lifted(x, mask, position))

    def segment(self, values: Tensor, index: Tensor, where: Tensor | None) -> Callable[[int, int], None]:
        self.indexed = True
        return lambda position, serial: self._add_rows(values, index, where, position, serial)

    def _add_rows(self, values: Tensor, index: Tensor, where: Tensor | None, position: int, serial: int) -> None:
        targets, rows = index.long(), torch.arange(len(index))
        legal = self._legal(targets, serial)
        mask = torch.ones(values.shape, dtype=torch.bool) if where is None else where.expand(values.shape)
        order = torch.argsort(targets[legal], stable=True)
        rows, targets = rows[legal][order], targets[legal][order]
        lone, mask = values.detach()[rows].reshape(-1, 1), mask[rows].reshape(-1, 1)
        lanes = math.prod(self.kind.shape[1:])
        lifted = self._lifted(lone, mask, position + rows.repeat_interleave(lanes)[:, None])
        states = tuple(s.reshape(len(rows), lanes) for s in lifted)
        while True:  # neighbours with one target join in pairs until each target has one state
            place = torch.arange(len(targets)) - torch.searchsorted(targets, targets)
            odd = (place % 2 == 1).nonzero()[:, 0]
            if not len(odd):
                break
            for tile, joined in zip(states, self._joined(tuple(s[odd - 1] for s in states), tuple(s[odd] for s in states)), strict=True):
                tile[odd - 1] = joined.to(tile.dtype)
            keep = place % 2 == 0
            states, targets = tuple(s[keep] for s in states), targets[keep]
        old = tuple(s[0].view(-1, lanes)[targets] for s in self.states)
        for mine, joined in zip(self.states, self._joined(old, states), strict=True):
            mine[0].view(-1, lanes)[targets] = joined.to(mine.dtype)

    def absorb(self, states: States) -> None:
        for slot in range(states[0].shape[0]):
            self._combine(0, tuple(s[slot] for s in states))

    def finish(self, states: States, seed: float | None, out: Tensor) -> None:
        fresh = TorchPartials(self.kind, self.device, 1)
        fresh.absorb(states)
        if seed is not None:
            lone = torch.full((), seed, dtype=fresh.states[0].dtype)
            fresh._combine(0, (lone, torch.ones_like(lone)) if self.kind.monoid.seed == "lift" else (lone,))
        result = self._finished(tuple(s[0] for s in fresh.states))
        out.copy_((result != 0 if out.dtype == torch.bool else result).reshape(out.shape))

    def _legal(self, targets: Tensor, serial: int) -> Tensor:
        """Which indices are in range; the first that is not is recorded."""
        legal = (targets >= 0) & (targets < self.kind.shape[0])
        if not legal.all() and not self.faults[0].any():
            row = int((~legal).nonzero()[0])
            self.faults[0][0] = torch.tensor([serial, row, int(targets[row])])
        return legal

    def _combine(self, slot: int, new: States) -> None:
        old = tuple(s[slot] for s in self.states)
        for tile, value in zip(old, self._joined(old, new), strict=True):
            tile.copy_(value)

    def _lifted(self, x: Tensor, mask: Tensor, position: Any) -> States:
        """The states of rows of contributions."""
        monoid, name = self.kind.monoid, self.kind.monoid.name
        values = x if monoid.lift_raw else x.to(self.kind.value)
        if monoid.indexed:
            return self._best(values, mask, position)
        dims = (1,)
        if name == "logsumexp":
            wide = torch.where(mask, values.double(), -math.inf)
            top = wide.amax(1) if wide.shape[1] else wide.new_full(wide.shape[:1], -math.inf)
            away = torch.where(wide == top[:, None], 0.0, wide - top[:, None]).exp()
            return top, torch.where(mask, away, 0.0).sum(1)
        if name == "norm":
            return (self._powers(values.double().abs(), mask),)
        count = reference.count(values, dims, False, mask)
        if name == "counted_mean":
            return reference.sum(values, dims, False, mask), count
        if name in ("var", "std"):
            mean = torch.where(count > 0, reference.sum(values, dims, False, mask) / count, 0.0)
            away = torch.where(mask, values.double() - mean[:, None], 0.0)
            return mean, (away * away).sum(1), count
        assert monoid.reference is not None
        return (reference.call(monoid.reference, values, dims, False, mask, monoid.param),)

    def _best(self, values: Tensor, mask: Tensor, position: Any) -> States:
        low, none = (e for e, _ in self.kind.identities())
        if self.kind.monoid.name == "argmin":
            key = order_key(-values) if values.dtype.is_floating_point else ~values.long()
        else:
            key = order_key(values)
        key = torch.where(mask, key.to(self.states[0].dtype), low)
        top = key.amax(1) if key.shape[1] else key.new_full(key.shape[:1], int(low))
        where = torch.where(mask & (key == top[:, None]), torch.arange(key.shape[1]) + position, none)
        return top, where.amin(1) if key.shape[1] else torch.full(key.shape[:1], int(none))

    def _powers(self, size: Tensor, mask: Tensor) -> Tensor:
        order = float(self.kind.monoid.param)
        if math.isinf(order):
            return reference.norm(size, (1,), False, mask, order)
        return reference.sum((size != 0).double() if order == 0 else size**order, (1,), False, mask)

    def _joined(self, a: States, b: States) -> States:
        """Two states of each output combined."""
        monoid, name = self.kind.monoid, self.kind.monoid.name
        if monoid.indexed:
            b_wins = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
            return torch.where(b_wins, b[0], a[0]), torch.where(b_wins, b[1], a[1])
        if name == "logsumexp":
            top = torch.maximum(a[0], b[0])
            return top, sum((s * torch.where(m == top, 0.0, m - top).exp() for m, s in (a, b)), torch.zeros(()))
        if name in ("var", "std"):
            count = a[2] + b[2]
            part, delta = b[2] / count.clamp(min=1), b[0] - a[0]
            return a[0] + delta * part, a[1] + b[1] + delta * (delta * (a[2] * part)), count
        if name == "norm" and math.isinf(float(monoid.param)):
            return (torch.maximum(a[0], b[0]) if float(monoid.param) > 0 else torch.minimum(a[0], b[0]),)
        join = torch.add if monoid.join is None else monoid.join
        return tuple(join(p, q.to(p.dtype) if q.dtype != p.dtype else q) for p, q in zip(a, b, strict=True))

    def _finished(self, state: States) -> Tensor:
        """The result of each output's state."""
        monoid, name = self.kind.monoid, self.kind.monoid.name
        if monoid.indexed:
            return torch.where(state[1] == self.kind.identities()[1][0], 0, state[1])
        if name == "logsumexp":
            return state[0] + state[1].log()
        if name == "counted_mean":
            return state[0] / state[1]
        if name in ("var", "std"):
            var: Tensor = state[1] / (state[2] - monoid.param).clamp(min=0)
            return var.sqrt() if name == "std" else var
        if name == "norm":
            order = float(monoid.param)
            return state[0] if order in (0, 1) or math.isinf(order) else state[0].sqrt() if order == 2 else state[0] ** (1 / order)
        return state[0]


class KeptContributions(TorchPartials):
    """For a user's monoid, which has no states in torch: every contribution is kept, [contributions, outputs], beside its mask."""

    def __init__(self, kind: Kind, device: torch.device, slots: int) -> None:
        super().__init__(kind, device, 1)
        if kind.monoid.reference is None:
            raise NotImplementedError(f"Reducer: {kind.monoid.name} has no reference=, which CPU tensors need outside Triton's interpreter")
        self.reset()

    def reset(self) -> None:
        self.clear_faults()
        self.slots, outputs = 0, self.kind.outputs
        self.states = (torch.zeros((0, outputs), dtype=self.kind.value), torch.zeros((0, outputs), dtype=torch.bool))

    @property
    def rows(self) -> int:
        return len(self.states[0])

    def folded(self, rows: int) -> States:
        """Nothing is folded; ranks that have fewer add contributions that the mask leaves out."""
        more = (0, 0, 0, rows - self.rows)
        return tuple(torch.nn.functional.pad(tile, more) for tile in self.states)

    def _add(self, values: Tensor, dims: tuple[int, ...], where: Tensor | None, position: int) -> None:
        x = _flat(values.detach(), dims).to(self.kind.value)
        mask = torch.ones(x.shape, dtype=torch.bool) if where is None else _flat(where.expand(values.shape), dims)
        self.absorb((x.T, mask.T))

    def _add_rows(self, values: Tensor, index: Tensor, where: Tensor | None, position: int, serial: int) -> None:
        legal, outputs = self._legal(index.long(), serial), self.kind.shape[0]
        goes = legal[:, None] & (index.long()[:, None] == torch.arange(outputs))
        wanted = torch.ones(values.shape, dtype=torch.bool) if where is None else where.expand(values.shape)
        rows, lanes = values.detach().to(self.kind.value).reshape(len(index), 1, -1), wanted.reshape(len(index), 1, -1)
        spread = (len(index), outputs, rows.shape[-1])
        self.absorb((rows.expand(spread).reshape(len(index), -1), (goes[:, :, None] & lanes).reshape(len(index), -1)))

    def absorb(self, states: States) -> None:
        self.states = tuple(torch.cat([mine, more]) for mine, more in zip(self.states, states, strict=True))

    def finish(self, states: States, seed: float | None, out: Tensor) -> None:
        monoid = self.kind.monoid
        assert monoid.reference is not None
        y = reference.call(monoid.reference, states[0].T, (1,), False, states[1].T, monoid.param)
        if seed is not None:
            y = monoid.join(y, torch.as_tensor(seed, dtype=y.dtype))
        out.copy_(y.reshape(out.shape))
