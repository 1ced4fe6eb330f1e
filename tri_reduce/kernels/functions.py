"""The device functions of the built-in monoids: lift (a value into a state), combine (two states), fold (an axis), finish (the result).

A state is one to three tiles, passed one after another. Folds are single primitives (sum, max, min) wherever one exists: every backend
compiles those, and the interpreter runs them at numpy's speed. An ordering key is an integer that orders like the value, NaN above all.
"""

from .compat import jit, tl


@jit
def identity(x):
    return x


@jit
def add(a, b):
    return a + b


@jit
def multiply(a, b):
    return a * b


@jit
def bit_and(a, b):
    return a & b


@jit
def bit_or(a, b):
    return a | b


@jit
def bit_xor(a, b):
    return a ^ b


@jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@jit
def lift_abs(x):
    return tl.abs(x)


@jit
def lift_square(x):
    return x * x


@jit
def lift_nonzero(x):
    return (x != 0).to(tl.int32)


@jit
def lift_power(x, param):
    return tl.exp2(tl.log2(tl.abs(x)) * param)


@jit
def order_key(x):
    """int32 for fp32, int64 for fp64, integers as they are: a < b if and only if key(a) < key(b); every NaN gets the largest key."""
    if x.dtype.is_floating():
        x = x + 0.0  # -0.0 and 0.0 are equal
        if x.dtype == tl.float64:
            bits = x.to(tl.int64, bitcast=True)
            key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
            return tl.where(x != x, 0x7FFFFFFFFFFFFFFF, key)
        else:
            bits = x.to(tl.int32, bitcast=True)
            key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
            return tl.where(x != x, 0x7FFFFFFF, key)
    else:
        return x


@jit
def reversed_key(x):
    if x.dtype.is_floating():
        return order_key(-x)
    else:
        return ~x


@jit
def value_of_key(key, dtype: tl.constexpr):
    if dtype == tl.float64:
        return (key ^ ((key >> 63) & 0x7FFFFFFFFFFFFFFF)).to(tl.float64, bitcast=True)
    else:
        return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@jit
def fold_sum(a, axis: tl.constexpr):
    return tl.sum(a, axis)


@jit
def fold_prod(a, axis: tl.constexpr):
    return tl.reduce(a, axis, multiply)


@jit
def fold_and(a, axis: tl.constexpr):
    return tl.reduce(a, axis, bit_and)


@jit
def fold_or(a, axis: tl.constexpr):
    return tl.reduce(a, axis, bit_or)


@jit
def fold_xor(a, axis: tl.constexpr):
    return tl.reduce(a, axis, bit_xor)


@jit
def fold_max(a, axis: tl.constexpr):
    if a.dtype.is_floating():  # tl.max drops NaN: fold the keys, in which NaN is the largest
        return value_of_key(tl.max(order_key(a), axis), a.dtype)
    else:
        return tl.max(a, axis)


@jit
def fold_min(a, axis: tl.constexpr):
    if a.dtype.is_floating():
        return -fold_max(-a, axis)
    else:
        return tl.min(a, axis)


@jit
def lift_argmax(x, index):
    key = order_key(x)
    return key, index + tl.zeros_like(key).to(index.dtype)


@jit
def lift_argmin(x, index):
    key = reversed_key(x)
    return key, index + tl.zeros_like(key).to(index.dtype)


@jit
def first_of_best(a_key, a_index, b_key, b_index):
    b_wins = (b_key > a_key) | ((b_key == a_key) & (b_index < a_index))
    return tl.where(b_wins, b_key, a_key), tl.where(b_wins, b_index, a_index)


@jit
def fold_arg(key, index, axis: tl.constexpr):
    best = tl.max(key, axis)
    none: tl.constexpr = 0x7FFFFFFFFFFFFFFF if index.dtype == tl.int64 else 0x7FFFFFFF
    return best, tl.min(tl.where(key == tl.expand_dims(best, axis), index, none), axis)


@jit
def lift_value(x, index):
    return x, index + tl.zeros_like(x).to(index.dtype)


@jit
def first_above(a, a_index, b, b_index):
    """`b` comes after `a`, so it wins only if it is larger; a NaN, and the first of them."""
    b_wins = ~(b <= a) & (a == a)
    return tl.where(b_wins, b, a), tl.where(b_wins, b_index, a_index)


@jit
def first_below(a, a_index, b, b_index):
    b_wins = ~(b >= a) & (a == a)
    return tl.where(b_wins, b, a), tl.where(b_wins, b_index, a_index)


@jit
def fold_above(value, index, axis: tl.constexpr):
    return fold_arg(order_key(value), index, axis)


@jit
def fold_below(value, index, axis: tl.constexpr):
    return fold_arg(reversed_key(value), index, axis)


@jit
def finish_arg(key, index):
    none: tl.constexpr = 0x7FFFFFFFFFFFFFFF if index.dtype == tl.int64 else 0x7FFFFFFF
    return tl.where(index == none, 0, index)


@jit
def lift_exp(x):
    return x, tl.full(x.shape, 1.0, x.dtype)


@jit
def scale_to(m, best):
    """exp(m - best), 1 where they are equal (also both infinite)."""
    return tl.where(m == best, 1.0, tl.exp(m - best))


@jit
def add_exp(a_max, a_sum, b_max, b_sum):
    """A NaN lives in the sums, never in the maxima."""
    d = tl.where(a_max == b_max, 0.0, b_max - a_max)
    e = tl.exp(-tl.abs(d))  # one exponential: the larger side's factor is 1
    b_wins = d > 0
    return tl.where(b_wins, b_max, a_max), tl.where(b_wins, a_sum * e + b_sum, a_sum + b_sum * e)


@jit
def four_exp(a, b, c, d):
    """Of four values: each is scaled once, to the largest of them."""
    best = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    to = tl.where(tl.abs(best) == float("inf"), 0.0, best)
    return best, (tl.exp(a - to) + tl.exp(b - to)) + (tl.exp(c - to) + tl.exp(d - to))


@jit
def fold_exp(m, s, axis: tl.constexpr):
    best = tl.max(m, axis)
    return best, tl.sum(s * scale_to(m, tl.expand_dims(best, axis)), axis)


@jit
def finish_log(m, s):
    return m + tl.log(s)


@jit
def lift_counted(x):
    return x, tl.full(x.shape, 1.0, x.dtype)


@jit
def add_counted(a, a_count, b, b_count):
    return a + b, a_count + b_count


@jit
def fold_counted(a, count, axis: tl.constexpr):
    return tl.sum(a, axis), tl.sum(count, axis)


@jit
def divide(a, b):
    """Correctly rounded: Triton's own fp32 division is not."""
    if a.dtype == tl.float32:
        return tl.div_rn(a, b.to(tl.float32))
    else:
        return a / b.to(a.dtype)


@jit
def root(a):
    if a.dtype == tl.float32:
        return tl.sqrt_rn(a)
    else:
        return tl.sqrt(a)


@jit
def finish_mean(a, n):
    return divide(a, n)


@jit
def lift_moments(x):
    return x, tl.full(x.shape, 0.0, x.dtype), tl.full(x.shape, 1.0, x.dtype)


@jit
def add_moments(a, a_m2, a_count, b, b_m2, b_count):
    """Chan, Golub and LeVeque (1979): means, sums of squared deviations and counts of two disjoint sets."""
    count = a_count + b_count
    part = b_count / tl.maximum(count, 1.0)
    delta = b - a
    return a + delta * part, a_m2 + b_m2 + delta * (delta * (a_count * part)), count  # of an empty set 0, also where squares overflow


@jit
def four_moments(a, b, c, d):
    """The moments of four values, in two passes over registers: a third of the instructions of four combinations."""
    mean = ((a + b) + (c + d)) * 0.25
    a -= mean
    b -= mean
    c -= mean
    d -= mean
    return mean, (a * a + b * b) + (c * c + d * d), tl.full(mean.shape, 4.0, mean.dtype)


@jit
def fold_moments(mean, m2, count, axis: tl.constexpr):
    total = tl.sum(count, axis)
    centre = tl.sum(mean * count, axis) / tl.maximum(total, 1.0)
    away = mean - tl.expand_dims(centre, axis)
    residue = tl.sum(away * count, axis) / tl.maximum(total, 1.0)  # what rounding left in the centre
    away -= tl.expand_dims(residue, axis)
    return centre + residue, tl.sum(m2 + away * (away * count), axis), total


@jit
def finish_var(mean, m2, n, param):
    return divide(m2, tl.maximum(n - param, 0.0))


@jit
def finish_std(mean, m2, n, param):
    return root(finish_var(mean, m2, n, param))


@jit
def finish_sqrt(a):
    return root(a)


@jit
def finish_root(a, param):
    return tl.exp2(tl.log2(a) / param)


@jit
def divide_count(a, count):
    return divide(a, count)


@jit
def lift_nonzero_float(x):
    return (x != 0).to(x.dtype)
