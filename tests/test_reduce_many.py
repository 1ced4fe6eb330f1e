"""`reduce_many`: each result is what `reduce` gives, however the ops share reads."""

import pytest
import torch

import tri_reduce
from tri_reduce import many

LISTS = {
    torch.float32: [
        ["sum", "max", "min"],
        ["mean", "abs_max"],
        ["sum", "var", "argmax", "logsumexp"],
        ["any", "all", "count_nonzero", "prod", "sum_sq"],
    ],
    torch.bfloat16: [["sum", "max", "min"], ["mean", "norm", "abs_sum"]],
    torch.int32: [["sum", "max", "min"], ["and", "or", "xor"], ["argmin", "count_nonzero"]],
    torch.bool: [["any", "all", "sum"], ["max", "min"]],
}


def values(dtype, *shape, device):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)) * 4
    return (x > 0 if dtype == torch.bool else x.to(dtype)).to(device)


@pytest.mark.parametrize("dim, keepdim", [(1, False), (0, True), (None, False), ((0, 2), True)])
@pytest.mark.parametrize("dtype", LISTS, ids=str)
def test_each_result_is_that_of_reduce(dtype, dim, keepdim, device):
    x = values(dtype, 3, 9, 4, device=device)
    for ops in LISTS[dtype]:
        if isinstance(dim, tuple) and any(op.startswith("arg") for op in ops):
            continue
        for op, got in zip(ops, tri_reduce.reduce_many(x, ops, dim, keepdim), strict=True):
            want = tri_reduce.reduce(x, op, dim, keepdim)
            assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride()), op
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, equal_nan=True, msg=op)


def test_a_nan_stays_in_its_row_for_every_op(device):
    x = values(torch.float32, 4, 50, device=device)
    x[2, 17] = float("nan")
    for got in tri_reduce.reduce_many(x, ["sum", "max", "min"], 1):
        assert got.isnan().tolist() == [False, False, True, False]


def test_programs_that_share_outputs_count_each_value_once(device):
    if not tri_reduce.targets.runs_kernels(torch.device(device)):
        pytest.skip("the reference has no programs")
    x = torch.ones(3, 70001, device=device)
    x[:, 7] = -2.0
    with tri_reduce.force(split=3):
        total, high, low = tri_reduce.reduce_many(x, ["sum", "max", "min"], 1)
    assert (total.tolist(), high.tolist(), low.tolist()) == ([69998.0] * 3, [1.0] * 3, [-2.0] * 3)


def test_three_ops_of_one_tile_are_one_launch(device, monkeypatch):
    if not tri_reduce.targets.runs_kernels(torch.device(device)):
        pytest.skip("the reference launches nothing")
    x, launches = values(torch.float32, 8, 100, device=device), []
    plan = many.Plan.bind

    def counted(self, shape, dtype):
        bound = plan(self, shape, dtype)
        return bound._replace(call=lambda *a: (launches.append(1), bound.call(*a))[1])

    monkeypatch.setattr(many.Plan, "bind", counted)
    with tri_reduce.autotune.policy("cached"):  # a key of its own, so that nothing is remembered
        tri_reduce.reduce_many(x, ["sum", "max", "min"], 1)
        tri_reduce.reduce_many(x, ["sum", "max", "min"], 1)
    assert len(launches) == 2


def test_empty_inputs_give_each_op_its_own_answer(device):
    x = torch.empty(3, 0, device=device)
    total, found = tri_reduce.reduce_many(x, ["sum", "any"], 1)
    assert total.tolist() == [0.0] * 3 and found.tolist() == [False] * 3
    with pytest.raises(IndexError, match="max"):
        tri_reduce.reduce_many(x, ["sum", "max"], 1)


def test_gradients_flow_to_every_op(device):
    x = values(torch.float32, 3, 5, device=device).requires_grad_()
    total, squares = tri_reduce.reduce_many(x, ["sum", "sum_sq"], 1)
    (total.sum() + squares.sum()).backward()
    torch.testing.assert_close(x.grad, 1 + 2 * x.detach())


def test_one_op_in_place_of_several_is_a_type_error(device):
    with pytest.raises(TypeError, match="sequence of ops"):
        tri_reduce.reduce_many(torch.ones(2, 2, device=device), "sum")
