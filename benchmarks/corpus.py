"""The problems that the selector is fitted and judged on: shapes from published hyper-parameters, by small formulas. Pure Python.

A family is a model, or a kind of work. Rules are fitted on the families outside `KEPT_OUT` and judged on those in it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tri_reduce import bench_problems, dtypes
from tri_reduce.problem import Problem, describe

KEPT_OUT = ("resnet50", "convnext", "bert", "llama", "qwen gemv", "gemma gemv", "vocabulary 2", "random 2", "odd")
ITEMSIZE = {"bf16": 2, "fp16": 2, "fp32": 4, "i8": 1}
SMALLEST, LARGEST = 1 << 16, 1 << 30  # bytes of input
Dim = int | tuple[int, ...] | None
Stages = tuple[tuple[int, int], ...]  # (channels, height = width)
PER_CHANNEL, SPACE = (0, 2, 3), (2, 3)


@dataclass(frozen=True)
class Case:
    """One problem. For "gemv" the shape is the matrix as it is stored: (M, K), or (K, M) with `trans`. Pitch and start as in `describe`."""

    family: str
    op: str
    shape: tuple[int, ...]
    dim: Dim
    dtype: str
    trans: bool = False
    pitch: int = 0
    start: int = 0

    @property
    def key(self) -> str:
        """Its name in a sweep."""
        dims = "T" if self.trans else "" if self.op == "gemv" else f" {self.dim}"
        memory = f" pitch {self.pitch}" * bool(self.pitch) + f" +{self.start}" * bool(self.start)
        return f"{self.op} {'x'.join(map(str, self.shape))}{dims} {self.dtype}{memory}"

    @property
    def nbytes(self) -> int:
        """Of the input."""
        return math.prod(self.shape) * ITEMSIZE[self.dtype]

    @property
    def problem(self) -> Problem:
        """What the selector sees."""
        return describe(self.op, self.shape, self.dim, self.dtype, self.trans, self.pitch, self.start)

    def record(self) -> dict[str, Any]:
        """As a sweep stores it."""
        dim = list(self.dim) if isinstance(self.dim, tuple) else self.dim
        facts = {"op": self.op, "shape": list(self.shape), "dim": dim, "dtype": self.dtype, "trans": self.trans}
        return {"family": self.family} | facts | {"pitch": self.pitch, "start": self.start}


def batch_norms(family: str, batch: int, stages: Stages) -> Iterator[Case]:
    """Statistics forward, gradients backward; channels first and last."""
    for n, (c, h) in enumerate(stages):
        yield Case(family, "var", (batch, c, h, h), PER_CHANNEL, ("fp32", "bf16")[n % 2])
        yield Case(family, "sum", (batch, c, h, h), PER_CHANNEL, ("bf16", "fp16", "fp32")[n % 3])
        yield Case(family, ("sum", "var")[n % 3 == 2], (batch * h * h, c), 0, ("bf16", "fp32")[n % 2])


def pools(family: str, batch: int, stages: Stages, dtype: str) -> Iterator[Case]:
    """Global average pools, and those of squeeze-and-excite; backward of a broadcast over space."""
    for n, (c, h) in enumerate(stages):
        yield Case(family, ("mean", "sum")[n % 2], (batch, c, h, h), SPACE, dtype)


def layer_norms(family: str, tokens: int, widths: tuple[int, ...], dtypes: tuple[str, ...], op: str = "var") -> Iterator[Case]:
    """Row statistics forward; sums over tokens for weight and bias backward."""
    for n, width in enumerate(widths):
        yield Case(family, op, (tokens, width), -1, dtypes[n % len(dtypes)])
        yield Case(family, "sum", (tokens, width), -1, dtypes[(n + 1) % len(dtypes)])
        yield Case(family, "sum", (tokens, width), 0, dtypes[n % len(dtypes)])


def biases(family: str, tokens: int, widths: tuple[int, ...], dtypes: tuple[str, ...]) -> Iterator[Case]:
    """Bias gradients of linear layers."""
    for n, width in enumerate(widths):
        yield Case(family, "sum", (tokens, width), 0, dtypes[n % len(dtypes)])


def attention(family: str, batch: int, heads: int, length: int, dtype: str) -> Iterator[Case]:
    """Softmax over keys: its maxima, its normaliser, and the row sums of its backward."""
    for op in ("max", "logsumexp", "sum"):
        yield Case(family, op, (batch * heads * length, length), -1, dtype)


def losses(family: str, tokens: int, vocabulary: int, dtype: str) -> Iterator[Case]:
    """Cross-entropy over a vocabulary, and its mean."""
    for op in ("logsumexp", "max", "sum"):
        yield Case(family, op, (tokens, vocabulary), -1, dtype)


def gradient_norms(family: str, shapes: tuple[tuple[int, int], ...], dtype: str) -> Iterator[Case]:
    """Norms of whole gradients, and the largest magnitude that a scaled cast needs."""
    for n, shape in enumerate(shapes):
        yield Case(family, ("sum_sq", "abs_max", "norm")[n % 3], shape, None, dtype)


def convolutional() -> Iterator[Case]:
    """Channels and sizes of each stage of 224 x 224 images."""
    resnet18 = ((64, 112), (64, 56), (128, 28), (256, 14), (512, 7))
    resnet50 = ((64, 112), (64, 56), (256, 56), (128, 28), (512, 28), (256, 14), (1024, 14), (512, 7), (2048, 7))
    yield from batch_norms("resnet18", 32, resnet18)
    yield from pools("resnet18", 128, resnet18[-2:], "bf16")
    yield from biases("resnet18", 4096, (1000,), ("fp32",))
    yield from gradient_norms("resnet18", ((512, 512 * 9), (256, 256 * 9), (1000, 512)), "fp32")
    yield from batch_norms("resnet50", 64, resnet50)
    yield from pools("resnet50", 64, resnet50[-3:], "fp32")
    yield from gradient_norms("resnet50", ((2048, 1024), (512, 512 * 9), (1000, 2048)), "fp32")
    expanded = ((16, 112), (64, 112), (72, 56), (72, 28), (120, 28), (240, 14), (184, 14), (480, 14), (672, 14), (960, 7))
    yield from batch_norms("mobilenetv3", 64, expanded)
    yield from pools("mobilenetv3", 128, ((72, 28), (120, 28), (480, 14), (672, 14), (672, 7), (960, 7)), "bf16")
    for n, (c, h) in enumerate(zip((96, 192, 384, 768), (56, 28, 14, 7))):
        tokens = 64 * h * h
        yield from layer_norms("convnext", tokens, (c,), (("bf16", "fp32"), ("fp32", "bf16"))[n % 2])
        yield from biases("convnext", tokens, (4 * c,), (("fp16", "fp32")[n % 2],))
        yield from batch_norms("convnext", 64, ((c, h),))
    yield from pools("convnext", 64, ((768, 7), (1024, 7)), "fp16")


def transformers() -> Iterator[Case]:
    """Training of encoders and decoders."""
    for width, heads, batch, dtype in ((768, 12, 64, "bf16"), (1024, 16, 32, "fp32")):
        tokens = batch * 197  # patches of 16 x 16 and the class token
        yield from layer_norms("vit", tokens, (width,), (dtype,))
        yield from biases("vit", tokens, (3 * width, 4 * width), (dtype,))
        yield from attention("vit", batch, heads, 197, dtype)
        yield Case("vit", "mean", (batch, 197, width), 1, dtype)
        yield Case("vit", "sum", (batch, 197, width), 0, dtype)
    for width, heads, batch, dtype in ((768, 12, 16, "fp16"), (1024, 16, 8, "fp32")):
        tokens = batch * 512
        yield from layer_norms("bert", tokens, (width,), (dtype, "fp32"))
        yield from biases("bert", tokens, (width, 4 * width, 2), (dtype,))
        yield from attention("bert", batch, heads, 512, dtype)
        yield from losses("bert", batch * 77, 30522, dtype)  # 15% of the tokens are masked
        yield Case("bert", "sum", (batch, 512, width), 0, dtype)
    yield from gradient_norms("bert", ((30522, 768), (3072, 768), (1024, 4096)), "fp32")
    for width, heads, batch, dtype in ((768, 12, 8, "bf16"), (1280, 20, 4, "fp32")):
        tokens = batch * 1024
        yield from layer_norms("gpt2", tokens, (width,), (dtype,))
        yield from biases("gpt2", tokens, (3 * width, 4 * width), (dtype, "fp32"))
        yield from attention("gpt2", batch // 2, heads, 1024, dtype)
        yield from losses("gpt2", tokens // 2, 50257, dtype)
        yield Case("gpt2", "sum", (batch, 1024, width), 0, dtype)
    yield from gradient_norms("gpt2", ((50257, 768), (3072, 768), (1280, 3 * 1280)), "fp32")
    for width, hidden, tokens, dtype in ((2048, 8192, 16384, "bf16"), (4096, 14336, 8192, "bf16"), (4096, 14336, 2048, "fp32")):
        yield from layer_norms("llama", tokens, (width,), (dtype,), op="sum_sq")
        yield Case("llama", "abs_max", (tokens, hidden), -1, dtype)  # scales of a cast to 8 bits, a token each
        yield Case("llama", "sum", (tokens, hidden), 0, dtype)
        yield from losses("llama", tokens // 16, 128256, dtype)
    yield from attention("llama", 1, 32, 2048, "bf16")
    yield from gradient_norms("llama", ((4096, 4096), (14336, 4096), (1024, 4096), (128256, 2048)), "bf16")


def projections(
    family: str, width: int, queries: int, keys: int, hidden: int, vocabulary: int, dtypes: tuple[str, ...] = ("bf16",)
) -> Iterator[Case]:
    """A decode step: query-key-value, output, gate and up, down, head; every third matrix as its transpose is stored."""
    matrices = ((queries + 2 * keys, width), (width, queries), (2 * hidden, width), (width, hidden), (vocabulary, width), (keys, width))
    for n, (m, k) in enumerate(matrices):
        dtype = dtypes[n % len(dtypes)]
        yield Case(family, "gemv", (k, m) if n % 3 == 2 else (m, k), None, dtype, n % 3 == 2)
        if n % 2:
            yield Case(family, "gemv", (m, k) if n % 3 == 2 else (k, m), None, dtype, n % 3 != 2)


def matrix_vector() -> Iterator[Case]:
    """(width, queries, keys, hidden, vocabulary) of language models, some divided over devices; then matrices that nothing divides."""
    yield from projections("llama gemv", 2048, 2048, 512, 8192, 128256)
    yield from projections("llama gemv", 4096, 4096, 1024, 14336, 128256)
    yield from projections("llama gemv", 8192, 8192 // 8, 1024 // 8, 28672 // 8, 128256 // 8)  # 70B over 8 devices
    yield from projections("mistral gemv", 4096, 4096, 1024, 14336, 32768, ("bf16", "fp16"))
    yield from projections("mistral gemv", 5120, 4096, 1024, 14336, 131072, ("fp16",))
    yield from projections("qwen gemv", 896, 896, 128, 4864, 151936, ("bf16", "fp32"))
    yield from projections("qwen gemv", 3584, 3584, 512, 18944, 152064)
    yield from projections("qwen gemv", 5120, 5120 // 4, 1024 // 4, 27648 // 4, 152064 // 4, ("fp16",))
    yield from projections("gemma gemv", 2304, 2048, 1024, 9216, 256000)
    yield from projections("gemma gemv", 3584, 4096, 2048, 14336, 256000, ("bf16", "fp16"))
    odd: tuple[tuple[int, int], ...] = (
        (4096, 4095),
        (1000, 2048),
        (50257, 768),
        (1, 1 << 20),
        (65536, 256),
        (7, 1000003),
        (12345, 777),
        (33, 99999),
    )
    odd += ((256, 65536), (1 << 20, 16), (100003, 129), (16384, 64), (3, 3000000), (2049, 2049))
    for n, shape in enumerate(odd):
        yield Case("odd gemv", "gemv", shape, None, ("fp32", "bf16", "fp16")[n % 3], n % 4 == 3)


def vocabularies() -> Iterator[Case]:
    """Statistics of next-token scores: few rows in decoding, many in training."""
    ops, dtypes = ("logsumexp", "max", "argmax"), ("bf16", "fp32", "fp16")
    for part, sizes in (("vocabulary 1", (50257, 128256, 32000, 100277)), ("vocabulary 2", (151936, 30522, 256000))):
        for i, size in enumerate(sizes):
            for j, rows in enumerate((1, 8, 64, 512, 2048)):
                case = Case(part, ops[(i + j) % 3], (rows, size), -1, dtypes[(i + 2 * j) % 3])
                yield case if case.nbytes >= SMALLEST else Case(part, "max", (4, size), -1, "fp32")


def log_uniform(family: str, count: int, seed: int) -> Iterator[Case]:
    """Sizes and reduced lengths spread evenly over their logarithms; rows, columns and both."""
    rng = random.Random(seed)
    ops = ("sum", "sum", "max", "mean", "sum_sq", "logsumexp", "argmax", "var")
    for _ in range(count):
        dtype = rng.choice(("bf16", "fp16", "fp32", "fp32"))
        numel = 2 ** rng.uniform(18, 27.5) / ITEMSIZE[dtype]
        length = 2 ** rng.uniform(1, math.log2(numel))
        length = max(2, min(round(length), round(numel)))
        others = max(1, round(numel / length))
        kind, op = rng.choice(("rows", "columns", "middle", "outer")), rng.choice(ops)
        inner = 2 ** rng.randint(0, max(0, int(math.log2(others))))
        if kind == "rows":
            yield Case(family, op, (others, length), -1, dtype)
        elif kind == "columns":
            yield Case(family, op, (length, others), 0, dtype)
        elif kind == "middle":
            yield Case(family, op, (max(1, others // inner), length, inner), 1, dtype)
        else:
            part = 2 ** rng.randint(0, int(math.log2(length)))
            yield Case(family, "sum", (max(1, length // part), others, part), (0, 2), dtype)


def ragged(family: str, count: int, seed: int) -> Iterator[Case]:
    """Lengths that are multiples of nothing: rows, columns, both axes around kept ones, few long rows, gemv of all of them."""
    rng = random.Random(seed)
    ops = ("sum", "sum", "sum", "max", "mean", "argmax", "var", "var", "logsumexp", "sum_sq")

    def odd(low: float, high: float) -> int:
        return int(2 ** rng.uniform(math.log2(low), math.log2(high))) | 1

    for n in range(count):
        dtype = rng.choice(("bf16", "fp32", "fp16", "fp32", "bf16", "i8"))
        numel, op = 2 ** rng.uniform(22.5, 27) / ITEMSIZE[dtype], rng.choice(ops[:4] if dtype == "i8" else ops)
        kind = ("columns", "rows", "columns", "few", "space", "gemv", "gemv columns", "middle", "short")[n % 9]
        if kind == "columns":
            width = odd(67, min(40000, numel / 200))
            yield Case(family, op, (round(numel / width), width), 0, dtype)
        elif kind == "rows":
            length = odd(130, 70000)
            yield Case(family, op, (round(numel / length), length), -1, dtype)
        elif kind == "short":
            length = rng.randint(2, 130)
            yield Case(family, op, (round(numel / length), length), -1, dtype)
        elif kind == "few":
            rows = odd(1, 64)
            yield Case(family, op, (rows, round(numel / rows) | 1), -1, dtype)
        elif kind == "space":
            side, channels = odd(13, 121), odd(31, 600)
            images = max(2, round(numel / (side * side * channels)))
            statistic = op if op in ("sum", "mean", "var", "max") else "sum"
            yield Case(family, statistic, (images, channels, side, side), PER_CHANNEL if n % 2 else SPACE, dtype)
        elif kind == "middle":
            inner = odd(131, 3000)
            outer = odd(2, 40)
            yield Case(family, op, (outer, max(9, round(numel / inner / outer)), inner), 1, dtype)
        else:
            width = odd(300, 30000)
            shape = (round(numel / width), width)
            yield Case(family, "gemv", shape, None, dtype if dtype != "i8" else "bf16", kind == "gemv columns")


def narrow(family: str, count: int, seed: int) -> Iterator[Case]:
    """A long list of short rows, reduced over the list: points, boxes, features. Their rows share lines of memory."""
    rng = random.Random(seed)
    widths = (3, 5, 6, 7, 9, 10, 12, 20, 24, 40, 56, 72, 80, 100, 144, 200, 376, 1000)
    for n in range(count):
        dtype = ("fp32", "bf16", "fp32", "fp16", "fp32", "i8")[n % 6]
        op = ("sum", "max", "mean", "argmax", "sum", "sum_sq", "var")[n % 7] if dtype != "i8" else "sum"
        numel, width = 2 ** rng.uniform(24.5, 27.5) / ITEMSIZE[dtype], widths[n * 5 % len(widths)]
        yield Case(family, op, (round(numel / width), width), 0, dtype)


def views(family: str, count: int, seed: int) -> Iterator[Case]:
    """Slices of larger tensors: rows with something between them, values that start between vectors."""
    rng = random.Random(seed)
    for n in range(count):
        dtype = ("bf16", "fp32", "fp16", "bf16", "i8")[n % 5]
        numel, width = 2 ** rng.uniform(23, 26.5) / ITEMSIZE[dtype], round(2 ** rng.uniform(8, 13))
        shape = (round(numel / width), width)
        pitch, start = (width + rng.randint(1, 200), 0) if n % 2 else (0, rng.randint(1, 15))
        op = ("sum", "max", "var", "sum", "mean", "gemv", "logsumexp")[n % 7] if dtype != "i8" else "sum"
        yield Case(family, op, shape, None if op == "gemv" else rng.choice((0, 0, -1)), dtype, op == "gemv" and n % 3 == 0, pitch, start)


def benchmarks() -> Iterator[Case]:
    """The lists of `python -m tri_reduce bench`."""
    for family in ("standard", "odd", "scaling"):
        for case in bench_problems.LISTS[family]():
            dim = case.dims[0] if case.dims and len(case.dims) == 1 else case.dims
            yield Case(family, case.op, case.shape, dim, dtypes.named(case.dtype).name, case.trans, case.pitch, case.start)


def cases() -> tuple[Case, ...]:
    """All problems, families taking turns, no two that are the same to the selector, from 64 KiB to 1 GiB.

    Example:
        >>> len(cases()) >= 300
        True
    """
    found: dict[Problem, Case] = {}
    for part in (
        convolutional(),
        transformers(),
        matrix_vector(),
        vocabularies(),
        log_uniform("random 1", 45, 1),
        log_uniform("random 2", 45, 2),
        ragged("ragged 1", 108, 3),
        views("views", 24, 4),
        narrow("narrow", 36, 5),
        benchmarks(),
    ):
        for case in part:
            if SMALLEST <= case.nbytes <= LARGEST:
                found.setdefault(case.problem, case)
    families: dict[str, list[Case]] = {}
    for case in found.values():
        families.setdefault(case.family, []).append(case)
    for name, members in families.items():  # what is measured before a budget ends stands for the whole
        random.Random(name).shuffle(members)
    spread = [((n + 0.5) / len(members), case) for members in families.values() for n, case in enumerate(members)]
    return tuple(case for _, case in sorted(spread, key=lambda pair: pair[0]))
