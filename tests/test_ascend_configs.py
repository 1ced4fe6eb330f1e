"""The Ascend list: the published formula minus what does not compile, and what its kernels are specialised to. No compiler is needed."""

import pytest

from tri_reduce import ascend, configs, dtypes, inventory, targets
from tri_reduce.geometry import Tile, pow2_ceil
from tri_reduce.lanes import narrow
from tri_reduce.problem import describe, of_strides

TARGET = targets.by_name("ascend")
SHAPES = [(64, 401408), (65536, 49), (2048, 768), (8192, 50257), (3, 70), (1, 1), (1 << 22, 4)]
OPS = ("sum", "max", "argmax", "var", "logsumexp", "any")


def formula(problem):
    loads = 2 if problem.op == "gemv" else 1
    return configs.select_candidates(problem.xnumel, problem.rnumel, problem.dtype.name, loads, 1, problem.dtype.itemsize)


def problems():
    found = [describe(op, shape, dim, dtype) for op in OPS for shape in SHAPES for dim in (0, 1) for dtype in ("fp32", "bf16")]
    return found + [describe("gemv", shape, dtype="bf16", trans=trans) for shape in SHAPES for trans in (False, True)]


def emitted(problem):
    return [(c.kwargs["XBLOCK"], c.kwargs["R0_BLOCK"]) for c in configs.select_configs(problem, "ascend")]


@pytest.mark.parametrize("problem", problems(), ids=lambda p: f"{p.op}-{p.xnumel}x{p.rnumel}-{p.layout}-{p.dtype.name}")
def test_every_formula_tile_that_surely_fits_is_emitted_and_none_that_is_not_the_formulas(problem):
    found = emitted(problem)
    rounded = [(x, pow2_ceil(r)) for x, r in formula(problem)]
    sure = {(x, r) for x, r in rounded if x <= 4096 and x * max(r, 16) <= 4096}
    assert sure <= set(found) <= set(rounded)
    assert len(set(found)) == len(found) > 0
    assert all(x <= 4096 for x, _ in found)


def test_tiles_that_overflow_are_not_emitted():
    assert (8, 4096) in formula(describe("sum", (64, 401408), 1)) and (8, 4096) not in emitted(describe("sum", (64, 401408), 1))
    assert (4, 4096) in emitted(describe("sum", (64, 40140), 1, "fp32")) or (4, 4096) not in formula(
        describe("sum", (64, 40140), 1, "fp32")
    )
    assert (2, 4096) not in emitted(describe("argmax", (64, 401408), 1))


@pytest.mark.parametrize("op", ["var", "std"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_three_states_of_many_short_rows_overflow(op, dtype):
    """Measured: 512 x 2 to 512 x 8 need 213,000 bytes of 196,608, 256 x 16 fits."""
    found = emitted(describe(op, (512, 14336), 1, dtype))
    assert found and max(x for x, _ in found) <= 256


def test_where_nothing_of_the_formula_fits_one_small_tile_is_left(monkeypatch):
    from tri_reduce import ascend_configs

    monkeypatch.setattr(ascend_configs, "fits", lambda op, problem, tile: False)
    (tile,) = ascend_configs.candidates(describe("sum", (64, 401408), 1), TARGET)  # not the remembered ones
    assert (tile.x, tile.r0) == (1, 4096)


def test_a_launch_has_at_most_as_many_programs_as_cores_for_any_number_of_rows():
    for rows in (1, 2, 39, 40, 41, 4097, 65537, 1 << 22):
        for n, record in enumerate(inventory.library_kernels("ascend", problems=[("sum", (rows, 100), 1, "fp32")])):
            if record.role == "main":
                tile = configs.candidates(record.problem, TARGET)[n]
                assert 1 <= inventory.specialized(record.problem, tile).programs <= 40


def test_a_reducers_programs_share_outputs_until_no_core_is_idle():
    import dataclasses

    tile = configs.candidates(describe("sum", (1, 1 << 24), 1), dataclasses.replace(TARGET, tickets=True))[0]
    assert 20 < tile.split <= 40


def test_tiles_with_short_rows_on_chip_are_read_in_pieces():
    for op in OPS:
        columns, strided = describe(op, (8192, 4096), 0), of_strides(op, dtypes.named("fp32"), (64, 8192), (1,), (16384, 2), None, None)
        for problem in (columns, strided):
            device = ascend.op_of(problem)
            piece = ascend.in_pieces(device, problem, Tile(problem.layout, 4, 1024, programs=40))
            assert piece.x == 4 and ascend.padded(problem, piece) <= ascend.room(device, problem, piece)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "i8", "u8", "bool", "i32"])
def test_what_lanes_beyond_an_axis_hold_is_a_value_of_the_dtype(op, dtype):
    if op == "var" and not dtypes.named(dtype).is_float:
        return
    problem = describe(op, (7, 9), 1, dtype)
    held = ascend.padding(problem, ascend.on_vectors(narrow(ascend.op_of(problem), problem)))
    low, high = dtypes.limits(problem.dtype)
    assert held is None or low <= held <= high
    assert held is not None or op == "logsumexp"


def test_long_sums_are_added_in_groups_and_exact_ones_are_not():
    for op, grouped in (("sum", True), ("logsumexp", True), ("max", False), ("argmax", False)):
        problem = describe(op, (64, 1 << 22), 1)
        assert bool(ascend.group(problem, Tile("rows", 1, 512, programs=40), ascend.op_of(problem))) == grouped
    assert not ascend.group(describe("sum", (64, 4096), 1), Tile("rows", 1, 512, programs=40), ascend.op_of(describe("sum", (64, 4096), 1)))


def test_a_forced_plan_is_a_persistent_one():
    from tri_reduce.forced import forced

    problem = describe("sum", (64, 4096), 1)
    assert forced(problem, TARGET, "columns", None, {}).programs == 40
    assert forced(problem, TARGET, None, None, {"XBLOCK": 2, "R0_BLOCK": 64}).programs == 40
    with pytest.raises(ValueError, match=r"R1_BLOCK=2 is illegal on ascend"):
        forced(problem, TARGET, None, None, {"R1_BLOCK": 2})
