"""Monoids of a user: the laws that register_monoid checks, and reductions with states of one, two and three tiles."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl
from devices import HAS_CUDA
from user_monoids import MINE, SPREAD, SUM, broken, fold_second, fold_times, middle, minus, second

import tri_reduce
import tri_reduce.language as trl
from tri_reduce import register_monoid, targets, verify

for monoid in MINE:
    register_monoid(monoid)


def changed(**changes):
    return dataclasses.replace(SUM, **changes)


@pytest.mark.parametrize("monoid", tri_reduce.MONOIDS.values(), ids=lambda m: m.name)
def test_the_built_in_monoids_obey_the_laws(monoid):
    mine = dataclasses.replace(monoid, name=f"my_{monoid.name}")
    assert register_monoid(mine) is mine


@pytest.mark.parametrize("combine", [minus, middle])
def test_a_combine_that_is_not_associative_is_rejected_with_the_counter_example(combine):
    with pytest.raises(
        ValueError, match=r"not associative: with a = 0, b = 0, c = 1, combine\(combine\(a, b\), c\) = \S+, but combine\(a, .*= \S+$"
    ):
        register_monoid(changed(name="not_associative", combine=combine))
    with pytest.raises(ValueError, match="unknown op 'not_associative'"):
        tri_reduce.reduce(torch.ones(3), "not_associative")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"identity": 1.0}, r"the identity is none: with identity = 1, a = 0, combine\(identity, a\) = 1, but a = 0"),
        ({"fold": fold_times}, r"fold does not do what combine does: with a = 0, b = 0, c = 1, fold\(\[a, b, c\]\) = 0"),
        (
            {"reference": torch.mean},
            r"do not agree with reference: of the values \(0\.0, 0\.0, 1\.0\) they give 1, the reference gives 0\.333",
        ),
        ({"combine": second, "fold": fold_second}, r"combine does not commute"),
        ({"combine": broken}, "cannot be run on sample data"),
        ({"identity": (0.0, 0.0)}, "cannot be run on sample data"),
        ({"name": "sum"}, "'sum' is taken by a built-in op"),
        ({"name": "gemv"}, "taken by a built-in op"),
        ({"name": "spread"}, "'spread' is taken by another registered monoid"),
        ({"name": ""}, "non-empty string"),
    ],
)
def test_what_is_no_monoid_is_rejected_with_the_reason(changes, message):
    with pytest.raises(ValueError, match=message):
        register_monoid(changed(**changes))


def test_only_monoids_can_be_registered():
    with pytest.raises(TypeError, match=r"takes a tri_reduce\.Monoid, got str"):
        register_monoid("sum")


def test_a_monoid_that_depends_on_order_is_refused_everywhere():
    ordered = changed(name="last", combine=second, fold=fold_second, reference=None, commutative=False)
    with pytest.raises(NotImplementedError, match="commutative=False"):
        register_monoid(ordered)
    with pytest.raises(NotImplementedError, match="commutative=False"):
        tri_reduce.reduce(torch.ones(3), ordered)


def test_samples_keep_a_check_inside_the_domain():
    positive = changed(
        name="positive_max", combine=tri_reduce.MONOIDS["max"].combine, fold=tri_reduce.MONOIDS["max"].fold, reference=torch.amax
    )
    with pytest.raises(ValueError, match="the identity is none"):
        register_monoid(positive)
    assert register_monoid(positive, samples=[0, 1, 2.5]) is positive


def test_registering_the_same_object_again_is_no_error():
    assert register_monoid(SPREAD) is SPREAD
    with pytest.raises(ValueError, match="spread"):
        tri_reduce.reduce(torch.ones(3), "spreads")


@pytest.mark.parametrize("split", [None, 3])
@pytest.mark.parametrize("shape_dim", [((5, 300), 1), ((300, 5), 0), ((3, 4, 70), (0, 2))], ids=str)
@pytest.mark.parametrize("monoid", MINE, ids=lambda m: m.name)
def test_a_users_monoid_reduces_by_name_and_as_an_object(monoid, shape_dim, split, device):
    shape, dim = shape_dim
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)
    flat = x.double().movedim(dim, -1) if isinstance(dim, int) else x.double().permute(1, 0, 2).flatten(1)
    want = {
        "noisy_or": 1 - (1 - flat).prod(-1),
        "spread": flat.amax(-1) - flat.amin(-1),
        "crest": flat.amax(-1) / (flat**2).mean(-1).sqrt(),
    }
    forced = tri_reduce.force(split=split, config={"XBLOCK": 1, "R0_BLOCK": 32, "R1_BLOCK": 1}) if split else tri_reduce.force()
    with forced:
        for op in (monoid, monoid.name):
            got = tri_reduce.reduce(x, op, dim)
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.double(), want[monoid.name], rtol=1e-5, atol=0)


def test_a_users_monoid_is_masked_by_where(device):
    x = torch.tensor([[1.0, 5.0, 100.0], [2.0, 2.0, -9.0]], device=device)
    where = torch.tensor([True, True, False], device=device)
    assert tri_reduce.reduce(x, "spread", 1, where=where).tolist() == [4.0, 0.0]


@pytest.mark.parametrize("monoid", MINE, ids=lambda m: m.name)
def test_a_users_monoid_streams_by_name_and_as_an_object(monoid, device):
    x = torch.rand(7, 4, generator=torch.Generator().manual_seed(1)).to(device)
    for op in (monoid, monoid.name):
        r = tri_reduce.Reducer(op, (4,), torch.float32, device)
        for piece in x.split(3):
            r.update(piece)
        torch.testing.assert_close(r.finalize(), tri_reduce.reduce(x, monoid, 0), rtol=1e-5, atol=0)


@triton.jit
def spread_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    acc = trl.init("spread", (BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc = trl.update(acc, tl.load(x_ptr + at, mask=at < n, other=0), "spread", mask=at < n)
    tl.store(out_ptr, trl.finalize(acc, "spread", axis=0))


@pytest.mark.skipif(not targets.interpreting() and not HAS_CUDA, reason="runs a kernel: needs the interpreter or a GPU")
def test_the_device_language_knows_a_registered_name(device):
    x = torch.linspace(-3, 8, 100, device=device)
    out = torch.empty((), device=device)
    spread_kernel[(1,)](x, out, 100, BLOCK=32)
    assert out.item() == 11


@pytest.mark.skipif(targets.interpreting(), reason="kernels are interpreted in this process")
def test_kernels_with_users_monoids_compile_without_a_gpu():
    for monoid in MINE:
        for shape, dim in (((64, 100000), 1), ((100000, 64), 0)):
            record = next(verify.library_kernels("cuda:90", problems=[(monoid.name, shape, dim, "fp32")]))
            verify.assert_deferred(
                record.fn, record.signature, record.constexprs, num_reduce=record.num_reduce, attrs=record.attrs, options=record.options
            )
    assert verify.assert_deferred(spread_kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}, {"BLOCK": 64}) == 2


@pytest.mark.skipif(targets.interpreting(), reason="kernels are interpreted in this process")
def test_a_check_leaves_the_compiler_as_it_was():
    before = {
        name: vars(owner).copy() for name, owner in (("tl", tl), ("core", tl.core), ("tensor", tl.tensor), ("jit", triton.JITFunction))
    }
    register_monoid(changed(name="untouched"))
    assert before == {
        name: dict(vars(owner)) for name, owner in (("tl", tl), ("core", tl.core), ("tensor", tl.tensor), ("jit", triton.JITFunction))
    }


@pytest.mark.skipif(targets.interpreting(), reason="kernels are interpreted in this process")
def test_kernels_compiled_by_name_do_not_outlive_a_change_of_the_monoid():
    """Triton keeps compiled kernels on disk under the kernel's source, in which there is only the name."""
    before = trl.init.cache_key
    register_monoid(changed(name="new_key"))
    assert trl.init.cache_key != before


@pytest.mark.skipif(targets.interpreting(), reason="kernels are interpreted in this process")
def test_kernels_compiled_by_name_do_not_outlive_a_change_of_the_library():
    for function in (trl.init, trl.update, trl.finalize):
        assert function.cache_key and "_SOURCES" in {name for name, _ in function.used_global_vals}
