"""What one call leaves behind must not reach the next: plans remembered by shape, alignment, layout and option are told apart."""

import itertools

import pytest
import torch
from bounds import check
from gemv_oracle import check_gemv

import tri_reduce

reduce, gemv = tri_reduce.reduce, tri_reduce.gemv
OFFSETS = (0, 1, 3, 8, 0)  # aligned first, so that its plan is there when the others come


def ramp(device, n, dtype=torch.float32):
    return (torch.arange(n, device=device) * 37 % 19 - 9).to(dtype)


def shifted(t, offset):
    """The same values at another alignment."""
    base = torch.zeros(t.numel() + offset, dtype=t.dtype, device=t.device)
    view = base[offset:].view(t.shape)
    return view.copy_(t)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8], ids=str)
def test_input_mask_and_out_may_each_be_misaligned_after_an_aligned_call(dtype, device):
    x, mask = ramp(device, 16 * 256, dtype).view(16, 256), ramp(device, 16 * 256).view(16, 256) > 0
    for i, j, k in itertools.product(OFFSETS[:3], repeat=3):
        a, w = shifted(x, i), shifted(mask, j)
        for op, dim in (("sum", 1), ("max", 0)):
            out = shifted(torch.empty_like(reduce(x, op, dim)), k)
            reduce(a, op, dim, where=w, out=out)
            check(out, a, op, dim, where=w)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_each_operand_of_a_product_may_be_misaligned_after_an_aligned_call(dtype, device):
    m, v, y = ramp(device, 32 * 128, dtype).view(32, 128), ramp(device, 128, dtype), ramp(device, 32, dtype)
    for i, j, k in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (3, 8, 5), (0, 0, 0)]:
        a, x, b = shifted(m, i), shifted(v, j), shifted(y, k)
        out = shifted(y, i + j)
        gemv(a, x, beta=2, y=b, out=out)
        check_gemv(out, a, x, beta=2, y=b)
        check_gemv(gemv(shifted(m.t(), k), x, trans=True), m.t(), x, trans=True)


def test_calls_that_differ_in_one_option_do_not_share_an_answer(device):
    x = ramp(device, 6 * 40).view(6, 40)
    first = torch.arange(40, device=device) < 20
    for _ in range(2):
        for correction in (0, 1, 2, 0.5):
            check(reduce(x, "var", 1, correction=correction), x, "var", 1, correction=correction)
        for p in (0, 1, 2, 3, float("inf"), -float("inf")):
            check(reduce(x, "norm", 1, ord=p), x, "norm", 1, ord=p)
        for seed in (0, 5, -7.5, 100.0, True):
            assert torch.equal(reduce(x, "sum", 1, initial=seed), x.sum(1) + seed)
        for mask in (first, ~first, first[None].expand(6, 40), torch.zeros_like(first)):
            check(reduce(x, "sum", 1, where=mask), x, "sum", 1, where=mask)
        for keepdim, dtype in itertools.product((False, True), (None, torch.float64)):
            check(reduce(x, "sum", 1, keepdim, dtype=dtype), x, "sum", 1, keepdim, dtype=dtype)
        for dim in (0, 1, -1, None, (0, 1), (1,), [0], ()):
            check(reduce(x, "sum", dim), x, "sum", dim)
        for view in (x, x.t(), x[:, ::2], x[::2], x[:1].expand(6, 40)):
            check(reduce(view, "sum", 0), view, "sum", 0)


def test_products_that_differ_in_one_option_do_not_share_an_answer(device):
    a, v, y = ramp(device, 9 * 9).view(9, 9), ramp(device, 9), ramp(device, 9) + 1
    for _ in range(2):
        for alpha, beta, trans in itertools.product((1, 2, 0.5, 0), (0, 1, -3), (False, True)):
            check_gemv(gemv(a, v, alpha=alpha, beta=beta, y=y, trans=trans), a, v, alpha=alpha, beta=beta, y=y, trans=trans)


def test_an_accumulating_call_is_not_taken_for_a_plain_one(device):
    x, out = torch.ones(3, 50, device=device), torch.zeros(3, device=device)
    for want in (50, 100, 50, 100, 150):
        reduce(x, "sum", 1, out=out, accumulate=want != 50)
        assert out.tolist() == [want] * 3


def test_a_bad_call_stays_an_error_after_a_good_one_with_the_same_shapes(device):
    x = torch.ones(3, 50, device=device)
    for _ in range(2):
        assert reduce(x, "sum", 1).tolist() == [50] * 3
        for bad in (dict(determinism="sometimes"), dict(where=x), dict(accumulate=True), dict(out=torch.zeros(4, device=device))):
            with pytest.raises((RuntimeError, ValueError, TypeError)):
                reduce(x, "sum", 1, **bad)
        with pytest.raises(IndexError):
            reduce(x, "sum", 2)


def test_a_forced_plan_is_forgotten_with_its_context(device):
    x = ramp(device, 2 * 70001).view(2, 70001)
    for _ in range(2):
        with tri_reduce.force(split=2):
            check(reduce(x, "sum", 1), x, "sum", 1)
        check(reduce(x, "sum", 1), x, "sum", 1)


def test_a_lazily_negated_view_is_read_with_its_sign(device):
    z = torch.complex(torch.ones(4, 33, device=device), ramp(device, 132).view(4, 33))
    x = z.conj().imag
    assert x.is_neg()
    plain = x.resolve_neg()
    for op in ("sum", "max", "argmin"):
        assert torch.equal(reduce(x, op, 1), reduce(plain, op, 1))
    assert torch.equal(gemv(x, plain[0]), gemv(plain, plain[0])) and torch.equal(gemv(plain, x[0]), gemv(plain, plain[0]))


def test_an_input_freed_between_calls_leaves_no_trace(device):
    for k in range(4):
        x = torch.full((3, 501), float(k), device=device)
        assert reduce(x, "sum", 1).tolist() == [501.0 * k] * 3
        del x


def test_a_result_is_never_overwritten_by_a_later_call(device):
    kept = [reduce(torch.full((2, 300), float(k), device=device), "sum", 1) for k in range(5)]
    assert [y.tolist() for y in kept] == [[300.0 * k] * 2 for k in range(5)]


def test_an_empty_problem_after_a_warm_kernel_launches_nothing(device):
    w = torch.ones(4, 64, device=device)
    for op in ("sum", "max", "var"):
        assert reduce(w, op, 1).shape == (4,) and reduce(w[:0], op, 1).shape == (0,)
        assert reduce(w[:0].t(), op, 0).shape == (0,)
    assert gemv(w, w[0]).shape == (4,) and gemv(w[:0], w[0]).shape == (0,) and gemv(w[:, :0], w[0, :0]).tolist() == [0.0] * 4
