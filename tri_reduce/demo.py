"""Real work, checked against float64: `python -m tri_reduce demo`.

The reductions of models people run: the matrix-vector products of one Llama-3-8B decode step, the batch statistics of every
batch-norm shape of ResNet-50, the bias gradients of a GPT-2 MLP, a vocabulary logsumexp. On a GPU at their real sizes and timed
beside eager torch; without one the same kernels run in Triton's interpreter on the same shapes scaled down.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TextIO

import torch
from torch import Tensor

import tri_reduce

FLUSH_BYTES = 256 << 20
INTERPRETED_ELEMENTS = 1 << 14  # of an input without a GPU: a second each in the interpreter
REFERENCE_ROWS = 4096  # float64 copies are made this many rows at a time: a real size then fits a small GPU

# (out, in) features of every projection of a decoder layer, and the output head
LLAMA_3_8B = {
    "q and o projection": (4096, 4096),
    "k and v projection": (1024, 4096),
    "gate and up projection": (14336, 4096),
    "down projection": (4096, 14336),
    "output head": (128256, 4096),
}
# (channels, height = width) of the inputs of all 53 batch-norms, each once
RESNET_50 = (
    (64, 112),
    (64, 56),
    (128, 56),
    (256, 56),
    (128, 28),
    (256, 28),
    (512, 28),
    (256, 14),
    (512, 14),
    (1024, 14),
    (512, 7),
    (2048, 7),
)
RESNET_BATCH, PER_CHANNEL = 32, (0, 2, 3)
GPT2_TOKENS, GPT2_WIDTHS = 8192, (3072, 768)  # 8 sequences of 1024 tokens
VOCABULARY = (8192, 50257)

Reference = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Case:
    """One reduction: how ours and eager torch compute it, and what float64 says.

    `reference` maps float64 inputs to (the result, the sum of the contributions' magnitudes), the two numbers that the error bound
    needs; it sees `REFERENCE_ROWS` rows at a time where `by_rows`, since each output then needs one row only.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    reduced: int
    ours: Callable[..., Tensor]
    eager: Callable[..., Tensor]
    reference: Reference
    by_rows: bool = False

    def inputs(self, device: torch.device, seed: int = 0) -> tuple[Tensor, ...]:
        """Normally distributed inputs, the same for the same seed and device."""
        generator = torch.Generator(device).manual_seed(seed)
        return tuple(torch.randn(shape, generator=generator, device=device).to(self.dtype) for shape in self.shapes)

    def expected(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """(result, sum of magnitudes) in float64."""
        first, *rest = inputs
        blocks = torch.split(first, REFERENCE_ROWS) if self.by_rows else (first,)
        parts = [self.reference(block.double(), *(t.double() for t in rest)) for block in blocks]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    @property
    def nbytes(self) -> int:
        """Bytes read once; what is written is noise beside it."""
        return sum(math.prod(shape) for shape in self.shapes) * self.dtype.itemsize


def scaled(shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """The shape with every axis shortened by the same factor, to about `limit` elements; odd lengths stay odd.

    >>> scaled((8192, 50257), 1 << 16)
    (103, 635)
    """
    factor = min(1.0, (limit / math.prod(shape)) ** (1 / len(shape)))
    return tuple(max(1, round(length * factor)) | length % 2 for length in shape)


def cases(limit: int | None = None) -> Iterator[Case]:
    """Every case, at its real size or with at most about `limit` elements."""

    def fit(shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if limit is None else scaled(shape, limit)

    for name, features in LLAMA_3_8B.items():
        m, k = fit(features)
        yield Case(f"Llama-3-8B {name}", ((m, k), (k,)), torch.bfloat16, k, tri_reduce.gemv, torch.mv, _gemv_reference, by_rows=True)
    for channels, size in RESNET_50:
        shape = fit((RESNET_BATCH, channels, size, size))
        reduced = math.prod(shape) // shape[1]
        mean, var = {"dim": PER_CHANNEL}, {"dim": PER_CHANNEL, "correction": 0}
        yield _case("ResNet-50 batch-norm mean", shape, torch.float32, reduced, "mean", mean, _mean_reference)
        yield _case("ResNet-50 batch-norm var", shape, torch.float32, reduced, "var", var, _var_reference)
    for width in GPT2_WIDTHS:
        shape = fit((GPT2_TOKENS, width))
        yield _case("GPT-2 MLP bias gradient", shape, torch.bfloat16, shape[0], "sum", {"dim": 0}, _sum_reference)
    shape = fit(VOCABULARY)
    yield replace(_case("vocabulary logsumexp", shape, torch.bfloat16, shape[1], "logsumexp", {"dim": 1}, _lse_reference), by_rows=True)


def _case(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, reduced: int, op: str, options: dict[str, Any], reference: Reference
) -> Case:
    """A case of an op that tri_reduce and torch spell alike."""
    ours, eager = (partial(getattr(module, op), **options) for module in (tri_reduce, torch))
    return Case(name, (shape,), dtype, reduced, ours, eager, reference)


def _gemv_reference(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return a @ x, a.abs() @ x.abs()


def _mean_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean(PER_CHANNEL), x.abs().mean(PER_CHANNEL)


def _var_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    # each contribution is (x - mean)^2 / R, never negative: their sum is the result
    var = x.var(PER_CHANNEL, correction=0)
    return var, var


def _sum_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(0), x.abs().sum(0)


def _lse_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    # the log turns the relative error of sum(exp(x - max)) into an absolute one; adding max back rounds once at the result's size
    lse = x.logsumexp(1)
    return lse, 1 + lse.abs()


def excess(got: Tensor, expected: Tensor, magnitude: Tensor, reduced: int) -> float:
    """The largest error as a fraction of the bound `4 eps(acc) log2(R) sum|x| + ulp(out)/2`: at most 1 where ours agrees.

    `acc` is float32, the accumulator of every float type up to it. NaN anywhere gives infinity.
    """
    largest = torch.maximum(got.double().abs(), expected.abs())
    finfo = torch.finfo(got.dtype)
    ulp = torch.ldexp(torch.full_like(largest, finfo.eps), torch.frexp(largest.clamp(min=finfo.tiny)).exponent - 1)
    bound = 4 * torch.finfo(torch.float32).eps * math.log2(max(reduced, 2)) * magnitude + ulp / 2
    worst = ((got.double() - expected).abs() / bound).max().item()
    return math.inf if math.isnan(worst) else worst


def cold_us(fn: Callable[..., object], args: tuple[Tensor, ...], reps: int = 20) -> float:
    """Median device time of `fn(*args)` in microseconds, the L2 cache flushed before each.

    All calls are enqueued before the first is read: the flush (some 60 us) keeps the device busy while the host enqueues the next.
    """
    device = args[0].device
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    events = [(torch.Event(device, enable_timing=True), torch.Event(device, enable_timing=True)) for _ in range(reps + 3)]
    fn(*args)
    for start, end in events:
        flush.zero_()
        start.record()
        fn(*args)
        end.record()
    torch.accelerator.synchronize()
    return statistics.median(float(start.elapsed_time(end)) for start, end in events[3:]) * 1e3


def interpreting() -> bool:
    """Whether Triton's interpreter runs the kernels of this process."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def run(out: TextIO | None = None, as_json: bool = False) -> int:
    """Run every case; 0 if all agree with float64, else 1. Without a GPU it continues in a new process with the interpreter on.

    as_json: print one JSON object instead of lines.
    """
    out = out or sys.stdout
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() and not interpreting() else None
    if device is not None:
        return _report(device, None, out, f"on {device}: real sizes, median GPU time with a cold L2 cache, beside eager torch", as_json)
    if not interpreting() and importlib.util.find_spec("triton"):
        # Triton decides at import whether kernels are compiled or interpreted: too late for this process.
        command = [sys.executable, "-m", "tri_reduce", "demo", *["--json"] * as_json]
        try:
            return subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}).returncode
        except KeyboardInterrupt:  # the other process had it too, and said so
            return 130
    what = "the real kernels in Triton's interpreter" if interpreting() else "no Triton either: the PyTorch reference, not the kernels,"
    return _report(
        torch.device("cpu"), INTERPRETED_ELEMENTS, out, f"no GPU: {what} on scaled-down inputs (correctness only, no speed)", as_json
    )


@dataclass(frozen=True)
class Outcome:
    """A case that ran. error: the largest, as a share of the bound; times in microseconds, where there is a GPU."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    error: float
    us: float | None = None
    eager_us: float | None = None
    gb_per_s: float | None = None

    @property
    def agrees(self) -> bool:
        """Every element is within the bound."""
        return self.error <= 1

    def __str__(self) -> str:
        verdict = "agrees with torch" if self.agrees else f"DISAGREES: {self.error:.3g} times the error bound"
        line = f"{self.name:34} {'x'.join(map(str, self.shape)):16} {verdict}"
        if self.us and self.eager_us:
            line += f"  {self.us:8.1f} us  {self.gb_per_s:6.0f} GB/s  eager {self.eager_us:8.1f} us, {self.eager_us / self.us:.2f}x"
        return line


def _outcome(case: Case, device: torch.device, seed: int) -> Outcome:
    inputs = case.inputs(device, seed)
    error = excess(case.ours(*inputs), *case.expected(inputs), case.reduced)
    about = (case.name, case.shapes[0], str(case.dtype).removeprefix("torch."), error)
    if device.type == "cpu":
        return Outcome(*about)
    ours, eager = (cold_us(fn, inputs) for fn in (case.ours, case.eager))
    return Outcome(*about, ours, eager, case.nbytes / ours / 1e3)


def _report(device: torch.device, limit: int | None, out: TextIO, title: str, as_json: bool) -> int:
    outcomes = []
    if not as_json:
        print(title, file=out)
    for seed, case in enumerate(cases(limit)):
        outcomes.append(_outcome(case, device, seed))
        if not as_json:
            print(outcomes[-1], file=out, flush=True)
    ratios = [o.eager_us / o.us for o in outcomes if o.us and o.eager_us]
    over_eager = statistics.geometric_mean(ratios) if ratios else None
    wrong = sum(not o.agrees for o in outcomes)
    if as_json:
        listed = [asdict(o) | {"agrees": o.agrees} for o in outcomes]
        print(json.dumps({"title": title, "over_eager": over_eager, "wrong": wrong, "cases": listed}, indent=2), file=out)
        return int(wrong > 0)
    if over_eager:
        print(f"geometric mean over eager torch: {over_eager:.2f}x", file=out)
    print(
        f"{wrong} of {len(outcomes)} disagree with float64" if wrong else f"all {len(outcomes)} agree with float64 within the bound",
        file=out,
    )
    return int(wrong > 0)
