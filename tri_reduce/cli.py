"""The command line: `python -m tri_reduce {demo,env,explain,tune,eval,bench}`.

Bad input ends with status 2 and one line that names the value.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

import torch

import tri_reduce
from tri_reduce import cli_eval, demo, dtypes


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def shape_of(text: str) -> tuple[int, ...]:
    """A shape as people write it.

    >>> shape_of("8192x50257"), shape_of("[32, 64, 7, 7]"), shape_of("1048576")
    ((8192, 50257), (32, 64, 7, 7), (1048576,))
    """
    sizes = re.split(r"[x,]", re.sub(r"[\s()\[\]]", "", text).removesuffix(","))
    if not all(re.fullmatch(r"\d+", size) for size in sizes):
        raise argparse.ArgumentTypeError(f"not a shape: {text!r} (write it as 8192x50257)")
    return tuple(map(int, sizes))


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


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _env(_: argparse.Namespace) -> int:
    from tri_reduce import autotune

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    devices = [f"{found.type}:{i} {_device_name(found.type, i)}" for i in range(torch.accelerator.device_count())] if found else []
    triton = _installed("triton-ascend") if _installed("triton") == "not installed" else _installed("triton")
    rows = {
        "tri_reduce": tri_reduce.__version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton,
        "numpy": _installed("numpy"),
        "devices": "; ".join(devices) or "none (CPU only)",
        "backend": _backend(bool(devices), triton != "not installed"),
        "interpreter": "yes" if demo.interpreting() else "no",
        "cache": str(autotune.cache_dir()),
    }
    print("\n".join(f"{key:12} {value}" for key, value in rows.items()))
    return 0


def _device_name(kind: str, index: int) -> str:
    return str(torch.get_device_module(kind).get_device_name(index))


def _backend(has_device: bool, has_triton: bool) -> str:
    if demo.interpreting():
        return "Triton kernels in the interpreter"
    if has_device and has_triton:
        return "Triton kernels on the device; the PyTorch reference for CPU tensors"
    return "PyTorch reference"


def _explain(args: argparse.Namespace) -> int:
    from tri_reduce import configs, problem, targets

    try:
        target = targets.by_name(args.device)
    except (ValueError, KeyError) as error:
        return _refuse(f"--device {args.device!r}: {error.args[0]}")
    try:
        text = configs.explain(problem.describe(args.op, args.shape, args.dim, args.dtype), target)
    except (ValueError, IndexError, TypeError, RuntimeError) as error:
        shape = "x".join(map(str, args.shape))
        return _refuse(f"{shape} --op {args.op} --dim {args.dim} --dtype {str(args.dtype).removeprefix('torch.')}: {error}")
    print(text)
    return 0


def _refuse(message: str) -> int:
    print(f"python -m tri_reduce explain: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    from tri_reduce import cli_bench, tune_command  # it reads shapes and dtypes as this module does

    parser = _Parser(prog="python -m tri_reduce", description="Deferred reductions in Triton.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=tri_reduce.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("demo", help="real reductions on what this machine has, checked against torch in float64")
    command.set_defaults(run=lambda _: demo.run())

    command = commands.add_parser("env", help="what was found: versions, devices, backend, cache")
    command.set_defaults(run=_env)

    command = commands.add_parser("explain", help="which kernel configuration a problem gets and why (needs no such device)")
    command.add_argument("shape", metavar="SHAPE", type=shape_of, help="the input's shape, as 8192x50257 (for gemv: M x K)")
    command.add_argument("--op", default="sum", help="a reduction, or gemv (default: sum)")
    command.add_argument("--dim", default=-1, type=dims_of, help="the reduced axes: -1, 0,2,3 or all (default: -1)")
    command.add_argument("--dtype", default=torch.float32, type=dtype_of, help="as fp32, bf16 or int64 (default: fp32)")
    command.add_argument("--device", default="h200", help="the device to choose for: h200, ascend, ... (default: h200)")
    command.set_defaults(run=_explain)

    tune_command.add_to(commands)
    cli_eval.add(commands)
    cli_bench.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    args = _parser().parse_args(argv)
    return int(args.run(args))
