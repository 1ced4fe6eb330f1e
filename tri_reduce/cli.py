"""The command line: `python -m tri_reduce {demo,env,explain,tune,eval,bench}`.

Bad input ends with status 2 and one line that names the value.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

import torch

import tri_reduce
from tri_reduce import autotune, dtypes, logs

PROGRAM = "python -m tri_reduce"
INTERRUPTED, CLOSED = 130, 141  # the exit statuses that shells know
EPILOG = "Each command has --help and --json. TRI_REDUCE_LOG=plan tells of each plan that a program makes."
_Help = argparse.RawDescriptionHelpFormatter


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def refused(command: str, why: object) -> int:
    """The exit status of bad input, after the line that says why."""
    print(f"{PROGRAM}{command and ' '}{command}: {' '.join(str(why).split())}", file=sys.stderr)
    return 2


def shape_of(text: str) -> tuple[int, ...]:
    """A shape as people write it.

    >>> shape_of("8192x50257"), shape_of("[32, 64, 7, 7]"), shape_of("1048576")
    ((8192, 50257), (32, 64, 7, 7), (1048576,))
    """
    sizes = re.split(r"[x,]", re.sub(r"[\s()\[\]]", "", text).removesuffix(","))
    if not all(re.fullmatch(r"\d+", size) for size in sizes):
        raise argparse.ArgumentTypeError(f"not a shape: {text!r} (write it as 8192x50257)")
    found = tuple(map(int, sizes))
    if math.prod(found) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"too large a shape: {text!r} (2^63 elements or more)")
    return found


def dims_of(text: str) -> int | tuple[int, ...] | None:
    """The reduced axes: one, several, or all of them.

    >>> dims_of("-1"), dims_of("0,2,3"), dims_of("all")
    (-1, (0, 2, 3), None)
    """
    if text.lower() in ("all", "none"):
        return None
    dims = re.sub(r"[\s()\[\]]", "", text).split(",")
    if not all(re.fullmatch(r"[+-]?\d+", dim) for dim in dims):
        raise argparse.ArgumentTypeError(f"not an axis or a list of axes: {text!r} (write it as -1, 0,2,3 or all)")
    return int(dims[0]) if len(dims) == 1 else tuple(map(int, dims))


def dtype_of(text: str) -> torch.dtype:
    """A dtype by its short or its torch name.

    >>> dtype_of("bf16"), dtype_of("float32")
    (torch.bfloat16, torch.float32)
    """
    if text not in dtypes.BY_NAME:
        raise argparse.ArgumentTypeError(f"unknown dtype {text!r} (one of {', '.join(dtypes.BY_NAME)})")
    return dtypes.BY_NAME[text].torch


def _demo(args: argparse.Namespace) -> int:
    from tri_reduce import demo

    return demo.run(as_json=args.json)


def _env(args: argparse.Namespace) -> int:
    from tri_reduce import environment

    found = environment.report()
    print(json.dumps(found, indent=2) if args.json else environment.text(found))
    return 0


def _explain(args: argparse.Namespace) -> int:
    from tri_reduce import targets
    from tri_reduce.configs import candidates
    from tri_reduce.explanation import Explanation
    from tri_reduce.inventory import specialized
    from tri_reduce.tune_command import Wanted, checked

    try:
        target = targets.by_name(args.device)
        wanted = checked(Wanted(args.shape, args.op, args.dim, args.dtype, args.trans))
        if target.persistent and importlib.util.find_spec("triton"):
            specialized(wanted.problem, candidates(wanted.problem, target)[0])  # refuses what a call there would
    except (ValueError, TypeError, NotImplementedError) as error:
        return refused("explain", error)
    found = Explanation.of(wanted.problem, target)
    print(json.dumps(found.as_dict(), indent=2) if args.json else found)
    return 0


EXPLAIN = """examples:
  explain 64x401408 --dim 1 --dtype fp32 --device h200
  explain 32x64x112x112 --dim 0,2,3 --op var --dtype bf16
  explain 4096x14336 --op gemv --dtype bf16 --json"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    from tri_reduce import cli_bench, cli_eval, tune_command  # they read shapes and dtypes as this module does

    whole = _Parser(prog=PROGRAM, description="Deferred reductions in Triton.", epilog=EPILOG, allow_abbrev=False, formatter_class=_Help)
    whole.add_argument("--version", action="version", version=tri_reduce.__version__)
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("demo", help="real reductions on what this machine has, checked against float64")
    command.description = "The reductions of models people run; without a GPU in Triton's interpreter, scaled down. Status 1: one is wrong."
    command.add_argument("--json", action="store_true", help="print the outcome as JSON")
    command.set_defaults(run=_demo)

    command = commands.add_parser("env", help="what was found: versions, devices, backend, cache; belongs in an issue")
    command.add_argument("--json", action="store_true", help="print it as JSON")
    command.set_defaults(run=_env)

    command = commands.add_parser(
        "explain", help="which kernel configuration a problem gets and why (needs no such device)", epilog=EXPLAIN, formatter_class=_Help
    )
    tune_command.add_problem(command)
    command.add_argument("--device", default="h200", help="the device to choose for: h200, a100, mi300x, ascend, ... (default: h200)")
    command.add_argument("--json", action="store_true", help="print it as JSON, times in microseconds")
    command.set_defaults(run=_explain)

    tune_command.add_to(commands)
    cli_eval.add(commands)
    cli_bench.add(commands)
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 2 for bad input, 130 when interrupted."""
    args = parser().parse_args(argv)
    try:
        logs.follow_environment()
        autotune.policy_of_environment()
    except ValueError as error:
        return refused("", error)
    try:
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `... | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
