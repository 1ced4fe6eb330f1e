"""Random problems as plain recipes: a seed gives a recipe, a recipe gives the tensors (any layout) on any device."""

import math
import random

import torch
from oracle import ACCUMULATING, BITWISE, DTYPES, FLOATS, NEED_FLOAT, NO_EMPTY, OPS, SEEDED, dims_of, kept_shape, result_dtype

SIZES = (0, 1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 100, 127, 129, 257, 1023, 1025)
BIG_SIZES = (*SIZES, 4096, 4097, 30001, 65537, 100003, 999999)
ORDS = (0, 1, 2, 2, 2, 3, 0.5, 1.5, -1, math.inf, -math.inf)


def pick_shape(rng, limit):
    sizes = BIG_SIZES if limit > 5000 else SIZES
    shape = [rng.choice(sizes) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5)))]
    while math.prod(max(n, 1) for n in shape) > limit:
        shape[max(range(len(shape)), key=shape.__getitem__)] = rng.choice((1, 2, 3, 5, 7, 11))
    if 0 in shape and rng.random() < 0.6:
        shape = [n or 3 for n in shape]
    return tuple(shape)


def pick_layout(rng, ndim):
    """How the tensor lies in its storage: a permutation, steps, starts, expanded dims, a storage offset."""
    kind = rng.choice(("plain", "plain", "transposed", "stepped", "expanded", "offset", "mixed"))
    mixed = kind == "mixed"
    perm = rng.sample(range(ndim), ndim) if kind == "transposed" or mixed else list(range(ndim))
    step = [rng.choice((1, 2, 3)) if kind == "stepped" or mixed else 1 for _ in range(ndim)]
    start = [rng.choice((0, 1, 2)) if kind == "stepped" or mixed else 0 for _ in range(ndim)]
    expanded = [rng.random() < 0.4 if kind == "expanded" else mixed and rng.random() < 0.15 for _ in range(ndim)]
    offset = rng.choice((1, 2, 3, 5, 9)) if kind == "offset" or mixed else 0
    return dict(perm=perm, step=step, start=start, expanded=expanded, offset=offset)


def laid_out(shape, layout, make, device):
    """A view of `shape` on `device` with the layout; `make(n)` gives the n values of its storage on the CPU."""
    perm = layout["perm"]
    sizes = [1 if layout["expanded"][d] else layout["start"][d] + layout["step"][d] * shape[d] for d in perm]
    offset = layout["offset"]
    base = make(math.prod(sizes) + offset).to(device)[offset:].view(sizes)
    for axis, d in enumerate(perm):
        if not layout["expanded"][d]:
            stop = layout["start"][d] + layout["step"][d] * shape[d]
            base = base[(slice(None),) * axis + (slice(layout["start"][d], stop, layout["step"][d]),)]
    inverse = [perm.index(d) for d in range(len(shape))]
    return base.permute(inverse).expand(shape)


def pick_dim(rng, op, ndim):
    kind = rng.choice(("none", "int", "int", "int", "tuple", "tuple", "list", "empty"))
    if kind == "none" or (op in ("argmax", "argmin") and kind in ("tuple", "list", "empty")):
        return None if kind == "none" or ndim == 0 else rng.randrange(-ndim, ndim)
    if ndim == 0:
        return rng.choice((0, -1, ()))
    if kind == "int":
        return rng.randrange(-ndim, ndim)
    dims = [d - ndim * rng.randrange(2) for d in rng.sample(range(ndim), rng.randint(1, ndim))] if kind != "empty" else []
    return dims if kind == "list" else tuple(dims)


def pick_asked(rng, op, dtype):
    """The `dtype=` argument, only where the conversion of the input is exact (widening)."""
    if op in NEED_FLOAT and not dtype.is_floating_point:
        return rng.choice((torch.float32, torch.float64))
    if op in ("sum", "prod", "mean", "norm") and rng.random() < 0.3:
        if dtype.is_floating_point:
            return {torch.float16: torch.float32, torch.bfloat16: torch.float32}.get(dtype, torch.float64)
        return rng.choice((torch.int32, torch.int64, torch.float32)) if op == "sum" else None
    return None


def pick_seed(rng, op, dtype):
    if op in ("any", "all"):
        return rng.random() < 0.5
    if dtype is torch.bool and op not in ("sum", "abs_sum", "sum_sq", "count_nonzero", "prod"):
        return rng.random() < 0.5
    if op in ("sum", "prod", "max", "min", "abs_sum", "sum_sq", "abs_max", "logsumexp") and dtype.is_floating_point:
        return rng.choice((0.5, 3.0, 17.0, -2.0 if op not in ("abs_sum", "abs_max", "sum_sq") else 2.0))
    return rng.choice((1, 3, 100))


def pick_recipe(seed, limit):
    rng = random.Random(seed)
    op, dtype = OPS[seed % len(OPS)], DTYPES[seed // len(OPS) % len(DTYPES)]
    if op in BITWISE and dtype in FLOATS:
        dtype = rng.choice((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
    shape = pick_shape(rng, limit)
    r = dict(op=op, dtype=dtype, shape=shape, layout=pick_layout(rng, len(shape)), dim=pick_dim(rng, op, len(shape)))
    r["keepdim"] = rng.random() < 0.4
    r["asked"] = pick_asked(rng, op, dtype)
    r["values"] = rng.choice(("spread", "spread", "ties", "special"))
    r["where"] = None
    if rng.random() < 0.3:
        cut = rng.randint(0, len(shape))
        r["where"] = dict(shape=tuple(1 if rng.random() < 0.3 else n for n in shape[cut:]), keep=rng.choice((0.0, 0.5, 0.9, 1.0)))
    empties = math.prod(shape[d] for d in dims_of(len(shape), r["dim"])) == 0
    r["initial"] = pick_seed(rng, op, dtype) if op in SEEDED and not (empties and op in NO_EMPTY) and rng.random() < 0.3 else None
    r["out"] = rng.random() < 0.35
    r["accumulate"] = r["out"] and op in ACCUMULATING and rng.random() < 0.6
    out_ndim = len(kept_shape(shape, r["dim"], r["keepdim"]))
    r["out_layout"] = dict(pick_layout(rng, out_ndim), expanded=[False] * out_ndim)
    if op in ("var", "std"):
        r["correction"] = rng.choice((0, 1, 1, 2, 0.5))
    if op == "norm":
        r["ord"] = rng.choice([p for p in ORDS if not (empties and (p < 0 or p == math.inf))])
    return r


def values(r, seed):
    """`make(n)`: n values that suit the op (products stay finite, conversions stay exact)."""
    op, dtype = r["op"], r["dtype"]
    g = torch.Generator().manual_seed(seed)

    def make(n):
        if dtype is torch.bool:
            return torch.rand(n, generator=g) < (0.97 if op in ("all", "and", "prod", "min") else 0.2)
        if not dtype.is_floating_point:
            info = torch.iinfo(dtype)
            small = r["values"] != "special" or r["asked"] is not None or op in ("logsumexp", *NEED_FLOAT)
            low, high = (max(info.min, -100), min(info.max, 100)) if small else (info.min, info.max)
            low += op == "abs_max" and low == info.min and info.min < 0  # |min| has no value in the dtype
            if r["values"] == "ties":
                low, high = max(low, -2), 2
            return torch.randint(low, high, (n,), generator=g, dtype=torch.int64).to(dtype)
        if op == "prod":
            sign = torch.randint(0, 2, (n,), generator=g, dtype=torch.int64) * 2.0 - 1
            x = torch.where(torch.rand(n, generator=g) < 30 / max(n, 30), 0.5 + 1.5 * torch.rand(n, generator=g), 1.0) * sign
        elif r["values"] == "ties":
            x = torch.randint(-2, 3, (n,), generator=g, dtype=torch.int64).float()
        else:
            x = torch.randn(n, generator=g) * 3 + (100 if seed % 7 == 0 else 0)
        if r["values"] == "special" and n:
            for special in (math.nan, -math.inf, math.inf):
                if torch.rand((), generator=g) < 0.4:
                    x[torch.randint(0, n, (1 + n // 50,), generator=g)] = special
        return x.to(torch.float64).to(dtype)

    return make


def out_dtype(r):
    return result_dtype(r["op"], r["dtype"], r["asked"])
