"""Columns of which several rows are read as one that starts on a vector and wastes nothing of what memory reads; a second launch folds."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from bounds import check
from devices import REFERENCE

from tri_reduce import autotune, configs, geometry, plans, problem, reduce, reduce_many, targets
from tri_reduce.dtypes import named
from tri_reduce.geometry import Tile, coordinates, depth_limit, depth_of, fold_tile, output_tiles, share, tiles_of
from tri_reduce.inventory import specialized
from tri_reduce.problem import describe, of_strides

H200 = targets.by_name("h200")
kernels_only = pytest.mark.skipif(REFERENCE, reason="the reference has no tiles")


@pytest.fixture
def few_values_pay(monkeypatch, no_remembered_plans):
    """What is worth it for a million values is done for a test's few."""
    monkeypatch.setattr(problem, "ABREAST_VALUES", 1)
    monkeypatch.setattr(problem, "COLUMN_BYTES", 1)
    monkeypatch.setattr(problem, "ROW_BYTES", 1)
    configs.first.cache_clear()
    configs.candidates.cache_clear()
    yield
    configs.first.cache_clear()
    configs.candidates.cache_clear()


def test_so_many_rows_start_on_a_vector_together():
    assert describe("sum", (20011, 1543), 0, "fp16").abreast == (32, 8)  # a column of 64 would be too short
    assert describe("sum", (50021, 251), 0, "bf16").abreast == (64, 32, 8)
    assert describe("sum", (400021, 251), 0, "bf16").abreast == (64, 32, 8, 256)
    assert describe("var", (32289, 1022), 0, "fp32").abreast == (16, 8, 2, 64)
    assert describe("argmax", (10**6, 101), 0, "i8").abreast == (128, 64, 16, 512)
    assert describe("sum", (2000003, 40), 0, "fp32").abreast == (32, 16, 4, 128)  # together 4 KiB and more
    assert describe("sum", (5000011, 7), 0, "bf16").abreast == (512, 256, 64, 2048)
    assert describe("sum", (8192, 8192), 0, "fp32").abreast == (8, 4, 32)  # one alone would be none
    for none in (
        describe("sum", (50021, 251), 1, "bf16"),  # no columns
        describe("sum", (1021, 65537), 0, "fp16"),  # short columns
        describe("sum", (65536, 65537), 0, "fp16"),  # long rows
        describe("sum", (16001, 251), 0, "bf16"),  # few values
        describe("argmax", (50021, 251), 0, "bf16"),  # ... for two tiles of a state
        describe("sum", (50021, 251), 0, "bf16", pitch=301),  # much lies between rows
        describe("sum", (50021, 251), 0, "bf16", start=1),
        describe("gemv", (50021, 251), -1, "bf16", trans=True),
        of_strides("sum", named("fp32"), (9001, 513), [0], (513, 1), (513, 1), None),  # with a mask
        of_strides("sum", named("fp32"), (3, 9001, 513), [1], (9001 * 513, 513, 1), None, None),
    ):
        assert none.abreast == ()


def test_rows_that_share_lines_of_memory_are_rather_read_as_one():
    for shape, dtype in (((50021, 251), "bf16"), ((2000003, 40), "fp32"), ((60013, 1000), "fp32"), ((5000011, 7), "bf16")):
        assert describe("sum", shape, 0, dtype).uneven and configs.first(describe("max", shape, 0, dtype), H200).abreast
    for shape in (
        (401408, 64),  # rows are whole lines
        (2000003, 16),  # lines are whole rows
        (150001, 40),  # few values
    ):
        problem = describe("sum", shape, 0, "fp32")
        assert problem.abreast and not problem.uneven
    assert describe("sum", (23911, 251), 0, "fp32").uneven  # ... but enough for rows of an odd length
    assert describe("argmax", (1000003, 40), 0, "fp32").uneven and not describe("argmax", (500003, 40), 0, "fp32").uneven


def test_the_additions_of_the_second_launch_count():
    columns = describe("sum", (8000003, 3), 0, "fp32")
    tile = Tile("columns", 32, 64, warps=4, ahead=2, abreast=512, split=14)
    chunk = -(-tiles_of(columns, tile)[1] // 14)
    lanes, steps = 512, 14  # 7168 states of an output
    assert depth_of(columns, tile) == (chunk - 1) + 6 + (steps - 1) + 9 and fold_tile(512 * 14, 1).r0 == lanes


def test_many_states_of_few_outputs_are_folded_in_few_steps():
    assert [fold_tile(slots, 1).r0 for slots in (3, 512, 8192, 16384, 50000, 10**6)] == [4, 512, 512, 1024, 2048, 4096]
    assert fold_tile(10**6, 3).r0 == 1024  # or registers spill
    columns = describe("sum", (400000003, 7), 0, "fp16")
    spec = specialized(columns, configs.first(columns, H200))
    assert spec.fold.slots > 40000 and spec.fold.slots <= 32 * spec.fold.tile.r0


@pytest.mark.parametrize("rows", [4, 16, 32])
@pytest.mark.parametrize("pitch", [129, 131])
@pytest.mark.parametrize("count", [4096, 4097, 4111, 4127])
def test_every_value_is_in_one_row_of_the_problem_that_is_read(rows, pitch, count):
    columns = describe("sum", (count, 129), 0, "fp32", pitch=pitch)
    one = columns.as_one(rows)
    assert one.column_vector == 4 and one.xnumel == rows * pitch
    whole = one.rnumel - (one.tail > 0)
    values = [whole + (k < one.tail) for k in range(one.xnumel)]  # of each output of the problem that is read
    assert sum(values[k] for k in range(one.xnumel) if k % pitch < 129) == count * 129
    last = max(k + (n - 1) * one.xnumel for k, n in enumerate(values) if n)
    assert last == (count - 1) * pitch + 128  # and nothing behind the last element


@pytest.mark.parametrize("op", ["sum", "argmax", "var"])
def test_the_selector_offers_it_first_where_a_second_launch_may_begin_early(op):
    new = describe(op, (30011, 1543), 0, "fp16")
    for target in ("h100", "b200"):
        first = configs.first(new, targets.by_name(target))
        assert first.abreast in new.abreast and depth_of(new, first) <= depth_limit(new)
        spec = specialized(new, first)
        assert dict(spec.constexprs)["SINK"] == "apart" and spec.fold.outputs == 1543 and spec.fold.slots == first.split * first.abreast
    assert configs.first(describe("sum", (81001, 251), 0, "fp16"), H200).abreast  # what was timed near it and starts elsewhere says nothing
    for target in ("a100", "mi300x"):
        assert not any(t.abreast for t in configs.candidates(new, targets.by_name(target)))


def test_coordinates_name_it():
    columns = describe("sum", (20011, 1543), 0, "fp16")
    tile = share(columns, H200, Tile("columns", 128, 64, warps=4, ahead=2, abreast=8), 4)
    assert coordinates(columns, tile) == (128, 64, 1, 4, 4, 2, 0, 8)
    assert output_tiles(columns, tile) == -(-8 * 1543 // 128) and tiles_of(columns, tile) == (40, 40)


def columns_of(dtype, rows, inner, gap, device):
    """A [rows, inner] view; what lies between its rows and behind them is NaN, or the largest number."""
    pitch = inner + gap
    numbers = (torch.arange(rows * pitch + 64, device=device) * 37 % 101 - 50).to(dtype)
    outside = torch.arange(rows * pitch + 64, device=device) % pitch >= inner
    outside[(rows - 1) * pitch + inner :] = True
    numbers[outside] = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max
    return numbers.as_strided((rows, inner), (pitch, 1))


@kernels_only
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize("op", ["sum", "max", "sum_sq", "argmin", "var", "logsumexp", "count_nonzero", "any"])
def test_every_op_and_dtype(op, dtype, device, few_values_pay, seen):
    if op == "var" and not dtype.is_floating_point:
        pytest.skip("var is of floats")
    vector = 16 // dtype.itemsize
    for rows, gap in ((8 * vector, 0), (21 * vector + 1, 0), (9 * vector - 1, 2)):
        x = columns_of(dtype, rows, 4 * vector + 35, gap, device)
        check(reduce(x, op, 0), x, op, 0)
    assert len(seen) == 3


@pytest.fixture
def seen(monkeypatch):
    """The tiles of what was planned as two launches."""
    tiles = []
    planned = plans.planned

    def recording(spec, *rest):
        tiles.extend([spec.tile] if spec.fold is not None else [])
        return planned(spec, *rest)

    monkeypatch.setattr(plans, "planned", recording)
    return tiles


@kernels_only
@pytest.mark.parametrize("inner", [3, 5, 7, 8, 24, 40])
def test_narrow_rows_and_rows_that_start_on_vectors(inner, device, few_values_pay, seen, monkeypatch):
    monkeypatch.setattr(problem, "LINE_BYTES", 1000003)  # of which no number of rows is one
    for op, dtype in (("sum", torch.float32), ("max", torch.int8), ("argmax", torch.float16), ("var", torch.float32)):
        for rows, gap in ((64, 0), (131, 0), (77, inner // 16)):
            x = columns_of(dtype, rows, inner, gap, device)
            check(reduce(x, op, 0), x, op, 0)
    assert len(seen) == 12


@kernels_only
@pytest.mark.parametrize("op", ["sum", "argmax", "var"])
def test_many_states_are_folded_right(op, device, few_values_pay, seen, monkeypatch):
    for name, value in (("FOLD_LANES", 2), ("FOLD_STEPS", 2), ("MOST_FOLD_LANES", 32)):
        monkeypatch.setattr(geometry, name, value)
    x = columns_of(torch.float32, 131, 5, 0, device)
    with autotune.force(config={"ABREAST": 32, "R0_BLOCK": 1, "XBLOCK": 32}, split=3):
        check(reduce(x, op, 0), x, op, 0)
    assert seen[0].abreast * seen[0].split == 96 and seen[0].lanes == 32


@kernels_only
@pytest.mark.parametrize("r0, split", [(1, 1), (1, 7), (2, 3), (8, 1), (8, 2)])
@pytest.mark.parametrize("op", ["sum", "argmax", "var"])
def test_every_way_of_sharing(op, r0, split, device, few_values_pay, seen):
    for rows in (64, 65, 79):
        x = columns_of(torch.float32, rows, 37, 0, device)
        with autotune.force(config={"ABREAST": 4, "R0_BLOCK": r0, "XBLOCK": 32, "num_warps": 2}, split=min(split, 16 // r0)):
            check(reduce(x, op, 0), x, op, 0)
    assert [tile.split for tile in seen] == [min(split, 16 // r0)] * 3


@kernels_only
def test_it_can_be_forced_and_forbidden(device, few_values_pay, seen):
    x = columns_of(torch.float32, 131, 37, 0, device)
    for rows in (1, 4, 16, 32):
        with autotune.force(config={"ABREAST": rows, "R0_BLOCK": 1}, split=1):
            check(reduce(x, "sum", 0), x, "sum", 0)
    assert [tile.abreast for tile in seen] == [4, 16, 32]
    with (
        autotune.force(config={"ABREAST": 2}),
        pytest.raises(ValueError, match="ABREAST=2 is illegal: here rows are read 1, 4, 16, 32, 128 at a time"),
    ):
        reduce(x, "sum", 0)
    with autotune.force(config={"ABREAST": 4}), pytest.raises(ValueError, match="rows are read 1 at a time"):
        reduce(x, "sum", 1)


@kernels_only
def test_outputs_seeds_and_what_was_there(device, few_values_pay, seen):
    x = columns_of(torch.float32, 165, 67, 2, device)
    out = torch.full((67, 3), 7.0, device=device)
    assert reduce(x, "sum", 0, out=out[:, 1]) is not None
    check(out[:, 1], x, "sum", 0)
    assert (out[:, ::2] == 7).all()
    check(reduce(x, "sum", 0, keepdim=True), x, "sum", 0, keepdim=True)
    torch.testing.assert_close(reduce(x, "max", 0, initial=49.5), x.amax(0).clamp(min=49.5))
    total = torch.full((67,), 1000.0, device=device)
    reduce(x, "sum", 0, out=total, accumulate=True)
    torch.testing.assert_close(total, x.sum(0) + 1000)
    assert torch.equal(reduce(x, "any", 0), x.bool().any(0))
    torch.testing.assert_close(reduce(x.half(), "sum", 0, dtype=torch.float32), x.half().float().sum(0))
    assert len(seen) >= 5


@kernels_only
def test_nan_infinities_and_ties(device, few_values_pay, seen):
    x = columns_of(torch.float32, 131, 37, 0, device)
    x[130, 36], x[5, 0], x[77, 1] = float("nan"), float("inf"), float("-inf")
    for op in ("sum", "max", "min", "argmax", "argmin", "logsumexp"):
        check(reduce(x, op, 0), x, op, 0)
    ones = torch.ones(131, 37, device=device)
    assert (reduce(ones, "argmax", 0) == 0).all() and (reduce(ones, "var", 0) == 0).all()
    ones[64:] = 2
    assert (reduce(ones, "argmax", 0) == 64).all() and (reduce(ones, "argmin", 0) == 0).all()
    far = (torch.arange(131 * 37, device=device).view(131, 37) % 7).float() + 3e6  # a variance of 4 far from zero
    torch.testing.assert_close(reduce(far, "var", 0), far.double().var(0).float(), rtol=1e-5, atol=0)
    assert all(tile.abreast for tile in seen) and len(seen) >= 7


@kernels_only
def test_two_calls_give_the_same_bits_and_invariant_ones_read_rows_as_they_are(device, few_values_pay, seen):
    x = torch.randn(331, 45, device=device, generator=torch.Generator(device).manual_seed(1))
    assert torch.equal(reduce(x, "sum", 0), reduce(x, "sum", 0)) and len(seen) == 1
    check(reduce(x, "sum", 0, determinism="invariant"), x, "sum", 0)
    assert len(seen) == 1
    for got, op in zip(reduce_many(x, ("sum", "max"), 0), ("sum", "max")):
        check(got, x, op, 0)
    assert len(seen) == 1


@pytest.mark.gpu
def test_in_graphs_and_on_streams(cuda):
    x = columns_of(torch.float32, 40001, 251, 0, cuda)
    assert configs.first(describe("sum", (40001, 251), 0), targets.of_device("cuda", 0)).abreast
    wanted = x.double().sum(0)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        beside = [reduce(x, "sum", 0) for _ in range(20)]
    here = [reduce(x, "sum", 0) for _ in range(20)]
    torch.cuda.synchronize()
    for got in (*beside, *here):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-2)
    with torch.cuda.graph(graph):
        a = reduce(x, "sum", 0)
        b = reduce(x, "max", 0)
        c = reduce(x, "argmax", 0)
    for _ in range(3):
        x.neg_()
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(a.double(), x.double().sum(0), rtol=1e-5, atol=1e-2)
        assert torch.equal(b, x.amax(0)) and torch.equal(c, x.argmax(0))


@pytest.mark.gpu
def test_threads_on_one_stream(cuda):
    xs = [columns_of(torch.float32, 40001, 251, 0, cuda) * (n + 1) for n in range(16)]
    wanted = [x.double().sum(0) for x in xs]
    torch.cuda.synchronize()
    with ThreadPoolExecutor(16) as pool:
        for _ in range(20):
            for got, want in zip(pool.map(lambda x: reduce(x, "sum", 0), xs), wanted, strict=True):
                torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-1)


@pytest.mark.skipif(not REFERENCE, reason="compiled in the run that interprets nothing")
@pytest.mark.parametrize("op", ["sum", "argmax", "var"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "i8"])
def test_loads_are_whole_vectors(op, dtype):
    if op == "var" and dtype == "i8":
        pytest.skip("var is of floats")
    from tri_reduce.launcher import compiled

    columns = describe(op, (80001, 251), 0, dtype)
    assert columns.as_one(columns.abreast[0]).tail
    spec = specialized(columns, next(t for t in configs.candidates(columns, H200) if t.abreast))
    for each, waits in ((spec, "launch_dependents"), (spec.fold, "wait")):
        ptx = compiled((each.fn, each.signature, each.constexprs, each.divisible, each.warps), H200, 0).asm["ptx"]
        assert f"griddepcontrol.{waits}" in ptx
        if each is spec:
            loads = [line for line in ptx.splitlines() if "ld.global" in line and "evict_first" in line]
            assert loads and all(".v4.b32" in line for line in loads)


@pytest.mark.skipif(not REFERENCE, reason="compiled in the run that interprets nothing")
@pytest.mark.parametrize(
    "op, dtype", [("sum", "fp16"), ("sum", "fp64"), ("argmax", "fp32"), ("logsumexp", "fp32"), ("var", "fp32"), ("var", "fp64")]
)
def test_the_fold_of_many_states_spills_nothing(op, dtype):
    from test_compiled import spilled

    from tri_reduce.launcher import compiled

    columns = describe(op, (400000003, 7), 0, dtype)
    fold = specialized(columns, next(t for t in configs.candidates(columns, H200) if t.abreast)).fold
    assert fold.slots > 40000
    assert spilled(compiled((fold.fn, fold.signature, fold.constexprs, fold.divisible, fold.warps), H200, 0)) == 0
