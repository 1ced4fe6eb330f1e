"""Columns that start anywhere: each row of a tile is read from the vector it starts in, and moved to its outputs at the end."""

import pytest
import torch
from bounds import check
from devices import REFERENCE
from gemv_oracle import check_gemv

from tri_reduce import Reducer, autotune, gemv, problem, reduce, reduce_many, specialize, targets
from tri_reduce.configs import candidates
from tri_reduce.dtypes import named
from tri_reduce.geometry import Tile, output_tiles, share, slanted, tiles_of
from tri_reduce.problem import describe, of_strides

H200 = targets.by_name("h200")
PERIODS = {"fp64": 2, "fp32": 4, "bf16": 8, "i8": 16}


@pytest.fixture
def few_values_pay(monkeypatch, no_remembered_plans):
    """What is worth it for a million values is done for a test's few."""
    monkeypatch.setattr(problem, "MANY_VALUES", 1)


@pytest.mark.parametrize("dtype", PERIODS)
def test_rows_start_alike_after_a_vector_over_what_the_pitch_shares_with_it(dtype, few_values_pay):
    vector = PERIODS[dtype]

    def period(pitch, shift=0, inner=999, rows=1000):
        return of_strides("sum", named(dtype), (rows, inner), [0], (pitch, 1), None, None, shift=shift).slanted

    assert period(999) == vector and period(1001, shift=1) == vector
    assert period(1002) == (vector // 2 if vector > 2 else 0)
    assert period(1024) == 0  # every row starts on a vector: nothing is to be done
    assert period(1024, shift=1) == 1
    assert period(999, rows=2 * vector - 1) == 0 and period(2 * vector - 1, inner=2 * vector - 1) == 0  # too few to pay


def test_outer_axes_must_not_move_a_programs_rows(few_values_pay):
    def period(strides, dims, sizes=(16, 200, 333), where=None):
        return of_strides("sum", named("fp32"), sizes, dims, strides, where, None).slanted

    assert period((200 * 333, 333, 1), [1]) == 4  # kept outer axes may start anywhere: a program has one of them
    assert period((200 * 336, 333, 1), [0, 1]) == 4
    assert period((200 * 333 + 1, 333, 1), [0, 1]) == 0
    assert period((200 * 333, 333, 1), [1], where=(0, 0, 1)) == 0


@pytest.mark.parametrize("dtype", PERIODS)
@pytest.mark.parametrize("programs", [1, 5, 8, 40, 200])
def test_tiles_cover_outputs_and_rows(dtype, programs, few_values_pay):
    columns = describe("sum", (5000, 1303), 0, dtype)
    taken = 0
    for x, r0 in ((128, 32), (512, 16), (2048, 16)):
        tile = share(columns, H200, Tile("columns", x, r0), programs)
        taken += slanted(columns, tile) == PERIODS[dtype]
        inner, tiles = tiles_of(columns, tile)
        assert inner * tile.r0 >= 5000 > (inner - 1) * tile.r0 and -(-tiles // tile.split) * tile.split >= tiles
        assert output_tiles(columns, tile) * (x - columns.vector) >= 1303 > (output_tiles(columns, tile) - 1) * (x - columns.vector)
    assert taken == 3
    steady = describe("sum", (5000, 1303), 0, dtype, pitch=1328, start=1)  # rows start at any lane of the first vector
    for x in (64, 128):
        assert output_tiles(steady, Tile("columns", x, 8)) == -(-(1303 + steady.vector - 1) // x)
    assert not slanted(columns, Tile("columns", 512, PERIODS[dtype] // 2))  # rows of a tile would not start as those of the next


def test_the_selector_offers_it_where_it_pays():
    many, few = describe("sum", (4099, 10007), 0, "bf16"), describe("sum", (99, 1007), 0, "bf16")
    assert any(slanted(many, tile) for tile in candidates(many, H200))
    assert not any(slanted(few, tile) for tile in candidates(few, H200))
    for op in ("argmax", "logsumexp", "var"):  # bound by instructions: read by single elements, unless all rows start alike
        assert describe(op, (4099, 10007), 0, "bf16").slanted == 0
        assert describe(op, (4096, 4096), 0, "bf16", start=3).slanted == 1


def columns(dtype, rows, inner, start, device, pitch=None):
    """A [rows, inner] view that starts `start` elements into a buffer."""
    pitch = pitch or inner
    numbers = torch.arange(rows * pitch + start, device=device) * 37 % 101 - 50
    return numbers.to(dtype).as_strided((rows, inner), (pitch, 1), start)


def forced(x, r0, split):
    return autotune.force(config={"XBLOCK": x, "R0_BLOCK": r0, "num_warps": 4}, split=split)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("start", [0, 1, 7])
@pytest.mark.parametrize("op", ["sum", "max", "sum_sq", "argmax", "var"])
def test_every_start_dtype_and_op(dtype, start, op, device, few_values_pay):
    if op == "var" and not dtype.is_floating_point:
        pytest.skip("var is of floats")
    vector = 16 // dtype.itemsize
    rows, inner, pitch = {0: (8 * vector + 3, 2 * vector + 5, None), 1: (12 * vector, 131, 144), 7: (8 * vector + 1, 77, 79)}[start]
    x = columns(dtype, rows, inner, start, device, pitch)
    for split in (1, 3):
        with forced(128, vector, split):
            check(reduce(x, op, 0), x, op, 0)


def test_kept_outer_axes_and_outer_reduced_ones(device, few_values_pay):
    x = columns(torch.float32, 3 * 40, 133, 2, device)
    outer, padded = x.view(3, 40, 133), x.as_strided((3, 32, 133), (40 * 133, 133, 1), 2)
    with forced(64, 4, 2):
        for op in ("sum", "min", "logsumexp"):
            check(reduce(outer, op, 1), outer, op, 1)
            check(reduce(padded, op, 1), padded, op, 1)
        check(reduce(padded, "sum", (0, 1)), padded, "sum", (0, 1))


def test_a_reducer_of_slanted_columns(device, few_values_pay):
    tiles = [columns(torch.float32, rows, 211, start, device) for rows, start in ((64, 1), (331, 0), (40, 3))]
    for op in ("sum", "max", "var", "argmax"):
        reducer = Reducer(op, (211,), torch.float32, device=device)
        for n, tile in enumerate(tiles):
            where = {"offset": sum(len(t) for t in tiles[:n])} if op == "argmax" else {}
            reducer.update(tile, 0, **where)
        check(reducer.finalize(), torch.cat(tiles), op, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_gemv_of_columns(dtype, device, few_values_pay):
    vector = 16 // dtype.itemsize
    for m, k, start in ((133, 8 * vector + 5, 0), (64 * vector, 223, 0), (133, 12 * vector, 3), (67, 9 * vector, 0), (64 * vector, 99, 1)):
        a, v = columns(dtype, k, m, start, device).T, columns(dtype, 1, k, 0, device)[0]
        for split in (1, 2):
            with forced(128, vector, split):
                check_gemv(gemv(a, v), a, v)


@pytest.fixture
def walks(monkeypatch):
    """Of the plans that are made."""
    found, real = [], specialize.walk_of
    monkeypatch.setattr(specialize, "walk_of", lambda *args, **more: found.append(real(*args, **more)) or found[-1])
    return found


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
@pytest.mark.parametrize("m", [67, 125])
def test_gemv_of_batches_of_columns(m, device, few_values_pay, walks):
    """Lanes beyond a batch's outputs are of that batch, until they are moved; a batch of single rows has a vector for each output."""
    a, v = columns(torch.float32, 3 * 64, m, 1, device).view(3, 64, m).mT, columns(torch.float32, 3, 64, 2, device)
    for x, split in ((64, 1), (128, 2)):
        with forced(x, 8, split):
            check_gemv(gemv(a, v), a, v)
    assert {walk.slanted for walk in walks} == {4}
    walks.clear()
    rows, own = columns(torch.float32, 64, m, 0, device).T[:, None, :], columns(torch.float32, m, 64, 0, device)
    with forced(64, 8, 1):
        check_gemv(gemv(rows, own), rows, own)
    assert {walk.slanted for walk in walks} == {0}


def test_several_reductions_and_special_values(device, few_values_pay):
    x = columns(torch.float32, 67, 75, 1, device)
    x[5, 3], x[6, 4], x[66, 74] = float("nan"), float("inf"), float("-inf")
    with forced(64, 16, 1):
        total, most = reduce_many(x, ["sum", "max"], 0)
        check(total, x, "sum", 0)
        assert torch.equal(torch.nan_to_num(most, 99), torch.nan_to_num(x.amax(0), 99))
        for op in ("argmax", "argmin", "logsumexp"):
            check(reduce(x, op, 0), x, op, 0)
