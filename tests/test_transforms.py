"""`reduce` and `gemv` under autograd and torch.compile: a right gradient or an error, one graph, no recompilation per length."""

import pytest
import torch
import torch._dynamo
import torch._dynamo.testing

import tri_reduce

DIFFERENTIABLE = ("sum", "mean", "prod", "max", "min", "var", "std", "logsumexp", "norm", "abs_sum", "sum_sq")
TORCHS = {
    "sum": torch.sum, "mean": torch.mean, "prod": torch.prod, "max": torch.amax, "min": torch.amin, "var": torch.var, "std": torch.std,
    "logsumexp": torch.logsumexp, "norm": torch.linalg.vector_norm, "abs_sum": lambda x, dim: x.abs().sum(dim),
    "sum_sq": lambda x, dim: (x * x).sum(dim),
}  # fmt: skip


# Two float64 evaluations of at most 32 roundings each, on values that do not cancel.
TWO_EVALUATIONS = 2 * 32 * torch.finfo(torch.float64).eps
CALLS = {"reduce": lambda t: tri_reduce.reduce(t, "sum", dim=-1), "gemv": lambda t: tri_reduce.gemv(t, t[0])}


@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_a_gradient_is_torchs_and_never_silently_dropped(op, device):
    x = torch.tensor([[1.0, -2.0, 3.5], [0.5, 4.0, -1.5]], dtype=torch.float64, device=device)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    weight = torch.tensor([2.0, -3.0], dtype=torch.float64, device=device)
    y = tri_reduce.reduce(ours, op, 1)
    assert y.requires_grad
    (y * weight).sum().backward()
    args = [theirs] if op != "norm" else [theirs, 2]
    (TORCHS[op](*args, dim=1) * weight).sum().backward()
    assert torch.allclose(ours.grad, theirs.grad, rtol=TWO_EVALUATIONS, atol=0)


@pytest.mark.parametrize("trans", [False, True])
def test_gemv_has_a_gradient_in_each_operand(trans, device):
    def fresh():
        g = torch.Generator().manual_seed(0)
        return [torch.rand(s, generator=g, dtype=torch.float64).to(device).requires_grad_() for s in ((3, 3), (3,), (3,))]

    (a, x, y), (a2, x2, y2) = fresh(), fresh()
    tri_reduce.gemv(a, x, alpha=2, beta=3, y=y, trans=trans).square().sum().backward()
    (2 * ((a2.mT if trans else a2) @ x2) + 3 * y2).square().sum().backward()
    for got, want in ((a.grad, a2.grad), (x.grad, x2.grad), (y.grad, y2.grad)):
        assert torch.allclose(got, want, rtol=TWO_EVALUATIONS, atol=0)


def test_out_with_an_input_that_requires_grad_is_an_error_as_in_torch(device):
    x = torch.ones(3, requires_grad=True, device=device)
    with pytest.raises(RuntimeError, match=r"grad|differentia"):
        tri_reduce.reduce(x, "sum", out=torch.empty((), device=device))
    with torch.no_grad():
        assert float(tri_reduce.reduce(x, "sum", out=torch.empty((), device=device))) == 3.0


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_compiled_code_is_one_graph_that_serves_every_length(call, device):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(call, backend=counter, fullgraph=True)
    for n in (5, 6, 9, 17, 33, 100):
        assert compiled(torch.ones(3, n, device=device)).tolist() == [float(n)] * 3
    assert counter.frame_count <= 2
