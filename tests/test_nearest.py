"""The table of what was timed: what it gives to a problem that is in it, to one near it, and to one of another kind."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import nearest_table

from tri_reduce import configs, evaluation, nearest, targets
from tri_reduce.configs import candidates, explain
from tri_reduce.geometry import coordinates, depth_limit, depth_of
from tri_reduce.problem import describe
from tri_reduce.targets import H200

TIMED = [timed for places in nearest.table("h200").values() for _, timed in places]
PATH = Path(nearest.__file__).parent / "nearest_h200.json"


def test_the_table_is_that_of_the_sweep():
    assert nearest_table.text(nearest_table.rows(evaluation.load(evaluation.DEFAULT))) == PATH.read_text()


def test_a_timed_problem_gets_the_tile_that_was_fastest():
    records = evaluation.load(evaluation.DEFAULT)["problems"]
    wrong = []
    for timed in TIMED:
        first = configs.first(timed.problem, H200)
        times = {tuple(row[:-1]): row[-1] for row in records[timed.key]["tiles"]}
        if times[coordinates(timed.problem, first)] > 1.02 * min(times.values()):
            wrong.append(timed.key)
    assert len(wrong) <= 0.06 * len(TIMED), wrong  # a thread holds rows of 16 bytes whatever was faster; long chains of additions lose


def test_a_problem_near_it_gets_its_tile_with_as_many_programs():
    tile, shorter, wider = (
        next(iter(nearest.nearest(describe("sum", shape, 0), H200))) for shape in ((401408, 64), (300000, 64), (401408, 120))
    )
    for near, factor in ((shorter, 1), (wider, 64 / 120)):
        assert (near.x, near.r0, near.warps) == (tile.x, tile.r0, tile.warps) and near.split == pytest.approx(tile.split * factor, rel=0.1)


def test_a_call_says_which_problem_its_tile_was_timed_for():
    near = describe("sum", (50, 401408), 1)
    assert nearest.source(near, H200, candidates(near, H200)[0]).key == "sum 64x401408 1 fp32"
    assert nearest.source(near, H200, candidates(near, H200)[-1]) is None
    assert "(timed as sum 64x401408 1 fp32)" in explain(near, H200)


def test_one_of_another_kind_gets_none_of_it():
    known = describe("sum", (4096, 4096), 0, "bf16")
    assert nearest.nearest(known, H200)
    assert not nearest.nearest(known, targets.by_name("a100"))
    assert not nearest.nearest(replace(known, masked=True), H200)
    assert not nearest.nearest(
        describe("sum", (4096 << 4, 4096 << 4), 0, "bf16"), replace(H200, timed="h200"), frozenset(t.key for t in TIMED)
    )
    assert nearest.kind(known) != nearest.kind(replace(known, shift=1))


def test_what_is_set_apart_is_not_looked_at():
    for timed in TIMED[::25]:
        tiles = nearest.nearest(timed.problem, H200)
        assert tiles and coordinates(timed.problem, next(iter(tiles))) == next(iter(timed.us))
        assert all(t.key != timed.key for t in [nearest.neighbour(timed.problem, H200, frozenset([timed.key]))] if t)


@pytest.mark.parametrize("scale", [0.71, 0.9, 1.3, 1.9])
def test_no_tile_taken_over_adds_up_longer_chains_than_the_bound_allows(scale):
    for timed in TIMED[::29]:
        row = json.loads(PATH.read_text())[timed.key]
        shape = [max(1, round(n * scale)) for n in row[1]]
        problem = describe(row[0], shape, tuple(row[2]) if isinstance(row[2], list) else row[2], row[3], row[4])
        first = candidates(problem, H200)[0]
        assert configs.first(problem, H200) == first
        rule = candidates(problem, replace(H200, timed=""))[0]
        assert depth_of(problem, first) <= max(depth_limit(problem), depth_of(problem, rule))
