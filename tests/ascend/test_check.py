"""The check of Ascend kernels finds what is planted: a compound fold, a tile too large, a scalar loop. These run where its compiler is."""

import pytest
import toolchain

toolchain.install()

import check  # noqa: E402
import planted  # noqa: E402

from tri_reduce import ascend, configs, inventory, targets  # noqa: E402
from tri_reduce.problem import describe  # noqa: E402

SIGNATURE = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}


def examine(kernel, block=1024):
    return check.examine(kernel.__name__, kernel, SIGNATURE, {"BLOCK": block}, {}, {})


def tile_of(op, x, r):
    problem = describe(op, (4096, 40000), 1, "fp32")
    return problem, configs.Tile("rows", x, r, warps=0, plain=True, programs=40)


def found(problem, tile):
    spec = inventory.specialized(problem, tile)
    return check.examine("tile", spec.fn, dict(spec.signature), dict(spec.constexprs), spec.attrs, spec.options)


def test_a_simple_fold_passes():
    assert examine(planted.sum_kernel).outcome == "compiled"


@pytest.mark.parametrize("name", ["largest_magnitude", "sum_of_magnitudes", "two_values"])
def test_a_compound_fold_is_found_though_it_compiles(name):
    finding = examine(getattr(planted, f"{name}_kernel"))
    assert finding.outcome == "miscompiled", finding
    assert not check.report([finding])


def test_a_tile_too_large_is_found():
    finding = examine(planted.sum_kernel, 65536)
    assert finding.outcome == "overflow", finding
    assert not check.report([finding])


def test_a_scalar_loop_is_found():
    assert examine(planted.gather_kernel).outcome == "slow"


def test_a_kernel_that_does_not_compile_is_found():
    assert examine(planted.tuple_kernel).outcome == "error"


def test_a_fold_that_became_another_is_found():
    body = "%9 = arith.addf %a, %b : f32\n tt.reduce.return %9 : f32\n"
    ttir = f'"tt.reduce"(%5) <{{axis = 1 : i32}}> ({{\n {body} }}) : (tensor<4x64xf32>) -> tensor<4xf32>'
    hivm = "hivm.hir.vreduce <max> ins(%5 : memref<4x64xf32, #hivm.address_space<ub>>)"
    assert check.judge(ttir, hivm, "aiv")[0] == "miscompiled"
    assert check.judge(ttir, hivm.replace("max", "sum"), "aiv")[0] == "compiled"
    assert check.judge(ttir, hivm.replace("max", "sum"), "aic")[0] == "slow"


@pytest.mark.parametrize(("op", "x", "r"), [("sum", 1, 16384), ("sum", 64, 128), ("max", 1, 4096), ("argmax", 256, 16), ("var", 16, 256)])
def test_the_largest_tiles_that_the_selector_accepts_compile_and_the_next_do_not(op, x, r, monkeypatch):
    monkeypatch.setattr(ascend, "in_pieces", lambda op, problem, tile, slots: tile)
    problem, tile = tile_of(op, x, r)
    twice = tile_of(op, x, 2 * r)[1]
    device = ascend.op_of(problem)
    assert ascend.padded(problem, tile) <= ascend.room(device, problem, tile) < ascend.padded(problem, twice)
    assert found(problem, tile).outcome == "compiled"
    if toolchain.version() != "1.0.0":
        pytest.skip("newer than ascendnpu-ir 1.0.0: a tile too large is compiled again, single-buffered, without a word")
    assert found(problem, twice).outcome == "overflow"


def test_many_short_rows_of_moments_in_groups_are_not_emitted():
    problem = describe("var", (512, 14336), 1, "bf16")
    wide = configs.Tile("rows", 512, 8, warps=0, plain=True, programs=40)
    assert found(problem, wide).outcome == ("overflow" if toolchain.version() == "1.0.0" else "compiled")
    emitted = configs.candidates(problem, targets.by_name("ascend"))
    assert emitted and all(tile.x < wide.x for tile in emitted)
