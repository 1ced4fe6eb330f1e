"""Policies and `force`: tuning changes speed alone, and what is not a policy or a plan is refused by name."""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from bounds import check
from devices import REFERENCE
from gemv_oracle import check_gemv

import tri_reduce
from tri_reduce import autotune, buckets, launch, plans, targets, tuning
from tri_reduce.configs import candidates
from tri_reduce.geometry import Tile
from tri_reduce.problem import describe

reduce, gemv, force, policy = tri_reduce.reduce, tri_reduce.gemv, tri_reduce.force, autotune.policy
pytestmark = pytest.mark.usefixtures("directory")
needs_kernels = pytest.mark.skipif(REFERENCE, reason="about kernels: without them no tile is picked")


@pytest.fixture
def counted():
    """What `stats` counted since."""
    before = autotune.stats()
    return lambda: {name: n - before[name] for name, n in autotune.stats().items()}


def entries(device):
    store = autotune.Store(device=torch.device(device))
    return {key: store.get(key) for key in sorted(store.keys())}


def ramp(device, *shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return (torch.arange(n, device=device) * 37 % 19 - 9).view(shape).to(dtype)


@needs_kernels
def test_tuning_gives_the_same_result_and_reads_nothing_of_out(device):
    x, m = ramp(device, 3, 70), ramp(device, 3, 70, dtype=torch.int32)
    with policy("tune"):
        for dim in (0, 1):
            check(reduce(x, "sum", dim), x, "sum", dim)
        assert torch.equal(reduce(m, "sum", 1), m.sum(1)) and torch.equal(reduce(m, "argmax", 0), m.argmax(0))
        out = torch.full((3,), float("nan"), device=device)
        check(reduce(x, "sum", 1, out=out), x, "sum", 1)
        check_gemv(gemv(x, x[0], out=out), x, x[0])
    assert entries(device)


@needs_kernels
@pytest.mark.parametrize("gap", [1, 3])
def test_tuning_adds_to_an_old_value_once_and_writes_between_its_elements_never(gap, device):
    m = ramp(device, 5, 67, dtype=torch.int32)
    buf = torch.full((5, gap + 1), 1000, dtype=torch.int64, device=device)
    out = buf[:, 0]
    with policy("tune"):
        for n in (1, 2):
            reduce(m, "sum", 1, out=out, accumulate=True, initial=7)
            assert torch.equal(out, 1000 + n * (m.sum(1) + 7))
    assert bool((buf[:, 1:] == 1000).all())


@needs_kernels
def test_tuning_a_product_into_a_strided_out_leaves_its_neighbours(device):
    a, buf = ramp(device, 5, 33), torch.full((5, 4), 3.0, device=device)
    with policy("tune"):
        gemv(a, a[0], beta=2, y=buf[:, 1], out=buf[:, 1])
    check_gemv(buf[:, 1], a, a[0], beta=2, y=torch.full((5,), 3.0, device=device))
    assert bool((buf[:, [0, 2, 3]] == 3).all())


def fastest_is(place, monkeypatch, times=None):
    """Measure by a script: candidate `place` is fast. Nothing is glanced at."""
    times = [] if times is None else times

    def measure(run, target):
        run()
        times.append(1.0 if len(times) == place else 10.0)
        return times[-1]

    monkeypatch.setattr(autotune, "measure", measure)
    monkeypatch.setattr(tuning, "_bench", lambda run, warmup, rep, mode: 1.0)
    return times


def launched(monkeypatch):
    """The tiles of the plans that are made from now on."""
    tiles, bind = [], launch.Plan.bind
    monkeypatch.setattr(launch.Plan, "bind", lambda self, *args: (tiles.append(self.spec.tile), bind(self, *args))[1])
    return tiles


@needs_kernels
def test_every_candidate_is_run_on_scratch_and_the_fastest_is_kept_and_used(device, monkeypatch, counted):
    x = ramp(device, 3, 90)
    times, tiles = fastest_is(2, monkeypatch), launched(monkeypatch)
    with policy("tune"):
        check(reduce(x, "sum", 1), x, "sum", 1)
        check(reduce(x, "sum", 1), x, "sum", 1)
    found = candidates(describe("sum", (3, 90), 1), targets.of_device(x.device.type, 0))
    assert len(times) == len(found) and tiles == [found[2]]
    assert counted() == {"hits": 0, "misses": 1, "tuned": 1}
    with policy("cached"):
        check(reduce(x, "sum", 1), x, "sum", 1)
    assert len(times) == len(found) and tiles == [found[2]] * 2
    assert counted() == {"hits": 1, "misses": 1, "tuned": 1}
    assert next(iter(entries(device).values()))["us"] == 1000


@needs_kernels
@pytest.mark.parametrize("op", ["sum", "argmax", "var", "logsumexp"])
def test_a_cached_tile_gives_the_heuristics_result(op, device, monkeypatch):
    x = ramp(device, 5, 400)
    want = reduce(x, op, 1)
    for place in (1, 3):
        fastest_is(place, monkeypatch)
        with policy("tune", again=True):
            reduce(x, op, 1)
        with policy("cached"):
            got = reduce(x, op, 1)
        assert torch.allclose(got.double(), want.double(), rtol=1e-6), place


@needs_kernels
def test_again_measures_what_is_in_the_store(device, monkeypatch, counted):
    x = ramp(device, 3, 90)
    for place in (2, 1):
        fastest_is(place, monkeypatch)
        with policy("tune", again=True):
            reduce(x, "sum", 1)
        plans.PLANS.clear()
    assert counted()["tuned"] == 2 and len(entries(device)) == 1
    tiles = launched(monkeypatch)
    with policy("tune"):
        reduce(x, "sum", 1)
    assert tiles == [candidates(describe("sum", (3, 90), 1), targets.of_device(x.device.type, 0))[1]]


@needs_kernels
def test_a_plan_made_under_cached_sees_what_is_tuned_later(device, monkeypatch, counted):
    x, tiles = ramp(device, 3, 90), launched(monkeypatch)
    fastest_is(2, monkeypatch)
    for name in ("cached", "cached", "tune", "cached", "cached"):
        with policy(name):
            reduce(x, "sum", 1)
    found = candidates(describe("sum", (3, 90), 1), targets.of_device(x.device.type, 0))
    assert tiles == [found[0], found[2], found[2]]
    assert counted() == {"hits": 1, "misses": 2, "tuned": 1}


@needs_kernels
def test_a_plan_made_under_cached_by_the_environment_sees_it_too(device, monkeypatch):
    monkeypatch.setenv("TRI_REDUCE_AUTOTUNE", "cached")
    x, tiles = ramp(device, 3, 90), launched(monkeypatch)
    fastest_is(2, monkeypatch)
    reduce(x, "sum", 1)
    with policy("tune"):
        reduce(x, "sum", 1)
    reduce(x, "sum", 1)
    assert tiles[0] != tiles[2] == tiles[1]


@needs_kernels
@pytest.mark.parametrize("name", autotune.POLICIES)
def test_a_policy_costs_a_planned_call_nothing(name, device, monkeypatch):
    x = ramp(device, 3, 90)
    with policy(name):
        reduce(x, "sum", 1)
        monkeypatch.setattr(autotune, "pick", lambda *_: pytest.fail("picked again"))
        monkeypatch.setattr(autotune, "_policy_of", lambda _: pytest.fail("asked for the policy"))
        check(reduce(x, "sum", 1), x, "sum", 1)


@needs_kernels
def test_heuristic_neither_reads_nor_writes(device, directory, monkeypatch, counted):
    monkeypatch.setattr(autotune, "_opened", lambda *_: pytest.fail("opened the store"))
    reduce(ramp(device, 3, 90), "sum", 1)
    with policy("heuristic"):
        gemv(ramp(device, 3, 40), ramp(device, 40))
    assert not directory.exists() and not any(counted().values())


@needs_kernels
def test_cached_writes_nothing(device, directory, counted):
    with policy("cached"):
        reduce(ramp(device, 3, 90), "sum", 1)
    assert not directory.exists() and counted() == {"hits": 0, "misses": 1, "tuned": 0}


@needs_kernels
def test_nothing_is_tuned_while_a_graph_is_captured_but_after(device, monkeypatch, counted, directory):
    x = ramp(device, 3, 90)
    fastest_is(1, monkeypatch)
    monkeypatch.setattr(tuning, "capturing", lambda: True)
    with policy("tune"):
        for _ in range(2):
            check(reduce(x, "sum", 1), x, "sum", 1)
        assert not directory.exists() and counted()["tuned"] == 0
        monkeypatch.setattr(tuning, "capturing", lambda: False)
        for _ in range(2):
            check(reduce(x, "sum", 1), x, "sum", 1)
    assert counted()["tuned"] == 1


@needs_kernels
@pytest.mark.parametrize("change", [
    {"XBLOCK": 3}, {"R0_BLOCK": 2**20}, {"num_warps": 64}, {"SPLIT": 10**400}, {"SPLIT": 0}, {"SPLIT": -1}, {"SPLIT": "2"}, {"SPLIT": True},
    {"regime": "diagonal"}, {"R1_BLOCK": None}, {"extra": 1},
], ids=str)  # fmt: skip
def test_a_stored_tile_that_is_no_candidate_is_a_miss(change, device, monkeypatch, counted):
    x, store = ramp(device, 3, 90), autotune.Store(device=torch.device(device))
    problem = describe("sum", (3, 90), 1)
    found = candidates(problem, targets.of_device(x.device.type, 0))
    store.put(buckets.key_of(problem), {"config": buckets.config_of(found[1]) | change})
    tiles = launched(monkeypatch)
    with policy("cached"):
        check(reduce(x, "sum", 1), x, "sum", 1)
    assert tiles == [found[0]] and counted() == {"hits": 0, "misses": 1, "tuned": 0}


@pytest.mark.parametrize("entry", [None, 3, [], {}, {"config": None}, {"config": [1]}, {"config": {}}, {"config": {"SPLIT": 1}}], ids=str)
def test_an_entry_of_any_other_kind_names_no_tile(entry):
    assert buckets.tile_of(entry, candidates(describe("sum", (64, 1000), 1), targets.H200)) is None


def test_an_entry_names_its_tile_and_in_its_bucket_the_nearest_split():
    for shape, other in (((4, 401408), (4, 420000)), ((64, 1000), (50, 1020)), ((4096, 768), (4000, 768))):
        mine, theirs = describe("sum", shape, 1), describe("sum", other, 1)
        assert buckets.key_of(mine) == buckets.key_of(theirs)
        found = candidates(theirs, targets.H200)
        for tile in candidates(mine, targets.H200):
            assert buckets.tile_of({"config": buckets.config_of(tile)}, candidates(mine, targets.H200)) == tile
            got = buckets.tile_of({"config": buckets.config_of(tile)}, found)
            assert got is None or (got in found and dataclasses.replace(got, split=tile.split) == tile)


def test_buckets_part_what_wants_other_tiles():
    base = describe("sum", (4096, 4096), 1)
    others = [describe("max", (4096, 4096), 1), describe("sum", (4096, 4096), 1, "bf16"), describe("sum", (4096, 4096), 0)]
    others += [describe("sum", (4096, 8192), 1), describe("sum", (64, 4096), 1)]
    others += [dataclasses.replace(base, shift=1), dataclasses.replace(base, masked=True), dataclasses.replace(base, arity=2)]
    keys = [buckets.key_of(p) for p in (base, *others)] + [buckets.key_of(base, "update")]
    assert len(set(keys)) == len(keys)


def test_other_kernels_or_another_triton_are_other_keys(monkeypatch):
    problem = describe("sum", (4096, 4096), 1)
    keys = [buckets.key_of(problem)]
    monkeypatch.setattr(buckets.hashing, "sources", lambda: "0" * 16)
    keys.append(buckets.key_of(problem))
    if buckets.HAS_TRITON:
        monkeypatch.setattr(buckets.triton, "__version__", "99.0")
        keys.append(buckets.key_of(problem))
    assert len(set(keys)) == len(keys)


@needs_kernels
def test_a_reducers_updates_are_tuned_apart_from_calls(device, monkeypatch, counted):
    x = ramp(device, 60, 4)
    fastest_is(1, monkeypatch)
    with policy("tune"):
        r = tri_reduce.Reducer("sum", (4,), torch.float32, device)
        r.update(x)
        r.update(x)
        check(reduce(x, "sum", 0), x, "sum", 0)
    assert torch.equal(r.finalize(), 2 * x.sum(0)) and counted()["tuned"] == len(entries(device)) == 2


def test_threads_that_want_the_same_problem_tune_it_once(monkeypatch, counted):
    """Of the policy alone: Triton's interpreter runs in one thread."""
    problem, start, picked = describe("sum", (64, 100000), 1), threading.Barrier(4), []
    monkeypatch.setattr(tuning, "tune", lambda found, *_: (time.sleep(0.05), tuning.Tuned(2, {0: 2.0, 2: 1.0}))[1])
    monkeypatch.setattr(tuning, "capturing", lambda: False)

    def work():
        start.wait()
        with policy("tune"):
            picked.append(autotune.pick(problem, targets.H200, lambda tile: pytest.fail("tried")))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert picked == [candidates(problem, targets.H200)[2]] * 4 and counted()["tuned"] == 1


@needs_kernels
def test_where_there_is_no_memory_to_tune_in_the_best_guess_runs(device, monkeypatch, counted, directory):
    def measure(run, target):
        raise torch.OutOfMemoryError("none left")

    fastest_is(1, monkeypatch)
    monkeypatch.setattr(autotune, "measure", measure)
    x = ramp(device, 3, 90)
    with policy("tune"), pytest.warns(UserWarning, match="no memory left to tune sum of 3 x 90"):
        check(reduce(x, "sum", 1), x, "sum", 1)
    assert not directory.exists() and counted()["tuned"] == 0


PROGRAM = """
import torch, tri_reduce
from tri_reduce import autotune, launch
tiles, bind = [], launch.Plan.bind
launch.Plan.bind = lambda self, *args: (tiles.append(self.spec.tile), bind(self, *args))[1]
x = torch.arange(270.0, device="{device}").view(3, 90)
assert torch.equal(tri_reduce.sum(x, 1), x.sum(1))
print(tiles[0].x, tiles[0].r0, tiles[0].split, tiles[0].ahead, tiles[0].warps, autotune.stats()["hits"])
"""


@needs_kernels
def test_another_process_uses_what_was_tuned_here(device, monkeypatch, directory):
    fastest_is(2, monkeypatch)
    with policy("tune"):
        reduce(ramp(device, 3, 90), "sum", 1)
    tile = candidates(describe("sum", (3, 90), 1), targets.of_device(device.split(":")[0], 0))[2]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "TRI_REDUCE_AUTOTUNE": "cached"}
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(device=device)], capture_output=True, text=True, env=env)
    assert done.stdout.split() == [str(n) for n in (tile.x, tile.r0, tile.split, tile.ahead, tile.warps, 1)], done.stderr


@pytest.fixture
def device_like(monkeypatch):
    """`tune` on trials that are scripts: [(milliseconds at a glance or an error, milliseconds measured)]. Nothing is compiled."""

    def tune(script):
        done = {"compiled": [], "measured": []}

        def trial(tile):
            return tuning.Trial(lambda: done["compiled"].append((tile.x, threading.get_ident())), lambda: tile.x)

        def bench(run, warmup, rep, mode):
            if isinstance(script[run()][0], Exception):
                raise script[run()][0]
            return script[run()][0]

        def measure(run, target):
            done["measured"].append(run())
            return script[run()][1]

        monkeypatch.setattr(targets, "interpreting", lambda: False)
        monkeypatch.setattr(tuning, "_bench", bench)
        return tuning.tune([Tile("rows", n, 1) for n in range(len(script))], trial, targets.H200, measure), done

    return tune


def test_all_candidates_are_compiled_in_other_threads_before_one_is_timed(device_like):
    _, done = device_like([(1.0, 1.0)] * 5)
    assert sorted(n for n, _ in done["compiled"]) == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in {thread for _, thread in done["compiled"]}


def test_the_hopeless_are_not_measured_and_a_tie_is_the_best_guess(device_like):
    tuned, done = device_like([(1.0, 1.0), (2.1, 0.1), (1.9, 0.99), (1.0, 1.5)])
    assert done["measured"] == [0, 2, 3] and tuned.best == 0
    assert device_like([(1.0, 1.0), (1.0, 0.9)])[0].best == 1
    assert device_like([(9.0, 1.0), (1.0, 2.0)])[0] == tuning.Tuned(1, {1: 2.0})


@needs_kernels
def test_a_candidate_that_the_device_has_no_room_for_drops_out(device_like):
    from triton.runtime.errors import OutOfResources

    error = OutOfResources(1, 0, "shared memory")
    assert device_like([(error, 0.1), (1.0, 1.0)])[0].best == 1
    with pytest.raises(OutOfResources):
        device_like([(error, 0.1), (error, 0.1)])


def test_triton_configs_are_the_selectors_with_a_kernels_own_knobs():
    pytest.importorskip("triton")
    problem = describe("sum", (4, 401408), 1)
    whole, found = tri_reduce.configs.select_configs(problem, "h200"), autotune.triton_configs(problem, "h200")
    assert found[0].kwargs == {name: whole[0].kwargs[name] for name in ("XBLOCK", "R0_BLOCK")}
    assert len({str(c) for c in found}) == len(found) <= len(whole)
    assert {str(c) for c in autotune.triton_configs(problem, "h200", tuple(whole[0].kwargs))} == {str(c) for c in whole}


def test_an_unknown_policy_is_a_value_error_naming_the_three():
    for bad in ("fastest", "TUNE", ""):
        with pytest.raises(ValueError, match="heuristic, cached, tune"), policy(bad):
            pass


@needs_kernels
def test_an_unknown_policy_in_the_environment_is_named_with_the_variable(device, monkeypatch):
    monkeypatch.setenv("TRI_REDUCE_AUTOTUNE", "fastest")
    for call in (lambda x: reduce(x, "sum", 1), lambda x: gemv(x, x[0])):
        with pytest.raises(ValueError, match=r"'fastest'.*TRI_REDUCE_AUTOTUNE.*heuristic, cached, tune"):
            call(ramp(device, 3, 40))
        with policy("heuristic"):
            call(ramp(device, 3, 40))


@pytest.mark.parametrize("bad, said", [
    (dict(regime="diagonal"), "diagonal.*thread, rows, columns, strided"), (dict(split=0), "split.*0"), (dict(split=-1), "split.*-1"),
    (dict(split=True), "split.*True"), (dict(split=1.5), r"split.*1\.5"), (dict(config={"XBLOCK": [1]}), "XBLOCK"),
], ids=str)  # fmt: skip
def test_force_refuses_what_no_problem_could_run(bad, said):
    with pytest.raises(ValueError, match=said), force(**bad):
        reduce(torch.ones(3, 4), "sum", 1)
    assert autotune.MODE.get() is autotune._DEFAULT


def test_force_ends_with_its_context_also_after_an_error():
    with pytest.raises(ZeroDivisionError), force(split=2):
        raise ZeroDivisionError
    assert autotune.MODE.get() is autotune._DEFAULT
