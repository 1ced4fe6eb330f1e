"""What the values are where they are easily wrong: NaN, infinities, ties, padding, long sums, wide ints."""

import math

import pytest
import torch
from bounds import bound, check
from oracle import FLOATS, INTS

import tri_reduce

reduce = tri_reduce.reduce
nan, inf = math.nan, math.inf
LENGTHS = (1, 2, 3, 5, 8, 15, 17, 20, 31, 33, 63, 65, 127, 129, 1000, 1025, 4097)  # around every tile edge
NEGATIVE_NANS = {torch.float16: (torch.int16, -512), torch.bfloat16: (torch.int16, -64), torch.float32: (torch.int32, -4194304)}
NEGATIVE_NANS[torch.float64] = (torch.int64, -2251799813685248)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["max", "min", "sum", "mean", "prod", "var", "std", "logsumexp", "norm", "abs_max", "abs_sum", "sum_sq"])
def test_one_nan_of_either_sign_anywhere_makes_the_row_nan(op, dtype, device):
    bits, pattern = NEGATIVE_NANS[dtype]
    x = torch.ones(6, 1025, device=device, dtype=dtype)
    for row, at in enumerate((0, 1, 511, 1023, 1024)):
        x[row].view(bits)[at] = pattern if row % 2 else pattern & torch.iinfo(bits).max
    assert reduce(x, op, 1).isnan().tolist() == [True] * 5 + [False]
    assert bool(reduce(x, op).isnan())


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_the_first_nan_wins_over_every_number_and_infinity(op, device):
    x = torch.linspace(-3, 3, 2050, device=device).repeat(3, 1)
    x[0, [700, 1999]] = nan
    x[1, 0], x[1, 1] = inf, -inf
    x[1, 2049] = nan
    x[2, 5] = inf if op == "argmax" else -inf
    assert reduce(x, op, 1).tolist() == [700, 2049, 5]


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS], ids=str)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_equal_extremes_give_the_first_index_across_tile_borders(op, dtype, device):
    x = torch.full((3, 4100), 2, device=device, dtype=dtype)
    best = 3 if op == "argmax" else 1
    x[0, [7, 1024, 4099]] = best
    x[1, [2047, 2048]] = best
    assert reduce(x, op, 1).tolist() == [7, 2047, 0]
    assert reduce(x.t().contiguous(), op, 0).tolist() == [7, 2047, 0]


def test_equal_extremes_give_the_first_flat_index(device):
    x = torch.zeros(70001, device=device)
    x[[5, 40000, 70000]] = 1.0
    assert int(reduce(x, "argmax")) == 5 and int(reduce(-x, "argmin")) == 5


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x.t().contiguous().t(), lambda x: x[::2, 1:], lambda x: x.flip(0)])
def test_arg_reductions_without_dim_count_in_logical_order_whatever_the_strides(view, device):
    x = view(((torch.arange(63, device=device) * 29) % 61).float().reshape(7, 9))
    check(reduce(x, "argmax"), x, "argmax")
    check(reduce(x, "argmin"), x, "argmin")


@pytest.mark.parametrize("n", LENGTHS)
def test_padding_never_wins_an_extreme_nor_adds_to_a_moment(n, device):
    """Rows far from zero: a padded lane read as 0 would be the minimum (or maximum) and would pull mean and var."""
    x = 100 + (torch.arange(3 * n, device=device) * 37 % 101).float().reshape(3, n)
    for op in ("min", "argmin", "var", "std", "mean", "prod", "logsumexp", "all"):
        y = x / 101 if op == "prod" else x
        check(reduce(y, op, 1), y, op, 1)
    for op in ("max", "argmax", "abs_max", "any", "logsumexp"):
        check(reduce(-x, op, 1), -x, op, 1)


def test_padding_in_kept_columns_does_not_leak(device):
    for k in (1, 3, 17, 65):
        x = -100 - torch.arange(9 * k, device=device).float().reshape(9, k)
        for op in ("max", "argmax", "var"):
            check(reduce(x, op, 0), x, op, 0)


def test_logsumexp_of_infinities_and_huge_values_has_no_nan(device):
    x = torch.tensor([[-inf] * 5, [inf, 0, 0, 0, 0], [-inf, 0, -inf, 0, -inf], [-1e4] * 5, [3e38] * 5, [inf, -inf, 0, 1, 2]], device=device)
    got = reduce(x, "logsumexp", 1)
    assert got[[0, 1, 5]].tolist() == [-inf, inf, inf]
    check(got, x, "logsumexp", 1)


def test_logsumexp_with_whole_tiles_of_minus_infinity_counts_the_rest(device):
    x = torch.full((3, 5000), -inf, device=device)
    x[0, 4999] = 2.0
    x[1, 0] = 3.0
    assert reduce(x, "logsumexp", 1).tolist() == [2.0, 3.0, -inf]
    assert reduce(x.t().contiguous(), "logsumexp", 0).tolist() == [2.0, 3.0, -inf]


@pytest.mark.parametrize("op", ["var", "std"])
@pytest.mark.parametrize("shape, dim", [((3, 4099), 1), ((4099, 3), 0), ((4, 11, 97), (0, 2))], ids=str)
def test_var_of_1e8_plus_noise_keeps_six_digits_in_float32(op, shape, dim, device):
    g = torch.Generator().manual_seed(1)
    x = (1e8 + 1000 * torch.randn(shape, generator=g)).to(device)
    want = getattr(x.cpu().double(), op)(dim)
    assert float(((reduce(x, op, dim).cpu().double() - want).abs() / want).max()) <= 1e-6


def test_var_is_infinite_where_its_squares_are_and_never_nan(device):
    for length in (3, 100, 1030):
        x = torch.linspace(-1, 1, 3 * length, device=device).view(3, length)
        x[:, length // 2] = 1e30
        mask = torch.arange(length, device=device).expand(3, length) % 3 != 1
        mask = mask | (x == 1e30)
        assert reduce(x, "var", 1).tolist() == [inf] * 3 == reduce(x.T.contiguous(), "var", 0).tolist()
        assert reduce(x, "var", 1, where=mask).tolist() == [inf] * 3
        assert reduce(x, "var").item() == inf
        reducer = tri_reduce.Reducer("var", (3,), torch.float32, device=device)
        for part in (x[:, :1], x[:, 1:]):
            reducer.update(part, 1)
        assert reducer.finalize().tolist() == [inf] * 3


def test_var_divides_by_the_count_minus_the_correction(device):
    x = torch.tensor([[1.0, 3.0, 8.0]], device=device)
    for correction in (0, 1, 2, 0.5):
        check(reduce(x, "var", 1, correction=correction), x, "var", 1, correction=correction)
    assert reduce(x, "var", 1, correction=3).tolist() == [inf]
    assert reduce(x[:, :1], "var", 1).isnan().tolist() == [True]
    assert reduce(x[:, :1], "var", 1, correction=0).tolist() == [0.0]


@pytest.mark.parametrize("op, dim", [("sum", 0), ("mean", 0), ("sum", None), ("sum", 1)], ids=str)
def test_a_long_sum_over_any_axis_stays_within_a_trees_bound(op, dim, device):
    """A serial float32 chain over 2**17 equal terms misses this by far."""
    x = torch.full((1 << 17, 3) if dim != 1 else (3, 1 << 17), 0.3, device=device)
    want = getattr(x.cpu().double(), op)(*([] if dim is None else [dim]))
    assert bool(((reduce(x, op, dim).cpu().double() - want).abs() <= bound(x, dim, torch.float32, op)).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bit_floats_accumulate_in_float32(dtype, device):
    ones = torch.ones(70001, device=device, dtype=dtype)
    mean = reduce(ones, "mean")
    assert mean.dtype is dtype and float(mean) == 1.0
    assert float(reduce(ones * 32768, "mean")) == 32768.0
    assert float(reduce(ones, "sum", dtype=torch.float32)) == 70001.0
    assert float(reduce(ones * 16, "var")) == 0.0
    small = torch.full((4, 4096), 0.01, device=device, dtype=dtype)
    check(reduce(small, "sum", 1), small, "sum", 1)
    check(reduce(small.t().contiguous(), "sum", 0), small, "sum", 1)


def test_cancellation_in_float16_is_exact_where_float32_is(device):
    x = torch.full((2, 2048), 60000.0, dtype=torch.float16, device=device)
    x[:, 1::2] = -60000
    x[1, -1] = -59968
    assert reduce(x, "sum", 1).tolist() == [0.0, 32.0]


def test_int64_is_exact_to_the_last_bit(device):
    x = torch.tensor([2**53 + 1, 0, 2**62, 2**62 + 1, -(2**62) - 1], device=device)
    assert int(reduce(x[:2], "sum")) == 2**53 + 1
    assert int(reduce(x, "max")) == 2**62 + 1 and int(reduce(x, "argmax")) == 3
    assert int(reduce(x, "min")) == -(2**62) - 1 and int(reduce(x, "argmin")) == 4
    assert int(reduce(x[:2], "abs_sum")) == 2**53 + 1
    assert int(reduce(torch.tensor([3**33, 3, 1], device=device), "prod")) == 3**34
    assert int(reduce(x, "xor")) == (2**53 + 1) ^ (2**62) ^ (2**62 + 1) ^ (-(2**62) - 1)


def test_int_extremes_of_the_dtype_itself_are_found(device):
    for dtype in INTS:
        info = torch.iinfo(dtype)
        low, high = torch.full((2, 9), info.min, dtype=dtype, device=device), torch.full((2, 9), info.max, dtype=dtype, device=device)
        assert reduce(low, "max", 1).tolist() == [info.min] * 2 and reduce(high, "min", 1).tolist() == [info.max] * 2
        assert reduce(low, "argmax", 1).tolist() == [0, 0] and reduce(high, "argmin", 1).tolist() == [0, 0]


def test_sums_of_small_ints_do_not_wrap_in_their_own_dtype(device):
    for dtype in (torch.bool, *INTS):
        x = torch.ones(3, 40000, dtype=dtype, device=device) * (1 if dtype is torch.bool else 100)
        assert reduce(x, "sum", 1).tolist() == [40000 * int(x[0, 0])] * 3
    x = torch.full((300,), -128, dtype=torch.int8, device=device)
    assert int(reduce(x, "abs_sum")) == 300 * 128 and int(reduce(x, "sum_sq")) == 300 * 16384


def test_truth_is_tested_before_any_narrowing(device):
    for values, dtype in (([512, 1024, 2**40], torch.int64), ([256, 65536], torch.int32), ([0.5, 1e-30, nan, inf], torch.float32)):
        x = torch.tensor(values, dtype=dtype, device=device)
        assert bool(reduce(x, "all")) and bool(reduce(x, "any")) and int(reduce(x, "count_nonzero")) == len(values)
    zeros = torch.tensor([0.0, -0.0], device=device)
    assert not bool(reduce(zeros, "any")) and int(reduce(zeros, "count_nonzero")) == 0
    assert bool(reduce(torch.tensor([1e-8], dtype=torch.float64, device=device).to(torch.float16) + 6e-8, "any"))  # a subnormal


def test_any_and_all_of_uint8_are_uint8_zero_or_one(device):
    x = torch.tensor([[3, 242, 0], [7, 128, 255], [0, 0, 0]], dtype=torch.uint8, device=device)
    for op, want in (("any", [1, 1, 0]), ("all", [0, 1, 0])):
        got = reduce(x, op, 1)
        assert got.dtype is torch.uint8 and got.tolist() == want


@pytest.mark.parametrize("p", [0, 1, 2, inf, -inf, 3, 0.5, -1, 1.5])
def test_norm_takes_every_ord(p, device):
    x = torch.tensor([[3.0, -4.0, 0.0, 1.0], [1.0, 2.0, -2.0, 4.0]], device=device)
    check(reduce(x, "norm", 1, ord=p), x, "norm", 1, ord=p)


@pytest.mark.parametrize("op", ["max", "min", "sum", "prod"])
def test_infinities_follow_ieee(op, device):
    x = torch.tensor([[inf, 1, 2], [-inf, 1, 2], [inf, -inf, 0], [inf, 0, 1]], device=device)
    check(reduce(x, op, 1), x, op, 1)


@pytest.mark.parametrize("op", ["var", "std"])
def test_a_masked_first_value_far_from_all_others_costs_no_accuracy(op, device):
    x = torch.linspace(-1, 1, 301, device=device).repeat(2, 1)
    x[:, 0] = 1e30
    want = getattr(torch, op)(x[:, 1:].cpu().double(), 1)
    got = tri_reduce.reduce(x, op, 1, where=x < 2)
    assert torch.allclose(got.cpu().double(), want, rtol=1e-6)
