"""TRI_REDUCE_LOG=plan: one line for each new plan, silence otherwise."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from devices import REFERENCE

import tri_reduce
from tri_reduce import logs, plans

ROOT = Path(__file__).parent.parent
kernels = pytest.mark.skipif(REFERENCE, reason="about kernels")


@pytest.fixture
def lines(caplog, monkeypatch):
    """What is said about plans, as a program that listens to the logger hears it."""
    monkeypatch.delenv("TRI_REDUCE_LOG", raising=False)
    plans.PLANS.clear()
    caplog.set_level(logging.DEBUG, logger="tri_reduce")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "tri_reduce"]


@kernels
def test_a_plan_is_one_line_with_op_problem_regime_config_and_why_and_a_call_that_repeats_it_none(lines, device):
    x = torch.randn(3, 500, device=device)
    for _ in range(3):
        tri_reduce.sum(x, 1)
    (line,) = lines()
    knobs = r"XBLOCK=\d+ R0_BLOCK=\d+ R1_BLOCK=1 SPLIT=1 AHEAD=\d num_warps=\d+"
    assert re.fullmatch(rf"plan: sum of fp32, 3 outputs from 500 values each \| rows \| {knobs} \| heuristic: the best guess on \S.*", line)


@kernels
@pytest.mark.parametrize("scope, why", [
    (lambda: tri_reduce.force(regime="columns"), "forced"),
    (lambda: tri_reduce.autotune.policy("cached"), "cached: no entry, the best guess"),
], ids=["forced", "cached"])  # fmt: skip
def test_the_line_says_whose_choice_it_was(scope, why, lines, device):
    with scope():
        tri_reduce.sum(torch.ones(3, 90, device=device), 1)
    assert f"| {why} on " in lines()[0]


@kernels
def test_what_was_tuned_and_what_the_store_had_are_told_apart(lines, device, monkeypatch):
    monkeypatch.setattr(tri_reduce.autotune, "measure", lambda run, target: (run(), 1.0)[1])
    for name in ("tune", "cached"):
        with tri_reduce.autotune.policy(name):
            tri_reduce.sum(torch.ones(3, 90, device=device), 1)
    first, second = lines()
    assert re.search(r"\| tune: the fastest of \d+ on ", first) and "| cached: the store's entry on " in second


@kernels
def test_gemv_invariant_and_every_step_of_a_reducer_are_told(lines, device):
    tri_reduce.gemv(torch.ones(3, 90, device=device), torch.ones(90, device=device))
    tri_reduce.reduce(torch.ones(3, 90, device=device), "max", 1, determinism="invariant")
    r = tri_reduce.Reducer("sum", (4,), torch.float32, device)
    r.update(torch.ones(5, 4, device=device))
    r.update(torch.ones(2, device=device), index=torch.tensor([1, 0], device=device))
    r.finalize()
    said = lines()
    assert [line.split()[1].strip(",") for line in said] == ["gemv", "max", "sum", "sum", "sum"]
    assert "invariant: one tile" in said[1] and "an update into" in said[2]
    assert "the only plan of a segment update" in said[3] and "the only plan of a finalize" in said[4]


def test_the_reference_says_so(lines, reference):
    tri_reduce.sum(torch.ones(2, 3), 1)
    assert lines() == ["plan: sum of (2, 3) torch.float32 over (1,) | no kernel | the PyTorch reference: no kernels for this device"]


SCRIPT = "import torch, tri_reduce; x = torch.ones(2, 3); print(tri_reduce.sum(x, 1).tolist()); tri_reduce.sum(x, 1)"


def ran(**environment):
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True)


def test_the_environment_variable_prints_to_standard_error():
    done = ran(TRI_REDUCE_LOG="plan")
    assert done.stdout == "[3.0, 3.0]\n"
    assert done.stderr.startswith("tri_reduce plan: sum of ") and done.stderr.count("\n") == 1


def test_without_it_nothing_is_printed():
    done = ran()
    assert (done.stdout, done.stderr) == ("[3.0, 3.0]\n", "")


def test_another_value_is_an_error_that_names_what_there_is(monkeypatch):
    monkeypatch.setenv("TRI_REDUCE_LOG", "everything")
    logs.follow_environment.cache_clear()
    with pytest.raises(ValueError, match=r"unknown TRI_REDUCE_LOG 'everything': expected plan"):
        logs.plan("sum", None, "why")
