"""`python -m tri_reduce bench`: its lists, its report, and a smoke run in the interpreter."""

import json
import math
from collections import Counter

import pytest
import torch
from devices import HAS_CUDA, REFERENCE

from tri_reduce import cli, exact
from tri_reduce.bench_problems import LISTS, Case

needs_interpreter = pytest.mark.skipif(REFERENCE or HAS_CUDA, reason="the smoke run is for Triton's interpreter")


@pytest.mark.skipif(HAS_CUDA, reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr("tri_reduce.targets.interpreting", lambda: False)
    assert cli.main(["bench"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and "no GPU" in printed.err


def test_lists_are_as_long_and_as_varied_as_they_claim():
    standard, odd, scaling = (list(LISTS[name]()) for name in ("standard", "odd", "scaling"))
    assert len(standard) == 48 and sum(c.op == "gemv" for c in standard) == 19
    assert len(odd) >= 60 and {c.dtype for c in odd} == {"fp32", "bf16", "fp16", "int8"}
    ops = Counter(c.op for c in odd)
    assert all(ops[op] for op in ("mean", "var", "logsumexp", "argmax", "min", "gemv")) and any(c.trans for c in odd)
    assert any(c.start for c in odd) and any(c.pitch for c in odd) and any(len(c.reduced) == 2 for c in odd)
    assert {c.series for c in scaling} == {"bytes", "rows", "columns", "length"}
    assert min(c.nbytes for c in scaling) <= 2048 and max(c.nbytes for c in scaling) >= 64 << 30
    for cases in (standard, odd, scaling):
        assert len({str(c) for c in cases}) == len(cases)


def test_an_input_lies_as_its_case_says():
    x, v = Case("gemv", (6, 10), None, "fp32", start=1, pitch=13, trans=True).inputs(torch.device("cpu"))
    assert x.shape == (6, 10) and x.stride() == (13, 1) and x.storage_offset() == 1 and v.shape == (6,)
    again, _ = Case("gemv", (6, 10), None, "fp32", start=1, pitch=13, trans=True).inputs(torch.device("cpu"))
    assert torch.equal(x, again)
    assert Case("sum", (4, 5, 6), (0, -1), "bf16").length == 24 and Case("sum", (4, 5, 6), None, "int8").outputs == 1


@needs_interpreter
def test_a_smoke_run_checks_reports_and_writes(tmp_path, capsys):
    path = tmp_path / "found" / "bench.json"
    only = r"^(gemv \[8192, 8192\] bf16 trans|argmax \[8192|sum \[8192, 4096\] \[1\] int8)"
    assert cli.main(["bench", "--list", "odd", "--only", only, "--save", str(path)]) == 0
    found, printed = json.loads(path.read_text()), capsys.readouterr()
    assert len(found["rows"]) == 3 and found["not measured"] == [] and "all of ours right" in printed.out
    for row in found["rows"]:
        assert set(row["us"]) == {"floor", "heuristic", "tuned", "eager"} and not row["wrong"] and not row["errors"]
        assert all(us > 0 for us in (*row["us"].values(), *row["host_us"].values()))
        assert row["case"] in printed.out and row["case"] in printed.err
    assert "geometric means" in printed.out and found["summary"]["gemv heuristic"]["floor"]["problems"] == 1


@needs_interpreter
def test_with_json_standard_output_is_json_alone(capsys):
    assert cli.main(["bench", "--only", "sum .2048, 768", "--with", "heuristic,eager", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["meta"]["list"] == "standard" and found["not measured"] == []
    assert [set(row["us"]) for row in found["rows"]] == [{"floor", "heuristic", "eager"}]


@needs_interpreter
def test_what_time_is_not_left_for_is_said(capsys):
    assert cli.main(["bench", "--only", "sum .4096", "--budget", "0", "--with", "heuristic"]) == 0
    printed = capsys.readouterr().out
    assert "not measured in 0 s: " in printed and printed.count("sum [4096, 4096]") == 2


@needs_interpreter
def test_a_wrong_result_of_ours_is_said_and_fails(monkeypatch, capsys):
    from tri_reduce import functional

    original = functional.reduce
    monkeypatch.setattr(functional, "reduce", lambda *a, **k: original(*a, **k) + 1)
    assert cli.main(["bench", "--only", "sum .2048, 768", "--with", "heuristic,eager"]) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "("], "regular expression"),
        (["--only", "no such"], "no such"),
        (["--with", "numpy"], "numpy"),
        (["--list", "even"], "even"),
        (["--samples", "0"], "0"),
        (["--with", "heuristic,tilelang"], "tilelang is not installed"),
        (["--plot", "picture.txt"], "picture.txt"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr("tri_reduce.targets.interpreting", lambda: True)
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    try:
        status = cli.main(["bench", *arguments])
    except SystemExit as stop:
        status = stop.code
    printed = capsys.readouterr().err
    assert status == 2 and printed.count("\n") == 1 and said in printed


def row(case, us, **more):
    about = {"op": "sum", "series": "", "bytes": 1 << 20, "MiB": 1.0, "outputs": 4, "host_us": {}, "wrong": {}, "errors": {}}
    return {"case": case, "us": us} | about | more


def test_the_report_counts_ratios_and_leaves_out_wrong_peers():
    from tri_reduce import bench_report as report

    rows = [
        row("a", {"floor": 10.0, "heuristic": 20.0, "eager": 40.0, "cupy": 5.0}, wrong={"cupy": 7.0}),
        row("b", {"floor": 10.0, "heuristic": 5.0, "eager": 5.0}),
        row("c", {}, errors={"heuristic": "RuntimeError: no"}),
    ]
    assert report.ratios(rows[0], "heuristic")["best"] == 0.5
    found = report.summary(rows)["reduce heuristic"]
    assert math.isclose(found["floor"]["geomean"], 1.0) and math.isclose(found["best"]["geomean"], math.sqrt(0.5))
    assert found["floor"]["worst"][0][0] == "a" and found["best"]["within 3%"] == 2
    text = report.text(rows)
    assert "cupy: WRONG by 7 bounds" in text and "RuntimeError: no" in text


def test_neighbours_that_differ_much_per_byte_are_cliffs():
    from tri_reduce import bench_report as report

    def sized(name, mib, us):
        return row(name, {"heuristic": us}, series="bytes", bytes=mib << 20)

    rows = [sized("a", 8, 8.0), sized("b", 9, 13.0), sized("c", 12, 16.0), sized("far", 48, 200.0), sized("small", 1, 100.0)]
    assert [(fast, slow) for fast, slow, _ in report.cliffs(rows)] == [("a", "b")]
    assert "a cliff: b takes 1.44" in report.text(rows)


def test_the_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from tri_reduce import bench_report as report

    rows = [row("a", {"floor": 10.0, "heuristic": 20.0}), row("b", {"floor": 10.0, "eager": 5.0}, series="rows")]
    report.plot(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_a_result_beyond_its_dtype_is_rightly_infinite():
    x = torch.full((2, 50), 60.0, dtype=torch.float16)
    right = torch.full((2,), math.inf, dtype=torch.float16)  # 180000
    assert exact.excess("sum_sq", right, x, 1) == 0 and exact.excess("sum_sq", -right, x, 1) == math.inf
    assert exact.excess("sum_sq", torch.full_like(right, 65504), x, 1) > 1


def test_integers_are_checked_exactly():
    x = torch.randint(-100, 101, (5, 70), dtype=torch.int8)
    assert exact.excess("sum", x.sum(1), x, 1) == 0 and exact.excess("sum", x.sum(1) + 1, x, 1) == math.inf
    assert exact.excess("min", x.amin(1), x, 1) == 0


def test_contestants_take_turns_and_one_that_fails_is_only_said():
    pytest.importorskip("triton")
    from tri_reduce.bench_clock import Contestant, HostClock, take_turns

    order = []

    def fail():
        raise RuntimeError("cannot\ndo this")

    contestants = {name: Contestant(lambda name=name: order.append(name)) for name in "abc"} | {"bad": Contestant(fail)}
    times, failed = take_turns(HostClock(torch.device("cpu")), contestants, 3, 1)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert set(times) == {"a", "b", "c"} and all(t.us >= 0 and t.spread >= 0 for t in times.values())
    assert failed == {"bad": "RuntimeError: cannot do this"}


def test_the_gpus_clock_keeps_the_host_out(monkeypatch):
    pytest.importorskip("triton")
    from tri_reduce import bench_clock

    happened = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            happened.append("event")

        def elapsed_time(self, end):
            return 0.25

    for name, value in (
        ("Event", Event),
        ("synchronize", lambda device: happened.append("wait")),
        ("_sleep", lambda cycles: happened.append("busy") or cycles >= bench_clock.BUSY_CYCLES or pytest.fail("too short")),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(bench_clock, "FLUSH_BYTES", 4096)
    clock = bench_clock.GpuClock(torch.device("cpu"))
    found = clock.samples(lambda: happened.append("call"), 2)
    assert [us for us, _ in found] == [250.0, 250.0] and all(us > 0 for _, us in found)
    assert happened == ["call", "wait", "call", *["busy", "event", "call", "event"] * 2, "wait"]
