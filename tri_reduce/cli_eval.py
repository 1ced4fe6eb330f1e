"""`python -m tri_reduce eval`: the selector's report, from a stored sweep or from the GPU at hand."""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import evaluation, figures, progress
from .cli import refused

SWEEP = Path(__file__).parent.parent / "benchmarks" / "sweep.py"
LISTED = 10  # candidates that a sweep lacks, named in the table


def add(commands: Any) -> None:
    """The subcommand."""
    command = commands.add_parser("eval", help="how far the selector's candidates are from a dense sweep (needs no device)")
    command.add_argument("--data", type=Path, help=f"a sweep (default: {evaluation.DEFAULT.name} of a checkout)")
    command.add_argument("--json", action="store_true", help="print the report as JSON; progress goes to standard error")
    command.add_argument("--out", type=Path, help="also write the report and both figures to this folder")
    command.add_argument("--perturb", action="store_true", help="also move each coefficient by half, down and up (a quarter of an hour)")
    command.add_argument("--measure", action="store_true", help="first sweep on the GPU at hand (minutes), into --out or benchmarks/data")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the report; the exit status."""
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            figures.check()
        data = evaluation.load(_measured(args.out) if args.measure else args.data or evaluation.DEFAULT)
        with progress.steps(2 * len(evaluation.families(data)), "judging", sys.stderr) as done:
            found = evaluation.judge(data, done=lambda line: done(f"new {line}"))
            shipped = evaluation.judge(data, "all", lambda line: done(f"as shipped, {line}"))
        groups = evaluation.report(found) | {"as shipped": evaluation.summary(shipped)}
        moved = _perturbed(data) if args.perturb else {}
        whole = {"meta": data["meta"], "groups": groups, "perturbed": moved, "problems": [dataclasses.asdict(j) for j in found]}
        print(json.dumps(whole) if args.json else _text(data, found, groups, moved))
        if args.out:
            (args.out / "selector.json").write_text(json.dumps(whole))
            figures.draw(found, args.out)
    except (ValueError, RuntimeError, OSError) as error:
        return refused("eval", error)
    return 0


def _perturbed(data: dict[str, Any]) -> dict[str, Any]:
    with progress.steps(2 * len(evaluation.COEFFICIENTS), "judging", sys.stderr) as done:
        return evaluation.perturbations(data, done)


def _text(data: dict[str, Any], found: list[evaluation.Judged], groups: dict[str, Any], moved: dict[str, Any]) -> str:
    lines = [
        f"{len(found)} problems on {data['meta'].get('device', data['meta']['target'])}; percentages by loss against the dense optimum"
    ]
    lines += ["", evaluation.table(groups)]
    if moved:
        lines += ["", "coefficients moved by half", evaluation.table(moved)]
    s = groups.get("all", {"winner emitted": 0, "winner within 2x": 0, "not measured": 0})
    lines += ["", f"the winner is emitted for {s['winner emitted']:.0%}, a tile within 2x of it for {s['winner within 2x']:.0%}"]
    lacking = [(j.key, c) for j in found for c in j.missing]
    lines += [f"{len(lacking)} candidates not measured"] + [f"  {key}: {c}" for key, c in lacking[:LISTED]]
    return "\n".join(lines)


def _measured(out: Path | None) -> Path:
    """A fresh sweep's file."""
    if not SWEEP.exists():
        raise ValueError("--measure needs a checkout: benchmarks/sweep.py is not installed")
    folder = out or evaluation.DEFAULT.parent
    before = set(folder.glob("*_reduce.json"))
    if subprocess.run([sys.executable, str(SWEEP), "--out", str(folder)]).returncode == 2:
        raise RuntimeError("the sweep did not run")
    made = sorted(folder.glob("*_reduce.json"), key=lambda p: (p not in before, p.stat().st_mtime))
    if not made:
        raise RuntimeError(f"the sweep left nothing in {folder}")
    return made[-1]
