"""The command line: what it prints, and how it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tri_reduce
from tri_reduce import cli, demo, environment, logs, problem, targets
from tri_reduce.configs import candidates
from tri_reduce.explanation import Explanation, floor_us, predicted_us

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import measured


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
        (["explain", "8x8", "--op", "mean", "--dtype", "int32"], "int32"),
        (["explain", "4x4x4", "--op", "gemv"], "(4, 4, 4)"),
        (["explain", "0x3"], "empty"),
        (["explain", "8x8", "--trans"], "--trans"),
        (["explain", "8x8", "--op", "gemv", "--dim", "0"], "--dim"),
        (["explain", "99999999999x99999999999"], "99999999999x99999999999"),
        (["explain", "8x8", "--dtype", "fp64", "--device", "ascend"], "float64"),
        (["explain", "8x8", "--op", "prod", "--dtype", "int64", "--device", "ascend"], "prod"),
        (["eval", "--data", "."], "."),
        (["eval", "--data", __file__], "test_cli.py"),
        (["eval", "--out", __file__], "test_cli.py"),
        (["bench", "--budget", "-1"], "-1"),
        (["bench", "--budget", "nan"], "nan"),
        (["explain", "8x8", "--frobnicate"], "--frobnicate"),
        (["dance"], "dance"),
    ],
)
def test_bad_input_is_one_line_that_names_the_value(capsys, argv, value):
    assert value in refusal(capsys, *argv)


@pytest.mark.parametrize("name", ["TRI_REDUCE_LOG", "TRI_REDUCE_AUTOTUNE"])
def test_a_variable_that_says_nothing_known_is_bad_input(name, capsys, monkeypatch):
    monkeypatch.setenv(name, "plans")
    logs.follow_environment.cache_clear()
    assert "plans" in refusal(capsys, "env") and name in refusal(capsys, "explain", "8x8")


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


def test_demo_tells_programs_what_it_found(capsys, monkeypatch):
    monkeypatch.setattr(demo, "cases", lambda limit, cases=demo.cases: [next(iter(cases(1 << 10)))])
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # here, in this process
    found = printed(capsys, "demo")
    assert found["wrong"] == 0 and [c["name"] for c in found["cases"]] == ["Llama-3-8B q and o projection"]
    assert found["cases"][0]["agrees"] is True and 0 <= found["cases"][0]["error"] <= 1


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


def printed(capsys, *argv):
    """What a good call prints as JSON."""
    assert cli.main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_env_is_a_report_for_programs_too(capsys):
    found = printed(capsys, "env")
    assert found["tri_reduce"] == tri_reduce.__version__ and found["interpreter"] is demo.interpreting()
    assert isinstance(found["devices"], list) and isinstance(found["variables"], dict)


def test_explain_tells_programs_what_it_tells_people(capsys):
    found = printed(capsys, "explain", "64x401408", "--dim", "1", "--dtype", "fp32", "--device", "h200")
    assert found["regime"] == "rows" and found["problem"]["reduced"] == 401408 and len(found["candidates"]) > 5
    assert found["floor_us"] < found["predicted_us"] < 1.5 * found["floor_us"]
    assert cli.main(["explain", "64x401408"]) == 0
    text = capsys.readouterr().out
    for said in (
        "regime: rows",
        f"{found['predicted_us']:.1f} us",
        f"{found['floor_us']:.1f} us",
        f"SPLIT={found['candidates'][0]['SPLIT']}",
    ):
        assert said in text


def test_explain_predicts_nothing_where_nothing_was_timed(capsys):
    assert printed(capsys, "explain", "64x1024", "--device", "ascend")["predicted_us"] is None


def test_the_floor_is_within_what_it_claims_of_the_measured_floors():
    for p in measured.problems():
        found = floor_us(problem.describe(p.op, p.shape, p.dim, p.dtype), targets.H200)
        assert abs(found / p.floor - 1) < 0.1, p


def test_the_prediction_is_within_what_it_claims_of_the_measured_problems():
    """The table of docs/performance.md, which was measured with these tiles: the median of the errors, nine of ten, and the worst."""
    errors = []
    for p in measured.problems():
        found = problem.describe(p.op, p.shape, p.dim, p.dtype)
        (predicted,) = predicted_us(found, targets.H200, candidates(found, targets.H200)[0])
        errors.append(abs(predicted / p.us - 1))
    errors.sort()
    assert len(errors) == 48 and errors[24] < 0.02 and errors[43] < 0.05 and errors[-1] < 0.09


def test_every_command_has_help_and_json():
    (commands,) = [a for a in cli.parser()._actions if a.dest == "command"]
    assert {"demo", "env", "explain", "tune", "eval", "bench"} <= commands.choices.keys()
    for name, command in commands.choices.items():
        assert "--json" in command.format_help(), name


@pytest.mark.parametrize("argv", [["env"], ["explain", "8x8"]])
def test_ctrl_c_is_one_line_and_status_130(argv, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(environment, "report", interrupted)
    monkeypatch.setattr(Explanation, "of", interrupted)
    assert cli.main(argv) == 130
    assert capsys.readouterr() == ("", "interrupted\n")
