"""Small problems whose programs share outputs: all partial states are folded at once, and a lone tile of outputs takes no division."""

import pytest
import torch
from bounds import check
from devices import REFERENCE
from gemv_oracle import check_gemv
from oracle import NEED_FLOAT

import tri_reduce
from tri_reduce import meeting
from tri_reduce.geometry import Tile
from tri_reduce.inventory import specialized
from tri_reduce.problem import describe

OPS = ("sum", "max", "prod", "mean", "var", "argmax", "logsumexp", "norm")
PLAN = {"XBLOCK": 2, "R0_BLOCK": 16, "num_warps": 1}


def brief(op, shape, dim, dtype, tile, **memory):
    return dict(specialized(describe(op, shape, dim, dtype, **memory), tile).constexprs)["HOW"].brief


@pytest.mark.parametrize("op, dim", [("argmax", 1), ("var", 1)])
def test_only_what_is_small_and_shared_and_folded_in_one_tile(op, dim):
    shared = Tile("rows", 2, 1024, split=64, warps=4)
    assert brief(op, (1, 1 << 20), dim, "fp32", shared) == brief(op, (2, 1 << 20), dim, "fp32", shared) == 2
    assert brief(op, (3, 1 << 20), dim, "fp32", shared) == 1  # two tiles of outputs
    assert brief(op, (4, 1 << 20), dim, "fp32", shared) == 1  # 16 MiB
    assert brief(op, (5, 1 << 20), dim, "fp32", shared) == 0
    assert brief(op, (1, 1 << 20), dim, "fp32", Tile("rows", 2, 1024, split=1, warps=4)) == 0
    assert brief(op, (1, 1 << 20), dim, "fp32", Tile("rows", 2, 512, split=1024, warps=4)) == 0  # more partials than its last fold takes


@pytest.mark.parametrize("op, dim", [("sum", 1), ("gemv", None)])
def test_words_are_folded_at_once_however_much_is_read(op, dim):
    shared = Tile("rows", 2, 1024, split=64, warps=4)
    assert brief(op, (1, 1 << 20), dim, "fp32", shared) == brief(op, (2, 1 << 25), dim, "fp32", shared) == 2
    assert brief(op, (3, 1 << 20), dim, "fp32", shared) == brief(op, (5, 1 << 25), dim, "fp32", shared) == 1
    assert brief(op, (1, 1 << 20), dim, "fp32", Tile("rows", 2, 512, split=1024, warps=4)) == 0


def test_no_kernel_that_only_folds_or_leaves_its_states_is_brief():
    abreast = Tile("columns", 32, 16, split=4, warps=2, abreast=32)
    assert brief("sum", (50021, 7), 0, "fp32", abreast) == 0


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("split", [2, 3, 8])
@pytest.mark.parametrize("op", OPS)
def test_right_and_the_bits_of_a_fold_in_a_loop(op, split, layout, outputs, device, monkeypatch, no_remembered_plans):
    x = (torch.arange(outputs * 157) * 7919 % 61 - 20).view(outputs, 157).to(torch.float32 if op in NEED_FLOAT else torch.int16)
    x = (x.T.contiguous() if layout == "columns" else x).to(device)
    dim = 0 if layout == "columns" else 1
    found = []
    for most in (16 << 20, 0):
        monkeypatch.setattr(meeting, "BRIEF_BYTES", most)
        tri_reduce.plans.PLANS.clear()
        with tri_reduce.force(regime=layout, split=split, config=PLAN):
            found.append(tri_reduce.reduce(x, op, dim))
    assert torch.equal(*found)
    check(found[0], x, op, dim)


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8])
def test_gemv_right_and_the_bits_of_a_fold_in_a_loop(dtype, outputs, device, monkeypatch, no_remembered_plans):
    a = (torch.arange(outputs * 157) * 7919 % 61 - 30).view(outputs, 157).to(dtype).to(device)
    v = (torch.arange(157) * 31 % 17 - 8).to(dtype).to(device)
    found = []
    for most in (16 << 20, 0):
        monkeypatch.setattr(meeting, "BRIEF_BYTES", most)
        tri_reduce.plans.PLANS.clear()
        with tri_reduce.force(regime="rows", split=5, config=PLAN):
            found.append(tri_reduce.gemv(a, v))
    assert torch.equal(*found)
    check_gemv(found[0], a, v)
