"""A reducer in a kernel of one's own: which programs and warps take part decides nothing about how often a contribution counts."""

import pytest
import torch
from devices import REFERENCE

from tri_reduce import Reducer

if REFERENCE:
    pytest.skip("kernels need a GPU or the interpreter", allow_module_level=True)

import triton
import triton.language as tl

import tri_reduce.language as trl


@triton.jit
def part_kernel(x_ptr, y_ptr, out_ptr, n, FIRST: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr):
    """Programs from FIRST on fold every so-many-th tile of x into out[program]; all lanes of all tiles also write y = 2 x."""
    mine, programs = tl.program_id(0) - FIRST, tl.num_programs(0) - FIRST
    if mine >= 0:
        acc = trl.init(OP, (1, BLOCK), tl.float32)
        for tile in range(mine, tl.cdiv(n, BLOCK), programs):
            at = tile * BLOCK + tl.arange(0, BLOCK)[None, :]
            x = tl.load(x_ptr + at, mask=at < n, other=0)
            tl.store(y_ptr + at, 2 * x, mask=at < n)
            acc = trl.update(acc, x, OP, mask=(at < n) & (at % 3 != 0))
        tl.store(out_ptr + mine + tl.arange(0, 1), trl.finalize(acc, OP, axis=1))


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("programs, first", [(1, 0), (5, 0), (6, 2), (9, 8)])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_any_programs_and_warps_count_each_contribution_once(op, programs, first, warps, device):
    x = (-1.0 - torch.arange(1000.0)).to(device)
    y, parts = torch.zeros_like(x), torch.full((programs - first,), float("nan"), device=device)
    part_kernel[(programs,)](x, y, parts, 1000, first, op, BLOCK=64, num_warps=warps)
    r = Reducer(op, (), torch.float32, device)
    r.update(parts)
    wanted = x[torch.arange(1000, device=device) % 3 != 0]
    assert r.finalize().item() == {"sum": wanted.sum, "max": wanted.amax, "min": wanted.amin}[op]().item()
    assert torch.equal(y, 2 * x)
