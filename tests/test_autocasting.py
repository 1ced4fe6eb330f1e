"""Result dtypes under torch.autocast, beside torch's."""

import pytest
import torch

import tri_reduce
from tri_reduce.autocasting import WIDENED

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OVERLOADS = {
    "sum": "aten::sum.dim_IntList",
    "prod": "aten::prod.dim_int",
    "norm": "aten::linalg_vector_norm",
    "logsumexp": "aten::logsumexp",
    "mean": "aten::mean.dim",
    "max": "aten::amax",
    "min": "aten::amin",
    "var": "aten::var.correction",
    "std": "aten::std.correction",
    "argmax": "aten::argmax",
    "argmin": "aten::argmin",
    "any": "aten::any.dim",
    "all": "aten::all.dim",
    "count_nonzero": "aten::count_nonzero.dim_IntList",
}
CALLS = {
    "sum": lambda m, x: m.sum(x, 1),
    "prod": lambda m, x: m.prod(x, 1),
    "norm": lambda m, x: m.norm(x, dim=1),
    "logsumexp": lambda m, x: m.logsumexp(x, 1),
    "mean": lambda m, x: m.mean(x, 1),
    "amax": lambda m, x: m.amax(x, 1),
    "var": lambda m, x: m.var(x, 1),
    "sum to a dtype": lambda m, x: m.sum(x, 1, dtype=torch.float64),
}


@pytest.mark.parametrize("key", ["AutocastCUDA", "AutocastCPU"])
def test_the_table_is_that_of_torchs_dispatcher(key):
    cast = {op for op, name in OVERLOADS.items() if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}
    assert cast == WIDENED[key.removeprefix("Autocast").lower()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_results_have_torchs_dtype(call, dtype):
    x = torch.ones(3, 4, dtype=dtype, device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        assert call(tri_reduce, x).dtype == call(torch, x).dtype
    assert call(tri_reduce, x).dtype == call(torch, x).dtype


def test_integers_are_not_cast():
    with torch.autocast(DEVICE, torch.bfloat16):
        assert tri_reduce.prod(torch.ones(3, dtype=torch.int32, device=DEVICE)).dtype == torch.int64


def test_out_keeps_its_dtype():
    x = torch.ones(3, dtype=torch.bfloat16, device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        assert tri_reduce.prod(x, out=torch.empty((), dtype=torch.bfloat16, device=DEVICE)).dtype == torch.bfloat16


def test_reduce_many_gives_what_reduce_gives():
    x = torch.ones(3, 4, dtype=torch.bfloat16, device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        many = tri_reduce.reduce_many(x, ["prod", "max"], 1)
        assert [y.dtype for y in many] == [tri_reduce.reduce(x, op, 1).dtype for op in ("prod", "max")]


def test_a_compiled_call_is_cast_too():
    x = torch.ones(3, 4, dtype=torch.bfloat16, device=DEVICE)
    torch.compiler.reset()
    compiled = torch.compile(lambda x: tri_reduce.prod(x, 1), backend="eager", fullgraph=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        assert compiled(x).dtype == torch.float32
    assert compiled(x).dtype == torch.bfloat16


def test_gradients_come_back_in_the_inputs_dtype():
    x = torch.ones(3, 4, dtype=torch.bfloat16, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        y = tri_reduce.prod(x, 1)
    y.sum().backward()
    assert x.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("op", ["max", "prod", "var", "logsumexp", "argmax"])
def test_a_reducer_is_not_touched_by_autocast(op):
    x = torch.linspace(-1, 1, 12, device=DEVICE).half().reshape(3, 4)

    def reduced():
        r = tri_reduce.Reducer(op, (4,), torch.float16, DEVICE)
        r.update(x)
        return r.finalize()

    expected = reduced()
    with torch.autocast(DEVICE, torch.bfloat16):
        assert torch.equal(reduced(), expected)
