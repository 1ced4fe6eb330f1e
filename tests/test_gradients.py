"""Derivatives of `reduce` and `gemv`: both modes, first and second, against finite differences and torch's subgradients."""

import math

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import tri_reduce

INF = math.inf
F64 = torch.float64
SMOOTH = ("sum", "mean", "prod", "max", "min", "abs_sum", "abs_max", "sum_sq", "logsumexp", "var", "std", "norm")
ORDERS = (0, 0.5, 1, 1.5, 3, -1, -2, INF, -INF)
DIMS = {
    "all of a slice": (lambda x: x[:, ::2, 1:], None, False),
    "one of a transposed": (lambda x: x.transpose(0, 2), 1, True),
    "two of an expanded": (lambda x: x.unsqueeze(1).expand(2, 2, 3, 3), (0, -1), False),
}


pytestmark = pytest.mark.usefixtures("reference")

TWICE = {
    "jacfwd(jacrev)": torch.func.hessian,
    "jacrev(jacrev)": lambda f: torch.func.jacrev(torch.func.jacrev(f)),
    "jacfwd(jacfwd)": lambda f: torch.func.jacfwd(torch.func.jacfwd(f)),
    "jacrev(jacfwd)": lambda f: torch.func.jacrev(torch.func.jacfwd(f)),
}


def fresh(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64) + 0.1


def derivatives_are_right(f, *inputs):
    """Both modes, and the derivative of the reverse one in both modes, against finite differences."""
    inputs = tuple(t.detach().requires_grad_() for t in inputs)
    assert gradcheck(f, inputs, check_forward_ad=True)
    assert gradgradcheck(f, inputs, check_fwd_over_rev=True)


def grad_of(f, x):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(f(x).sum(), x)[0]


def same(got, want):
    torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize(("view", "dim", "keepdim"), DIMS.values(), ids=DIMS)
@pytest.mark.parametrize("op", SMOOTH)
def test_derivatives_agree_with_finite_differences(op, view, dim, keepdim):
    derivatives_are_right(lambda x: tri_reduce.reduce(view(x), op, dim, keepdim), fresh(2, 3, 3))


@pytest.mark.parametrize("op", SMOOTH)
def test_derivatives_under_a_mask_agree_with_finite_differences(op):
    where = torch.tensor([[True, False, True, True], [True, True, False, True]])
    derivatives_are_right(lambda x: tri_reduce.reduce(x, op, 1, where=where), fresh(2, 4))
    derivatives_are_right(lambda x: tri_reduce.reduce(x.mT, op, (0, 1), True, where=where[0, :3]), fresh(3, 2))


@pytest.mark.parametrize("order", ORDERS)
def test_derivatives_of_every_norm_agree_with_finite_differences(order):
    derivatives_are_right(lambda x: tri_reduce.norm(x, order, 1), fresh(2, 3))


@pytest.mark.parametrize("correction", [0, 1, 1.5])
def test_derivatives_of_var_follow_the_correction(correction):
    x, where = fresh(2, 4), torch.tensor([True, True, False, True])
    for op in ("var", "std"):
        derivatives_are_right(lambda x, op=op: tri_reduce.reduce(x, op, 1, correction=correction, where=where), x)
        torchs = getattr(torch, op)
        same(
            grad_of(lambda x, op=op: tri_reduce.reduce(x, op, 1, correction=correction), x),
            grad_of(lambda x, f=torchs: f(x, 1, correction=correction), x),
        )


SPECIAL = {
    "ties": [[3, 3, 1], [1, 1, 1], [-3, 2, -3]],
    "nan": [[1, math.nan, 2], [math.nan, math.nan, 0], [1, 2, 3]],
    "infinite": [[-INF, -INF, -INF], [INF, 1, INF], [-INF, 2, 1]],
    "zeros": [[0, 0, 0], [0, 3, 0], [0, 2, 4]],
    "constant": [[2, 2, 2], [-1, -1, -1], [0, 0, 1]],
}
TORCHS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
    "abs_sum": lambda x, d: x.abs().sum(d),
    "abs_max": lambda x, d: x.abs().amax(d),
    "sum_sq": lambda x, d: (x * x).sum(d),
    "logsumexp": torch.logsumexp,
    "var": torch.var,
    "std": torch.std,
    "norm": lambda x, d: torch.linalg.vector_norm(x, 2, d),
}


@pytest.mark.parametrize("values", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("op", TORCHS)
def test_subgradients_are_torchs(op, values):
    x = torch.tensor(values, dtype=F64)
    same(grad_of(lambda x: tri_reduce.reduce(x, op, 1), x), grad_of(lambda x: TORCHS[op](x, 1), x))


@pytest.mark.parametrize("order", [0.5, 1, 1.5, 2, 3, -1, INF, -INF])
def test_subgradients_of_norms_are_torchs(order):
    for values in SPECIAL.values():
        x = torch.tensor(values, dtype=F64)
        same(grad_of(lambda x: tri_reduce.norm(x, order, 1), x), grad_of(lambda x: torch.linalg.vector_norm(x, order, 1), x))


@pytest.mark.parametrize("zeros", range(4))
def test_prod_has_torchs_derivatives_however_many_zeros_there_are(zeros):
    x = torch.tensor([2.0, -3.0, 0.5, 4.0], dtype=F64)
    x[:zeros] = 0
    same(grad_of(lambda x: tri_reduce.prod(x, 0), x), grad_of(lambda x: torch.prod(x, 0), x))
    rest = [[math.prod(float(v) for k, v in enumerate(x) if k not in (i, j)) * (i != j) for j in range(4)] for i in range(4)]
    for hessian in TWICE.values():
        same(hessian(lambda x: tri_reduce.prod(x, 0))(x), torch.tensor(rest, dtype=F64))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("seed", [-9.0, 3.0, 9.0])
def test_a_seed_takes_part_in_ties_as_one_more_contribution(op, seed):
    x = torch.tensor([[3.0, 3.0, 1.0], [2.0, 9.0, -9.0]], dtype=F64)
    torchs = {"max": torch.amax, "min": torch.amin}[op]
    with_seed = grad_of(lambda x: torchs(torch.cat([x, x.new_full((2, 1), seed)], 1), 1), x)
    same(grad_of(lambda x: tri_reduce.reduce(x, op, 1, initial=seed), x), with_seed)


def test_seeds_of_sums_products_and_logsumexp():
    x = fresh(3, 4)
    cases = {"sum": lambda y: y.sum(1) + 2, "prod": lambda y: y.prod(1) * 2, "abs_sum": lambda y: y.abs().sum(1) + 2}
    cases["logsumexp"] = lambda y: torch.cat([y, y.new_full((3, 1), 2.0)], 1).logsumexp(1)
    for op, torchs in cases.items():
        same(grad_of(lambda x, op=op: tri_reduce.reduce(x, op, 1, initial=2.0), x), grad_of(torchs, x))
        derivatives_are_right(lambda x, op=op: tri_reduce.reduce(x, op, 1, initial=2.0), x)


@pytest.mark.parametrize("op", SMOOTH)
def test_what_is_masked_gets_zero_and_leaks_nothing(op):
    x = torch.tensor([[1.0, math.nan, 2.0, INF], [math.nan, INF, -INF, math.nan]], dtype=F64)
    where = torch.tensor([[True, False, True, False], [False] * 4])
    got = grad_of(lambda x: tri_reduce.reduce(x, op, 1, where=where), x)
    assert (got[~where] == 0).all()
    same(got[0, [0, 2]], grad_of(lambda x: tri_reduce.reduce(x, op, 0), x[0, [0, 2]]))


@pytest.mark.parametrize("op", SMOOTH)
def test_the_gradient_has_the_inputs_dtype_whatever_the_results_is(op):
    x = torch.tensor([[1.0, -2.25, 3.0], [4.0, 4.0, 0.5]])
    for x_dtype, dtype in (
        (torch.bfloat16, None),
        (torch.float16, torch.float64),
        (torch.float32, torch.bfloat16),
        (torch.float64, torch.float16),
    ):
        narrow = x.to(x_dtype)
        got = grad_of(lambda x, dtype=dtype: tri_reduce.reduce(x, op, 1, dtype=dtype), narrow)
        assert got.dtype == x_dtype
        torch.testing.assert_close(got.double(), grad_of(lambda x: tri_reduce.reduce(x, op, 1), narrow.double()), rtol=0.03, atol=0.01)


def test_counts_beyond_what_16_bits_hold():
    x = torch.zeros(70000, dtype=torch.float16)
    where = torch.ones(70000, dtype=torch.bool)
    assert (
        grad_of(lambda x: tri_reduce.mean(x) * 7000, x)[0] == grad_of(lambda x: tri_reduce.reduce(x, "mean", where=where) * 7000, x)[0] != 0
    )
    assert grad_of(lambda x: tri_reduce.amax(x) * 7000, x)[0] != 0


def test_the_second_derivative_at_a_zero_norm_or_spread_is_not_nan():
    for f in (tri_reduce.norm, tri_reduce.std, lambda x: tri_reduce.norm(x, 3)):
        assert torch.func.jacrev(torch.func.jacrev(f))(torch.zeros(3, dtype=F64)).isfinite().all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), ()])
def test_empty_tensors_and_scalars_have_gradients_of_their_shape(shape):
    for op in ("sum", "mean", "prod", "var", "logsumexp", "norm", "abs_max"):
        dim = len(shape) - 1 if shape else None
        assert grad_of(lambda x, op=op, dim=dim: tri_reduce.reduce(x, op, dim), torch.ones(shape)).shape == shape


@pytest.mark.parametrize("op", ["any", "all", "argmax", "argmin", "count_nonzero"])
def test_results_that_are_no_real_numbers_need_no_gradient(op):
    x = torch.ones(3, requires_grad=True)
    assert not tri_reduce.reduce(x, op).requires_grad
    assert not tri_reduce.sum(x, dtype=torch.int64).requires_grad


def test_a_monoid_without_a_gradient_is_an_error_and_not_a_zero(monkeypatch):
    from dataclasses import replace

    monkeypatch.setitem(tri_reduce.MONOIDS, "mine", replace(tri_reduce.MONOIDS["sum_sq"], name="mine", gradient=None))
    y = tri_reduce.reduce(torch.ones(3, requires_grad=True), "mine")
    with pytest.raises(NotImplementedError, match="mine has no gradient"):
        y.backward()
    with pytest.raises(ValueError, match="registered"):
        tri_reduce.reduce(torch.ones(3, requires_grad=True), replace(tri_reduce.MONOIDS["sum"], name="nobody's"))


BATCHES = {
    "plain": ((3, 4), (4,), False),
    "transposed": ((4, 3), (4,), True),
    "one matrix": ((3, 4), (2, 4), False),
    "one matrix transposed": ((4, 3), (2, 2, 4), True),
    "one vector": ((2, 3, 4), (4,), False),
    "both broadcast": ((2, 1, 3, 4), (2, 4), False),
    "empty": ((3, 0), (0,), False),
}


@pytest.mark.parametrize("case", BATCHES.values(), ids=BATCHES)
def test_derivatives_of_gemv_agree_with_finite_differences(case):
    a_shape, x_shape, trans = case
    a, x = fresh(*a_shape), fresh(*x_shape, seed=1)
    y = tri_reduce.gemv(a, x, trans=trans)
    derivatives_are_right(lambda a, x: tri_reduce.gemv(a, x, alpha=0.5, trans=trans), a, x)
    derivatives_are_right(lambda a, x, y: tri_reduce.gemv(a, x, alpha=2, beta=-1.5, y=y, trans=trans), a, x, y)
    derivatives_are_right(lambda y: tri_reduce.gemv(a, x, beta=3, y=y, trans=trans), y)


@pytest.mark.parametrize("twice", TWICE.values(), ids=TWICE)
def test_nested_transforms_see_every_level(twice):
    x, a = fresh(3), fresh(3, 3, seed=1)
    got = twice(lambda x: tri_reduce.logsumexp(tri_reduce.gemv(a, x)) * tri_reduce.norm(x))(x)
    same(got, twice(lambda x: (a @ x).logsumexp(0) * x.norm())(x))


def test_a_tangent_is_never_dropped():
    x = fresh(3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        same(forward_ad.unpack_dual(tri_reduce.sum(dual)).tangent, torch.tensor(3.0, dtype=F64))
        with pytest.raises(RuntimeError, match="forward-mode"):
            tri_reduce.reduce(dual, "sum", out=torch.empty((), dtype=F64))
