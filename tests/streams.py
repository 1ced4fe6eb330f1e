"""Random streams into a Reducer: what was put in, as the matrix that the oracle takes, and the reducer that it was put into."""

import contextlib
import random

import numpy as np
import torch
from bounds import mismatch, tolerance
from devices import ON_GPU
from oracle import BITWISE, DTYPES, FLOATS, NEED_FLOAT, OPS, SEEDED, as_matrix, combine, numpy_of, reference
from recipes import laid_out, pick_layout, pick_seed, values

import tri_reduce

SIZES = (1, 2, 3, 5, 8, 13, 16, 17, 33, 65)
SLOW = ("prod", "and", "or", "xor") if not ON_GPU else ()  # folded one by one by the interpreter
NO_BOOL = ("sum", "prod", "abs_sum", "sum_sq", "logsumexp")


def result_of(op, dtype):
    return torch.int64 if op in ("argmax", "argmin", "count_nonzero") else torch.bool if op in ("any", "all") else dtype


def finite(d, dtype):
    """Products of a d converted to dtype stay finite: whole numbers wrap where the result is whole, and overflow where it is not."""
    return d is not torch.bool and d.is_floating_point == dtype.is_floating_point


class Stream:
    """A reducer and, beside it, every contribution: `v` and `m`, [outputs, contributions]."""

    def __init__(self, seed, device, limit):
        rng = self.rng = random.Random(seed)
        self.seed, self.device, self.serial = seed, device, 0
        self.op = OPS[seed % len(OPS)]
        self.limit = limit // 5 if self.op in SLOW else limit
        self.dtype = rng.choice([d for d in DTYPES if self.takes(d)])
        self.shape = tuple(rng.choice(SIZES) for _ in range(rng.choice((0, 1, 1, 2))))
        self.options = {"ord": rng.choice((0, 1, 2, 3, float("inf")))} if self.op == "norm" else {}
        if self.op in ("var", "std"):
            self.options["correction"] = rng.choice((0, 1, 0.5))
        self.initial = pick_seed(rng, self.op, self.dtype) if self.op in SEEDED and rng.random() < 0.4 else None
        self.determinism = rng.choice(("run_to_run", "run_to_run", "invariant"))
        self.forget()
        self.reducer = self.new(self.initial)

    def takes(self, dtype):
        if self.op in BITWISE:
            return dtype not in FLOATS
        if self.op in NEED_FLOAT or self.op == "logsumexp":
            return dtype in FLOATS
        return dtype is not torch.bool or self.op not in NO_BOOL

    def new(self, initial):
        options = dict(self.options, initial=initial, determinism=self.determinism)
        return tri_reduce.Reducer(self.op, self.shape, self.dtype, self.device, **options)

    def forget(self):
        outputs = int(np.prod(self.shape, dtype=int))
        like = numpy_of(torch.zeros((), dtype=self.dtype))
        self.v, self.m, self.position = np.zeros((outputs, 1), like.dtype), np.zeros((outputs, 1), bool), 0

    def add(self, v, m):
        self.v, self.m = np.concatenate([self.v, v], 1), np.concatenate([self.m, m], 1)
        self.position += v.shape[1]

    def tensor(self, shape):
        self.serial += 1
        dtype = self.dtype
        if self.rng.random() < 0.3 and self.op not in BITWISE:
            dtype = self.rng.choice(
                [d for d in DTYPES if torch.promote_types(d, dtype) == dtype and (self.op != "prod" or finite(d, dtype))]
            )
        kind = self.rng.choice(("spread", "spread", "ties", "special"))
        make = values(dict(op=self.op, dtype=dtype, values=kind, asked=dtype), self.seed * 100 + self.serial)
        return laid_out(shape, pick_layout(self.rng, len(shape)), make, self.device)

    def mask(self, shape):
        if self.rng.random() < 0.7:
            return None
        g = torch.Generator().manual_seed(self.seed * 100 + self.serial + 50)
        sizes = [1 if self.rng.random() < 0.3 else n for n in shape[self.rng.randint(0, len(shape)) :]]
        return (torch.rand(sizes, generator=g) < self.rng.choice((0.0, 0.5, 0.9))).to(self.device)

    def where_of(self, shape, mask):
        return np.ones(shape, bool) if mask is None else np.broadcast_to(mask.cpu().numpy(), shape)

    def offset(self):
        return {"offset": self.position} if self.op in ("argmax", "argmin") else {}

    def update(self, reducer):
        rng, kept = self.rng, len(self.shape)
        extra = [rng.choice(SIZES) for _ in range(rng.choice((0, 1, 1, 2)))]
        while extra and max(extra) > 1 and np.prod(extra + list(self.shape)) > self.limit:
            extra[extra.index(max(extra))] = 1
        leading = rng.random() < 0.5 or not extra or (self.op in ("argmax", "argmin") and len(extra) > 1)
        at = list(range(len(extra))) if leading else sorted(rng.sample(range(kept + len(extra)), len(extra)))
        more, left = iter(extra), iter(self.shape)
        shape = tuple(next(more) if d in at else next(left) for d in range(kept + len(extra)))
        x, mask = self.tensor(shape), self.mask(shape)
        signed = [d - len(shape) * rng.randrange(2) for d in at]
        dim = None if leading and (rng.random() < 0.7 or len(at) != 1) else signed[0] if len(at) == 1 else tuple(signed)
        with self.plan():
            reducer.update(x, dim, where=mask, **self.offset())
        dims = tuple(at) if at else None
        a, w = numpy_of(x.to(self.dtype)), self.where_of(shape, mask)
        self.add(*(as_matrix(t, dims) if dims else t.reshape(-1, 1) for t in (a, w)))

    def segment(self, reducer):
        n = self.rng.choice(SIZES)
        shape = (n, *self.shape[1:])
        x, mask = self.tensor(shape), self.mask(shape)
        index = torch.tensor([self.rng.randrange(self.shape[0]) for _ in range(n)], dtype=self.rng.choice((torch.int32, torch.int64)))
        reducer.update(x, index=index.to(self.device), where=mask, **self.offset())
        goes = index.numpy()[None, :] == np.arange(self.shape[0])[:, None]  # [outputs of dim 0, N]
        a, w = numpy_of(x.to(self.dtype)).reshape(n, -1).T, self.where_of(shape, mask).reshape(n, -1).T
        self.add(np.tile(a, (self.shape[0], 1)), np.tile(w, (self.shape[0], 1)) & np.repeat(goes, a.shape[0], 0))

    @contextlib.contextmanager
    def plan(self):
        kind = self.rng.choice(("plain", "plain", "plain", "split", "plain" if self.op in SLOW else "tune"))
        with (
            tri_reduce.autotune.policy("tune")
            if kind == "tune"
            else tri_reduce.force(split=1)
            if kind == "split"
            else contextlib.nullcontext()
        ):
            yield

    def step(self):
        kind = self.rng.choice(("update", "update", "update", "segment", "merge", "reset", "checkpoint"))
        if kind == "segment" and self.shape:
            self.segment(self.reducer)
        elif kind == "merge":
            other = self.new(self.rng.choice((None, self.initial)))
            self.update(other)
            self.reducer.merge(other)
        elif kind == "reset" and self.rng.random() < 0.5:
            self.reducer.reset()
            self.forget()
        elif kind == "checkpoint":
            state = self.reducer.state_dict()
            self.reducer.reset()
            self.reducer = self.new(self.initial)
            self.reducer.load_state_dict(state)
        else:
            self.update(self.reducer)

    def check(self):
        got = self.reducer.finalize()
        ref = reference(self.op, self.v, self.m, self.dtype, **self.options)
        if self.op in ("argmax", "argmin"):
            ref = np.maximum(ref - 1, 0)
        extra = [] if self.initial is None else [self.initial]
        for e in extra:
            ref = combine(self.op, ref, e)
        tol = tolerance(self.op, self.v, self.m, ref, self.dtype, extra=extra, **self.options)
        return mismatch(got, ref, tol, self.shape, result_of(self.op, self.dtype))
