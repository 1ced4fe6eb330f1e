"""The suite's own tools: fresh memory is poisoned, the oracle is torch's, and the bound refuses what it should."""

import numpy as np
import pytest
import torch
from bounds import bound, check
from oracle import BITWISE, DTYPES, FLOATS, INTS, NEED_FLOAT, OPS, as_matrix, numpy_of, reference

TORCHS = {
    "sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin, "mean": torch.mean, "any": torch.any, "all": torch.all,
    "argmax": torch.argmax, "argmin": torch.argmin, "var": torch.var, "std": torch.std, "logsumexp": torch.logsumexp,
    "norm": lambda x, dim: torch.linalg.vector_norm(x, 2, dim), "count_nonzero": torch.count_nonzero,
    "abs_sum": lambda x, dim: x.abs().sum(dim), "abs_max": lambda x, dim: x.abs().amax(dim), "sum_sq": lambda x, dim: (x * x).sum(dim),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fresh_memory_is_never_zero(dtype, device):
    like = torch.zeros(3, dtype=dtype, device=device)
    fresh = [torch.empty(3, dtype=dtype, device=device), torch.empty_like(like), like.new_empty((3,)), like.new_empty_strided((3,), (2,))]
    fresh.append(torch.empty_strided((3,), (1,), dtype=dtype, device=device))
    for t in fresh:
        assert bool(t.isnan().all()) if dtype in FLOATS else bool((t != 0).all())
    assert not bool(like.any())


@pytest.mark.parametrize("op", [op for op in OPS if op not in BITWISE])
def test_the_oracle_is_what_torch_computes_in_float64(op):
    x = torch.randn(3, 50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for dim in (0, 1, 2):
        v = as_matrix(numpy_of(x), dim)
        want = TORCHS[op](x, dim=dim).reshape(-1).double()
        got = torch.from_numpy(np.asarray(reference(op, v, np.ones(v.shape, bool), x.dtype), float))
        assert torch.allclose(got, want, rtol=1e-14, atol=0)


@pytest.mark.parametrize("op", [op for op in OPS if op not in (*BITWISE, *NEED_FLOAT, "logsumexp")])
def test_the_oracle_is_exactly_torchs_on_ints(op):
    for dtype in INTS:
        x = torch.randint(0, 100, (5, 31), generator=torch.Generator().manual_seed(1)).to(dtype)
        wide = x.long() if op in ("abs_sum", "sum_sq", "abs_max") else x
        check(TORCHS[op](wide, dim=1).to(dtype if op == "abs_max" else torch.int64 if op in ("abs_sum", "sum_sq") else None), x, op, 1)


def serial_half(x):
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for column in x.unbind(1):
        total += column
    return total


def test_the_bound_refuses_a_serial_sixteen_bit_sum_and_a_wrong_term():
    x = torch.rand(4, 3000, generator=torch.Generator().manual_seed(2)).half()
    check(x.double().sum(1).half(), x, "sum", 1)
    for wrong in (serial_half(x), x[:, 1:].double().sum(1).half() + x[:, 0] * 0, x.double().sum(1).half() * (1 + 2**-9)):
        with pytest.raises(AssertionError):
            check(wrong, x, "sum", 1)


def test_the_bound_is_the_documented_one():
    x = torch.full((2, 1024), 3.0)
    half_ulp = torch.finfo(torch.float32).eps * 2048 / 2
    want = 4 * torch.finfo(torch.float32).eps * 10 * 3072 + half_ulp
    assert bound(x, 1, torch.float32).tolist() == [want, want]
    assert bound(x[:, :1], 1, torch.float32).tolist() == [torch.finfo(torch.float32).eps * 2 / 2] * 2


@pytest.mark.parametrize("value", [float("nan"), 5.0, 6.0 + 1e-5])
def test_a_wrong_value_dtype_or_shape_is_refused(value):
    x = torch.tensor([[1.0, 2.0, 3.0]])
    for got in (torch.tensor([value]), torch.tensor([6.0]).double(), torch.tensor([[6.0]]), torch.tensor(6.0)):
        with pytest.raises(AssertionError):
            check(got, x, "sum", 1)
