"""The worked examples run and check themselves."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from devices import ON_GPU, REFERENCE

ROOT = Path(__file__).parent.parent


def run(name, *arguments, **environment):
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, ROOT / "examples" / name, *arguments], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(REFERENCE, reason="a kernel of one's own needs a GPU or the interpreter")
def test_a_kernel_of_ones_own_computes_fused_statistics():
    assert "as torch has them" in run("fused_statistics.py", **({} if ON_GPU else {"TRITON_INTERPRET": "1"}))


def test_a_streaming_evaluation_over_two_ranks_survives_an_interruption():
    assert "on 2 ranks" in run("streaming_evaluation.py", "--batches", "200")


@pytest.mark.parametrize("name, arguments", [("batch_norm", ((4, 6, 7, 7),)), ("log_mean_exp", ())])
def test_a_worked_example_checks_itself(name, arguments, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    importlib.import_module(name).main(*arguments)
    assert capsys.readouterr().out.count("\n") == 1


def test_a_decode_step_checks_every_way_and_times_them_on_a_gpu(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    importlib.import_module("decode_step").main(64, 160, 2, 200, 8, "cuda" if ON_GPU else "cpu")
    out = capsys.readouterr().out
    assert out.count("by rounding") == (6 if ON_GPU else 3)
    assert out.count("tokens a second") == (6 if ON_GPU else 0)
