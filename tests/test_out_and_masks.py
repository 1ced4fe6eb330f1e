"""`out`, `accumulate`, `where` and `initial`: who is read, who is written, and how often each counts."""

import math

import pytest
import torch
from bounds import check
from oracle import ACCUMULATING, BITWISE, OPS, result_dtype

import tri_reduce

reduce = tri_reduce.reduce
nan, inf = math.nan, math.inf
# (op, values that combine exactly, old or seed, the answer)
EXACT = {
    "sum": ([1.0, 2, 3], 10.0, 16.0), "prod": ([2.0, 3, 4], 10.0, 240.0), "max": ([1.0, 2, 3], 10.0, 10.0),
    "min": ([1.0, 2, 3], -1.0, -1.0), "any": ([0.0, 0, 0], True, True), "all": ([1.0, 1, 1], False, False),
    "and": ([7, 6, 14], 5, 4), "or": ([1, 2, 2], 8, 11), "xor": ([1, 2, 4], 9, 14), "count_nonzero": ([1.0, 0, 3], 10, 12),
    "abs_sum": ([1.0, -2, 3], 10.0, 16.0), "abs_max": ([1.0, -2, -3], 10.0, 10.0), "sum_sq": ([1.0, -2, 3], 10.0, 24.0),
}  # fmt: skip


def exact_case(op, device):
    data, old, want = EXACT[op]
    x = torch.tensor(data, device=device, dtype=torch.int32 if op in BITWISE else torch.float32)
    return x, old, want, result_dtype(op, x.dtype)


@pytest.mark.parametrize("dim, at", [(0, (slice(None), 2)), (1, (2, slice(None, None, 2)))], ids=["column", "steps"])
def test_out_may_be_a_strided_view_and_its_neighbours_stay(dim, at, device):
    x = torch.arange(42.0, device=device).reshape(6, 7)
    n = 7 - dim
    buf = torch.full((n, 4) if dim == 0 else (4, 2 * n), -1.0, device=device)
    for op in ("sum", "max", "var", "argmax"):
        b = buf.clone().to(torch.int64 if op == "argmax" else torch.float32)
        assert reduce(x, op, dim, out=b[at]).data_ptr() == b[at].data_ptr()
        check(b[at], x, op, dim)
        b[at] = -1
        assert bool((b == -1).all())


def test_out_may_be_transposed(device):
    x = torch.arange(60.0, device=device).reshape(3, 5, 4)
    out = torch.full((5, 3), nan, device=device).t()
    reduce(x, "sum", 2, out=out)
    check(out, x, "sum", 2)


@pytest.mark.parametrize("op", OPS)
def test_out_is_never_read_without_accumulate(op, device):
    x = torch.arange(1, 1030, device=device).reshape(3, 343).to(torch.int32 if op in BITWISE else torch.float32)
    dtype = result_dtype(op, x.dtype)
    for garbage in (nan, inf) if dtype.is_floating_point else (True, False):
        out = torch.full((3,), garbage, device=device, dtype=dtype)
        for _ in range(3):
            reduce(x, op, 1, out=out)
        assert torch.equal(out, reduce(x, op, 1))


@pytest.mark.parametrize("view", ["first row", "middle row", "last row", "itself"])
def test_out_may_alias_the_input(view, device):
    x = torch.arange(1.0, 3 * 4097 + 1, device=device).reshape(3, 4097)
    if view == "itself":
        x = x[:1]
        want = x.clone()
        assert torch.equal(reduce(x, "sum", 0, True, out=x), want)
        return
    want = x.double().sum(0)
    out = x[("first row", "middle row", "last row").index(view)]
    reduce(x, "sum", 0, out=out)
    assert torch.equal(out.double(), want)


def test_out_may_be_an_element_or_a_column_of_the_input(device):
    x = torch.arange(1.0, 5002, device=device)
    reduce(x, "sum", out=x[2500])
    assert float(x[2500]) == 5001 * 5002 / 2
    m = torch.arange(1.0, 4 * 999 + 1, device=device).reshape(4, 999)
    want = m.double().sum(1)
    reduce(m, "sum", 1, out=m[:, 3])
    assert torch.equal(m[:, 3].double(), want)


@pytest.mark.parametrize("bad", [(2,), (3, 1), (), (4,)], ids=str)
def test_an_out_of_the_wrong_shape_is_an_error_and_stays_as_it_was(bad, device):
    out = torch.full(bad, 7.0, device=device)
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)shape|size"):
        reduce(torch.ones(3, 5, device=device), "sum", 1, out=out)
    assert out.shape == bad and bool((out == 7).all())


@pytest.mark.parametrize("op, x", [("mean", torch.float32), ("sum", torch.float64), ("logsumexp", torch.int32)], ids=str)
def test_a_float_result_into_an_integer_out_is_a_type_error_and_writes_nothing(op, x, device):
    for dtype in (torch.int64, torch.uint8, torch.bool):
        out = torch.full((3,), 1, dtype=dtype, device=device)
        with pytest.raises(TypeError, match=str(dtype)):
            reduce(torch.full((3, 5), 2, device=device).to(x), op, 1, out=out)
        assert out.tolist() == [1] * 3


def test_out_on_another_device_is_an_error(device):
    with pytest.raises((RuntimeError, ValueError), match=rf"(?s)meta.*{device}|{device}.*meta"):
        reduce(torch.ones(3, 5, device=device), "sum", 1, out=torch.empty(3, device="meta"))


@pytest.mark.parametrize("op", ACCUMULATING)
@pytest.mark.parametrize("copies", [1, 1001])
def test_accumulate_combines_the_old_value_exactly_once(op, copies, device):
    x, old, want, dtype = exact_case(op, device)
    if copies > 1:  # identities in between: many tiles, the same answer
        pad = {"prod": 1, "min": 9, "all": 1, "and": -1}.get(op, 0)
        x = torch.cat([x[:1], torch.full((3 * copies,), pad, device=device, dtype=x.dtype), x[1:]])
    out = torch.full((), old, dtype=dtype, device=device)
    got = reduce(x, op, out=out, accumulate=True)
    assert got.data_ptr() == out.data_ptr() and out.item() == want


def test_accumulate_over_several_tiles_of_one_long_row_equals_one_reduction(device):
    x = torch.randint(-50, 50, (3, 999), device=device).float()
    for op in ("sum", "max", "abs_max", "sum_sq"):
        out = reduce(x[:, :400], op, 1)
        reduce(x[:, 400:777], op, 1, out=out, accumulate=True)
        reduce(x[:, 777:], op, 1, out=out, accumulate=True)
        check(out, x, op, 1)


def test_accumulate_keeps_a_nan_that_is_already_there(device):
    out = torch.tensor([nan, 1.0], device=device)
    assert reduce(torch.ones(2, 5, device=device), "max", 1, out=out, accumulate=True).isnan().tolist() == [True, False]


def test_accumulate_over_an_empty_axis_keeps_the_old_value(device):
    out = torch.tensor([3.0, 4.0], device=device)
    assert reduce(torch.ones(2, 0, device=device), "sum", 1, out=out, accumulate=True).tolist() == [3.0, 4.0]


def test_accumulate_into_a_sixteen_bit_out_rounds_once(device):
    """2049 does not fit in float16: rounded to it before the old 1 is added, the answer would be 2048."""
    x, out = torch.ones(2049, device=device, dtype=torch.float16), torch.ones((), device=device, dtype=torch.float16)
    assert float(reduce(x, "sum", out=out, accumulate=True)) == 2050.0


def test_accumulate_without_out_is_an_error_that_says_out(device):
    with pytest.raises((RuntimeError, ValueError, TypeError), match="out"):
        reduce(torch.ones(3, device=device), "sum", accumulate=True)


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("split", [None, 1, 2, 4])
def test_a_seed_enters_exactly_once_whatever_the_split(op, split, device):
    x, seed, want, dtype = exact_case(op, device)
    pad = {"prod": 1, "min": 9, "all": 1, "and": -1}.get(op, 0)
    row = torch.cat([x, torch.full((65533,), pad, device=device, dtype=x.dtype)])
    rows = torch.stack([row, row.flip(0)])
    if split is None:
        got = reduce(rows, op, 1, initial=seed)
    else:
        with tri_reduce.force(split=split):
            got = reduce(rows, op, 1, initial=seed)
    assert got.tolist() == [want] * 2 and got.dtype is dtype


def test_a_seed_and_an_old_value_both_count_once(device):
    out = torch.tensor([100.0, 200.0], device=device)
    assert reduce(torch.ones(2, 3001, device=device), "sum", 1, initial=5, out=out, accumulate=True).tolist() == [3106.0, 3206.0]


def test_a_seed_of_an_empty_sum_is_the_answer(device):
    for op, seed in (("sum", 5.0), ("prod", 3.0), ("logsumexp", 2.0), ("count_nonzero", 4), ("abs_sum", 1.0)):
        assert reduce(torch.zeros(2, 0, device=device), op, 1, initial=seed).tolist() == [seed] * 2


def test_a_seed_joins_logsumexp_as_one_more_term(device):
    got = reduce(torch.zeros(3, 3, device=device), "logsumexp", 1, initial=0.0)
    four_terms = torch.finfo(torch.float32).eps * (4 * math.log2(4) + 4 + math.log(4.0))  # see bounds: depth, exp and log, the last add
    assert float((got.cpu().double() - math.log(4.0)).abs().max()) <= four_terms


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(4, 33), (1, 33), (4, 1), (33,), (1,), ()], ids=str)
def test_a_mask_broadcasts_and_agrees_with_the_oracle(op, shape, device):
    g = torch.Generator().manual_seed(len(shape))
    x = torch.randint(-3, 4, (4, 33), generator=g).to(device).to(torch.int32 if op in BITWISE else torch.float32)
    mask = (torch.rand(shape, generator=g) < 0.6).to(device)
    for dim in (1, 0):
        check(reduce(x, op, dim, where=mask), x, op, dim, where=mask)
    check(reduce(x, op, where=mask), x, op, None, where=mask)


@pytest.mark.parametrize("op", [op for op in OPS if op not in BITWISE])
def test_a_masked_nan_or_infinity_does_not_leak(op, device):
    x = torch.ones(4, 1030, device=device)
    x[0, 5], x[1, 1029], x[2, 0] = nan, inf, -inf
    got = reduce(x, op, 1, where=torch.isfinite(x))
    check(got, x, op, 1, where=torch.isfinite(x))
    assert not bool(got.isnan().any())


@pytest.mark.parametrize("op", OPS)
def test_a_fully_masked_output_is_the_identity(op, device):
    x = torch.full((2, 700), 3, device=device).to(torch.int32 if op in BITWISE else torch.float32)
    mask = torch.tensor([[True], [False]], device=device)
    check(reduce(x, op, 1, where=mask), x, op, 1, where=mask)


def test_a_fully_masked_extreme_is_the_seed_or_the_lowest_of_the_dtype(device):
    none = torch.zeros(1, 5, dtype=torch.bool, device=device)
    for dtype in (torch.int8, torch.uint8, torch.int64):
        x, info = torch.ones(2, 5, dtype=dtype, device=device), torch.iinfo(dtype)
        assert reduce(x, "max", 1, where=none).tolist() == [info.min] * 2 and reduce(x, "min", 1, where=none).tolist() == [info.max] * 2
        assert reduce(x, "max", 1, where=none, initial=7).tolist() == [7] * 2
    x = torch.ones(2, 5, device=device)
    assert reduce(x, "max", 1, where=none).tolist() == [-inf] * 2 and reduce(x, "min", 1, where=none).tolist() == [inf] * 2
    assert reduce(x, "argmax", 1, where=none).tolist() == [0, 0] and reduce(x, "argmin", where=none).item() == 0


def test_a_masked_arg_reduction_skips_masked_equals_and_extremes(device):
    x = torch.tensor([[-inf, -inf, -inf], [9.0, 5.0, 5.0], [nan, 1.0, 2.0]], device=device)
    mask = torch.tensor([[False, True, True], [False, True, True], [False, True, True]], device=device)
    assert reduce(x, "argmax", 1, where=mask).tolist() == [1, 1, 2]


def test_a_mask_that_is_not_bool_or_does_not_broadcast_is_an_error(device):
    x = torch.ones(4, 5, device=device)
    with pytest.raises((TypeError, ValueError, RuntimeError), match="where"):
        reduce(x, "sum", 1, where=torch.ones(4, 5, device=device))
    for shape in ((3, 5), (4,), (2, 4, 5)):
        with pytest.raises((ValueError, RuntimeError), match=rf"(?s){shape[0]}.*5|broadcast|where"):
            reduce(x, "sum", 1, where=torch.ones(shape, dtype=torch.bool, device=device))
