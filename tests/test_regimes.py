"""Every plan gives the answer of the simplest one: lanes, tiles, splits and layouts choose speed, never how often a value counts."""

import functools
import itertools

import pytest
import torch
from bounds import check
from devices import ON_GPU, REFERENCE
from gemv_oracle import check_gemv
from oracle import BITWISE, NEED_FLOAT, OPS

import tri_reduce

pytestmark = pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
reduce, gemv, force = tri_reduce.reduce, tri_reduce.gemv, tri_reduce.force
LONG = 5003 if ON_GPU else 13
SIMPLEST = dict(regime="strided", split=1, config={"XBLOCK": 16, "R0_BLOCK": 1})
PLANS = {
    "thread": dict(regime="thread"),
    "rows": dict(regime="rows"),
    "columns": dict(regime="columns"),
    "strided": dict(regime="strided"),
    "split 2": dict(split=2, config={"XBLOCK": 2, "R0_BLOCK": 4}),
    "split 3": dict(regime="columns", split=3, config={"XBLOCK": 4, "R0_BLOCK": 2}),
    "ragged split": dict(regime="rows", config={"XBLOCK": 2, "R0_BLOCK": 2, "SPLIT": 4, "num_warps": 1}),
    "one tile": dict(config={"XBLOCK": 8, "R0_BLOCK": 64, "num_warps": 8}),
    "own tile": dict(config={"XBLOCK": 1, "R0_BLOCK": 16}),
}
LAYOUTS = {
    "rows": lambda f: (f(3, LONG), 1),
    "tiny rows": lambda f: (f(9, 4), 1),
    "columns": lambda f: (f(LONG, 5), 0),
    "vector columns": lambda f: (f(LONG, 8), 0),
    "strided": lambda f: (f(3, 2 * LONG, 2)[::2, ::2, 1], 1),
    "padded rows of odd stride": lambda f: (f(4, LONG + 4)[1:, 1 : LONG + 1], 1),
    "misaligned start": lambda f: (f(3 * LONG + 3)[3:].view(3, LONG), 1),
    "NCHW over N, H, W": lambda f: (f(2, 3, 4, 5), (0, 2, 3)),
    "NHWC over N, H, W": lambda f: (f(2, 4, 5, 3).permute(0, 3, 1, 2), (0, 2, 3)),
    "middle of three": lambda f: (f(2, 13, 3), 1),
    "alternating": lambda f: (f(2, 3, 2, 3, 4), (0, 2, 4)),
    "expanded": lambda f: (f(3, 1, 7).expand(3, 5, 7), (1, 2)),
}


def filled(dtype, device):
    def make(*shape):
        n = torch.Size(shape).numel()
        x = (torch.arange(n) * 7919 % 61 - 20) * (0.37 if dtype.is_floating_point else 1)
        return x.view(shape).to(dtype).to(device)

    return make


def dtypes_of(op):
    floats, ints = (torch.float32, torch.bfloat16), (torch.int32, torch.int8)
    if op == "prod":  # of ones, so that no product overflows
        return ints
    return ints if op in BITWISE else floats if op in (*NEED_FLOAT, "logsumexp") else (floats[0], ints[0])


def one_dim(op, dim):
    return dim[-1] if op in ("argmax", "argmin") and isinstance(dim, tuple) else dim


def under(plan, call):
    """The answer under a plan, or None where the plan is illegal for the problem and says so."""
    try:
        with force(**plan):
            return call()
    except ValueError as e:
        assert any(word in str(e) for word in ("regime 'thread'", "split=", "R1_BLOCK")), e
        return None


def compare(call, verify, plans):
    """How many of the plans are legal, all of which have to be right: for integers, exactly what the simplest one gives."""
    simplest, ran = under(SIMPLEST, call), 0
    verify(simplest)
    for name, plan in plans:
        got = under(plan, call)
        if got is not None:
            ran += 1
            verify(got)
            assert got.is_floating_point() or torch.equal(got, simplest), name
    return ran


def compare_reduction(x, op, dim, plans, **options):
    return compare(lambda: reduce(x, op, dim, **options), lambda got: check(got, x, op, dim, **options), plans)


def compare_product(a, x, plans, **options):
    return compare(lambda: gemv(a, x, **options), lambda got: check_gemv(got, a, x, **options), plans)


def some_plans(n):
    """Each in turn: five on a GPU, two in the interpreter."""
    plans, count = list(PLANS.items()), 5 if ON_GPU else 2
    return [plans[(n * count + i) % len(plans)] for i in range(count)]


def cases(ops):
    """Every op on every layout on a GPU, on some layouts in the interpreter, with a number that tells which plans."""
    for (i, op), (j, layout) in itertools.product(enumerate(ops), enumerate(LAYOUTS)):
        if ON_GPU or (i + j) % 4 == 0:
            yield pytest.param(op, layout, i + j * 5, id=f"{op} of {layout}")


@pytest.mark.parametrize("op, layout, n", cases(OPS))
def test_an_op_means_the_same_under_every_plan(op, layout, n, device):
    dtype = dtypes_of(op)[n // 4 % 2]
    x, dim = LAYOUTS[layout](filled(dtype, device))
    compare_reduction(x.clamp(-1, 1) if op == "prod" else x, op, one_dim(op, dim), some_plans(n))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("op", ["sum", "max", "argmax"])
def test_integers_are_exact_under_each_plan_on_each_layout(op, plan, device):
    ran = 0
    for n, (layout, build) in enumerate(LAYOUTS.items()):
        if ON_GPU or (n + len(op)) % 3 == 0:
            x, dim = build(filled(torch.int32, device))
            ran += compare_reduction(x, op, one_dim(op, dim), [(layout, PLANS[plan])])
    assert ran or plan == "thread"


@pytest.mark.parametrize("op, layout, n", cases(["sum", "max", "mean", "argmin", "var", "logsumexp", "any"]))
def test_a_masked_op_means_the_same_under_every_plan(op, layout, n, device):
    x, dim = LAYOUTS[layout](filled(torch.float32, device))
    mask = (torch.arange(x.shape[-1], device=device) % 3 > 0).expand(x.shape)
    if layout != "expanded":
        x.masked_fill_(~mask, float("nan"))
    compare_reduction(x, op, one_dim(op, dim), some_plans(n), where=mask)


@pytest.mark.parametrize("plan", PLANS)
def test_seeds_and_old_values_count_once_under_every_plan(plan, device):
    x = filled(torch.int32, device)(3, LONG)
    for view, dim in ((x, 1), (x.t(), 0), (x.t().contiguous(), 0)):
        out = torch.full((3, 2), 1000, dtype=torch.int64, device=device)[:, 1]
        call = functools.partial(reduce, view, "sum", dim, initial=100, out=out, accumulate=True)
        if under(PLANS[plan], call) is not None:
            assert torch.equal(out, x.sum(1) + 1100)


@pytest.mark.parametrize("order", [0, 1, 3, float("inf"), -float("inf")])
def test_a_norm_of_any_order_means_the_same_under_every_plan(order, device):
    for n, layout in enumerate(("rows", "columns", "NCHW over N, H, W")):
        if ON_GPU or order in (3, n):
            x, dim = LAYOUTS[layout](filled(torch.float32, device))
            compare_reduction(x, "norm", dim, some_plans(n + 2), ord=order)


MATRICES = {
    "row-major": lambda f: (f(5, LONG), f(LONG)),
    "column-major": lambda f: (f(LONG, 5).t(), f(LONG)),
    "vector column-major": lambda f: (f(LONG, 8).t(), f(LONG)),
    "tiny rows": lambda f: (f(9, 4), f(4)),
    "odd stride": lambda f: (f(5, LONG + 3)[:, 1 : LONG + 1], f(LONG + 1)[1:]),
    "strided": lambda f: (f(6, 2 * LONG)[::2, ::2], f(3 * LONG)[::3]),
    "batched": lambda f: (f(2, 3, 13), f(2, 13)),
    "broadcast": lambda f: (f(3, 13), f(2, 13)),
}


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float32, torch.bfloat16], ids=str)
def test_a_product_means_the_same_under_every_plan(dtype, matrix, device):
    a, x = MATRICES[matrix](filled(dtype, device))
    n = list(MATRICES).index(matrix)
    compare_product(a, x, some_plans(n))
    y = torch.full_like(gemv(a, x), 3)
    compare_product(a, x, some_plans(n + 1)[-1:], alpha=2, beta=-3, y=y)


def test_every_split_of_a_row_is_right_and_one_too_many_is_refused(device):
    x = filled(torch.int32, device)(2, 11)
    for n in range(1, 12):
        with force(regime="columns", split=n, config={"R0_BLOCK": 1, "XBLOCK": 2}):
            assert torch.equal(reduce(x, "sum", 1), x.sum(1)) and (n % 4 or torch.equal(reduce(x, "argmax", 1), x.argmax(1))), n
    with force(regime="columns", split=12, config={"R0_BLOCK": 1}), pytest.raises(ValueError, match="split=12"):
        reduce(x, "sum", 1)


INVARIANT = ("sum", "mean", "var", "logsumexp", "norm")


def noise(device, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(device)


@pytest.mark.parametrize("op", INVARIANT)
def test_invariant_gives_the_same_bits_for_an_output_in_any_batch(op, device):
    """As a slice of the batch, as a tensor of its own, at any start: rows, columns, and axes on both sides of the batch."""
    many = 3000 if ON_GPU else 70
    tensors = [(noise(device, 13, many), 0, 1), (noise(device, many, 13), 1, 0), (noise(device, 2, 12, 5, many // 5), 1, (0, 2, 3))]
    for x, batch, dim in tensors:
        whole = reduce(x, op, dim, determinism="invariant")
        for first, count in ((0, 1), (4, 1), (3, 5), (1, 11)):
            part = x.narrow(batch, first, count)
            for copy in (part, part.contiguous(), torch.cat([noise(device, 1), part.reshape(-1)])[1:].view(part.shape)):
                assert torch.equal(reduce(copy, op, dim, determinism="invariant"), whole[first : first + count]), (x.shape, copy.stride())


@pytest.mark.parametrize("trans", [False, True])
def test_an_invariant_product_has_the_same_bits_in_any_batch(trans, device):
    n = 3000 if ON_GPU else 70
    a, x = noise(device, 2, n, 9) if trans else noise(device, 2, 9, n), noise(device, 2, n)
    whole = gemv(a, x, trans=trans, determinism="invariant")
    for first, count in ((0, 1), (2, 4), (1, 8)):
        part = a.narrow(2 if trans else 1, first, count)
        for copy, batch in itertools.product((part, part.contiguous()), (slice(0, 1), slice(0, 2))):
            assert torch.equal(gemv(copy[batch], x[batch], trans=trans, determinism="invariant"), whole[batch, first : first + count])
    single = a[1] if trans else a[1].contiguous()
    assert torch.equal(gemv(single, x[1], trans=trans, determinism="invariant"), whole[1])


def test_invariant_bits_do_not_follow_the_policy(device):
    x = noise(device, 4, 3001 if ON_GPU else 301)
    want = reduce(x, "sum", 1, determinism="invariant")
    for name in tri_reduce.autotune.POLICIES:
        with tri_reduce.autotune.policy(name):
            reduce(x, "sum", 1)
            assert torch.equal(reduce(x, "sum", 1, determinism="invariant"), want)
