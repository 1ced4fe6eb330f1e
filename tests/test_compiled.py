"""Public calls under torch.compile: one graph that serves every length, forward, backward and writing `out`."""

import copy

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounterWithBackend

import tri_reduce

BITWISE = ("and", "or", "xor")


def values(op, *shape):
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(4)
    return found.long() if op in BITWISE else found


def serves_every_length(f, inputs, backend="aot_eager", frames=2):
    """One compiled function, few compilations, the results (and what was written) of eager."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(f, backend=counter, fullgraph=True)
    for operands in inputs:
        eager = copy.deepcopy(operands)
        torch.testing.assert_close((compiled(*operands), operands), (f(*eager), eager), equal_nan=True)
    assert counter.frame_count <= frames


@pytest.mark.parametrize("op", tri_reduce.MONOIDS)
def test_twenty_lengths_are_at_most_two_compilations(op, reference):
    serves_every_length(lambda x: tri_reduce.reduce(x, op, -1), [(values(op, 3, n),) for n in range(2, 22)])


@pytest.mark.parametrize("op", ["sum", "prod", "max", "std", "logsumexp", "norm"])
def test_compiled_backwards_serve_every_length_too(op, reference):
    def f(x, where):
        return tri_reduce.reduce(x, op, 1, where=where).square().sum()

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(f, backend=counter, fullgraph=True)
    for n in range(2, 22):
        x, where = values(op, 3, n).requires_grad_(), torch.arange(n) % 3 < 2
        torch.testing.assert_close(torch.autograd.grad(compiled(x, where), x), torch.autograd.grad(f(x, where), x))
    assert counter.frame_count <= 2


WRITING = {
    "out": lambda x, o: (tri_reduce.reduce(x * 2, "sum", 1, out=o) + 1, o * 2),
    "part of out": lambda x, o: tri_reduce.reduce(x[:2], "max", 1, out=o[1:]).clone(),
    "accumulate": lambda x, o: tri_reduce.reduce(x, "sum", 1, out=o, accumulate=True) * 2,
    "gemv": lambda x, o: tri_reduce.gemv(x, x[0], out=o) + o,
}


@pytest.mark.parametrize("f", WRITING.values(), ids=WRITING)
def test_writing_out_is_functionalised(f, reference):
    serves_every_length(f, [(values("", 3, n), values("", 3)) for n in (4, 5, 6, 9)])


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_other_compilers(backend, device):
    inputs = [(values("", 3, n).to(device), values("", 3).to(device)) for n in (4, 5)]
    serves_every_length(lambda x, o: (tri_reduce.gemv(x, x[0]), tri_reduce.reduce(x, "max", 1, out=o)), inputs, backend)
