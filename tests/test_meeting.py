"""How programs that share an output meet: pairs exchange words, more leave words behind, and what is no word waits for a ticket."""

import itertools

import pytest
import torch
from bounds import check
from devices import REFERENCE
from gemv_oracle import check_gemv

import tri_reduce
from tri_reduce import targets
from tri_reduce.geometry import Tile
from tri_reduce.inventory import specialized
from tri_reduce.launcher import compiled
from tri_reduce.problem import describe
from tri_reduce.workspaces import WORKSPACES

PLAN = {"XBLOCK": 2, "R0_BLOCK": 16, "num_warps": 1}
needs_kernels = pytest.mark.skipif(REFERENCE, reason="about kernels: without them no programs meet")
needs_compiler = pytest.mark.skipif(targets.interpreting(), reason="the interpreter has replaced the compiler")
pytestmark = pytest.mark.usefixtures("no_remembered_plans")
ALL_ONES = torch.tensor(-1, dtype=torch.int32).view(torch.float32).item()  # a NaN, and what a word is that is not there yet


def sink(op, shape, dtype, split, words=True):
    tile = Tile("rows", 1, 1024, split=split, warps=4)
    return dict(specialized(describe(op, shape, 1, dtype), tile, words).constexprs)["SINK"]


@pytest.mark.parametrize("op", ["sum", "max", "mean", "norm", "gemv"])
def test_states_of_one_float_are_words(op):
    small, large = (4, 1 << 16), (4, 1 << 24)
    for dtype in ("fp32", "bf16", "fp16"):
        assert sink(op, small, dtype, 1) == "own"
        assert sink(op, small, dtype, 2) == sink(op, large, dtype, 2) == sink(op, small, dtype, 2, words=False) == "pair"
        assert sink(op, small, dtype, 3) == sink(op, large, dtype, 3) == "words" and sink(op, small, dtype, 3, words=False) == "split"
        assert sink(op, small, dtype, 4096) == "split"  # more than are folded at once


@pytest.mark.parametrize("op", ["sum", "gemv"])
def test_large_columns_leave_words_only_without_a_loop(op):
    def of(rows, split):
        problem = describe(op, (rows, 4096), 0, "fp32", trans=op == "gemv")
        return dict(specialized(problem, Tile("columns", 32, 64, split=split, warps=8)).constexprs)["SINK"]

    assert of(1024, 3) == of(1024, 4) == of(2048, 16) == "words" and of(2048, 3) == "split" and of(2048, 2) == "pair"


@pytest.mark.parametrize(
    "op, dtype", [("sum", "i32"), ("max", "i8"), ("sum", "fp64"), ("var", "fp32"), ("argmax", "fp32"), ("any", "fp32")]
)
def test_other_states_take_tickets(op, dtype):
    assert sink(op, (4, 1 << 16), dtype, 2) == sink(op, (4, 1 << 16), dtype, 3) == "split"


@needs_kernels
@pytest.mark.parametrize("layout, shape", [("rows", (5, 157)), ("columns", (157, 5)), ("columns", (157, 8)), ("outer", (9, 5, 57))])
@pytest.mark.parametrize("split", [2, 3])
@pytest.mark.parametrize("op", ["sum", "max", "norm"])
def test_each_contribution_counts_once(op, split, layout, shape, device):
    x = (torch.arange(torch.Size(shape).numel()) * 7919 % 5 - 2).view(shape).to(device, torch.float32)
    dim = {"rows": 1, "columns": 0, "outer": (0, 2)}[layout]
    mask, out = x > -2, torch.ones(shape[1] if layout != "rows" else shape[0], device=device)
    with tri_reduce.force(split=split, config=PLAN):
        for _ in range(3):
            check(tri_reduce.reduce(x, op, dim), x, op, dim)
        check(tri_reduce.reduce(x, op, dim, where=mask), x, op, dim, where=mask)
    if op == "sum":
        with tri_reduce.force(split=split, config=PLAN):
            tri_reduce.reduce(x, op, dim, out=out, accumulate=True, initial=3.0)
        assert torch.equal(out, x.sum(dim) + 4)


@needs_kernels
@pytest.mark.parametrize("split", [2, 3])
@pytest.mark.parametrize("trans", [False, True])
def test_gemv_adds_y_once(trans, split, device):
    a = (torch.arange(7 * 161) * 7919 % 61 - 30).view(7, 161).to(device, torch.float32)
    a = a.T.contiguous().T if trans else a
    v, y = torch.arange(161.0, device=device) % 5 - 2, torch.arange(7.0, device=device)
    with tri_reduce.force(split=split, config=PLAN):
        check_gemv(tri_reduce.gemv(a, v), a, v)
        assert torch.equal(tri_reduce.gemv(a, v, alpha=2, beta=3, y=y), 2 * (a.double() @ v.double()).float() + 3 * y)


@needs_kernels
@pytest.mark.parametrize("split", [2, 3])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_a_nan_that_looks_like_a_missing_word_is_a_nan(op, split, device):
    x = torch.ones(6, 96, device=device)
    for row, place in enumerate((0, 20, 40, 60, 95)):
        x.view(torch.int32)[row, place] = -1
    x.view(torch.int32)[4] = -1  # all of them
    for width in (1, 2):
        with tri_reduce.force(split=split, config=PLAN | {"XBLOCK": width}):
            found = tri_reduce.reduce(x, op, 1)
        assert found.isnan().tolist() == [True] * 5 + [False]
        assert found[5] == (96 if op == "sum" else 1)


@needs_kernels
def test_what_programs_meet_at_is_all_ones_after_every_launch(device):
    WORKSPACES.clear()
    x = (torch.arange(6 * 64, device=device) * 37 % 19 - 9).view(6, 64).float()
    for split, op in itertools.product((2, 3, 4), ("sum", "argmax", "max", "var")):
        with tri_reduce.force(split=split, config=PLAN):
            check(tri_reduce.reduce(x, op, 1), x, op, 1)
        with tri_reduce.force(split=split, config=PLAN):
            tri_reduce.gemv(x, x[0])
        assert WORKSPACES and all(bool((marks == -1).all()) for marks, *_ in WORKSPACES.values())


@pytest.mark.gpu
@pytest.mark.parametrize("split", [2, 3, 8, 64])
@pytest.mark.parametrize("dim", [0, 1])
def test_the_bits_are_the_same_whoever_arrives_last(dim, split, cuda):
    x = torch.randn((257, 8192) if dim else (8192, 257), device=cuda)
    with tri_reduce.force(split=split, config={"R0_BLOCK": 128, "XBLOCK": 4}):
        found = [tri_reduce.reduce(x, "sum", dim) for _ in range(500)]
    check(found[0], x, "sum", dim)
    assert all(torch.equal(y, found[0]) for y in found)


def ptx_of(split, target, words=True):
    spec = specialized(describe("sum", (4, 1 << 16), 1, "fp32"), Tile("rows", 1, 1024, split=split, warps=4), words)
    kernel = compiled((spec.fn, spec.signature, spec.constexprs, spec.divisible, spec.warps), targets.by_name(target), 0)
    return kernel.asm.get("ptx", "")


@needs_compiler
def test_only_tickets_order_memory():
    """What costs most at the end of a small kernel is to wait until all has been written that a ticket vouches for."""
    assert "acq_rel" in ptx_of(3, "h200", words=False)
    assert "acq_rel" not in ptx_of(3, "h200") and "ld.relaxed.gpu" in ptx_of(3, "h200")
    assert "acq_rel" not in ptx_of(2, "h200") and "and.b64" in ptx_of(2, "h200")


@needs_compiler
@pytest.mark.parametrize("target", ["a100", "b200", "mi300x"])
def test_other_targets_compile_what_they_run(target):
    for split in (2, 3):
        ptx_of(split, target, targets.by_name(target).words)
