"""Columns that start anywhere, read in whole vectors by programs whose rows start alike."""

import pytest
import torch
from bounds import check
from gemv_oracle import check_gemv

from tri_reduce import Reducer, autotune, gemv, problem, reduce, targets
from tri_reduce.configs import candidates
from tri_reduce.dtypes import named
from tri_reduce.geometry import Tile, alike, output_tiles, share, tiles_of
from tri_reduce.problem import describe, of_strides

H200 = targets.by_name("h200")
PERIODS = {"fp64": 2, "fp32": 4, "bf16": 8, "i8": 16}


@pytest.fixture
def few_values_pay(monkeypatch, no_remembered_plans):
    """What is worth it for millions of values is done for a test's few."""
    monkeypatch.setattr(problem, "MANY_VALUES", 1)


@pytest.mark.parametrize("dtype", PERIODS)
def test_rows_start_alike_after_a_vector_over_what_the_pitch_shares_with_it(dtype, few_values_pay):
    vector = PERIODS[dtype]

    def period(pitch, shift=0, inner=999, rows=1000):
        return of_strides("sum", named(dtype), (rows, inner), [0], (pitch, 1), None, None, shift=shift).alike

    assert period(999) == vector and period(1001, shift=1) == vector
    assert period(1002) == (vector // 2 if vector > 2 else 0)
    assert period(1024) == 0  # every row starts on a vector: nothing is to be done
    assert period(1024, shift=1) == 1
    assert period(999, rows=8 * vector - 1) == 0 and period(2 * vector - 1, inner=2 * vector - 1) == 0  # too few to pay


def test_outer_axes_must_not_move_a_programs_rows(few_values_pay):
    def period(strides, dims, sizes=(16, 200, 333), where=None):
        return of_strides("sum", named("fp32"), sizes, dims, strides, where, None).alike

    assert period((200 * 333, 333, 1), [1]) == 4  # kept outer axes may start anywhere: a program has one of them
    assert period((200 * 336, 333, 1), [0, 1]) == 4
    assert period((200 * 333 + 1, 333, 1), [0, 1]) == 0
    assert period((200 * 333, 333, 1), [1], where=(0, 0, 1)) == 0


@pytest.mark.parametrize("dtype", PERIODS)
@pytest.mark.parametrize("programs", [1, 5, 8, 40, 200])
def test_programs_of_each_start_share_each_output(dtype, programs, few_values_pay):
    columns = describe("sum", (5000, 1303), 0, dtype)
    for x, r0 in ((64, 32), (512, 8), (2048, 2)):
        tile = share(columns, H200, Tile("columns", x, r0), programs)
        period = alike(columns, tile)
        if not period:
            continue
        inner, tiles = tiles_of(columns, tile)
        assert tile.split % PERIODS[dtype] == 0 and tiles % period == 0
        assert inner * tile.r0 * period >= 5000 and (inner - 1) * tile.r0 * period < 5000
        assert output_tiles(columns, tile) * (x - columns.vector) >= 1303
        assert -(-tiles // tile.split) * tile.split >= tiles


def test_the_selector_offers_it_where_it_pays():
    many, few = describe("sum", (4099, 10007), 0, "bf16"), describe("sum", (999, 1007), 0, "bf16")
    assert any(alike(many, tile) for tile in candidates(many, H200))
    assert not any(alike(few, tile) for tile in candidates(few, H200))
    assert not describe("argmax", (4099, 10007), 0, "bf16").alike


def columns(dtype, rows, inner, start, device, pitch=None):
    """A [rows, inner] view that starts `start` elements into a buffer."""
    pitch = pitch or inner
    numbers = torch.arange(rows * pitch + start, device=device) * 37 % 101 - 50
    return numbers.to(dtype).as_strided((rows, inner), (pitch, 1), start)


def forced(x, r0, split):
    return autotune.force(config={"XBLOCK": x, "R0_BLOCK": r0, "num_warps": 4}, split=split)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("start", [0, 1, 7])
@pytest.mark.parametrize("op", ["sum", "max", "sum_sq"])
def test_every_start_dtype_and_op(dtype, start, op, device, few_values_pay):
    vector = 16 // dtype.itemsize
    rows, inner, pitch = {0: (8 * vector + 3, 2 * vector + 5, None), 1: (12 * vector, 131, 144), 7: (8 * vector + 1, 77, 79)}[start]
    x = columns(dtype, rows, inner, start, device, pitch)
    for split in (vector, 3 * vector):
        with forced(512, 2, split):
            check(reduce(x, op, 0), x, op, 0)


def test_kept_outer_axes_and_outer_reduced_ones(device, few_values_pay):
    x = columns(torch.float32, 3 * 40, 133, 2, device)
    outer, padded = x.view(3, 40, 133), x.as_strided((3, 32, 133), (40 * 133, 133, 1), 2)
    with forced(256, 4, 8):
        for op in ("sum", "min", "logsumexp"):
            check(reduce(outer, op, 1), outer, op, 1)
            check(reduce(padded, op, 1), padded, op, 1)
        check(reduce(padded, "sum", (0, 1)), padded, "sum", (0, 1))


def test_a_reducer_of_ragged_columns(device, few_values_pay):
    tiles = [columns(torch.float32, rows, 211, start, device) for rows, start in ((64, 1), (331, 0), (40, 3))]
    for op in ("sum", "max", "var", "argmax"):
        reducer = Reducer(op, (211,), torch.float32, device=device)
        for n, tile in enumerate(tiles):
            where = {"offset": sum(len(t) for t in tiles[:n])} if op == "argmax" else {}
            reducer.update(tile, 0, **where)
        check(reducer.finalize(), torch.cat(tiles), op, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gemv_of_columns(dtype, device, few_values_pay):
    vector = 16 // dtype.itemsize
    for m, k in ((133, 8 * vector + 5), (64 * vector, 223)):
        a, v = columns(dtype, k, m, 0, device).T, columns(dtype, 1, k, 0, device)[0]
        with forced(512, 2, vector):
            check_gemv(gemv(a, v), a, v)
