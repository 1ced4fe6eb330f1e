"""The published candidate formula: its worked examples, and the bounds that its rules promise."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tri_reduce.configs import select_candidates

SIZES = st.integers(1, 2**22)
LOADS = st.integers(1, 12)
DTYPES = st.sampled_from(["bf16", "fp16", "fp32", "i1"])


@pytest.mark.parametrize(
    "call, count", [((64, 401408, "fp32", 6, 2), 16), ((65536, 49, "fp32", 2, 1), 12), ((2048, 768, "fp32", 6, 2), 27)]
)
def test_the_three_worked_calls_give_the_published_counts(call, count):
    assert len(select_candidates(*call)) == count


def test_a_long_row_gets_the_fixed_grid_whatever_its_length():
    grid = [(x, r) for x in (1, 2, 4, 8) for r in (512, 1024, 2048, 4096)]
    assert select_candidates(64, 50000, "fp32", 2, 1) == select_candidates(64, 10**7, "bf16", 9, 3) == grid
    assert select_candidates(3, 50000, "fp32", 2, 1) == [t for t in grid if t[0] <= 3]


def test_a_short_row_is_held_whole_and_only_outputs_are_searched():
    assert {r for _, r in select_candidates(65536, 49, "fp32", 2, 1)} == {49, 64}
    assert {x for x, _ in select_candidates(65536, 64, "fp32", 2, 1)} == {1, 16, 32, 64, 128, 256}
    assert {x for x, _ in select_candidates(65536, 64, "bf16", 2, 1)} == {1, 8, 16, 32, 64, 128}


def test_an_element_size_of_a_pointer_overrides_the_dtype():
    assert select_candidates(65536, 64, "fp32", 2, 1, 2) == select_candidates(65536, 64, "bf16", 2, 1)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(SIZES, SIZES, DTYPES, LOADS, LOADS)
def test_every_tile_keeps_the_promised_bounds(xnumel, rnumel, dtype, loads, reductions):
    found = select_candidates(xnumel, rnumel, dtype, loads, reductions)
    assert found == sorted(set(found)) and found
    assert all(1 <= x <= xnumel and x & (x - 1) == 0 for x, _ in found)
    assert all(1 <= r <= 2 ** math.ceil(math.log2(rnumel)) for _, r in found)
    assert all(r & (r - 1) == 0 or r in (rnumel, min(rnumel, 8)) for _, r in found)


@pytest.mark.parametrize("bad", [0, -1, 2.0, True])
@pytest.mark.parametrize("place, name", enumerate(["xnumel", "rnumel", None, "num_load", "num_reduction"]))
def test_a_size_that_is_no_positive_integer_is_named(place, name, bad):
    call = [64, 64, "fp32", 1, 1]
    if name is not None:
        call[place] = bad
        with pytest.raises(ValueError, match=name):
            select_candidates(*call)
