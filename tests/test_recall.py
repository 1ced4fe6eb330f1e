"""The common call, made again: found by one lookup and one guard, and by nothing that only looks like it."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tri_reduce
from tri_reduce import guards, plans

pytestmark = pytest.mark.usefixtures("no_remembered_plans")


class Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Subclass(torch.Tensor):
    pass


@pytest.fixture
def x(device):
    return (torch.arange(120, device=device) * 37 % 19 - 9).view(3, 40).float()


def test_a_call_goes_the_long_way_once(x, long):
    out = torch.empty(3, device=x.device)
    calls = (
        lambda: tri_reduce.sum(x, 1),
        lambda: tri_reduce.reduce(x, "sum_sq", (0, 1), True),
        lambda: tri_reduce.amax(x, 1, out=out),
        lambda: tri_reduce.gemv(x, x[0]),
        lambda: tri_reduce.gemv(x, x[0], out=out),
    )
    for call in calls:
        long.clear()
        first = call().clone()
        assert len(long) == 1
        assert torch.equal(call(), first) and torch.equal(call(), first) and len(long) == 1


def test_another_layout_dtype_or_alignment_is_another_call(x, long):
    base = torch.zeros(400, device=x.device)
    others = [
        base[:240].view(3, 80)[:, ::2],
        base[:120].view(40, 3).t(),
        base[1:121].view(3, 40),
        base[0:1].expand(3, 40),
        x.double(),
        x.half(),
    ]
    for _ in range(2):
        for t in (x, *others):
            assert torch.equal(tri_reduce.sum(t, 1), t.sum(1)) and torch.equal(
                tri_reduce.gemv(t, t[0]).double(), t.double() @ t[0].double()
            )
    assert len(long) == 2 * (1 + len(others))


@pytest.mark.parametrize("bad", [True, 1.0])
def test_what_only_equals_a_dim_is_refused(x, bad):
    for _ in range(3):
        tri_reduce.sum(x, 1)
        tri_reduce.sum(x, (1,))
        for dim in (bad, (bad,)):
            with pytest.raises(TypeError, match="dim"):
                tri_reduce.sum(x, dim)


def test_dims_made_anew_are_recalled(x, long):
    for _ in range(3):
        assert torch.equal(tri_reduce.sum(x, tuple(range(2))), x.sum())
    assert len(long) == 1


def test_modes_transforms_and_gradients_are_never_passed_by(x, long):
    leaf, frozen = x.clone().requires_grad_(), torch.nn.Parameter(x.clone(), requires_grad=False)
    for t in (x, frozen):
        tri_reduce.sum(t, 1)
        tri_reduce.gemv(t, x[0])
    with torch.no_grad():
        for _ in range(2):
            assert not tri_reduce.sum(leaf, 1).requires_grad
    long.clear()
    assert tri_reduce.sum(leaf, 1).requires_grad and len(long) == 1
    for context in (Function(), Dispatch(), torch.autograd.forward_ad.dual_level(), torch.inference_mode()):
        long.clear()
        with context:
            tri_reduce.sum(x, 1)
            tri_reduce.gemv(x, x[0])
        assert len(long) == 2
    long.clear()
    tri_reduce.sum(x.as_subclass(Subclass), 1)
    torch.vmap(lambda t: t + tri_reduce.sum(x, 1))(torch.zeros(2, 3, device=x.device))
    torch.func.grad(lambda t: (t * tri_reduce.sum(x, 1)).sum())(x[:, 0].clone())
    assert len(long) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(lambda t: tri_reduce.sum(t, 1), (x,), check_trace=False)
    assert len(long) >= 4


def test_a_default_device_changes_nothing(x, long):
    for _ in range(2):
        with torch.device(x.device):
            tri_reduce.sum(x, 1)
            tri_reduce.gemv(x, x[0], out=torch.empty(3, device=x.device))
    assert len(long) == 2


def test_autocast_changes_what_was_recalled(device):
    x = torch.ones(3, 40, device=device, dtype=torch.bfloat16)
    for _ in range(2):
        assert tri_reduce.prod(x, 1).dtype == torch.bfloat16
        with torch.autocast(device):
            assert tri_reduce.prod(x, 1).dtype == torch.float32


def test_a_negated_view_is_not_taken_for_a_plain_tensor(device):
    z = torch.complex(torch.zeros(4, 33, device=device), torch.ones(4, 33, device=device))
    negated = z.conj().imag
    plain = torch.view_as_real(z).select(-1, 1)
    assert negated.is_neg() and negated.stride() == plain.stride()
    for _ in range(3):
        assert tri_reduce.sum(plain, 1).tolist() == [33] * 4 and tri_reduce.sum(negated, 1).tolist() == [-33] * 4


def test_an_out_that_overlaps_the_input_is_never_written_while_it_is_read(device):
    base = torch.arange(80, device=device).float()
    x, apart, within = base[:64].view(8, 8), torch.empty(8, device=device), base[32:40]
    want = x.sum(0)
    for _ in range(3):
        tri_reduce.sum(x, 0, out=apart)
        assert torch.equal(apart, want)
        kept = base.clone()
        tri_reduce.sum(x, 0, out=within)
        assert torch.equal(within, want)
        base.copy_(kept)
    vector = base[64:72]
    product = x @ vector
    for out in (apart, apart, vector):
        assert torch.equal(tri_reduce.gemv(x, vector, out=out), product)


def test_a_backward_knows_that_a_recalled_call_wrote_what_it_saved(x):
    leaf, saved = torch.ones(3, device=x.device, requires_grad=True), torch.ones(3, device=x.device)
    for call in (lambda: tri_reduce.sum(x, 1, out=saved), lambda: tri_reduce.gemv(x, x[0], out=saved)):
        call()
        call()
        product = (leaf * saved).sum()
        call()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


def test_a_nested_tensor_is_refused_not_fatal(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([x[0], x[1], x[2]])
        vector, out = torch.nested.nested_tensor([x[0]]), torch.nested.nested_tensor([x[:, 0]])
    fine = torch.empty(3, device=x.device)
    for _ in range(2):
        tri_reduce.sum(x, 1, out=fine)
        tri_reduce.gemv(x, x[0], out=fine)
    for call in (
        lambda: tri_reduce.sum(nested, 1),
        lambda: tri_reduce.sum(x, 1, out=out),
        lambda: tri_reduce.gemv(nested, x[0]),
        lambda: tri_reduce.gemv(x, vector),
        lambda: tri_reduce.gemv(x, x[0], out=out),
        lambda: tri_reduce.gemv(x, vector, out=fine),
    ):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            call()


def test_what_is_recalled_goes_with_the_plans(x, long):
    tri_reduce.sum(x, 1)
    assert plans.PLANS.short
    plans.PLANS.clear()
    assert not plans.PLANS.short
    with tri_reduce.autotune.policy("cached"):
        tri_reduce.sum(x, 1)
        plans._forget_cached()
    assert not plans.PLANS.short


def test_few_calls_of_one_key_are_kept(x):
    base = torch.zeros(8192, device=x.device)
    for step in range(1, guards.MOST + 3):
        view = base[: 120 * step].view(3, 40 * step)[:, ::step]
        assert torch.equal(tri_reduce.sum(view, 1), view.sum(1))
    (entry,) = plans.PLANS.short.values()
    depth = 0
    while entry is not None:
        entry, depth = entry[-1], depth + 1
    assert depth == guards.MOST


def test_threads_recall_their_own_results(reference):
    start = threading.Barrier(8)

    def work(k):
        start.wait()
        tensors = [torch.full((2, 5 + n), float(k)) for n in range(3)]
        return all(tri_reduce.sum(t, 1).tolist() == [k * t.shape[1]] * 2 for _ in range(5) for t in tensors)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_updates_after_the_second_of_a_layout_are_told_from_others(device):
    r = tri_reduce.Reducer("sum", (8,), torch.float32, device)
    base, want = torch.ones(4096, device=device), torch.zeros(8, device=device)
    tiles = [base[:64].view(8, 8), base[1:65].view(8, 8), base[:64].view(8, 8).t(), base[:128].view(16, 8), base[:64].view(8, 8).half()]
    for n, tile in enumerate([*[tiles[0]] * 4, *tiles, *tiles, *[tiles[3]] * 3]):
        scaled = torch.empty_strided(tile.shape, tile.stride(), dtype=tile.dtype, device=device).fill_(n)
        r.update(scaled, 0)
        want += n * tile.shape[0]
    for mask, dim in ((tiles[0] > 2, 0), (None, 1)):
        r.update(tiles[0], dim, where=mask)
        want += 0 if mask is not None else 8
    with pytest.raises(tri_reduce.ReducerError):
        r.update(tiles[0], 0, offset=3)
    assert torch.equal(r.finalize(), want)
    with pytest.raises(tri_reduce.UpdateAfterFinalizeError):
        r.update(tiles[0], 0)
    r.reset()
    for _ in range(2):
        r.update(tiles[0], 0)
        with pytest.raises(TypeError, match="dim"):
            r.update(tiles[0], False)
    assert r.finalize().tolist() == [16.0] * 8


def test_a_finalizer_is_not_kept_for_states_of_others(device):
    one, other = (tri_reduce.Reducer("sum", (4,), torch.float32, device) for _ in range(2))
    for n in (1.0, 2.0):
        for r in (one, other):
            r.reset()
            r.update(torch.full((3, 4), n, device=device))
        other.merge(one)
        assert other.finalize().tolist() == [6 * n] * 4
        one.reset()
        assert one.finalize().tolist() == [0.0] * 4
