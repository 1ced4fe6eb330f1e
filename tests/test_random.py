"""Seeded random problems over every op, dtype, layout and option, against the oracle. A failure prints its recipe.

TRI_REDUCE_TEST_RANDOM=n        how many problems (default 300, on a GPU 4000)
TRI_REDUCE_TEST_RANDOM_SEED=s   the first seed (default 0): one problem again is `..._RANDOM=1 ..._RANDOM_SEED=s`
"""

import os

import numpy as np
import pytest
import torch
from bounds import mismatch, tolerance
from devices import ON_GPU
from oracle import NO_EMPTY, as_matrix, combine, kept_shape, numpy_of, reference
from recipes import laid_out, out_dtype, pick_recipe, values

import tri_reduce

COUNT = int(os.environ.get("TRI_REDUCE_TEST_RANDOM", 4000 if ON_GPU else 300))
FIRST = int(os.environ.get("TRI_REDUCE_TEST_RANDOM_SEED", 0))
LIMIT = 1_000_000 if ON_GPU else 2000


def fresh_out(r, seed, device):
    """A strided `out` and the storage it lies in: old values that matter with accumulate, garbage (NaN) otherwise."""
    dtype = out_dtype(r)
    shape = kept_shape(r["shape"], r["dim"], r["keepdim"])
    old = values(dict(r, dtype=dtype, values="ties", asked=None), seed + 1)
    garbage = float("nan") if dtype.is_floating_point else True if dtype is torch.bool else 77
    make = old if r["accumulate"] else lambda n: torch.full((n,), garbage, dtype=dtype)
    out = laid_out(shape, r["out_layout"], make, device)
    storage = torch.empty(0, dtype=dtype, device=device).set_(out.untyped_storage())
    return out, storage


def expected(r, x, where, old):
    """The [kept] reference and its error bound."""
    a = numpy_of(x)
    m = np.ones(a.shape, bool) if where is None else np.broadcast_to(where.cpu().numpy(), a.shape)
    v, m = as_matrix(a, r["dim"]), as_matrix(m, r["dim"])
    options = {k: r[k] for k in ("correction", "ord") if k in r}
    ref = reference(r["op"], v, m, r["dtype"], **options)
    extra = [r["initial"]] if r["initial"] is not None else []
    extra += [numpy_of(old).reshape(-1)] if r["accumulate"] else []
    for e in extra:
        ref = combine(r["op"], ref, e)
    compute = r["asked"] if r["asked"] in (torch.float32, torch.float64) else r["dtype"]
    return ref, tolerance(r["op"], v, m, ref, compute, extra=extra, **options)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_random_problem_agrees_with_the_oracle(seed, device):
    r = pick_recipe(seed, LIMIT)
    recipe = f"seed {seed} on {device}: {r}"
    print(recipe)  # pytest shows it also where the call itself raises
    x = laid_out(r["shape"], r["layout"], values(r, seed), device)
    where = None
    if r["where"] is not None:
        g = torch.Generator().manual_seed(seed + 2)
        where = (torch.rand(r["where"]["shape"], generator=g) < r["where"]["keep"]).to(device)
    options = {k: r[k] for k in ("correction", "ord") if k in r}
    options.update({k: v for k, v in (("dtype", r["asked"]), ("where", where), ("initial", r["initial"])) if v is not None})
    shape = kept_shape(r["shape"], r["dim"], r["keepdim"])
    v = as_matrix(np.empty(r["shape"], bool), r["dim"])
    if r["op"] in NO_EMPTY and v.shape[1] == 0:
        with pytest.raises((IndexError, ValueError, RuntimeError), match=rf"\b{r['op']}\b"):
            tri_reduce.reduce(x, r["op"], r["dim"], r["keepdim"], **options)
        return
    out = old = None
    if r["out"]:
        out, storage = fresh_out(r, seed, device)
        old, before = out.clone(), storage.clone()
        options.update(out=out, accumulate=r["accumulate"])
    ref, tol = expected(r, x, where, old)
    got = tri_reduce.reduce(x, r["op"], r["dim"], r["keepdim"], **options)
    problem = mismatch(got, ref, tol, shape, out_dtype(r))
    assert problem is None, f"{recipe}\n{problem}"
    if out is not None:
        assert got is out or got.data_ptr() == out.data_ptr(), f"{recipe}\nthe result is not `out`"
        out.copy_(old)
        same = (storage == before) | ((storage != storage) & (before != before))
        assert bool(same.all()), f"{recipe}\nwrote outside `out`"
