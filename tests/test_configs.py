"""`configs`: every candidate for every problem on every target is legal, and `force` says why where its plan is not."""

import dataclasses
import math

import pytest
import torch
from devices import REFERENCE
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tri_reduce
from tri_reduce import autotune, configs, dtypes, targets
from tri_reduce.configs import candidates, canonical, explain, select_configs
from tri_reduce.forced import forced
from tri_reduce.geometry import output_tiles, straight, tiles_of
from tri_reduce.monoids import lookup
from tri_reduce.problem import contiguous_strides, describe, of_strides
from tri_reduce.rules import guesses
from tri_reduce.specialize import of_reduce

TARGETS = tuple(targets.by_name(t) for t in ("h200", "a100", "b200", "mi300x", "ascend", "interpreter"))
H200 = TARGETS[0]
LENGTHS = (1, 2, 3, 4, 7, 8, 16, 17, 49, 63, 64, 100, 127, 512, 768, 1000, 1024, 4096, 4097, 50257, 65537, 401408, 2**20, 2**24 + 1, 2**28)
LARGEST = 2**34  # elements: what fits in the memory of one of these devices
many = settings(max_examples=500, deadline=None, derandomize=True)


def power_of_two(n):
    return isinstance(n, int) and n > 0 and n & (n - 1) == 0


@st.composite
def problems(draw, ops=("sum", "max", "argmax", "logsumexp", "var"), names=("i8", "bf16", "fp32", "fp64")):
    """Views of tensors of up to 4 dims in any order, padded or not, expanded or not, from any start."""
    n = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.sampled_from(LENGTHS), min_size=n, max_size=n))
    while math.prod(sizes) > LARGEST:
        sizes[sizes.index(max(sizes))] = draw(st.sampled_from(LENGTHS[:12]))
    perm, pad = draw(st.permutations(range(n))), draw(st.sampled_from((0, 0, 0, 1, 3, 8)))
    base = contiguous_strides([sizes[p] + (pad if i else 0) for i, p in enumerate(perm)])
    strides = [base[perm.index(d)] * (draw(st.integers(0, 9)) != 0) for d in range(n)]
    dims = sorted(draw(st.sets(st.integers(0, n - 1), min_size=1)))
    op, kind = draw(st.sampled_from(ops)), dtypes.named(draw(st.sampled_from(names)))
    shift, arity = draw(st.integers(0, 16 // kind.itemsize - 1)), len(lookup(op).identity_for(kind.torch))
    return of_strides(op, kind, sizes, dims, strides, None, None, shift=shift, indexed=op == "argmax", arity=arity)


def gemvs():
    sides = st.tuples(st.sampled_from(LENGTHS), st.sampled_from(LENGTHS)).filter(lambda s: s[0] * s[1] <= LARGEST)
    return st.builds(lambda s, trans: describe("gemv", s, dtype="bf16", trans=trans), sides, st.booleans())


any_problem, any_target = problems() | gemvs(), st.sampled_from(TARGETS)


def programs(problem, tile):
    tiles = -(-problem.xnumel // tile.x) * tile.split
    return min(tile.programs, tiles) if tile.programs else tiles  # a persistent launch walks them


@many
@given(any_problem, any_target)
@example(describe("sum", (0, 5), 1), H200)
@example(describe("gemv", (0, 5)), TARGETS[4])
def test_every_candidate_is_a_legal_tile(problem, target):
    found = candidates(problem, target)
    assert 1 <= len(found) <= 40
    for tile in found:
        assert all(map(power_of_two, (tile.x, tile.r0, tile.r1))), tile
        assert tile.lanes <= target.max_tile, tile
        assert 1 <= tile.warps <= 32 and power_of_two(tile.warps) if target.warp else tile.warps == 0, tile
        assert tile.regime in configs.REGIMES
        assert tile.split == 1 or target.tickets, tile
        assert tile.r1 == 1 or len(problem.reduced) > 1, tile


@many
@given(any_problem, any_target)
def test_the_grid_is_within_the_devices_limit_where_a_tile_can_make_it_so(problem, target):
    for tile in candidates(problem, target):
        assert programs(problem, tile) <= target.max_programs or tile.x == target.max_tile, tile


@many
@given(any_problem, any_target)
def test_no_program_of_a_split_is_idle(problem, target):
    for tile in (*candidates(problem, target), canonical(problem, target)):
        tiles = tiles_of(problem, tile)[1]
        assert (tile.split - 1) * -(-tiles // tile.split) < tiles, (tile, tiles)


@many
@given(any_problem, any_target)
def test_tiles_cover_the_reduced_axes_and_no_tile_lies_beyond_them(problem, target):
    inner = problem.reduced[-1].size
    for tile in (*candidates(problem, target), canonical(problem, target)):
        per_row, tiles = tiles_of(problem, tile)
        assert per_row * tile.r0 >= inner and tiles * tile.r0 * tile.r1 >= problem.rnumel
        assert (per_row - 1) * tile.r0 < inner + problem.vector


@many
@given(any_problem, any_target)
@example(describe("gemv", (50257, 8), dtype="bf16"), H200)
@example(describe("sum", (64, 401408), 1), TARGETS[4])
def test_no_candidate_is_there_twice(problem, target):
    found = candidates(problem, target)
    assert len(set(found)) == len(found)
    listed = [str(c) for c in select_configs(problem, target)]
    assert len(set(listed)) == len(listed), listed


def additions(problem, tile):
    """Additions that one contribution may pass through: its lane's chain, the fold of the lanes, the partials' chain and their fold."""
    depth = -(-tiles_of(problem, tile)[1] // tile.split) - 1 + math.ceil(math.log2(min(tile.r0 * tile.r1, problem.rnumel)))
    if tile.split > 1:
        spec = of_reduce(problem, tile, lookup("sum").device(problem.dtype.torch), problem.dtype)
        width = min(dict(spec.constexprs)["SBLOCK"], tile.split)
        tiles = -(-tile.split // width)  # added up in groups of 32, then the groups
        depth += min(tiles, 32) - 1 + -(-tiles // 32) - 1 + math.ceil(math.log2(width))
    return min(depth, problem.rnumel - 1)  # what is added to an identity is not rounded


@many
@given(problems(ops=("sum",), names=("bf16", "fp32")).filter(lambda p: p.rnumel > 1), st.sampled_from([t for t in TARGETS if t.tickets]))
def test_no_float_sum_takes_more_additions_than_its_error_bound_allows(problem, target):
    """Half an eps of sum|x| each, in the worst case, against 4 * eps * log2(R) * sum|x|."""
    for tile in candidates(problem, target):
        assert additions(problem, tile) / 2 <= 4 * math.log2(problem.rnumel), (tile, additions(problem, tile))


@many
@given(any_problem, any_target)
def test_the_first_candidate_is_what_the_heuristic_runs_and_the_first_config(problem, target):
    def no_trial(tile):
        raise AssertionError("the heuristic measures nothing")

    with autotune.policy("heuristic"):
        first = autotune.pick(problem, target, no_trial)
    assert first == candidates(problem, target)[0]
    kwargs = select_configs(problem, target)[0].kwargs
    assert (kwargs["XBLOCK"], kwargs["R0_BLOCK"]) == (first.x, first.r0)
    assert kwargs.get("SPLIT", 1) == first.split and kwargs.get("R1_BLOCK", first.r1) == first.r1


@many
@given(any_problem, any_target, st.integers(2, 1000))
def test_the_canonical_tile_does_not_depend_on_how_many_outputs_there_are(problem, target, more):
    outer = problem.kept[0]._replace(size=more)
    batched = dataclasses.replace(problem, kept=(outer, *problem.kept[1:]))
    a, b = canonical(problem, target), canonical(batched, target)
    assert dataclasses.replace(a, regime=b.regime) == b
    assert power_of_two(a.x) and power_of_two(a.r0) and power_of_two(a.r1) and a.lanes <= target.max_tile


@many
@given(any_problem, any_target)
def test_an_explanation_is_one_screen_that_names_target_regime_and_every_candidate(problem, target):
    lines = explain(problem, target).splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 140
    text = "\n".join(lines)
    assert problem.op in text and target.name in text and configs.regime(problem, target) in text
    assert sum("XBLOCK=" in line for line in lines) == len(candidates(problem, target))


def test_ascend_configs_have_no_knobs_that_its_backend_ignores():
    for problem in (describe("sum", (4096, 4096), 1), describe("sum", (4096, 4096), 0), describe("gemv", (300, 4000))):
        for config in select_configs(problem, "ascend"):
            assert set(config.kwargs) <= {"XBLOCK", "R0_BLOCK", "multibuffer"}


@pytest.mark.parametrize("name", ["H200", "cuda:90", "h100", "ASCEND", "hip:gfx942", "Ascend910B3"])
def test_a_target_is_found_by_any_of_its_names(name):
    assert select_configs(describe("sum", (64, 64)), name)


def test_an_unknown_target_is_a_value_error_that_lists_the_known_ones():
    for call in (select_configs, explain):
        with pytest.raises(ValueError, match=r"v100.*h200.*ascend"):
            call(describe("sum", (64, 64)), "v100")


ROWS, COLUMNS, TINY = describe("sum", (8, 4096), 1), describe("sum", (4096, 8), 0), describe("sum", (1000, 4), 1)


@many
@given(any_problem, any_target, st.sampled_from(configs.REGIMES), st.none() | st.integers(1, 400))
def test_a_forced_plan_is_the_one_asked_for_or_an_error_that_says_what_is_illegal(problem, target, regime, split):
    try:
        tile = forced(problem, target, regime, split, {})
    except ValueError as e:
        assert f"regime {regime!r}" in str(e) or "split=" in str(e)
        return
    assert tile.regime == regime and (split is None or tile.split == split)
    assert tile.split <= max(1, tiles_of(problem, tile)[1]) and all(map(power_of_two, (tile.x, tile.r0, tile.r1)))


@pytest.mark.parametrize("config, said", [
    ({"XBLOCK": 3}, "XBLOCK=3"), ({"XBLOCK": 0}, "XBLOCK=0"), ({"R0_BLOCK": -4}, "R0_BLOCK=-4"), ({"R0_BLOCK": 2.0}, r"R0_BLOCK=2\.0"),
    ({"XBLOCK": True}, "XBLOCK=True"), ({"BLOCK": 4}, "'BLOCK'.*XBLOCK"), ({"SPLIT": 0}, "SPLIT=0"), ({"num_warps": 64}, "num_warps=64"),
    ({"num_warps": 3}, "num_warps=3"), ({1: 2, "XBLOCK": 2}, "1"), ({"XBLOCK": "4"}, "XBLOCK='4'"),
], ids=str)  # fmt: skip
def test_a_config_that_no_problem_could_have_is_refused_by_its_entry(config, said):
    with pytest.raises(ValueError, match=said), tri_reduce.force(config=config):
        pass


@pytest.mark.parametrize("config, said", [
    ({"SPLIT": 2**20}, "split=1048576"), ({"XBLOCK": 2**15, "R0_BLOCK": 2**15}, "config.*limit"), ({"R1_BLOCK": 4}, "R1_BLOCK=4"),
], ids=str)  # fmt: skip
def test_a_config_that_a_problem_cannot_have_is_a_value_error_that_says_why(config, said):
    for problem in (ROWS, COLUMNS, describe("gemv", (8, 4096)), describe("gemv", (8, 4096), trans=True)):
        with pytest.raises(ValueError, match=said):
            forced(problem, H200, None, None, config)


def test_illegal_regimes_and_splits_are_value_errors_that_name_them():
    with pytest.raises(ValueError, match=r"regime 'thread'.*16 bytes"):
        forced(ROWS, H200, "thread", None, {})
    with pytest.raises(ValueError, match=r"split=4097.*only"):
        forced(COLUMNS, H200, "rows", 4097, {})
    with pytest.raises(ValueError, match=r"split=2.*ascend"):
        forced(ROWS, targets.by_name("ascend"), None, 2, {})
    assert forced(TINY, H200, "thread", None, {}).unroll and forced(ROWS, H200, None, 2, {}).split == 2


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced plan is ignored")
def test_legal_forced_plans_run_and_illegal_ones_raise_from_the_call(device):
    x, tiny = torch.ones(5, 100, device=device), torch.ones(8, 4, device=device)
    legal = [dict(regime=r) for r in configs.REGIMES[1:]]
    legal += [dict(split=3, config={"R0_BLOCK": 16}), dict(config={"XBLOCK": 2, "num_warps": 2})]
    for plan in legal:
        with tri_reduce.force(**plan):
            assert tri_reduce.reduce(x, "sum", 1).tolist() == [100] * 5 and tri_reduce.gemv(x, x[0]).tolist() == [100] * 5
    with tri_reduce.force(regime="thread"):
        assert tri_reduce.reduce(tiny, "sum", 1).tolist() == [4] * 8
        with pytest.raises(ValueError, match="regime 'thread'"):
            tri_reduce.reduce(x, "sum", 1)
    for plan, said in ((dict(split=101), "split=101"), (dict(config={"R1_BLOCK": 2}), "R1_BLOCK")):
        with tri_reduce.force(**plan):
            for call in (lambda: tri_reduce.reduce(x, "sum", 1), lambda: tri_reduce.gemv(x, x[0])):
                with pytest.raises(ValueError, match=said):
                    call()


@pytest.mark.parametrize("shape, warps", [((967741, 31), 2), ((9562, 7125), 2), ((97681, 637), 2), ((5, 4096), 1)])
def test_each_thread_reads_a_vector_of_rows_of_bytes(shape, warps):
    for dtype in ("i8", "u8", "bool"):
        tile = guesses(describe("max", shape, 1, dtype), targets.H200)[0]
        assert tile.warps == warps and tile.lanes == 16 * 32 * warps
    assert guesses(describe("max", (9562, 7125), 1, "bf16"), targets.H200)[0].warps == 8  # memory binds those


@pytest.mark.parametrize("op, shape, dim, values", [
    ("var", (11, 1002893), 1, 4), ("logsumexp", (128, 128256), 1, 4), ("argmax", (2, 9114233), 1, 4), ("max", (31, 2982125), 1, 8),
    ("var", (78755, 80), 0, 4), ("argmax", (12852, 554), 0, 4), ("logsumexp", (7510507, 3), 0, 4), ("var", (3, 1039947, 4), 1, 4),
])  # fmt: skip
def test_a_thread_holds_few_values_where_instructions_bind(op, shape, dim, values):
    problem = describe(op, shape, dim, "i8" if op == "max" else "fp32")
    tile = next(t for t in guesses(problem, targets.H200) if not t.abreast)
    assert problem.busy and tile.lanes == values * 32 * tile.warps and tile.ahead == 4
    programs = output_tiles(problem, tile) * tile.split
    assert 132 <= programs <= 132 * 9, "neither idle cores nor more than fold well"


@pytest.mark.parametrize(
    "plane, dtype, lanes, warps, split",
    [(7, "fp32", 4096, 8, 1), (14, "bf16", 4096, 8, 1), (56, "fp32", 256, 2, None), (112, "bf16", 512, 2, None)],
)
def test_statistics_of_channels_read_small_planes_whole_and_large_ones_in_few_values_a_thread(plane, dtype, lanes, warps, split):
    problem = describe("var", (64, 192, plane, plane), (0, 2, 3), dtype)
    tile = guesses(problem, targets.H200)[0]
    assert tile.lanes == lanes and tile.warps == warps and (split is None or (tile.split == split and tile.r0 >= plane * plane))
    if split is None:
        assert 16 * 132 * 0.9 <= output_tiles(problem, tile) * tile.split <= 16 * 132 and tile.ahead == 4


@pytest.mark.parametrize("shape, dtype, r0", [((5003, 5003), "bf16", 1024), ((9001, 3333), "fp32", 512), ((44305, 843), "fp16", 128)])
def test_gemv_reads_long_rows_that_start_anywhere_without_a_loop(shape, dtype, r0):
    problem = describe("gemv", shape, -1, dtype)
    tile = guesses(problem, targets.H200)[0]
    assert tile.r0 == r0 and tile.split == 1 and straight(problem, tile) == tiles_of(problem, tile)[1] <= 16
    assert tile.lanes * problem.dtype.itemsize == 8 * 32 * tile.warps  # bytes of a thread
    few, whole = describe("gemv", (500, shape[1]), -1, dtype), describe("gemv", (shape[0], shape[1] // 16 * 16), -1, dtype)
    assert all(guesses(other, targets.H200)[0].ahead < 16 for other in (few, whole))
