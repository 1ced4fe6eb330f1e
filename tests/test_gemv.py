"""What `gemv` promises: one behaviour a test."""

import math

import pytest
import torch
from gemv_oracle import GEMV_FLOATS, check_gemv

import tri_reduce

gemv = tri_reduce.gemv
nan, inf = math.nan, math.inf
DTYPES = (*GEMV_FLOATS, torch.int8)
BATCHES = (((), (3,)), ((3,), ()), ((3,), (3,)), ((2, 1), (3,)), ((1,), (4,)), ((2, 3), (2, 3)))


def matrix(device, *shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return (torch.arange(n, device=device) * 37 % 19 - 9).reshape(shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (1, 300), (300, 1), (17, 129), (64, 64), (33, 1025)], ids=str)
@pytest.mark.parametrize("trans", [False, True])
def test_the_product_agrees_for_every_dtype_shape_and_side(dtype, shape, trans, device):
    a = matrix(device, *shape, dtype=dtype)
    x = matrix(device, shape[0 if trans else 1], dtype=dtype)
    check_gemv(gemv(a, x, trans=trans), a, x, trans=trans)
    column_major = a.t().contiguous().t()
    check_gemv(gemv(column_major, x, trans=trans), a, x, trans=trans)


@pytest.mark.parametrize("alpha, beta", [(1, 1), (2, 0), (-1, 3), (0, 1), (0, 0), (0.5, -0.25)])
def test_alpha_and_beta_scale_the_product_and_y(alpha, beta, device):
    a, x, y = matrix(device, 9, 37), matrix(device, 37), matrix(device, 9)
    check_gemv(gemv(a, x, alpha=alpha, beta=beta, y=y), a, x, alpha=alpha, beta=beta, y=y)
    assert torch.equal(y, matrix(device, 9))


def test_int8_gives_int32_without_wrapping(device):
    a = torch.full((3, 5000), -128, dtype=torch.int8, device=device)
    x = torch.full((5000,), 127, dtype=torch.int8, device=device)
    got = gemv(a, x)
    assert got.dtype is torch.int32 and got.tolist() == [-128 * 127 * 5000] * 3
    y = torch.tensor([1, 2, 3], dtype=torch.int32, device=device)
    check_gemv(gemv(a, x, alpha=2, beta=3, y=y), a, x, alpha=2, beta=3, y=y)


@pytest.mark.parametrize("trans", [False, True])
def test_beta_zero_reads_neither_y_nor_out(trans, device):
    for m, k in ((2, 3), (3, 4097)):
        a, x = torch.ones((k, m) if trans else (m, k), device=device), torch.ones(k, device=device)
        for garbage in (nan, inf, -inf):
            y, out = torch.full((m,), garbage, device=device), torch.full((m,), garbage, device=device)
            assert gemv(a, x, beta=0, y=y, trans=trans).tolist() == [k] * m
            assert gemv(a, x, out=out, trans=trans).tolist() == [k] * m
            assert gemv(a, x, beta=0, y=out.fill_(nan), out=out, alpha=2, trans=trans).tolist() == [2 * k] * m


def test_k_zero_gives_beta_y_or_zeros(device):
    a, x, y = torch.ones(3, 0, device=device), torch.ones(0, device=device), torch.tensor([1.0, 2, 3], device=device)
    assert gemv(a, x).tolist() == [0.0] * 3
    assert gemv(a, x, beta=2, y=y).tolist() == [2.0, 4.0, 6.0]
    assert gemv(a, x, beta=0, y=torch.full((3,), nan, device=device)).tolist() == [0.0] * 3
    assert gemv(a.t(), x, trans=True).tolist() == [0.0] * 3
    assert gemv(a, x, out=torch.full((3,), nan, device=device)).tolist() == [0.0] * 3


def test_m_zero_and_empty_batches_give_empty_results(device):
    w = torch.ones(4, 64, device=device)
    assert gemv(w, w[0]).shape == (4,)
    assert gemv(w[:0], w[0]).shape == (0,)
    assert gemv(w[:0], w[:0, 0], trans=True).tolist() == [0.0] * 64
    assert gemv(torch.ones(0, 4, 64, device=device), w[0]).shape == (0, 4)


@pytest.mark.parametrize("batch_a, batch_x", BATCHES, ids=str)
@pytest.mark.parametrize("trans", [False, True])
def test_batches_broadcast(batch_a, batch_x, trans, device):
    a, x = matrix(device, *batch_a, 5, 6), matrix(device, *batch_x, 5 if trans else 6)
    check_gemv(gemv(a, x, trans=trans), a, x, trans=trans)
    y = matrix(device, *torch.broadcast_shapes(batch_a, batch_x), 6 if trans else 5)
    check_gemv(gemv(a, x, trans=trans, beta=2, y=y), a, x, trans=trans, beta=2, y=y)


def test_a_matrix_without_a_unit_stride_is_read_as_it_lies(device):
    a = matrix(device, 5, 6, 2)[:, ::2, 1]
    x, z = matrix(device, 9)[::3], matrix(device, 10)[::2]
    check_gemv(gemv(a, x), a, x)
    check_gemv(gemv(a, z, trans=True), a, z, trans=True)
    check_gemv(gemv(a.t(), z), a.t(), z)
    wide = matrix(device, 40, 3 * 1031)[1::3, 2::3]
    check_gemv(gemv(wide, wide[5]), wide, wide[5])
    check_gemv(gemv(wide, wide[:, 7], trans=True), wide, wide[:, 7], trans=True)


def test_an_expanded_matrix_or_vector_counts_every_repetition(device):
    a, x = matrix(device, 1, 65).expand(4, 65), matrix(device, 1).expand(65)
    check_gemv(gemv(a, x), a, x)
    check_gemv(gemv(matrix(device, 4, 1).expand(4, 65), matrix(device, 65)), matrix(device, 4, 1).expand(4, 65), matrix(device, 65))


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5, 8])
def test_rows_at_any_alignment_and_odd_strides_agree(offset, device):
    base = matrix(device, 9 * 261 + offset, dtype=torch.bfloat16)
    a = base[offset : offset + 9 * 261].view(9, 261)
    for b in (a, a[:, 1:], a[:, :259]):
        x = base[offset : offset + b.shape[1]]
        check_gemv(gemv(b, x), b, x)


def test_out_may_be_strided_and_its_neighbours_stay(device):
    a, x = matrix(device, 5, 6), matrix(device, 6)
    buf = torch.full((5, 3), -1.0, device=device)
    got = gemv(a, x, out=buf[:, 1])
    assert got.data_ptr() == buf[:, 1].data_ptr()
    check_gemv(buf[:, 1], a, x)
    assert bool((buf[:, ::2] == -1).all())


def test_out_may_be_y_or_a_part_of_the_operands(device):
    a, x, y = matrix(device, 67, 301), matrix(device, 301), matrix(device, 67)
    want = gemv(a, x, beta=1, y=y)
    assert torch.equal(gemv(a, x, beta=1, y=y, out=y), want) and torch.equal(y, want)
    square, v = matrix(device, 129, 129), matrix(device, 129)
    want = gemv(square, v)
    assert torch.equal(gemv(square, v, out=v), want)
    v, square2 = matrix(device, 129), square.clone()
    assert torch.equal(gemv(square2, v, out=square2[3]), want)


def test_sixteen_bit_floats_accumulate_in_float32(device):
    a = torch.full((2, 2048), 200.0, dtype=torch.float16, device=device)
    a[:, 1024:] = -200.0
    a[1, -1] = -199.0
    x = torch.full((2048,), 200.0, dtype=torch.float16, device=device)
    assert gemv(a, x).tolist() == [0.0, 200.0]
    assert gemv(a.t().contiguous(), x, trans=True).tolist() == [0.0, 200.0]


def test_nan_and_infinity_reach_only_their_own_rows(device):
    a, x = torch.ones(4, 700, device=device), torch.ones(700, device=device)
    a[0, 699], a[1, 0], a[2, 5], a[2, 6] = nan, inf, inf, -inf
    got = gemv(a, x).tolist()
    assert math.isnan(got[0]) and got[1] == inf and math.isnan(got[2]) and got[3] == 700.0


@pytest.mark.parametrize("a, x, trans", [((3, 4), (5,), False), ((3, 4), (4,), True), ((2, 3, 4), (5, 4), False)], ids=str)
def test_mismatched_shapes_are_an_error_naming_both(a, x, trans, device):
    with pytest.raises((RuntimeError, ValueError)) as e:
        gemv(torch.ones(a, device=device), torch.ones(x, device=device), trans=trans)
    message = str(e.value).replace("[", "(").replace("]", ")").replace(",)", ")")
    assert str(a).replace(",)", ")") in message and str(x).replace(",)", ")") in message


def test_too_few_dims_are_an_error(device):
    v = torch.ones(3, device=device)
    for a, x in ((v, v), (v[None], v[0])):
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            gemv(a, x)


def test_mismatched_or_unsupported_dtypes_are_an_error_naming_them(device):
    a, x = torch.ones(2, 3, device=device), torch.ones(3, device=device)
    with pytest.raises((TypeError, RuntimeError, ValueError), match=r"(?s)float32.*float64|float64.*float32"):
        gemv(a, x.double())
    for dtype in (torch.int64, torch.bool, torch.complex64, torch.uint8):
        with pytest.raises(TypeError, match=str(dtype)[6:]):
            gemv(a.to(dtype), x.to(dtype))


def test_mismatched_devices_are_an_error_naming_both(device):
    with pytest.raises((RuntimeError, ValueError), match=rf"(?s){device}.*meta|meta.*{device}"):
        gemv(torch.ones(2, 3, device=device), torch.ones(3, device="meta"))


@pytest.mark.parametrize("y", [(3,), (1,), (), (2, 1)], ids=str)
def test_a_y_of_another_shape_is_an_error_naming_both(y, device):
    with pytest.raises((RuntimeError, ValueError), match=r"(?s)\by\b.*2|2.*\by\b"):
        gemv(torch.ones(2, 3, device=device), torch.ones(3, device=device), beta=1, y=torch.ones(y, device=device))


def test_a_y_of_another_dtype_is_an_error_naming_both(device):
    a, x = torch.ones(2, 3, device=device), torch.ones(3, device=device)
    with pytest.raises((TypeError, RuntimeError, ValueError), match=r"(?s)float32.*float16|float16.*float32"):
        gemv(a, x, beta=1, y=torch.ones(2, device=device, dtype=torch.float16))
    with pytest.raises((TypeError, RuntimeError, ValueError), match=r"(?s)int32.*int8|int8.*int32"):
        gemv(a.to(torch.int8), x.to(torch.int8), beta=1, y=torch.ones(2, device=device, dtype=torch.int8))


def test_beta_without_y_is_an_error_that_says_y(device):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=r"\by\b"):
        gemv(torch.ones(2, 3, device=device), torch.ones(3, device=device), beta=1)


def test_an_out_that_does_not_fit_is_an_error_and_stays_as_it_was(device):
    a, x = torch.ones(2, 3, device=device), torch.ones(3, device=device)
    for out in (torch.full((3,), 7.0, device=device), torch.full((2, 1), 7.0, device=device), torch.full((2,), 7, device=device)):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            gemv(a, x, out=out)
        assert bool((out == 7).all())
