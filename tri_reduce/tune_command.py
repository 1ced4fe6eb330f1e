"""`python -m tri_reduce tune`: measure problems beforehand, so that policy "cached" finds them."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

import tri_reduce

from . import autotune, buckets, configs, demo, dtypes, problem, progress, targets, validate
from .cli import INTERRUPTED, dims_of, dtype_of, refused, shape_of

INTERPRETED_ELEMENTS = 1 << 10  # of an input of the built-in list without a GPU


@dataclass(frozen=True)
class Wanted:
    """A problem to tune: a contiguous input of `shape`, for gemv the matrix [M, K]."""

    shape: tuple[int, ...]
    op: str
    dim: int | tuple[int, ...] | None
    dtype: torch.dtype
    trans: bool

    def __str__(self) -> str:
        shape, kind = "x".join(map(str, self.shape)), dtypes.of(self.dtype).name
        if self.op == "gemv":
            return f"{shape} --op gemv --dtype {kind}{' --trans' * self.trans}"
        dims = "all" if self.dim is None else ",".join(map(str, self.dim)) if isinstance(self.dim, tuple) else self.dim
        return f"{shape} --op {self.op} --dim {dims} --dtype {kind}"

    @property
    def problem(self) -> problem.Problem:
        """What the selector sees."""
        return problem.describe(self.op, self.shape, self.dim, self.dtype, self.trans)

    def check(self) -> None:
        """ValueError, TypeError, IndexError or RuntimeError: no call could be this."""
        x = torch.empty(self.shape, dtype=self.dtype, device="meta")
        if self.trans and self.op != "gemv":
            raise ValueError("--trans is gemv's")
        if self.op == "gemv" and self.dim != -1:
            raise ValueError("--dim is a reduction's: --trans multiplies with the transposed matrix")
        if 0 in self.shape:
            raise ValueError("an empty input has nothing to choose")
        if self.op == "gemv":
            _ = self.problem
            vector = torch.empty(self.shape[0 if self.trans else 1], dtype=self.dtype, device="meta")
            validate.gemv_arguments(x, vector, 1, 0, None, self.trans, None, "run_to_run")
        else:
            validate.reduction(x, self.op, self.dim, False, None, None, False, None, None, 1, 2, "run_to_run")

    def run(self, device: torch.device) -> None:
        """One call, on random values."""
        x = _values(self.shape, self.dtype, device)
        if self.op == "gemv":
            tri_reduce.gemv(x, _values((self.shape[0 if self.trans else 1],), self.dtype, device), trans=self.trans)
        else:
            tri_reduce.reduce(x, self.op, self.dim)


@dataclass(frozen=True)
class Outcome:
    """What came of a problem: "tuned", "kept" (it was in the store) or "failed", and its entry or the reason."""

    problem: str
    status: str
    entry: dict[str, Any] | None = None
    seconds: float = 0.0
    reason: str | None = None

    def __str__(self) -> str:
        if self.entry is None:
            return f"{self.status}  {self.problem}: {self.reason}"
        config = " ".join(f"{name}={value}" for name, value in self.entry["config"].items() if name != "regime")
        us, first = self.entry.get("us"), self.entry.get("first_us")
        speed = f", {us:.1f} us" if us else ""
        speed += f", {first / us:.2f}x as fast as the first guess" if us and first else ""
        return f"{self.status}  {self.problem}: {config}{speed}" + f" ({self.seconds:.1f} s)" * (self.status == "tuned")


def add_to(commands: Any) -> None:
    """Add the command to the program's."""
    command = commands.add_parser("tune", help="measure problems beforehand, for TRI_REDUCE_AUTOTUNE=cached")
    add_problem(command, " (default: common ones)", nargs="*")
    command.add_argument("--file", type=Path, help="problems to tune, one a line: SHAPE and options as here; # begins a comment")
    command.add_argument("--device", help="where to tune, as cuda:1 (default: the current GPU)")
    command.add_argument("--again", action="store_true", help="measure also what is in the store")
    command.add_argument("--json", action="store_true", help="print the outcome as JSON; progress goes to standard error")
    command.set_defaults(run=run)


def add_problem(parser: argparse.ArgumentParser, default: str = "", **shape: Any) -> None:
    """The arguments that describe a problem, as the fields of `Wanted`."""
    text = f"the input's shape, as 8192x50257; for gemv M x K{default}"
    parser.add_argument("shape", metavar="SHAPE", type=shape_of, help=text, **shape)
    parser.add_argument("--op", default="sum", help="a reduction, or gemv (default: sum)")
    parser.add_argument("--dim", default=-1, type=dims_of, help="the reduced axes: -1, 0,2,3 or all (default: -1)")
    parser.add_argument("--dtype", default=torch.float32, type=dtype_of, help="as fp32, bf16 or int64 (default: fp32)")
    parser.add_argument("--trans", action="store_true", help="gemv with the transposed matrix")


class _Line(argparse.ArgumentParser):
    """A problem on a line of a file: errors are raised."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def read(lines: Iterable[str], name: str) -> Iterator[Wanted]:
    """The problems of a file; ValueError names the line at fault.

    Example:
        >>> [str(w) for w in read(["# two", "64x1000 --op max", "4096x4096 --op gemv --dtype bf16"], "mine")]
        ['64x1000 --op max --dim -1 --dtype fp32', '4096x4096 --op gemv --dtype bf16']
    """
    parser = _Line(add_help=False, allow_abbrev=False)
    add_problem(parser)
    for number, line in enumerate(lines, 1):
        yield from _on_line(parser, line, f"{name}:{number}")


def _on_line(parser: argparse.ArgumentParser, line: str, place: str) -> list[Wanted]:
    try:
        words = shlex.split(line, comments=True)
        return [checked(Wanted(**vars(parser.parse_args(words))))] if words else []
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def checked(wanted: Wanted) -> Wanted:
    """The problem; ValueError that names it where no call could be this."""
    try:
        wanted.check()
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise ValueError(f"{wanted}: {error}") from None
    return wanted


def _wanted(args: argparse.Namespace) -> list[Wanted]:
    """All that the command line asks for, each once."""
    found = [checked(Wanted(shape, args.op, args.dim, args.dtype, args.trans)) for shape in args.shape]
    if args.file is not None:
        try:
            found += read(args.file.read_text().splitlines(), str(args.file))
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--file {args.file}: {getattr(error, 'strerror', None) or error}") from None
        if not found:
            raise ValueError(f"--file {args.file}: there is no problem in it")
    if not found:
        found += read((files("tri_reduce") / "common_problems.txt").read_text().splitlines(), "common_problems.txt")
        if targets.interpreting():
            found = [replace(w, shape=demo.scaled(w.shape, INTERPRETED_ELEMENTS)) for w in found]
    return list(dict.fromkeys(found))


def _device(name: str | None) -> torch.device:
    """Where to tune; ValueError where no kernels run."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() and not targets.interpreting() else "cpu"
    try:
        device = targets.named_device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter: a torch without CUDA
        raise ValueError(f"--device {name}: {str(error).splitlines()[0]}") from None
    if not targets.runs_kernels(device):
        raise ValueError(f"nothing to tune on {device}: its tensors take the PyTorch reference (TRITON_INTERPRET=1 runs the kernels there)")
    return device


def _store(device: torch.device) -> autotune.Store:
    """Where to keep what is tuned; ValueError where nothing can be kept."""
    store = autotune.Store(device=device)
    folder = store.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"nothing can be kept in {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise ValueError(f"nothing can be kept in {folder}: it is read-only")
    return store


def _values(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype, device=device)
    return torch.randint(0, 2, shape, device=device, dtype=torch.uint8).to(dtype)


def tune(wanted: Wanted, device: torch.device, store: autotune.Store, again: bool) -> Outcome:
    """Tune one problem, unless the store has it."""
    target, key = targets.of_device(device.type, device.index or 0), buckets.key_of(wanted.problem)
    start, entry = time.perf_counter(), store.get(key)
    if not again and buckets.tile_of(entry, configs.candidates(wanted.problem, target)) is not None:
        return Outcome(str(wanted), "kept", entry)
    before = autotune.stats()["tuned"]
    try:
        with autotune.policy("tune", again=again):
            wanted.run(device)
    except torch.OutOfMemoryError:
        return Outcome(str(wanted), "failed", reason=f"{math.prod(wanted.shape)} elements do not fit")
    if autotune.stats()["tuned"] == before:
        return Outcome(str(wanted), "failed", reason="no memory left to try candidates in")
    return Outcome(str(wanted), "tuned", store.get(key), round(time.perf_counter() - start, 3))


def run(args: argparse.Namespace) -> int:
    """The command; its exit status: 1 where a problem could not be tuned, 2 for bad input, 130 when interrupted."""
    try:
        device, wanted = _device(args.device), _wanted(args)
        store = _store(device)
    except ValueError as error:
        return refused("tune", error)
    outcomes, interrupted = list[Outcome](), False
    with progress.steps(len(wanted), "tuning", sys.stderr if args.json else sys.stdout) as done:
        try:
            for each in wanted:
                outcomes.append(tune(each, device, store, args.again))
                done(str(outcomes[-1]))
        except KeyboardInterrupt:
            interrupted = True
    if args.json:
        print(json.dumps({"store": str(store.path), "device": store.device, "problems": [asdict(o) for o in outcomes]}, indent=2))
    if interrupted:
        left = len(wanted) - len(outcomes)
        print(f"interrupted: {len(outcomes)} of {len(wanted)} are done and kept; the same command tunes the other {left}", file=sys.stderr)
        return INTERRUPTED
    if not args.json:
        print(f"kept in {store.path}; TRI_REDUCE_AUTOTUNE=cached uses it")
    return 1 if any(o.status == "failed" for o in outcomes) else 0
