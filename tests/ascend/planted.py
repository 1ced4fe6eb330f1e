"""Kernels with the faults that the check must find."""

import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0))


@triton.jit
def larger_magnitude(a, b):
    return tl.maximum(tl.abs(a), tl.abs(b))


@triton.jit
def largest_magnitude_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.reduce(tl.load(x_ptr + at, mask=at < n, other=0.0), 0, larger_magnitude))


@triton.jit
def add_magnitudes(a, b):
    return tl.abs(a) + tl.abs(b)


@triton.jit
def sum_of_magnitudes_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.reduce(tl.load(x_ptr + at, mask=at < n, other=0.0), 0, add_magnitudes))


@triton.jit
def larger_with_index(a, i, b, j):
    b_wins = b > a
    return tl.where(b_wins, b, a), tl.where(b_wins, j, i)


@triton.jit
def two_values_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    best, where = tl.reduce((tl.load(x_ptr + at, mask=at < n, other=0.0), at), 0, larger_with_index)
    tl.store(out_ptr, best + where)


@triton.jit
def gather_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + at * at % n), 0))


@triton.jit
def halves(a):
    return a[0] + a[1]


@triton.jit
def tuple_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    a = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(halves((a, a)), 0))
