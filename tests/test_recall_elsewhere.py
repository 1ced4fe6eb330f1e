"""A call that is recalled here, made again where something differs that no shape shows: each has its answer, and no other's."""

import pytest
import torch
from devices import REFERENCE
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import tri_reduce
from tri_reduce import plans, recall

pytestmark = pytest.mark.usefixtures("no_remembered_plans")


@pytest.fixture
def x(device):
    return (torch.arange(120, device=device) * 37 % 19 - 9).view(3, 40).float()


def recalled(x, out):
    """Both calls, with and without `out`, twice."""
    for _ in range(2):
        tri_reduce.sum(x, 1)
        tri_reduce.sum(x, 1, out=out)
        tri_reduce.gemv(x, x[0])
        tri_reduce.gemv(x, x[0], out=out)


def test_the_compiler_sees_the_operator(x):
    recalled(x, torch.empty(3, device=x.device))
    targets = []

    def backend(graph, inputs):
        targets.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    got = torch.compile(lambda t: tri_reduce.sum(t, 1) + tri_reduce.gemv(t, t[0]), fullgraph=True, backend=backend)(x)
    torch.testing.assert_close(got, x.sum(1) + x @ x[0])
    assert any("tri_reduce.reduce" in t for t in targets) and any("tri_reduce.gemv" in t for t in targets)


def test_fake_tensors_stay_fake(x):
    out = torch.empty(3, device=x.device)
    recalled(x, out)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake, fake_out = mode.from_tensor(x), mode.from_tensor(out)
    with mode:
        assert all(isinstance(tri_reduce.sum(t, 1), FakeTensor) for t in (x, fake))
        assert isinstance(tri_reduce.gemv(x, x[0]), FakeTensor)
    assert isinstance(tri_reduce.sum(fake, 1), FakeTensor) and isinstance(tri_reduce.gemv(fake, fake[0]), FakeTensor)
    assert tri_reduce.sum(fake, 1, out=fake_out) is fake_out
    assert type(tri_reduce.sum(x, 1)) is torch.Tensor


def test_a_result_made_in_inference_mode_is_one_of_its_tensors(x):
    out = torch.empty(3, device=x.device)
    recalled(x, out)
    with torch.inference_mode():
        inferred, inferred_out = x.clone(), out.clone()
        recalled(inferred, inferred_out)  # whose versions nothing counts
        assert tri_reduce.sum(inferred, 1).is_inference() and tri_reduce.sum(x, 1).is_inference()
    assert not tri_reduce.sum(x, 1).is_inference()


def test_a_tensor_that_has_come_to_require_grad_gets_its_gradient(x):
    recalled(x, torch.empty(3, device=x.device))
    x.requires_grad_()
    (tri_reduce.sum(x, 1).sum() + tri_reduce.gemv(x.detach(), x[0]).sum()).backward()
    assert x.grad is not None and x.grad[1].eq(1).all() and not x.grad[0].eq(1).all()
    with pytest.raises(RuntimeError, match="grad"):
        tri_reduce.sum(x, 1, out=torch.empty(3, device=x.device))


def test_deterministic_algorithms_have_the_same_bits_and_refuse_none(x):
    out = torch.empty(3, device=x.device)
    recalled(x, out)
    want = tri_reduce.sum(x, 1), tri_reduce.gemv(x, x[0])
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(tri_reduce.sum(x, 1), want[0]) and torch.equal(tri_reduce.gemv(x, x[0]), want[1])
        with pytest.raises(RuntimeError, match="determinism"):
            tri_reduce.reduce(x, "sum", 1, determinism="none")
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_is_forced_is_not_what_was_recalled(x, long):
    recalled(x, torch.empty(3, device=x.device))
    long.clear()
    with tri_reduce.force(split=2, config={"R0_BLOCK": 16}), tri_reduce.autotune.policy("cached"):
        for _ in range(2):
            assert torch.equal(tri_reduce.sum(x, 1), x.sum(1))
    assert len(long) == 1
    if not REFERENCE:
        with tri_reduce.force(split=1 << 20):
            for _ in range(2):
                with pytest.raises(ValueError, match="split"):
                    tri_reduce.sum(x, 1)
    long.clear()
    tri_reduce.sum(x, 1)
    assert not long


def test_a_call_learnt_after_its_plan_was_forgotten_is_not_kept(x, monkeypatch):
    """As where another thread tunes between the two."""
    learn = recall.reduce_now.__globals__["guards"].learn_reduction

    def late(*given):
        plans.PLANS.clear()
        learn(*given)

    monkeypatch.setattr("tri_reduce.guards.learn_reduction", late)
    tri_reduce.sum(x, 1)
    assert not plans.PLANS.short


def test_an_out_of_any_other_layout_is_written_as_it_lies(x, long):
    base = torch.zeros(64, device=x.device)
    z = torch.complex(torch.zeros(3, device=x.device), torch.ones(3, device=x.device))
    outs = [base[:3], base[1:4], base[:6:2], base[:3].double(), x[:, 0], x[1, :3], z.conj().imag]
    kept, sums, products = x.clone(), x.sum(1), x @ x[0]
    for _ in range(3):
        for out in outs:
            x.copy_(kept)
            assert tri_reduce.sum(x, 1, out=out) is out and torch.equal(out.float(), sums)
            x.copy_(kept)
            assert tri_reduce.gemv(x, x[0], out=out) is out and torch.equal(out.float(), products)
        for bad, error in ((base[:4], RuntimeError), (base[:3].long(), TypeError), (base[:1].expand(3), RuntimeError)):
            x.copy_(kept)
            with pytest.raises((error, ValueError)):
                tri_reduce.sum(x, 1, out=bad)
