"""What `reduce` promises about names, dims, dtypes, shapes and errors: one behaviour a test."""

import itertools

import pytest
import torch
from bounds import check
from oracle import ACCUMULATING, BITWISE, DTYPES, FLOATS, INTS, NEED_FLOAT, OPS, SEEDED, result_dtype

import tri_reduce

ERRORS = (RuntimeError, ValueError, TypeError, IndexError)
SHORTCUTS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min", "mean": "mean", "any": "any", "all": "all"}
SHORTCUTS |= {op: op for op in ("argmax", "argmin", "var", "std", "logsumexp", "norm", "count_nonzero")}
NOT_BITWISE = [op for op in OPS if op not in BITWISE]


def ramp(shape, device, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return (torch.arange(n, device=device) * 37 % 11 - 4).reshape(shape).to(dtype)


@pytest.mark.parametrize("op", NOT_BITWISE)
@pytest.mark.parametrize("keepdim", [False, True])
def test_every_op_agrees_over_one_dim(op, keepdim, device):
    x = ramp((5, 19), device)
    check(tri_reduce.reduce(x, op, 1, keepdim), x, op, 1, keepdim)


@pytest.mark.parametrize("op", BITWISE)
def test_bitwise_ops_agree_on_ints_and_bools(op, device):
    for dtype in (torch.bool, *INTS):
        x = ramp((3, 21), device, torch.int64).abs().to(dtype)
        check(tri_reduce.reduce(x, op, 1), x, op, 1)


@pytest.mark.parametrize("op", BITWISE)
def test_bitwise_ops_of_floats_are_a_type_error_naming_op_and_dtype(op, device):
    with pytest.raises(TypeError, match=rf"(?s){op}.*float32|float32.*{op}"):
        tri_reduce.reduce(torch.ones(4, device=device), op)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_result_dtype_is_the_documented_one(op, dtype, device):
    x = torch.ones(2, 3, device=device).to(dtype)
    if (op in BITWISE and dtype in FLOATS) or (op in NEED_FLOAT and dtype not in FLOATS):
        with pytest.raises(TypeError):
            tri_reduce.reduce(x, op, 1)
    else:
        assert tri_reduce.reduce(x, op, 1).dtype is result_dtype(op, dtype)


def test_an_unknown_op_is_a_value_error_that_lists_the_known_ones(device):
    with pytest.raises(ValueError) as e:
        tri_reduce.reduce(torch.ones(3, device=device), "summ")
    assert all(op in str(e.value) for op in OPS) and "summ" in str(e.value)


@pytest.mark.parametrize("op", ["SUM", "Max", "ArgMax"])
def test_op_names_are_case_sensitive(op, device):
    with pytest.raises(ValueError, match=op):
        tri_reduce.reduce(torch.ones(3, device=device), op)


@pytest.mark.parametrize("op", OPS)
def test_complex_input_is_a_type_error_that_names_the_dtype(op, device):
    with pytest.raises(TypeError, match="complex64"):
        tri_reduce.reduce(torch.ones(3, dtype=torch.complex64, device=device), op)


@pytest.mark.parametrize("shortcut, op", SHORTCUTS.items())
def test_a_shortcut_is_reduce_with_its_op(shortcut, op, device):
    x = ramp((4, 9), device)
    got, want = getattr(tri_reduce, shortcut)(x, dim=1, keepdim=op != "count_nonzero"), tri_reduce.reduce(x, op, 1, op != "count_nonzero")
    assert torch.equal(got, want)


def test_shortcuts_take_torchs_other_spellings(device):
    x = ramp((4, 9), device)
    check(tri_reduce.norm(x, 1, 1), x, "norm", 1, ord=1)
    check(tri_reduce.norm(x, p=3, dim=0), x, "norm", 0, ord=3)
    check(tri_reduce.var(x, 1, unbiased=False), x, "var", 1, correction=0)
    check(tri_reduce.std(x, False), x, "std", None, correction=0)
    check(tri_reduce.var(x, dim=0, correction=2), x, "var", 0, correction=2)
    check(tri_reduce.sum(x, (0, 1), True), x, "sum", (0, 1), True)
    check(tri_reduce.sum(x, dtype=torch.float64), x, "sum", dtype=torch.float64)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dim", [(), []], ids=["tuple", "list"])
def test_an_empty_dim_tuple_or_list_reduces_everything(op, dim, device):
    if op in ("argmax", "argmin"):
        pytest.skip("argmax and argmin take no tuple")
    x = ramp((3, 4), device, torch.int32 if op in BITWISE else torch.float32)
    check(tri_reduce.reduce(x, op, dim), x, op, None)
    check(tri_reduce.reduce(x, op, dim, True), x, op, None, True)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_arg_reductions_refuse_a_tuple_of_dims(op, device):
    for dim in ((0,), (0, 1), [1]):
        with pytest.raises(TypeError, match=op):
            tri_reduce.reduce(torch.ones(2, 3, device=device), op, dim)


@pytest.mark.parametrize("dim", [d for n in (1, 2, 3) for d in itertools.combinations((0, 1, 2, -1), n) if not {2, -1} <= set(d)], ids=str)
def test_any_combination_of_dims_agrees_and_their_order_is_free(dim, device):
    x = ramp((3, 5, 7), device)
    for d in (dim, dim[::-1], list(dim)):
        check(tri_reduce.reduce(x, "sum", d), x, "sum", dim)
        check(tri_reduce.reduce(x, "max", d, True), x, "max", dim, True)


@pytest.mark.parametrize("dim", [(0, 0), (1, -1), [0, 1, 0]], ids=str)
def test_a_repeated_dim_is_an_error(dim, device):
    for op in ("sum", "max", "var", "logsumexp"):
        with pytest.raises((RuntimeError, ValueError), match=r"(?i)dim"):
            tri_reduce.reduce(torch.ones(2, 3, device=device), op, dim)


@pytest.mark.parametrize("op", OPS)
def test_an_out_of_range_dim_is_an_index_error_that_names_it(op, device):
    x = torch.ones(2, 3, device=device, dtype=torch.int32 if op in BITWISE else torch.float32)
    for dim in (2, -3, 17):
        with pytest.raises(IndexError, match=str(dim)):
            tri_reduce.reduce(x, op, dim)


@pytest.mark.parametrize("op", NOT_BITWISE)
def test_a_zero_dim_tensor_reduces_over_none_0_and_minus_1_to_zero_dims(op, device):
    x = torch.tensor(5.0, device=device)
    for dim, keepdim in itertools.product((None, 0, -1), (False, True)):
        got = tri_reduce.reduce(x, op, dim, keepdim)
        check(got, x, op, None)
        assert got.shape == ()
    for dim in (1, -2):
        with pytest.raises(IndexError):
            tri_reduce.reduce(x, op, dim)


EMPTY_IDENTITY = {"sum": 0, "prod": 1, "any": False, "all": True, "norm": 0, "count_nonzero": 0, "abs_sum": 0, "sum_sq": 0}


@pytest.mark.parametrize("op, identity", EMPTY_IDENTITY.items())
@pytest.mark.parametrize("shape, dim", [((0,), 0), ((3, 0), 1), ((3, 0, 2), (1, 2)), ((0, 4), None)], ids=str)
def test_an_empty_axis_gives_the_identity(op, identity, shape, dim, device):
    got = tri_reduce.reduce(torch.zeros(shape, device=device), op, dim)
    assert got.shape == torch.zeros(shape).sum(dim).shape and bool((got == identity).all()) and got.dtype is result_dtype(op, torch.float32)


@pytest.mark.parametrize("op, identity", [("and", -1), ("or", 0), ("xor", 0)])
def test_an_empty_axis_gives_the_bitwise_identity(op, identity, device):
    got = tri_reduce.reduce(torch.zeros(3, 0, dtype=torch.int16, device=device), op, 1)
    assert got.tolist() == [identity] * 3 and got.dtype is torch.int16


@pytest.mark.parametrize("op", ["mean", "var", "std"])
def test_mean_and_var_over_an_empty_axis_are_nan(op, device):
    assert tri_reduce.reduce(torch.zeros(2, 0, device=device), op, 1).isnan().tolist() == [True, True]
    assert bool(tri_reduce.reduce(torch.zeros(0, device=device), op).isnan())


def test_logsumexp_over_an_empty_axis_is_minus_infinity(device):
    assert tri_reduce.reduce(torch.zeros(2, 0, device=device), "logsumexp", 1).tolist() == [-float("inf")] * 2


@pytest.mark.parametrize("op", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("shape, dim", [((0,), 0), ((3, 0), 1), ((3, 0), None), ((0, 0), 1), ((0,), None)], ids=str)
def test_an_extreme_of_an_empty_axis_is_an_error_naming_the_op(op, shape, dim, device):
    with pytest.raises((IndexError, ValueError, RuntimeError), match=rf"\b{op}\b"):
        tri_reduce.reduce(torch.zeros(shape, device=device), op, dim)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_an_empty_dim_that_is_kept_is_no_error(op, keepdim, device):
    x = torch.zeros(3, 0, 4, device=device, dtype=torch.int32 if op in BITWISE else torch.float32)
    got = tri_reduce.reduce(x, op, -1, keepdim)
    assert got.shape == ((3, 0, 1) if keepdim else (3, 0)) and got.dtype is result_dtype(op, x.dtype)


@pytest.mark.parametrize("op", NEED_FLOAT)
@pytest.mark.parametrize("dtype", [torch.bool, *INTS], ids=str)
def test_mean_var_std_norm_of_ints_need_a_float_dtype(op, dtype, device):
    x = ramp((3, 7), device).abs().to(dtype)
    with pytest.raises(TypeError, match=op):
        tri_reduce.reduce(x, op, 1)
    check(tri_reduce.reduce(x, op, 1, dtype=torch.float32), x, op, 1, dtype=torch.float32)


def test_logsumexp_of_ints_is_float32(device):
    for dtype in (torch.bool, *INTS):
        x = ramp((3, 7), device).abs().to(dtype)
        check(tri_reduce.reduce(x, "logsumexp", 1), x, "logsumexp", 1, out_dtype=torch.float32, dtype=torch.float32)


def test_dtype_converts_before_it_accumulates(device):
    x = torch.full((3, 300), 200, dtype=torch.uint8, device=device)
    assert tri_reduce.sum(x, 1, dtype=torch.int16).tolist() == [(60000 + 2**15) % 2**16 - 2**15] * 3
    assert tri_reduce.sum(x, 1, dtype=torch.float32).tolist() == [60000.0] * 3
    big = torch.full((3,), 60000.0, dtype=torch.float16, device=device)
    assert float(tri_reduce.sum(big, dtype=torch.float32)) == 3 * float(big[0])
    assert tri_reduce.mean(x, 1, dtype=torch.float64).tolist() == [200.0] * 3


@pytest.mark.parametrize("op", [op for op in OPS if op not in SEEDED])
def test_a_seed_where_it_has_no_meaning_is_a_value_error(op, device):
    with pytest.raises(ValueError, match="initial"):
        tri_reduce.reduce(torch.ones(3, device=device), op, initial=1.0)


@pytest.mark.parametrize("op", [op for op in OPS if op not in ACCUMULATING])
def test_accumulate_where_the_result_is_not_the_state_is_an_error(op, device):
    x = torch.ones(3, device=device)
    with pytest.raises(ERRORS, match="accumulate"):
        tri_reduce.reduce(x, op, out=torch.zeros((), device=device, dtype=result_dtype(op, x.dtype)), accumulate=True)


def test_reduce_many_gives_what_the_single_reductions_give(device):
    x = ramp((4, 5, 33), device)
    ops = ["sum", "max", "min", "mean", "count_nonzero", "abs_max", "sum_sq"]
    for dim, keepdim in ((-1, False), (0, True), ((0, 2), False), (None, False)):
        got = tri_reduce.reduce_many(x, ops, dim, keepdim)
        assert isinstance(got, tuple) and len(got) == len(ops)
        for op, y in zip(ops, got):
            check(y, x, op, dim, keepdim)
