"""`python -m tri_reduce bench`: side by side with other libraries, on the GPU at hand."""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch

from . import progress, targets
from .bench_problems import LISTS
from .cli import refused

INTERPRETED_ELEMENTS = 1 << 8


def add(commands: Any) -> None:
    """The subcommand."""
    command = commands.add_parser("bench", help="side by side with torch, torch.compile and others: times, ratios, a plot (needs a GPU)")
    command.add_argument("--list", default="standard", choices=list(LISTS), help="which problems (default: standard)")
    command.add_argument("--only", default="", type=_pattern, help="a regular expression on the problem's name, as 'gemv.*bf16'")
    command.add_argument("--budget", default=600.0, type=_seconds, metavar="SECONDS", help="in all; what is left is said (default: 600)")
    command.add_argument(
        "--with", dest="who", default="", metavar="NAMES", help="contestants, as heuristic,eager (default: all that are here)"
    )
    command.add_argument("--samples", default=60, type=_positive, help="calls that are timed of each contestant (default: 60)")
    command.add_argument("--json", action="store_true", help="print all numbers as JSON; progress goes to standard error")
    command.add_argument("--save", type=Path, metavar="FILE", help="a file for the same JSON, written after every problem")
    command.add_argument("--plot", type=Path, metavar="FILE", help="a file for achieved bandwidth against bytes, as PNG or SVG")
    command.set_defaults(run=run)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {text!r} ({error})") from None
    return text


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a positive number: {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return seconds


def _check_files(*paths: Path | None) -> None:
    """Where a file is to be written there is, or can be, a folder, and no folder has its name."""
    for path in (p for p in paths if p is not None):
        if path.is_dir():
            raise ValueError(f"{path} is a folder, not a file")
        path.parent.mkdir(parents=True, exist_ok=True)


def run(args: argparse.Namespace) -> int:
    """The command; its exit status: 1 where a result of ours was wrong, 2 where nothing can be measured."""
    deadline, interpreting = time.monotonic() + args.budget, targets.interpreting()
    if not interpreting and not torch.cuda.is_available():
        return refused("bench", "no GPU here to measure on (TRITON_INTERPRET=1 tries the code on tiny problems)")
    from . import bench  # needs Triton
    from . import bench_report as report

    cases = [c for c in LISTS[args.list]() if re.search(args.only, str(c))]
    if not cases:
        return refused("bench", f"--only {args.only!r} fits no problem of the list {args.list!r}")
    try:
        who = bench.contestants(args.who)
        if args.plot is not None:
            report.check_plot(args.plot)
        _check_files(args.save, args.plot)
    except (ValueError, RuntimeError, OSError) as error:
        return refused("bench", error)
    random.Random(0).shuffle(cases)  # so that what is done when time is up stands for all
    device = torch.device("cpu") if interpreting else torch.device("cuda", torch.cuda.current_device())
    run, left = bench.Bench(device, who, args.samples), list[str]()
    with progress.steps(len(cases), "measuring", sys.stderr) as done:
        for case in cases:
            if time.monotonic() > deadline:
                left.append(str(case))
                done(f"{case}: no time left")
                continue
            done(report.line(run.measure(case.small(INTERPRETED_ELEMENTS) if interpreting else case)))
            if args.save is not None:
                bench.save(args.save, bench.whole(args.list, device, run.rows, left))
    found = bench.whole(args.list, device, run.rows, left)
    if args.save is not None:
        bench.save(args.save, found)
    if args.plot is not None and run.rows:
        report.plot(run.rows, args.plot)
    wrong = bench.wrong(run.rows)
    print(json.dumps(found) if args.json else _text(report.text(run.rows), len(cases), len(run.rows), left, wrong, args.budget))
    return 1 if wrong else 0


def _text(report: str, cases: int, measured: int, left: list[str], wrong: list[str], budget: float) -> str:
    lines = [report, *([f"not measured in {budget:g} s: {', '.join(left)}"] if left else [])]
    verdict = f"WRONG or failed: {', '.join(wrong)}" if wrong else "all of ours right"
    return "\n".join((*lines, f"{measured} of {cases} problems measured; {verdict}"))
