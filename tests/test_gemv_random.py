"""Seeded random products over every dtype, layout and option, against the oracle. A failure prints its recipe (see test_random)."""

import os
import random

import pytest
import torch
from devices import ON_GPU
from gemv_oracle import GEMV_FLOATS, check_gemv
from recipes import laid_out, pick_layout

import tri_reduce

COUNT = int(os.environ.get("TRI_REDUCE_TEST_RANDOM", 4000 if ON_GPU else 300)) // 4
FIRST = int(os.environ.get("TRI_REDUCE_TEST_RANDOM_SEED", 0))
SIZES = (0, 1, 1, 2, 3, 7, 8, 16, 17, 33, 65, 129) + ((513, 1025, 4097) if ON_GPU else ())
BATCHES = ((), (), (), (1,), (3,), (2, 1), (2, 3), (0,))


def make(dtype, seed):
    g = torch.Generator().manual_seed(seed)
    if dtype in GEMV_FLOATS:
        return lambda n: torch.randn(n, generator=g).to(dtype)
    return lambda n: torch.randint(-100, 100, (n,), generator=g, dtype=torch.int64).to(dtype)


def pick(seed):
    rng = random.Random(seed)
    m, k, trans = rng.choice(SIZES), rng.choice(SIZES), rng.random() < 0.4
    batch = rng.choice(BATCHES)
    cut = rng.randint(0, len(batch))
    a_batch = tuple(1 if rng.random() < 0.3 else n for n in (batch if rng.random() < 0.7 else batch[cut:]))
    r = dict(dtype=(*GEMV_FLOATS, torch.int8)[seed % 5], trans=trans, a=(*a_batch, k, m) if trans else (*a_batch, m, k), x=(*batch, k))
    r["result"] = (*torch.broadcast_shapes(a_batch, batch), m)
    scales = (1, 1, 2, -1, 0) if r["dtype"] is torch.int8 else (1, 1, 0.5, -2, 0)
    r.update(alpha=rng.choice(scales), beta=rng.choice(scales), given_y=rng.random() < 0.5, given_out=rng.random() < 0.5)
    r["beta"] = r["beta"] if r["given_y"] else 0
    r.update(layouts={name: pick_layout(rng, len(r[name])) for name in ("a", "x", "result")})
    r["layouts"]["result"]["expanded"] = [False] * len(r["result"])
    return r


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_random_product_agrees_with_the_oracle(seed, device):
    r = pick(seed)
    print(f"seed {seed} on {device}: {r}")
    result_dtype = torch.int32 if r["dtype"] is torch.int8 else r["dtype"]
    a, x = (laid_out(r[n], r["layouts"][n], make(r["dtype"], seed + i), device) for i, n in enumerate(("a", "x")))
    options = dict(alpha=r["alpha"], beta=r["beta"], trans=r["trans"])
    if r["given_y"]:
        y = laid_out(r["result"], r["layouts"]["result"], make(result_dtype, seed + 2), device)
        options["y"] = y.fill_(float("nan")) if r["beta"] == 0 and result_dtype in GEMV_FLOATS else y
    out = None
    if r["given_out"]:
        garbage = float("nan") if result_dtype in GEMV_FLOATS else 77
        out = laid_out(r["result"], r["layouts"]["result"], lambda n: torch.full((n,), garbage, dtype=result_dtype), device)
    got = tri_reduce.gemv(a, x, out=out, **options)
    check_gemv(got, a, x, **options)
    assert out is None or got.data_ptr() == out.data_ptr()
