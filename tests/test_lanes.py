import pytest
import torch

import tri_reduce
from tri_reduce import ascend
from tri_reduce.lanes import narrow
from tri_reduce.problem import describe


def lanes(dtype, n, op="sum"):
    problem = describe(op, (4, n), 1, dtype)
    return str(narrow(ascend.op_of(problem), problem).dtypes[0])


def test_small_integers_are_summed_in_32_bits_while_no_sum_can_pass_them():
    assert lanes("i8", (1 << 24) - 1) == "int32" and lanes("i8", 1 << 24) == "int64"
    assert lanes("u8", 1 << 20) == "int32" and lanes("i32", 2) == "int64" and lanes("i64", 1) == "int64"
    assert lanes("bool", (1 << 31) - 1) == "int32" and lanes("bool", 1 << 31) == "int64"
    assert lanes("i8", 1 << 16, "sum_sq") == "int32" and lanes("i8", 1 << 17, "sum_sq") == "int64"
    assert lanes("fp32", 1 << 30, "count_nonzero") == "int32"
    assert lanes("fp32", 1 << 30) == "fp32"


def test_floats_that_become_integers_may_be_any():
    x = torch.full((64,), 2.0**40)
    assert tri_reduce.sum(x, 0, dtype=torch.int64).item() == 64 * 2**40


@pytest.mark.parametrize("op", ["sum", "sum_sq", "abs_sum", "count_nonzero"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.bool])
def test_sums_of_small_integers_are_exact_in_every_layout(device, op, dtype):
    if dtype is torch.bool and op in ("sum_sq", "abs_sum"):
        return
    low, high = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    x = torch.randint(low, high + 1, (37, 5, 211), device=device).to(dtype)
    wide = x.to(torch.int64)
    want = {"sum": wide, "sum_sq": wide * wide, "abs_sum": wide.abs(), "count_nonzero": (wide != 0).to(torch.int64)}[op]
    for dim in (0, 1, 2, (0, 2), None):
        got = tri_reduce.reduce(x, op, dim)
        assert torch.equal(got.to(torch.int64), want.sum(dim) if dim is not None else want.sum()), dim
    if op == "sum":  # what joins the sums may be larger than they are
        start = 2**40
        assert torch.equal(tri_reduce.reduce(x, "sum", 2, initial=start), wide.sum(2) + start)
        old = torch.full((5, 211), start, device=device)
        assert torch.equal(tri_reduce.reduce(x, "sum", 0, out=old, accumulate=True), wide.sum(0) + start)
