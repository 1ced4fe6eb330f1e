"""Monoids as a user would write them, with states of one, two and three tiles, and device functions that break a law."""

import torch
import triton
import triton.language as tl

from tri_reduce import MONOIDS, Monoid


@triton.jit
def complement(x):
    return 1 - x


@triton.jit
def times(a, b):
    return a * b


@triton.jit
def fold_times(a, axis: tl.constexpr):
    return tl.reduce(a, axis, times)


@triton.jit
def twice(x):
    return x, x


@triton.jit
def widen(a_high, a_low, b_high, b_low):
    return tl.maximum(a_high, b_high), tl.minimum(a_low, b_low)


@triton.jit
def fold_widest(high, low, axis: tl.constexpr):
    return tl.max(high, axis), tl.min(low, axis)


@triton.jit
def difference(high, low):
    return high - low


@triton.jit
def lift_crest(x):
    return tl.abs(x), x * x, tl.full(x.shape, 1.0, tl.float32)


@triton.jit
def combine_crest(a_peak, a_power, a_count, b_peak, b_power, b_count):
    return tl.maximum(a_peak, b_peak), a_power + b_power, a_count + b_count


@triton.jit
def fold_crest(peak, power, count, axis: tl.constexpr):
    return tl.max(peak, axis), tl.sum(power, axis), tl.sum(count, axis)


@triton.jit
def finish_crest(peak, power, count):
    return peak / tl.sqrt(power / count)


@triton.jit
def itself(x):
    return x


@triton.jit
def minus(a, b):
    return a - b


@triton.jit
def middle(a, b):
    return (a + b) / 2


@triton.jit
def second(a, b):
    return tl.where(b != 0, b, a)


@triton.jit
def fold_second(a, axis: tl.constexpr):
    return tl.reduce(a, axis, second)


@triton.jit
def fold_sum(a, axis: tl.constexpr):
    return tl.sum(a, axis)


@triton.jit
def broken(a, b):
    return a.no_such_thing(b)


def crest(x):
    return x.abs().max() / (x * x).mean().sqrt()


FLOAT32 = (torch.float32, torch.float32)
NOISY_OR = Monoid("noisy_or", 1.0, complement, times, fold_times, complement, *FLOAT32, reference=lambda x, dims: 1 - (1 - x).prod(dims[0]))
SPREAD = Monoid(
    "spread",
    (float("-inf"), float("inf")),
    twice,
    widen,
    fold_widest,
    difference,
    *FLOAT32,
    reference=lambda x, dims, keepdim: x.amax(dims, keepdim) - x.amin(dims, keepdim),
)
CREST = Monoid("crest", (0.0, 0.0, 0.0), lift_crest, combine_crest, fold_crest, finish_crest, *FLOAT32, reference=crest)
MINE = (NOISY_OR, SPREAD, CREST)
SUM = Monoid("total", 0.0, itself, MONOIDS["sum"].combine, fold_sum, itself, *FLOAT32, reference=torch.sum)
