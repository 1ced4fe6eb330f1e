"""The deferred reducer: each contribution counts once, whatever brought it. The scenarios are those of the RFC that it grew from."""

import contextlib
import math

import pytest
import torch
from devices import REFERENCE
from oracle import NEED_FLOAT, OPS, SEEDED

import tri_reduce
from tri_reduce import Reducer

inf, nan = math.inf, math.nan
FLOAT = {op: torch.int32 if op in ("and", "or", "xor") else torch.float32 for op in OPS}


def positions(op, first):
    return {"offset": first} if op in ("argmax", "argmin") else {}


def stream(op, tiles, shape=(), dtype=torch.float32, device="cpu", **options):
    r, first = Reducer(op, shape, dtype, device, **options), 0
    for tile in tiles:
        r.update(tile, **positions(op, first))
        first += tile.shape[0]
    return r.finalize()


@pytest.mark.parametrize("programs", range(1, 9))
def test_one_to_eight_is_36_at_any_number_of_programs(programs, device):
    r = Reducer("sum", (), torch.float32, device)
    with tri_reduce.force(split=programs, config={"R0_BLOCK": 1}):
        r.update(torch.arange(1.0, 9.0, device=device))
    assert r.finalize().item() == 36


def test_sites_of_width_8_and_16_add_up(device):
    tiles = [torch.arange(1.0, 9.0, device=device), torch.arange(1.0, 17.0, device=device)]
    assert stream("sum", tiles, device=device).item() == 36 + 136


@pytest.mark.parametrize("programs", [1, 3, 8])
def test_a_seed_counts_once_whatever_the_programs(programs, device):
    r = Reducer("sum", (), torch.float32, device, initial=100)
    with tri_reduce.force(split=programs, config={"R0_BLOCK": 1}):
        r.update(torch.arange(1.0, 9.0, device=device))
    assert r.finalize().item() == 136


def test_a_seed_is_read_when_the_reducer_is_made(device):
    source = torch.tensor(100.0, device=device)
    r = Reducer("sum", (), torch.float32, device, initial=source)
    source.fill_(-1)
    r.update(torch.arange(1.0, 9.0, device=device))
    assert r.finalize().item() == 136


def test_inputs_are_read_when_they_are_given(device):
    x = torch.arange(1.0, 9.0, device=device)
    r = Reducer("sum", (), torch.float32, device)
    r.update(x)
    x.fill_(1000)
    assert r.finalize().item() == 36


@pytest.mark.parametrize("step", [7, 32, 100])
def test_a_matrix_vector_product_over_tiles_that_do_not_divide(step, device):
    g = torch.Generator().manual_seed(step)
    a, x = torch.randint(-8, 9, (5, 100), generator=g).float().to(device), torch.randint(-8, 9, (100,), generator=g).float().to(device)
    r = Reducer("sum", (5,), torch.float32, device)
    for k in range(0, 100, step):
        r.update(a[:, k : k + step] * x[k : k + step], dim=1)
    assert torch.equal(r.finalize(), a @ x)


def test_predicated_updates_count_what_is_enabled(device):
    x, where = torch.arange(24.0, device=device).reshape(4, 6), torch.arange(24, device=device).reshape(4, 6) % 3 == 0
    r = Reducer("sum", (6,), torch.float32, device)
    r.update(x, where=where)
    r.update(x, where=where[1:2])
    r.update(x, where=torch.tensor(False, device=device))
    assert torch.equal(r.finalize(), (x * where).sum(0) + (x * where[1:2]).sum(0))


@pytest.mark.parametrize("op, want", [("max", [-1.0, -2.0, -3.0]), ("min", [-31.0, -32.0, -33.0])])
def test_extremes_of_negatives_with_ragged_tails(op, want, device):
    x = -torch.arange(1.0, 34.0, device=device).reshape(11, 3)
    assert stream(op, x.split([1, 7, 3]), (3,), device=device).tolist() == want


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "mean", "logsumexp", "norm", "var"])
@pytest.mark.parametrize("place", ["local", "across programs", "seed"])
def test_a_nan_reaches_the_result_and_only_its_own_output(op, place, device):
    if place == "seed" and op not in SEEDED:
        pytest.skip("takes no seed")
    x = torch.ones(64, 2, device=device)
    r = Reducer(op, (2,), torch.float32, device, initial=nan if place == "seed" else None)
    if place != "seed":
        x[63 if place == "local" else 40, 0] = nan
    with tri_reduce.force(split=4, config={"R0_BLOCK": 16, "XBLOCK": 2}) if place == "across programs" else contextlib.nullcontext():
        r.update(x, 0)
    r.update(torch.ones(3, 2, device=device), 0)
    assert r.finalize().isnan().tolist() == ([True, True] if place == "seed" else [True, False])


@pytest.mark.parametrize("op", ["sum", "var", "argmax"])
def test_batched_and_scalar_finalize_agree_for_every_output(op, device):
    x = torch.randn(33, 9, generator=torch.Generator().manual_seed(1)).to(device)
    batched = stream(op, x.split(16), (9,), device=device)
    scalar = torch.stack([stream(op, column.split(16), device=device) for column in x.unbind(1)])
    assert torch.allclose(batched.double(), scalar.double(), rtol=1e-6, atol=1e-5)


EMPTY = {
    "sum": 0, "prod": 1, "max": -inf, "min": inf, "mean": nan, "any": False, "all": True, "and": -1, "or": 0, "xor": 0, "argmax": 0,
    "argmin": 0, "var": nan, "std": nan, "logsumexp": -inf, "norm": 0, "count_nonzero": 0, "abs_sum": 0, "abs_max": 0, "sum_sq": 0,
}  # fmt: skip


@pytest.mark.parametrize("op", OPS)
def test_no_update_gives_the_identity(op, device):
    for r in (Reducer(op, (2,), FLOAT[op], device), Reducer(op, (2,), FLOAT[op], device)):
        r.update(torch.zeros(0, 2, dtype=FLOAT[op], device=device))
        for got in r.finalize().tolist():
            assert got == EMPTY[op] or (math.isnan(got) and math.isnan(EMPTY[op]))


@pytest.mark.parametrize("op", SEEDED)
def test_no_update_gives_the_seed(op, device):
    got = Reducer(op, (2,), FLOAT[op], device, initial=1).finalize()
    assert got.tolist() == [True, True] if op in ("any", "all") else [1, 1]


@pytest.mark.parametrize("dtype, want", [(torch.int8, -128), (torch.uint8, 0), (torch.int64, -(2**63)), (torch.bool, False)])
def test_max_of_nothing_is_the_lowest_value_of_the_dtype(dtype, want, device):
    assert Reducer("max", (), dtype, device).finalize().item() == want


def test_an_update_with_equal_shapes_reduces_nothing(device):
    r = Reducer("max", (2, 3), torch.float32, device)
    x = torch.arange(6.0, device=device).reshape(2, 3)
    r.update(x)
    r.update(x.flip(0, 1))
    assert torch.equal(r.finalize(), torch.maximum(x, x.flip(0, 1)))


@pytest.mark.parametrize("op, want", [("argmax", 12), ("argmin", 3)])
def test_positions_count_from_the_offset_and_the_first_wins(op, want, device):
    x = torch.zeros(20, device=device)
    x[[12, 15]], x[[3, 18]] = 5, -5
    r = Reducer(op, (), torch.float32, device)
    r.update(x[10:], offset=10)  # tiles may come in any order
    r.update(x[:10], offset=0)
    got = r.finalize()
    assert got.item() == want and got.dtype == torch.int64


def test_a_position_past_32_bits(device):
    r = Reducer("argmax", (), torch.float32, device)
    r.update(torch.tensor([1.0, 3.0, 2.0], device=device), offset=2**33)
    assert r.finalize().item() == 2**33 + 1


@pytest.mark.parametrize("size", [4, 7, 100])
def test_a_variance_far_from_zero_keeps_its_digits(size, device):
    x = 1e8 + 64 * torch.randn(200, generator=torch.Generator().manual_seed(0))
    got = stream("var", x.to(device).split(size), device=device)
    assert math.isclose(got.item(), x.double().var().item(), rel_tol=1e-6)


def test_many_small_updates_are_as_exact_as_one(device):
    r, n = Reducer("sum", (), torch.float32, device), 20000 if REFERENCE or device != "cpu" else 100
    x = torch.full((1,), 0.1, device=device)
    for _ in range(n):
        r.update(x)
    assert math.isclose(r.finalize().item(), n * x.double().item(), rel_tol=1e-6)


@pytest.mark.parametrize("out_dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_result_goes_to_any_float(out_dtype, device):
    r, out = Reducer("mean", (3,), torch.float32, device), torch.zeros(3, 2, dtype=out_dtype, device=device)[:, 0]
    x = torch.tensor([[1.0, 2.0, 3.0], [2.5, 4.0, 4.0]], device=device)
    r.update(x)
    assert r.finalize(out) is out and r.value is out
    assert out.tolist() == [1.75, 3.0, 3.5]


@pytest.mark.parametrize("narrow", [torch.bool, torch.int8, torch.float16, torch.bfloat16])
def test_narrower_values_join(narrow, device):
    r = Reducer("sum", (2,), torch.float32, device)
    r.update(torch.tensor([[1.0, 0.0], [1.0, 1.0]], device=device).to(narrow))
    r.update(torch.tensor([0.5, 0.25], device=device))
    assert r.finalize().tolist() == [2.5, 1.25]


@pytest.mark.parametrize("op", OPS)
def test_every_op_of_a_stream_is_that_of_the_whole(op, device):
    dtype = FLOAT[op] if op in NEED_FLOAT else torch.int32
    dtype = torch.float32 if op == "logsumexp" else dtype
    x = torch.randint(-3, 4, (12, 5), generator=torch.Generator().manual_seed(3)).to(dtype).to(device)
    got = stream(op, x.split([5, 1, 6]), (5,), dtype, device)
    assert torch.allclose(got.double(), tri_reduce.reduce(x, op, 0).double(), rtol=1e-6)


def test_several_ops_are_fed_by_one_update(device):
    x = torch.arange(12.0, device=device).reshape(4, 3)
    r = Reducer(["sum", "max", "min", "argmax"], (3,), torch.float32, device, initial=[1.0, None, -5.0, None])
    r.update(x)
    total, most, least, where = r.finalize()
    assert torch.equal(total, x.sum(0) + 1) and torch.equal(most, x.amax(0)) and least.tolist() == [-5.0] * 3 and where.tolist() == [3] * 3
    assert isinstance(r.value, tuple)


@pytest.mark.skipif(REFERENCE, reason="no launches without kernels")
def test_ops_of_one_tile_share_a_launch(device):
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(6)).to(device)
    ops = ["sum", "max", "var", "min", "abs_max"]
    r, masked = Reducer(ops, (3,), torch.float32, device), Reducer(ops, (3,), torch.float32, device)
    r.update(x[:20])
    r.update(x[20:])
    masked.update(x, where=x > 0)
    assert [len(calls) for calls in r._bound.values()] == [3, 3]  # sum, max and min; abs_max; var
    for op, got, some in zip(ops, r.finalize(), masked.finalize(), strict=True):
        assert torch.allclose(got, tri_reduce.reduce(x, op, 0), rtol=1e-6)
        assert torch.allclose(some, tri_reduce.reduce(x, op, 0, where=x > 0), rtol=1e-6)


def test_a_refused_update_of_several_ops_changes_none(device):
    r = Reducer(["sum", "max"], (2,), torch.float32, device)
    r.update(torch.ones(4, 2, device=device))
    with contextlib.suppress(ValueError), tri_reduce.force(split=10**6):
        r.update(torch.full((0, 2), 9.0, device=device))
    assert [t.tolist() for t in r.finalize()] == [[4.0, 4.0], [1.0, 1.0]]


@pytest.mark.skipif(REFERENCE, reason="no plans without kernels")
def test_an_impossible_split_is_refused_before_anything_is_counted(device):
    r = Reducer("sum", (2,), torch.float32, device)
    with tri_reduce.force(split=10**6), pytest.raises(ValueError, match="split"):
        r.update(torch.ones(4, 2, device=device))
    assert r.finalize().tolist() == [0.0, 0.0]


def test_a_split_is_ignored_without_kernels():
    if not REFERENCE:
        pytest.skip("this is about the reference")
    r = Reducer("sum", (2,), torch.float32)
    with tri_reduce.force(split=10**6):
        r.update(torch.ones(4, 2))
    assert r.finalize().tolist() == [4.0, 4.0]


@pytest.mark.parametrize("determinism", ["run_to_run", "invariant", "none"])
def test_every_level_of_determinism_gives_the_result(determinism, device):
    x = torch.arange(40.0, device=device).reshape(20, 2)
    assert stream("sum", x.split(7), (2,), device=device, determinism=determinism).tolist() == x.sum(0).tolist()


def test_invariant_bits_do_not_depend_on_the_number_of_outputs(device):
    x = torch.randn(10, 3000, generator=torch.Generator().manual_seed(5)).to(device)
    many, one = (Reducer("sum", (n,), torch.float32, device, determinism="invariant") for n in (10, 1))
    for first in range(0, 3000, 1024):
        many.update(x[:, first : first + 1024], dim=1)
        one.update(x[:1, first : first + 1024], dim=1)
    assert many.finalize()[0].item() == one.finalize()[0].item()


def test_an_empty_shape_has_an_empty_result(device):
    r = Reducer("sum", (0, 3), torch.float32, device)
    r.update(torch.ones(5, 0, 3, device=device))
    assert r.finalize().shape == (0, 3)
