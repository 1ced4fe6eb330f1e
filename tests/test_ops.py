"""`torch.ops.tri_reduce.*`: who sees a call, and what fake kernels, batching rules and compilers make of it."""

import warnings

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

import tri_reduce
from tri_reduce import ops

F64 = torch.float64
BITWISE = ("and", "or", "xor")
SAMPLES = [(name, n) for name, found in ops.samples().items() for n in range(len(found))]


def values(op, *shape, device="cpu", seed=0):
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64).mul(4).to(device)
    return found.long() if op in BITWISE else found


class Seen(TorchDispatchMode):
    """The library's operators that were called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names += [func.name()] if func.namespace == "tri_reduce" else []
        return func(*args, **(kwargs or {}))


class Overriding(TorchFunctionMode):
    """A function mode that changes nothing."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Subclass(torch.Tensor):
    """A subclass of torch's default behaviour."""


def under(mode, t, *others):
    with mode:
        return ops.is_plain(t, *others)


def test_only_calls_that_nobody_watches_are_plain():
    x, leaf, parameter = torch.ones(3), torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    with torch.inference_mode():
        inferred = torch.ones(3)
        assert ops.is_plain(inferred) and ops.is_plain(leaf) and ops.is_plain(x, None, parameter)
    with torch.no_grad():
        assert ops.is_plain(leaf) and ops.is_plain(parameter, leaf) and ops.is_plain(x, leaf, leaf, parameter)
    assert ops.is_plain(x) and ops.is_plain(x, x, None, x) and ops.is_plain(frozen, frozen) and ops.is_plain(inferred)
    assert ops.is_plain([1.0]) and under(Seen(), [1.0]) and ops.is_plain(x, "no tensor")  # for validation to name
    for other in (leaf, parameter, leaf * 2, TwoTensor(x, x), Subclass(), FakeTensorMode().from_tensor(x)):
        assert (
            not ops.is_plain(other) and not ops.is_plain(x, other) and not ops.is_plain(x, None, other) and not ops.is_plain(x, x, x, other)
        )
    for mode in (Seen(), Overriding(), FakeTensorMode(), torch.autograd.forward_ad.dual_level()):
        assert not under(mode, x, None, x)
    assert under(torch.device("cpu"), x, x)
    seen = []
    for transform in (torch.vmap, torch.func.grad, torch.func.functionalize):
        transform(lambda t: (seen.append(ops.is_plain(x)), t.sum())[1])(x)
    make_fx(lambda t: (seen.append(ops.is_plain(x)), t.sum())[1])(x)
    torch.compile(lambda t: t + (1 if ops.is_plain(t) else 0), backend="eager", fullgraph=True)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(lambda t: (seen.append(ops.is_plain(x)), t.sum())[1], (x,), check_trace=False)
    assert not any(seen) and len(seen) == 5


def test_a_dispatch_mode_sees_public_calls_as_operators(device):
    x, a = torch.ones(2, 3, device=device), torch.ones(3, 3, device=device)
    with Seen() as seen:
        assert tri_reduce.sum(x, 1).tolist() == [3, 3]
        tri_reduce.argmax(x)
        tri_reduce.reduce(x, "max", 0, out=torch.empty(3, device=device))
        tri_reduce.gemv(a, a[0])
        tri_reduce.gemv(a, a[0], out=torch.empty(3, device=device))
    assert [n.removeprefix("tri_reduce::") for n in seen.names] == ["reduce", "reduce", "reduce_out", "gemv", "gemv_out"]
    with Overriding():
        assert tri_reduce.sum(x, 1).tolist() == [3, 3]


def test_samples_name_every_operator():
    defined = {n.split("::")[1].split(".")[0] for n in torch._C._dispatch_get_all_op_names() if n.startswith("tri_reduce::")}
    assert set(ops.samples()) == defined


@pytest.mark.parametrize(("name", "n"), SAMPLES, ids=lambda v: str(v))
def test_opcheck_finds_nothing(name, n, device, reference):
    args, kwargs = ops.samples(device)[name][n]
    torch.library.opcheck(getattr(torch.ops.tri_reduce, name).default, args, kwargs)


def test_a_fake_result_looks_like_the_real_one(device):
    layouts = (lambda x: x, lambda x: x.permute(2, 0, 1), lambda x: x[:, ::2], lambda x: x[:1].expand(2, 3, 4))
    dtypes = dict.fromkeys(tri_reduce.MONOIDS) | {"sum": torch.float32, "norm": torch.float64}
    for k, op in enumerate(tri_reduce.MONOIDS):
        for dim, keepdim in ((None, False), (-1, True), (1, False), *(() if "arg" in op else (((0, 2), False),))):
            x = layouts[k % 4]((torch.arange(24, device=device).reshape(2, 3, 4) % 7).to(torch.int32 if op in BITWISE else torch.bfloat16))
            options = {"dtype": dtypes[op], "where": x > 1 if k % 3 == 0 else None}
            real = tri_reduce.reduce(x, op, dim, keepdim, **options)
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            fake = tri_reduce.reduce(mode.from_tensor(x), op, dim, keepdim, **options)
            assert (fake.shape, fake.dtype, fake.stride(), fake.device.type) == (real.shape, real.dtype, real.stride(), real.device.type)


def test_a_bad_argument_is_the_same_error_whoever_watches(device):
    x = torch.ones(2, 3, device=device)
    for arguments in (
        {"op": "no op"}, {"dim": 2}, {"dim": (0, 0)}, {"dim": True}, {"op": "argmax", "dim": (1,)}, {"where": x}, {"where": "no"},
        {"op": "mean", "initial": 1}, {"initial": "a"}, {"accumulate": True}, {"determinism": "sometimes"}, {"op": "norm", "ord": "fro"},
        {"op": "var", "correction": "a"}, {"op": "xor"}, {"dtype": 3}, {"out": torch.ones(5, device=device)}, {"out": [1.0]},
    ):  # fmt: skip
        arguments = {"op": "sum"} | arguments
        with pytest.raises(Exception) as plain:
            tri_reduce.reduce(x, **arguments)
        with Seen(), pytest.raises(plain.type) as watched:
            tri_reduce.reduce(x, **arguments)
        assert str(watched.value) == str(plain.value)


def mapped(f, *operands, in_dims=0):
    """vmap against a Python loop."""
    got = torch.vmap(f, in_dims=in_dims)(*operands)
    dims = (in_dims,) * len(operands) if isinstance(in_dims, int) else in_dims
    size = next(t.shape[d] for t, d in zip(operands, dims) if d is not None)
    want = torch.stack([f(*(t if d is None else t.select(d, i) for t, d in zip(operands, dims))) for i in range(size)])
    torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("op", tri_reduce.MONOIDS)
def test_vmap_is_a_loop(op, reference):
    x, where = values(op, 3, 2, 4), torch.arange(24).reshape(3, 2, 4) % 3 > 0
    for dim, keepdim in ((None, False), (None, True), (-1, False), (0, True)):

        def f(x, w=None, dim=dim, keepdim=keepdim):
            return tri_reduce.reduce(x, op, dim, keepdim, where=w)

        mapped(f, x)
        mapped(f, x, in_dims=-1)
        mapped(f, x, where, in_dims=(0, 0))
        mapped(f, x, where[0, 0], in_dims=(0, None))
        mapped(f, x, where[:, 0], in_dims=(0, 0))
        mapped(f, x[0], where, in_dims=(None, 0))
    mapped(lambda x: tri_reduce.reduce(x, op, keepdim=True), x[0, 0])
    mapped(torch.vmap(lambda x: tri_reduce.reduce(x, op, 0), in_dims=1), x)


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0), (2, 1, None), (None, -1, 1)])
def test_vmap_of_gemv_is_a_loop(dims, reference):
    for trans in (False, True):
        for batch_a, batch_x in (((), ()), ((2,), ()), ((), (2,)), ((1,), (2,))):
            batch = torch.broadcast_shapes(batch_a, batch_x)
            a, x, y = values("", *batch_a, *((4, 3) if trans else (3, 4))), values("", *batch_x, 4, seed=1), values("", *batch, 3, seed=2)
            a, x, y = (
                t if d is None else torch.stack([t, t * 2, t - 1], min(d, t.dim()) if d >= 0 else d) for t, d in zip((a, x, y), dims)
            )
            in_dims = tuple(d if d is None or d < 0 else min(d, t.dim() - 1) for t, d in zip((a, x, y), dims))

            def f(a, x, y, trans=trans):
                return tri_reduce.gemv(a, x, y=y, alpha=2, beta=3, trans=trans)

            mapped(f, a, x, y, in_dims=in_dims)


def test_gradients_of_single_samples():
    x, a = values("", 4, 3), values("", 2, 3, seed=1)
    got = torch.vmap(torch.func.grad(lambda x: tri_reduce.logsumexp(tri_reduce.gemv(a, x))))(x)
    torch.testing.assert_close(got, (x @ a.mT).softmax(-1) @ a)


def test_a_gradient_under_a_mask_on_this_device(device):
    x, where = values("", 4, 5), torch.arange(20).reshape(4, 5) % 3 > 0
    for op in ("max", "prod", "std", "logsumexp"):
        ours, theirs = x.clone().to(device).requires_grad_(), x.clone().requires_grad_()
        tri_reduce.reduce(ours, op, 1, where=where.to(device)).sum().backward()
        rows = [getattr(torch, {"max": "amax"}.get(op, op))(row[w], 0) for row, w in zip(theirs, where)]
        torch.stack(rows).sum().backward()
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_negated_views_are_read_and_written_as_what_they_mean(device):
    z = torch.complex(torch.ones(4), torch.arange(4.0)).to(device)
    x = z.conj().imag
    assert x.is_neg() and tri_reduce.sum(x).item() == -6 and tri_reduce.gemv(x[None], x).item() == 14
    tri_reduce.reduce(torch.ones(4, 3, device=device), "sum", 1, out=x)
    assert x.tolist() == [3, 3, 3, 3] and z.imag.tolist() == [-3, -3, -3, -3]


def test_a_backward_that_saved_out_learns_that_it_was_overwritten(device):
    saved = torch.ones(3, device=device)
    y = (saved * torch.ones(3, requires_grad=True, device=device)).sum()
    tri_reduce.reduce(torch.ones(3, 2, device=device), "sum", 1, out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
