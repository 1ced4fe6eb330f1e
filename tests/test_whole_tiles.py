"""Where instructions bind, tiles that lie within their rows are not masked, and no value is lost or counted twice at the edges."""

from dataclasses import replace

import pytest
import torch
from bounds import check
from devices import REFERENCE
from gemv_oracle import check_gemv

import tri_reduce
from tri_reduce import targets
from tri_reduce.geometry import Tile, coordinates
from tri_reduce.inventory import specialized
from tri_reduce.problem import describe

H200 = targets.by_name("h200")
TILE = 16
OPS = {"var": torch.float32, "argmax": torch.bfloat16, "argmin": torch.float32, "logsumexp": torch.float16, "sum": torch.int8}


def walk(op, shape, dim, dtype, tile, **memory):
    return dict(specialized(describe(op, shape, dim, dtype, **memory), tile).constexprs)["HOW"]


@pytest.mark.parametrize("op, dtype", [("var", "fp32"), ("argmax", "bf16"), ("sum", "i8")])
def test_a_loop_masks_its_ends_alone(op, dtype):
    rows, columns = Tile("rows", 2, 256, warps=2), Tile("columns", 64, 16, warps=4)
    assert walk(op, (99, 5003), 1, dtype, rows).peel and walk(op, (5003, 99), 0, dtype, columns).peel
    assert not walk(op, (99, 4096), 1, dtype, rows).peel  # nothing is masked
    assert not walk("sum", (99, 5003), 1, "fp32", rows).peel  # memory hides it
    assert not walk(op, (99, 500), 1, dtype, rows).peel  # no loop is left


def test_tiles_without_a_loop_are_whole_where_every_row_fills_them():
    tile = Tile("rows", 2, 256, warps=2)
    assert walk("var", (99, 772), 1, "fp32", tile).whole == 0b0111  # 3 whole ones, and 4 values
    assert walk("var", (99, 771), 1, "fp32", tile).whole == 0b0110  # rows start somewhere in the first
    assert walk("var", (99, 772), 1, "fp32", tile, start=1).whole == 0b0110
    assert walk("var", (99, 772), 1, "fp32", Tile("rows", 2, 256, split=2, warps=2)).whole == 0  # programs read different ones
    assert walk("sum", (99, 772), 1, "fp32", tile).whole == 0
    assert walk("var", (99, 2308), 1, "fp32", replace(tile, ahead=16)).whole == 0b0111111111


def test_as_many_tiles_as_shall_be_read_together_need_no_loop():
    """A loop reads four at most, whatever it is asked for."""
    problem = describe("sum", (99, 2560), 1, "fp32")  # ten tiles
    for ahead, tiles, together, coordinate in ((1, 0, 1, 1), (4, 0, 4, 4), (8, 0, 4, 4), (16, 10, 4, 16), (64, 10, 4, 16)):
        tile = Tile("rows", 2, 256, warps=2, ahead=ahead)
        how = walk("sum", (99, 2560), 1, "fp32", tile)
        assert (how.tiles, how.ahead, coordinates(problem, tile)[5]) == (tiles, together, coordinate)
    assert walk("sum", (99, 1024), 1, "fp32", Tile("rows", 2, 256, warps=2)).tiles == 4  # few never need one
    assert walk("sum", (99, 17 * 256), 1, "fp32", Tile("rows", 2, 256, warps=2, ahead=64)).tiles == 0  # many do


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("ahead", [1, 2, 4, 8, 32])
@pytest.mark.parametrize("op", OPS)
def test_right_at_every_edge(op, ahead, layout, device):
    config = {"XBLOCK": 2, "R0_BLOCK": TILE, "num_warps": 1, "AHEAD": ahead}
    lengths = (TILE - 1, 2 * TILE, 5 * TILE - 1, 5 * TILE + 1, 9 * TILE, 13 * TILE + 7)
    for n, length in enumerate(lengths):
        start = (0, 1, 3, 0, 7, 2)[n]
        size = 3 * (length + n % 2)
        x = (
            (torch.randn(start + size, generator=torch.Generator().manual_seed(n)) * 9)
            .to(OPS[op])
            .to(device)[start:]
            .view(3, -1)[:, :length]
        )
        x, dim = (x, 1) if layout == "rows" else (x.T.contiguous(), 0)
        with tri_reduce.force(regime=layout, split=1 + n % 2, config=config):
            check(tri_reduce.reduce(x, op, dim), x, op, dim)


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
@pytest.mark.parametrize("ahead", [1, 4])
@pytest.mark.parametrize(
    "op, worst", [("argmax", float("nan")), ("argmax", float("inf")), ("argmin", float("-inf")), ("logsumexp", float("-inf"))]
)
def test_special_values_in_whole_tiles(op, worst, ahead, device):
    for at in (TILE + 3, 6 * TILE, 10 * TILE + 1):
        x = torch.linspace(-3, 3, 2 * (10 * TILE + 5), device=device).view(2, -1).flip(1).contiguous()
        x[0, at:] = worst
        with tri_reduce.force(regime="rows", split=1, config={"XBLOCK": 1, "R0_BLOCK": TILE, "num_warps": 1, "AHEAD": ahead}):
            got = tri_reduce.reduce(x, op, 1)
        torch.testing.assert_close(got, getattr(torch, op)(x, 1))
    lowest = torch.full((2, 9 * TILE + 1), float("-inf") if op != "argmin" else float("inf"), device=device)
    with tri_reduce.force(regime="rows", split=1, config={"XBLOCK": 1, "R0_BLOCK": TILE, "num_warps": 1, "AHEAD": ahead}):
        torch.testing.assert_close(tri_reduce.reduce(lowest, op, 1), getattr(torch, op)(lowest, 1))


def test_rows_of_outer_axes_are_whole_between_their_ends():
    tile = Tile("rows", 1, 256, split=32, warps=1)
    assert walk("var", (32, 128, 57, 57), (0, 2, 3), "fp32", tile).peel and walk("sum", (32, 128, 57, 57), (0, 2, 3), "i8", tile).peel
    assert not walk("var", (32, 128, 20, 20), (0, 2, 3), "fp32", tile).peel  # a row has two tiles
    assert not walk("var", (32, 128, 57, 57), (0, 2, 3), "fp32", Tile("rows", 1, 256, 2, split=16, warps=1)).peel  # a tile has two rows
    assert not walk("sum", (32, 128, 57, 57), (0, 2, 3), "fp32", tile).peel


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("ahead", [1, 4, 16])
@pytest.mark.parametrize("op", OPS)
def test_right_at_every_edge_of_outer_axes(op, ahead, layout, device):
    config = {"XBLOCK": 2, "R0_BLOCK": TILE, "R1_BLOCK": 1, "num_warps": 1, "AHEAD": ahead}
    for n, length in enumerate((3 * TILE - 1, 9 * TILE, 11 * TILE + 7)):
        start, gap = (0, 3, 2)[n], (1, 2, 1)[n]
        numbers = torch.randn(start + 3 * 2 * (length + gap), generator=torch.Generator().manual_seed(n)) * 9
        room = numbers.to(OPS[op]).to(device)[start:]
        if layout == "rows":
            x, dims = room.view(3, 2, length + gap)[..., :length], (0, 2)
        else:
            x, dims = room.view(3, length + gap, 2)[:, :length], (0, 1)
        if op in ("argmax", "argmin"):  # over one axis, or all of one output
            x, dims = x.select(1 if layout == "rows" else 2, 0), None
        with tri_reduce.force(regime=layout if x.dim() > 2 else "rows" if layout == "rows" else "strided", split=1 + n % 2, config=config):
            check(tri_reduce.reduce(x, op, dims), x, op, dims)


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8])
@pytest.mark.parametrize("split, ahead", [(1, 1), (1, 2), (1, 4), (2, 2), (1, 8), (2, 16), (1, 64)])
def test_gemv_right_at_every_edge(split, ahead, dtype, device, monkeypatch, no_remembered_plans):
    """Rows and vectors lie among what would show: NaN, or the largest number."""
    monkeypatch.setattr("tri_reduce.problem.LONG", 1)
    config = {"XBLOCK": 2, "R0_BLOCK": TILE, "num_warps": 1, "AHEAD": ahead}
    outside = float("nan") if dtype.is_floating_point else 127
    for n, length in enumerate((2 * TILE + 1, 5 * TILE - 1, 9 * TILE, 13 * TILE + 7)):
        start, gap = (0, 3, 5, 2)[n], (3, 1, 1, 5)[n]  # in the second, all rows start alike
        numbers = torch.randn(4, length, generator=torch.Generator().manual_seed(n)) * 3
        room = torch.full((start + 3 * (length + gap),), outside, device=device).to(dtype)
        a = room[start:].view(3, length + gap)[:, :length].copy_(numbers[:3])
        v = torch.full((length + 9,), outside, device=device).to(dtype)[4 + n : 4 + n + length].copy_(numbers[3])
        with tri_reduce.force(regime="rows", split=split, config=config):
            check_gemv(tri_reduce.gemv(a, v), a, v)


def test_gemv_masks_the_ends_of_long_rows_that_start_anywhere():
    tile = Tile("rows", 2, 256, warps=2)
    assert walk("gemv", (99, 5003), None, "bf16", tile).peel and not walk("gemv", (99, 4096), None, "bf16", tile).peel
    assert walk("gemv", (99, 771), None, "bf16", tile).whole == 0b0110
    assert walk("gemv", (9999, 37), None, "bf16", tile).whole == 0  # mostly ends
