"""`configs.inductor_candidates`: legal lists for whatever Inductor generates."""

import random

import pytest

from tri_reduce.configs import inductor_candidates
from tri_reduce.inductor_list import HINTS, with_own
from tri_reduce.targets import by_name

POINTERS = [["*bf16", "*fp32"], ["*fp32", "*fp32"], ["*fp64", "*fp64"], ["*i1", "*fp32"], []]


def problems(count):
    rng = random.Random(0)
    for _ in range(count):
        sizes = {"x": rng.randint(1, 1 << rng.randint(0, 22)), "r0_": rng.randint(1, 1 << rng.randint(0, 20))}
        held = rng.random() < 0.4
        if held:
            sizes["r0_"] = min(sizes["r0_"], 1 << 15)
        target = rng.choice(["h200", "a100", "b200", "mi300x", None])
        yield (
            (sizes, rng.choice(HINTS), rng.randint(0, 12), rng.randint(1, 9), rng.choice(POINTERS)),
            {"persistent": held, "target": target},
        )


def pow2_ceil(n):
    return 1 << (n - 1).bit_length()


def test_every_candidate_is_legal_for_its_kernel():
    for args, options in problems(4000):
        x, r = (pow2_ceil(args[0][axis]) for axis in ("x", "r0_"))
        found = inductor_candidates(*args, **options)
        assert 1 <= len(found) <= 12
        assert len(set(found)) == len(found)
        for xblock, r0_block, warps in found:
            assert (r0_block is None) is options["persistent"]
            lanes = r if r0_block is None else r0_block
            assert xblock == pow2_ceil(xblock) <= min(x, 4096)
            assert lanes == pow2_ceil(lanes) <= r
            assert xblock * lanes <= max(16384, lanes)
            assert warps in ((1, 2, 4, 8, 16, 32) if lanes > 8192 else (1, 2, 4, 8, 16))


def test_the_same_call_gives_the_same_list():
    for args, options in problems(200):
        assert inductor_candidates(*args, **options) == inductor_candidates(*args, **options)


def test_sizes_that_are_masked_alike_and_padded_alike_have_one_list():
    one, two = (inductor_candidates({"x": x, "r0_": r}, "OUTER", 1, 3, ["*bf16"]) for x, r in [(70000, 101), (131000, 127)])
    assert one == two


def test_light_loops_without_masks_take_smaller_tiles():
    def first(x, r, **options):
        return inductor_candidates({"x": x, "r0_": r}, "OUTER", 1, 3, ["*bf16", "*fp32"], **options)[0]

    masked = first(51200, 126)
    assert masked == first(51200, 128, dynamic=("r0_",)) == (64, 8, 4)
    assert first(51200, 128) == (32, 2, 2)  # an element a thread
    assert first(65536, 128) == (32, 4, 2)  # two, where outputs are not masked either


def test_heavy_loops_take_blocks_that_mask_nothing():
    for r, block in ((392, 8), (196, 4), (98, 8)):
        assert inductor_candidates({"x": 131072, "r0_": r}, "OUTER", 4, 2, ["*bf16"])[0] == (64, block, 4)


def test_whole_rows_of_many_buffers_are_held_one_at_a_time():
    few, many = (inductor_candidates({"x": 4096, "r0_": 1024}, "INNER", 4, 1, ["*fp32"] * n, persistent=True)[0] for n in (3, 8))
    assert few == (4, None, 16) and many == (1, None, 8)


def test_a_single_long_row_is_read_at_once():
    assert inductor_candidates({"x": 1, "r0_": 4096}, "INNER", 3, 2, ["*bf16"])[0] == (1, 4096, 16)


def test_inductors_own_come_behind_the_first_guess():
    own = [(64, 8, 4), (1, 2048, 16)]
    assert with_own([(16, 4, 2), (16, 8, 2), (64, 8, 4)], own) == [(16, 4, 2), *own, (16, 8, 2)]
    assert len(with_own([(1 << n, 4, 2) for n in range(9)], own)) == 10


@pytest.mark.parametrize("hint", HINTS)
def test_programs_stay_within_a_grid(hint):
    for target in ("h200", "mi300x"):
        limit = by_name(target).max_programs
        for xblock, _, warps in inductor_candidates({"x": 1 << 33, "r0_": 2}, hint, 1, 1, ["*fp32"], target=target):
            assert (1 << 33) // xblock <= limit
            assert target == "h200" or (1 << 33) // xblock * warps * 64 <= 1 << 31


def test_fewer_cores_get_wider_blocks_of_columns():
    args = ({"x": 32768, "r0_": 128}, "OUTER", 4, 2, ["*bf16"])
    assert inductor_candidates(*args, target="mi300x")[0][0] < inductor_candidates(*args, target="h200")[0][0]


def test_warps_of_64_are_half_as_many():
    args = ({"x": 1024, "r0_": 32768}, "INNER", 1, 1, ["*fp32"])
    assert inductor_candidates(*args, target="mi300x")[0][2] * 2 == inductor_candidates(*args, target="h200")[0][2]


@pytest.mark.parametrize("sizes", [{"x": 0, "r0_": 4}, {"x": 4, "r0_": 0}, {"x": -1, "r0_": 4}])
def test_sizes_that_are_not_positive_are_refused(sizes):
    with pytest.raises(ValueError, match="positive"):
        inductor_candidates(sizes, "INNER", 1, 1, ["*fp32"])


@pytest.mark.parametrize("sizes", [{"x": 4}, {"x": 4, "r0_": 4, "r1_": 4}, {"x": 4, "y": 4, "r0_": 4}])
def test_other_axes_are_refused(sizes):
    with pytest.raises(ValueError, match="x and r0_"):
        inductor_candidates(sizes, "INNER", 1, 1, ["*fp32"])


def test_an_unknown_hint_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'inner'.*INNER, OUTER, OUTER_TINY, DEFAULT"):
        inductor_candidates({"x": 4, "r0_": 4}, "inner", 1, 1, ["*fp32"])


def test_a_target_without_warps_is_refused():
    with pytest.raises(ValueError, match=r"ascend.*select_candidates"):
        inductor_candidates({"x": 4, "r0_": 4}, "INNER", 1, 1, ["*fp32"], target="ascend")
