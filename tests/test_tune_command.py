"""`python -m tri_reduce tune`: what it tunes, what it skips, how it is interrupted and how it refuses."""

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from devices import ON_GPU, REFERENCE

import tri_reduce
from tri_reduce import autotune, cli, plans, progress, tune_command

pytestmark = [
    pytest.mark.skipif(REFERENCE, reason="about kernels: without them nothing is tuned"),
    pytest.mark.usefixtures("directory"),
]
ROOT = Path(__file__).parent.parent


@pytest.fixture
def quick(monkeypatch):
    """Measure nothing: every candidate runs once and takes a millisecond."""
    monkeypatch.setattr(autotune, "measure", lambda run, target: (run(), 1.0)[1])


def outcome(capsys, *argv):
    status = cli.main(["tune", *argv, "--json"])
    return status, [(p["problem"], p["status"]) for p in json.loads(capsys.readouterr().out)["problems"]]


def refusal(capsys, *argv):
    try:
        status = cli.main(["tune", *argv])
    except SystemExit as exit:
        status = exit.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    return err


def test_problems_are_tuned_once_and_again_on_demand(capsys, quick):
    names = ["3x90 --op max --dim -1 --dtype fp32", "2x65 --op max --dim -1 --dtype fp32"]
    assert outcome(capsys, "3x90", "2x65", "--op", "max") == (0, [(n, "tuned") for n in names])
    assert outcome(capsys, "3x90", "2x65", "--op", "max") == (0, [(n, "kept") for n in names])
    plans.PLANS.clear()
    assert outcome(capsys, "3x90", "--op", "max", "--again") == (0, [(names[0], "tuned")])


@pytest.mark.parametrize("argv, call", [
    (["90x3", "--dim", "0"], lambda d: tri_reduce.sum(torch.ones(90, 3, device=d), 0)),
    (["4x5x6x7", "--dim", "0,2,3", "--op", "mean"], lambda d: tri_reduce.mean(torch.ones(4, 5, 6, 7, device=d), (0, 2, 3))),
    (["7x5x70", "--dim", "all", "--op", "count_nonzero"], lambda d: tri_reduce.count_nonzero(torch.ones(7, 5, 70, device=d))),
    (["400", "--op", "argmax", "--dtype", "bf16"], lambda d: tri_reduce.argmax(torch.ones(400, device=d).bfloat16(), 0)),
    (["30x2", "--op", "any", "--dtype", "bool"], lambda d: tri_reduce.any(torch.ones(30, 2, device=d).bool(), 1)),
    (["9x70", "--op", "gemv"], lambda d: tri_reduce.gemv(torch.ones(9, 70, device=d), torch.ones(70, device=d))),
    (["70x9", "--op", "gemv", "--trans"], lambda d: tri_reduce.gemv(torch.ones(70, 9, device=d), torch.ones(70, device=d), trans=True)),
], ids=lambda a: " ".join(a) if isinstance(a, list) else "")  # fmt: skip
def test_what_was_tuned_is_what_a_call_looks_up(argv, call, capsys, quick):
    assert outcome(capsys, *argv)[1][0][1] == "tuned"
    assert outcome(capsys, *argv)[1][0][1] == "kept"
    before = autotune.stats()["hits"]
    with autotune.policy("cached"):
        call("cuda" if ON_GPU else "cpu")
    assert autotune.stats()["hits"] == before + 1


@pytest.mark.parametrize("op", sorted({*tri_reduce.MONOIDS} - {"and", "or", "xor"}))
def test_every_op_is_looked_up_as_it_was_tuned(op, capsys, monkeypatch):
    monkeypatch.setattr(autotune.tuning, "tune", lambda *_: autotune.tuning.Tuned(0, {0: 1.0}))
    for argv in (["3x90"], ["65x6", "--dim", "0"]):
        assert outcome(capsys, *argv, "--op", op)[1][0][1] == "tuned"
        assert outcome(capsys, *argv, "--op", op)[1][0][1] == "kept"


def test_a_file_of_problems(capsys, quick, tmp_path):
    listed = tmp_path / "mine.txt"
    listed.write_text("# mine\n3x90 --op max   # rows\n\n3x90 --op max\n4x70 --op gemv --dtype bf16\n")
    status, found = outcome(capsys, "--file", str(listed))
    assert (status, [name for name, _ in found]) == (0, ["3x90 --op max --dim -1 --dtype fp32", "4x70 --op gemv --dtype bf16"])


def test_every_common_problem_is_one(capsys, monkeypatch):
    monkeypatch.setattr(tune_command, "tune", lambda wanted, *_: tune_command.Outcome(str(wanted), "tuned"))
    status, found = outcome(capsys)
    assert status == 0 and len(found) > 20


@pytest.mark.parametrize("argv, said", [
    (["12xq"], "12xq"), (["8x8", "--op", "median"], "median"), (["8x8", "--dim", "7"], "dim 7"), (["8x8", "--dtype", "fp12"], "fp12"),
    (["8x8", "--op", "mean", "--dtype", "int32"], "int32"), (["0x3"], "empty"), (["4x4x4", "--op", "gemv"], r"(4, 4, 4)"),
    (["8x8", "--device", "abacus"], "abacus"), (["8x8", "--op", "argmax", "--dim", "0,1"], "argmax"), (["8x8", "--trans"], "--trans"),
    (["--file", "nowhere.txt"], "nowhere.txt"), (["8x8", "--frobnicate"], "--frobnicate"),
], ids=str)  # fmt: skip
def test_bad_input_is_one_line_and_tunes_nothing(argv, said, capsys, directory):
    assert said in refusal(capsys, *argv) and not directory.exists()


def test_a_file_without_problems_and_a_store_that_cannot_be_are_bad_input(capsys, tmp_path, monkeypatch):
    (tmp_path / "none.txt").write_text("# none\n")
    assert "none.txt" in refusal(capsys, "--file", str(tmp_path / "none.txt"))
    monkeypatch.setenv("TRI_REDUCE_CACHE_DIR", str(tmp_path / "none.txt"))
    assert "none.txt" in refusal(capsys, "3x90")


@pytest.mark.parametrize("line", ["8x8 --op median", "12xq", "--op sum", "8x8 --dim", "8x8 'a", "8x8 --json"])
def test_a_bad_line_of_a_file_is_named_before_anything_is_tuned(line, capsys, tmp_path, directory):
    (tmp_path / "mine.txt").write_text(f"3x90\n{line}\n")
    assert "mine.txt:2: " in refusal(capsys, "--file", str(tmp_path / "mine.txt")) and not directory.exists()


def test_a_problem_that_does_not_fit_is_reported_and_the_others_are_tuned(capsys, quick, monkeypatch):
    values = tune_command._values

    def small(shape, dtype, device):
        if shape[0] == 7:
            raise torch.OutOfMemoryError
        return values(shape, dtype, device)

    monkeypatch.setattr(tune_command, "_values", small)
    status, found = outcome(capsys, "7x90", "2x90")
    assert (status, [s for _, s in found]) == (1, ["failed", "tuned"])


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    argv = [sys.executable, "-m", "tri_reduce", "tune", *(f"{n}x300" for n in range(2, 40, 2)), "--op", "var"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "TRI_REDUCE_CACHE_DIR": str(tmp_path)}
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # it is ignored in what a shell starts in the background
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    assert "tuned" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and err.startswith("interrupted: ") and err.count("\n") == 1
    done = 1 + out.count("\n")
    again = subprocess.run([*argv[:4], *argv[4 : 4 + done], "--op", "var"], env=env, capture_output=True, text=True)
    assert again.returncode == 0 and again.stdout.count("kept  ") == done


class Terminal:
    """Where a progress bar would be drawn."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


def test_a_terminal_gets_a_bar(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with progress.steps(2, "tuning", out) as done:
        done("the first [bold]line[/bold]")
        done("the second")
    assert "the first [bold]line[/bold]" in out.text and "2/2" in out.text and "[1/2]" not in out.text


def test_without_rich_a_terminal_gets_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    out = Terminal()
    with progress.steps(1, "tuning", out) as done:
        done("sum")
    assert out.text == "[1/1] sum\n"
