"""`tri_reduce.override_torch`: torch's calls, answered by tri_reduce with torch's results."""

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack

import tri_reduce
from tri_reduce import functional, override_torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(6, 5, 7, device=DEVICE)


@pytest.fixture
def matrix():
    torch.manual_seed(1)
    return torch.randn(6, 5, device=DEVICE)


@pytest.fixture
def routed(monkeypatch):
    """Names of the public calls that tri_reduce answered."""
    seen, within = [], []
    for owner, function, name in (
        (functional, "reduce", "reduce"),
        (functional.recall, "reduction", "reduce"),
        (functional, "gemv", "gemv"),
    ):
        original = getattr(owner, function)

        def spy(*args, _name=name, _original=original, **kwargs):
            seen.extend([] if within else [_name])
            within.append(_name)
            try:
                return _original(*args, **kwargs)
            finally:
                within.pop()

        monkeypatch.setattr(owner, function, spy)
    return seen


def vector(n):
    return torch.linspace(-1, 1, n, device=DEVICE)


REDUCTIONS = {
    "sum": lambda x: torch.sum(x),
    "sum of dims": lambda x: torch.sum(x, (0, 2), True),
    "sum to a dtype": lambda x: x.sum(1, dtype=torch.float64),
    "sum of bools": lambda x: (x > 0).sum(-1),
    "sum along NumPy's axis": lambda x: torch.sum(x, axis=1, keepdims=True),
    "prod": lambda x: x.prod(),
    "prod of a dim": lambda x: torch.prod(x, 1, keepdim=True),
    "amax": lambda x: torch.amax(x, (0, 1)),
    "amin": lambda x: x.amin(-1),
    "max of everything": lambda x: x.max(),
    "min of everything": lambda x: torch.min(x),
    "mean": lambda x: torch.mean(x, dim=(1, 2)),
    "mean of ints to floats": lambda x: (10 * x).int().mean(0, dtype=torch.float32),
    "any": lambda x: (x > 1).any(),
    "all": lambda x: torch.all(x > -1, 1),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: torch.argmin(x),
    "var": lambda x: torch.var(x),
    "var of a dim, unbiased": lambda x: x.var(1, False, True),
    "var, biased": lambda x: torch.var(x, False),
    "std, corrected": lambda x: x.std((0, 1), correction=2),
    "logsumexp": lambda x: torch.logsumexp(x, (0, 1)),
    "norm": lambda x: x.norm(),
    "norm of a dim": lambda x: torch.norm(x, 1, 1, True),
    "norm named": lambda x: torch.norm(x, p="fro", dim=(0, 1)),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, 3, (0, 1)),
    "count_nonzero": lambda x: torch.count_nonzero(x > 0, 1),
}

PRODUCTS = {
    "mv": lambda a: torch.mv(a, vector(5)),
    "mv, the method": lambda a: a.mv(vector(5)),
    "addmv": lambda a: torch.addmv(vector(6), a, vector(5), beta=0.5, alpha=2),
    "matmul of a matrix and a vector": lambda a: torch.matmul(a, vector(5)),
    "matmul of matrices and a vector": lambda a: torch.stack([a, 2 * a]) @ vector(5),
    "matmul of a vector and a matrix": lambda a: vector(6) @ a,
    "matmul with one column": lambda a: a @ vector(5)[:, None],
    "matmul with one row": lambda a: vector(6)[None] @ a,
    "linear": lambda a: F.linear(vector(5), a, vector(6)),
    "linear of one row": lambda a: F.linear(vector(5)[None, None], a),
}


@pytest.mark.parametrize("call", REDUCTIONS.values(), ids=REDUCTIONS)
def test_reductions_have_torchs_results(x, routed, call):
    expected = call(x)
    with override_torch(DEVICE):
        found = call(x)
    assert routed == ["reduce"]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("call", PRODUCTS.values(), ids=PRODUCTS)
def test_products_with_one_vector_have_torchs_results(matrix, routed, call):
    expected = call(matrix)
    with override_torch(DEVICE):
        found = call(matrix)
    assert routed == ["gemv"]
    torch.testing.assert_close(found, expected)


class Labelled(torch.Tensor):
    pass


UNTOUCHED = {
    "complex": lambda x: x.to(torch.complex64).sum(0),
    "a dtype that is not ours": lambda x: x.sum(0, dtype=torch.complex64),
    "sparse": lambda x: x[0].to_sparse().sum(0).to_dense(),
    "a subclass": lambda x: x.as_subclass(Labelled).sum(0),
    "an empty tensor": lambda x: x[:0].sum(0),
    "out": lambda x: torch.sum(x, 0, out=torch.empty(5, 7, device=DEVICE)),
    "max along a dim": lambda x: torch.max(x, 1),
    "the larger of two": lambda x: torch.max(x, 2 * x),
    "no dims": lambda x: torch.any(x > 0, dim=()),
    "the nuclear norm": lambda x: torch.norm(x[0], "nuc"),
    "a product of matrices": lambda x: x[0] @ x[0].mT,
    "a product of vectors": lambda x: x[0, 0] @ x[0, 0],
    "several rows": lambda x: F.linear(x[0], x[1]),
    "a sum to add to": lambda x: torch.addmv(torch.ones(1, device=DEVICE), x[0], x[0, 0]),
}


@pytest.mark.parametrize("call", UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_is_not_taken_goes_to_torch(x, routed, call):
    expected = call(x)
    with override_torch(DEVICE):
        found = call(x)
    assert routed == []
    torch.testing.assert_close(found, expected)


@pytest.mark.skipif(not hasattr(torch.Tensor, "refine_names"), reason="this torch has no named tensors")
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_named_tensors_go_to_torch(x, routed):
    named = x.refine_names("a", "b", "c")
    with override_torch(DEVICE):
        assert named.sum("b").names == ("a", "c")
    assert routed == []


MISTAKES = {
    "an unknown option": lambda x: torch.sum(x, 0, axes=1),
    "a dim that is out of range": lambda x: torch.sum(x, 3),
    "the mean of ints": lambda x: x.int().mean(),
    "shapes that do not fit": lambda x: torch.mv(x[0], x[0, :, 0]),
    "a dim twice": lambda x: torch.amax(x, (0, 0)),
}


@pytest.mark.parametrize("call", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_have_the_type_of_torchs_error(x, call):
    with pytest.raises(Exception) as expected:
        call(x)
    with override_torch(DEVICE), pytest.raises(type(expected.value)):
        call(x)


def test_other_devices_go_to_torch(x, routed):
    with override_torch(devices=("meta",)):
        x.sum()
    assert routed == []


def test_an_unknown_device_is_refused():
    with pytest.raises(RuntimeError, match="gpuu"), override_torch("gpuu"):
        pass


def test_gradients_flow_through(x, matrix):
    def loss(x, a):
        return x.logsumexp(1).sum() + (a @ x[0, :, 0]).norm() + x.var(0).mean()

    leaves = [t.clone().requires_grad_() for t in (x, matrix)]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    with override_torch(DEVICE):
        found = torch.autograd.grad(loss(*leaves), leaves)
    torch.testing.assert_close(found, expected)


def test_blocks_nest(x):
    expected = x.sum(0)
    with override_torch(DEVICE), override_torch(DEVICE):
        found, public = x.sum(0), tri_reduce.sum(x, 0)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(public, expected)


def test_nothing_is_left_after_an_exception(x, routed):
    held = torch.sum, torch.Tensor.sum, torch.Tensor.__matmul__
    with pytest.raises(ZeroDivisionError), override_torch(DEVICE):
        _ = 1 // 0
    assert (torch.sum, torch.Tensor.sum, torch.Tensor.__matmul__) == held
    assert _get_current_function_mode_stack() == []
    x.sum()
    assert routed == []


def test_products_under_autocast_have_torchs_dtype(matrix):
    with torch.autocast(DEVICE, torch.bfloat16):
        expected = F.linear(vector(5), matrix)
        with override_torch(DEVICE):
            found = F.linear(vector(5), matrix)
    assert found.dtype == expected.dtype == torch.bfloat16


def test_a_compiled_function_can_hold_a_block(x):
    def function(x):
        with override_torch(DEVICE):
            return x.sum(1) + 1

    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(function, backend="eager")(x), x.sum(1) + 1)
