"""The command line: what it prints, and how it refuses."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tri_reduce
from tri_reduce import cli, demo


def refusal(capsys, *argv):
    """The one line that a bad call ends with."""
    try:
        status = cli.main(argv)
    except SystemExit as exit:
        status = exit.code
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1 and err.endswith("\n")
    return err


def test_env_names_what_was_found(capsys):
    assert cli.main(["env"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["torch"] == torch.__version__
    assert rows["tri_reduce"] == tri_reduce.__version__
    assert rows["interpreter"] == ("yes" if demo.interpreting() else "no")
    assert {"Python", "triton", "numpy", "devices", "backend", "cache"} <= rows.keys()


@pytest.mark.parametrize("device", ["h200", "ascend"])
@pytest.mark.parametrize("op, shape", [("sum", "8192x50257"), ("gemv", "4096x4096"), ("argmax", "[32, 64, 7, 7]")])
def test_explain_prints_one_screen_without_such_a_device(capsys, device, op, shape):
    assert cli.main(["explain", shape, "--op", op, "--device", device]) == 0
    assert 1 <= capsys.readouterr().out.count("\n") <= 50


def test_explain_takes_several_axes_and_a_dtype(capsys):
    assert cli.main(["explain", "32x64x56x56", "--dim", "0,2,3", "--dtype", "bf16"]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, value",
    [
        (["explain", "12xq"], "12xq"),
        (["explain", "8x8", "--op", "median"], "median"),
        (["explain", "8x8", "--dim", "7"], "7"),
        (["explain", "8x8", "--dim", "one"], "one"),
        (["explain", "8x8", "--dtype", "fp12"], "fp12"),
        (["explain", "8x8", "--device", "abacus"], "abacus"),
        (["explain", "8x8", "--frobnicate"], "--frobnicate"),
        (["dance"], "dance"),
    ],
)
def test_bad_input_is_one_line_that_names_the_value(capsys, argv, value):
    assert value in refusal(capsys, *argv)


def test_the_module_is_the_program():
    done = subprocess.run([sys.executable, "-m", "tri_reduce", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, tri_reduce.__version__)


@pytest.mark.skipif(torch.cuda.is_available() or not demo.interpreting(), reason="about the interpreter")
def test_demo_agrees_with_torch_and_says_interpreter(capsys):
    assert cli.main(["demo"]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert "interpreter" in first
    assert all("agrees with torch" in line for line in lines)
    assert last.startswith(f"all {len(lines)} agree")


def test_demo_fails_when_a_result_is_wrong(capsys, monkeypatch):
    real = tri_reduce.gemv
    monkeypatch.setattr(tri_reduce, "gemv", lambda a, x: real(a, x) * 1.01)
    monkeypatch.setattr(demo, "cases", lambda limit, cases=demo.cases: [next(iter(cases(1 << 12)))])
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # report here, whatever the device, and in this process
    assert demo.run() == 1
    assert "DISAGREES" in capsys.readouterr().out


def test_excess_is_one_at_the_bound_and_infinite_for_nan():
    expected, magnitude = torch.tensor([1.0], dtype=torch.float64), torch.tensor([0.0], dtype=torch.float64)
    half_ulp = torch.finfo(torch.bfloat16).eps / 2
    assert demo.excess(torch.tensor([1.0], dtype=torch.bfloat16), expected + half_ulp, magnitude, 8) == 1
    assert demo.excess(torch.tensor([float("nan")]), expected, magnitude, 8) == float("inf")


def test_readme_examples_run(tmp_path, device):
    blocks = re.findall(r"```python\n(.*?)```", (Path(__file__).parent.parent / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    row_sum_kernel = runpy.run_path(str(script))["row_sum_kernel"]
    if device == "cpu" and not demo.interpreting():
        return  # nothing here can launch it
    x = torch.arange(3 * 70.0, device=device).reshape(3, 70)
    out = torch.empty(3, device=device)
    row_sum_kernel[(3,)](x, out, 70, BLOCK=32)
    assert torch.equal(out, x.sum(1))
