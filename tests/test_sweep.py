"""The sweep, small and interpreted: what it tries, what it writes, and that it goes on where it ended."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from devices import REFERENCE

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import compiling
import lattice
import sweep
from corpus import Case, cases

from tri_reduce import exact, plans
from tri_reduce.configs import candidates
from tri_reduce.geometry import coordinates
from tri_reduce.targets import H200, by_name, interpreting

SMALL = (
    Case("a", "sum", (6, 300), -1, "fp32"),
    Case("a", "gemv", (40, 70), None, "fp32", True),
    Case("b", "argmax", (3, 40, 8), 1, "bf16"),
)
needs_interpreter = pytest.mark.skipif(REFERENCE or torch.cuda.is_available(), reason="the smoke test is for Triton's interpreter")


def swept(folder, monkeypatch, *more):
    monkeypatch.setattr(sweep, "cases", lambda: SMALL)
    status = sweep.main(["--out", str(folder), "--largest", "65536", "--limit", "1", "--rounds", "1", *more])
    return status, json.loads((folder / "interpreter_reduce.json").read_text())


@needs_interpreter
def test_a_sweep_checks_times_and_records_every_problem_and_goes_on_where_it_ended(tmp_path, monkeypatch, capsys):
    assert interpreting()
    status, first = swept(tmp_path, monkeypatch, "--only", "^a")
    assert status == 0 and set(first["problems"]) == {c.key for c in SMALL[:2]}
    status, both = swept(tmp_path, monkeypatch)
    assert status == 0 and "3 problems, 1 to do" in capsys.readouterr().out
    for case in SMALL:
        record = both["problems"][case.key]
        measured = {tuple(row[:-1]) for row in record["tiles"]}
        assert record["excess"] <= 1 and record["done"] and not record["failed"]
        assert all(us > 0 for *_, us in record["tiles"])
        assert measured >= {coordinates(case.problem, t) for t in candidates(case.problem, by_name("interpreter"))}
    assert all(both["problems"][key] == record for key, record in first["problems"].items())


@needs_interpreter
def test_a_candidate_that_a_finished_problem_lacks_is_measured(tmp_path, monkeypatch):
    _, before = swept(tmp_path, monkeypatch, "--only", "sum")
    path = tmp_path / "interpreter_reduce.json"
    record = before["problems"][SMALL[0].key]
    lost = record["tiles"].pop(0)
    path.write_text(json.dumps(before))
    _, after = swept(tmp_path, monkeypatch, "--only", "sum")
    assert lost[:-1] in [row[:-1] for row in after["problems"][SMALL[0].key]["tiles"]]


def test_a_lattice_begins_with_the_selectors_candidates_in_their_order_and_has_no_tile_twice():
    for case in cases()[::40]:
        problem = case.problem
        own = list(dict.fromkeys(coordinates(problem, t) for t in candidates(problem, H200)))
        found = [coordinates(problem, t) for t in lattice.lattice(problem, H200, 20, case.key)]
        assert found[: len(own)] == own and len(set(found)) == len(found) <= len(own) + 20
        assert found == [coordinates(problem, t) for t in lattice.lattice(problem, H200, 20, case.key)]


def test_neighbours_are_legal_and_differ_from_the_tile():
    for case in cases()[::40]:
        problem, first = case.problem, candidates(case.problem, H200)[0]
        for tile in (first, replace(first, ahead=16)):
            for near in lattice.neighbours(problem, H200, tile):
                assert near != tile and (near.unroll or lattice.is_legal(problem, H200, near))
                assert near.ahead in (1, 2, 4, 16)


def test_a_vector_starts_where_its_kernel_is_told_it_does():
    device = sweep.Device(torch.device("cpu"), H200, sweep.host_clock, 1 << 20)
    for shape, trans in (((40, 71), False), ((37, 40), True)):
        _, vector = sweep.Sweep(device, None, 0, 0).operands(sweep.progress_of(Case("a", "gemv", shape, None, "fp32", trans), None))
        assert vector.shape == (shape[not trans],) and vector.data_ptr() % 16 == 0


def test_a_tile_and_its_coordinates_are_one_to_one():
    for case in cases()[::20]:
        for tile in candidates(case.problem, H200):
            at = coordinates(case.problem, tile)
            assert coordinates(case.problem, lattice.tile_at(case.problem, at)) == at


@needs_interpreter
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.key)
def test_the_kernel_that_is_timed_is_the_one_that_a_call_runs(case, monkeypatch):
    ran = []
    original = plans.planned
    monkeypatch.setattr(plans, "planned", lambda spec, *rest: ran.append(spec) or original(spec, *rest))
    x = torch.randn(case.shape, dtype=case.problem.dtype.torch)
    plans.PLANS.clear()
    import tri_reduce

    tri_reduce.gemv(x, x[:, 0].clone(), trans=True) if case.op == "gemv" else tri_reduce.reduce(x, case.op, case.dim)
    spec = compiling.specialise(case, ran[-1].tile)
    assert (spec.fn, spec.signature, spec.constexprs, spec.values) == (ran[-1].fn, ran[-1].signature, ran[-1].constexprs, ran[-1].values)


@pytest.mark.parametrize("op", [*exact.REFERENCES, "argmax"])
def test_a_right_result_is_within_the_bound_and_a_wrong_one_is_not(op):
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    right = x.argmax(1) if op == "argmax" else exact.REFERENCES[op](x.double(), (1,)).float()
    assert exact.excess(op, right, x, 1) <= 1
    assert exact.excess(op, right + 1, x, 1) > 1


def test_a_wrong_product_is_told_from_a_right_one():
    a, x = torch.randn(6, 50), torch.randn(50)
    assert exact.gemv_excess((a.double() @ x.double()).float(), a, x) <= 1 < exact.gemv_excess(a @ x + 0.1, a, x)


@needs_interpreter
def test_the_best_are_timed_anew_and_the_others_scaled_alike(tmp_path, monkeypatch):
    _, before = swept(tmp_path, monkeypatch, "--only", "sum")
    _, after = swept(tmp_path, monkeypatch, "--only", "sum", "--again", "1", "--rounds", "0")
    old, new = ({tuple(at): us for *at, us in found["problems"][SMALL[0].key]["tiles"]} for found in (before, after))
    assert after["problems"][SMALL[0].key]["done"] and new.keys() >= old.keys() and new != old
    assert sweep._rescaled({(1,): 10.0, (2,): 30.0}, {(1,): 5.0, (3,): 7.0}) == {(1,): 5.0, (2,): 15.0, (3,): 7.0}
