"""Device functions for Ascend's vector unit, in place of those of `functions.py` with the same meaning and the same states.

It orders floats but not integers (only equality, min and max of int32 are vector instructions; any other comparison becomes a scalar loop
in 64 bits), and what its arithmetic shifts, its max and its min do to rounding and to NaN is not documented. So keys come without a shift,
ties without an order of integers, and NaN is looked for with a comparison of floats.
"""

from .compat import jit, tl
from .functions import divide, root


@jit
def nan_or_larger(a, b):
    if a.dtype.is_floating():
        return tl.where((b > a) | (b != b), b, a)
    else:
        return tl.maximum(a, b)


@jit
def nan_or_smaller(a, b):
    if a.dtype.is_floating():
        return tl.where((b < a) | (b != b), b, a)
    else:
        return tl.minimum(a, b)


@jit
def fold_largest(a, axis: tl.constexpr):
    if a.dtype.is_floating():
        nan = tl.max(tl.where(a != a, 1.0, 0.0), axis)
        return tl.where(nan > 0, float("nan"), tl.max(tl.where(a != a, float("-inf"), a), axis))
    else:
        return tl.max(a, axis)


@jit
def fold_smallest(a, axis: tl.constexpr):
    if a.dtype.is_floating():
        nan = tl.max(tl.where(a != a, 1.0, 0.0), axis)
        return tl.where(nan > 0, float("nan"), tl.min(tl.where(a != a, float("inf"), a), axis))
    else:
        return tl.min(a, axis)


@jit
def float_key(x):
    """`functions.order_key` of a float32."""
    x = x + 0.0
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, tl.where(x < 0, bits ^ 0x7FFFFFFF, bits))


@jit
def lift_largest(x, index):
    if x.dtype.is_floating():
        key = float_key(x)
        return key, index + tl.zeros_like(key)
    else:
        return x, index + tl.zeros_like(x).to(index.dtype)


@jit
def lift_smallest(x, index):
    if x.dtype.is_floating():
        key = float_key(-x)
        return key, index + tl.zeros_like(key)
    else:
        return ~x, index + tl.zeros_like(x).to(index.dtype)


@jit
def first_of_equals(a_key, a_index, b_key, b_index):
    """The larger key, and of equal ones the smaller index."""
    none: tl.constexpr = 0x7FFFFFFFFFFFFFFF if a_index.dtype == tl.int64 else 0x7FFFFFFF
    best = tl.maximum(a_key, b_key)
    return best, tl.minimum(tl.where(a_key == best, a_index, none), tl.where(b_key == best, b_index, none))


@jit
def lift_weighted(x, weight):
    return x, weight


@jit
def step_moments(mean, m2, count, x, weight):
    """Welford (1962), with weight 1, or 0 for a finite x that contributes nothing."""
    delta = (x - mean) * weight
    mean += delta / (count + 1.0)
    return mean, m2 + delta * (x - mean), count + weight


@jit
def merge_moments(a, a_m2, a_count, b, b_m2, b_count):
    """`functions.add_moments`. A count is 0 or at least 1, which 1e-30 does not change (a maximum takes two tiles more)."""
    count = a_count + b_count
    part = b_count / (count + 1e-30)
    delta = b - a
    return a + delta * part, a_m2 + b_m2 + delta * (delta * (a_count * part)), count


@jit
def fold_moments_once(mean, m2, count, axis: tl.constexpr):
    """`functions.fold_moments` without its second pass over the centre, for which there is no room: means are of differences from a first
    value, so that the centre's rounding adds count * (eps * centre)^2 to the squares, nothing beside their own.
    """
    total = tl.sum(count, axis)
    centre = tl.sum(mean * count, axis) / (total + 1e-30)
    away = mean - tl.expand_dims(centre, axis)
    return centre, tl.sum(m2 + away * (away * count), axis), total


@jit
def finish_spread(mean, m2, n, param):
    """`functions.finish_var`; max(d, 0) is (d + |d|) / 2."""
    d = n - param
    return divide(m2, (d + tl.abs(d)) * 0.5)


@jit
def finish_root_of_spread(mean, m2, n, param):
    return root(finish_spread(mean, m2, n, param))
