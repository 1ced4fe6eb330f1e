"""Estimates of times: what physics says of their order, on any target that has them."""

from dataclasses import replace

import numpy as np
import pytest

from tri_reduce import cost
from tri_reduce.configs import CANDIDATES, MARGIN, candidates
from tri_reduce.geometry import Tile, coordinates
from tri_reduce.lattice import LEAST_VALUES, VALUES, VECTOR_BYTES, lattice
from tri_reduce.problem import describe
from tri_reduce.rules import guesses
from tri_reduce.targets import H200, by_name

ROWS = describe("sum", (65536, 1024), 1, "fp32")
MIXED = [
    describe("sum", (8192, 50257), 1, "bf16"),
    describe("var", (64, 72, 56, 56), (0, 2, 3), "fp32"),
    describe("sum", (9005, 955), 0, "fp16"),
    describe("max", (4, 99999), 1, "bf16"),
    describe("gemv", (2304, 18432), -1, "bf16", trans=True),
]


def estimated(problem, target, *tiles):
    return cost.microseconds(cost.facts(problem, target, tiles), target)


def test_more_bytes_take_longer_and_never_less_than_the_floor():
    for rows in (1 << 12, 1 << 14, 1 << 16, 1 << 18):
        problem = describe("sum", (rows, 1024), 1, "fp32")
        (time,) = estimated(problem, H200, Tile("rows", 1, 1024))
        assert time >= problem.nbytes / H200.bandwidth * 1e6
        (twice,) = estimated(describe("sum", (2 * rows, 1024), 1, "fp32"), H200, Tile("rows", 1, 1024))
        assert twice > time


def test_the_lattice_leaves_out_what_spills_and_what_leaves_lanes_idle():
    for problem in MIXED:
        for tile in lattice(problem, H200, 10**9):
            values = tile.lanes / (32 * tile.warps)
            whole = tile.x >= problem.xnumel and tile.r0 >= problem.reduced[-1].size
            single = LEAST_VALUES if problem.column_vector > 1 else min(VALUES)
            least = single if problem.layout == "columns" else VECTOR_BYTES / problem.dtype.itemsize
            assert values <= max(VALUES) and (values >= least or whole), tile


def test_one_program_for_all_takes_longer_than_many_that_meet():
    alone, shared = estimated(describe("sum", (1, 1 << 24), 1, "fp32"), H200, Tile("rows", 1, 2048), Tile("rows", 1, 2048, split=1024))
    assert alone > 10 * shared


def test_a_faster_memory_takes_less_time():
    tile = candidates(ROWS, H200)[0]
    assert estimated(ROWS, replace(H200, bandwidth=2 * H200.bandwidth), tile) < estimated(ROWS, H200, tile)


@pytest.mark.parametrize("problem", MIXED, ids=str)
def test_where_nothing_was_timed_the_first_candidate_promises_more_than_the_rules_or_is_theirs(problem):
    target = replace(H200, timed="")
    found, rule = candidates(problem, target), guesses(problem, target)[0]
    of_first, of_rule = estimated(problem, target, found[0], rule)
    assert coordinates(problem, found[0]) == coordinates(problem, rule) or of_first * MARGIN < of_rule
    assert len(found) <= CANDIDATES and coordinates(problem, rule) in {coordinates(problem, t) for t in found}


@pytest.mark.parametrize("name", ["h200", "a100", "b200", "mi300x"])
def test_every_target_with_registers_is_estimated(name):
    target = by_name(name)
    for problem in MIXED:
        times = estimated(problem, target, *candidates(problem, target))
        assert np.isfinite(times).all() and (times > 0).all()


def test_a_target_without_registers_is_left_to_the_rules():
    assert candidates(ROWS, by_name("interpreter")) == guesses(ROWS, by_name("interpreter"))
