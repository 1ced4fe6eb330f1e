"""A reduction of one's own: log(mean(exp(x))), whose state is a maximum, a sum of exponentials and a count.

Checked for its laws when it is registered; then it reduces, streams and masks as the built-in ops do.

    python examples/log_mean_exp.py                       # on a GPU
    TRITON_INTERPRET=1 python examples/log_mean_exp.py    # the kernels without one
"""

import math

import torch
import triton
import triton.language as tl

import tri_reduce


@triton.jit
def lift_exp(x):
    return x, tl.full(x.shape, 1.0, tl.float32), tl.full(x.shape, 1.0, tl.float32)


@triton.jit
def scale(to, best):
    """exp(to - best), and 1 where both are the identity's -inf."""
    return tl.where(to == best, 1.0, tl.exp(to - best))


@triton.jit
def add_exp(a_best, a_sum, a_count, b_best, b_sum, b_count):
    best = tl.maximum(a_best, b_best)
    return best, a_sum * scale(a_best, best) + b_sum * scale(b_best, best), a_count + b_count


@triton.jit
def fold_exp(best, total, count, axis: tl.constexpr):
    top = tl.max(best, axis)
    return top, tl.sum(total * scale(best, tl.expand_dims(top, axis)), axis), tl.sum(count, axis)


@triton.jit
def finish_log(best, total, count):
    return best + tl.log(total / count)


LOG_MEAN_EXP = tri_reduce.Monoid(
    "log_mean_exp",
    identity=(float("-inf"), 0.0, 0.0),
    lift=lift_exp,
    combine=add_exp,
    fold=fold_exp,
    finish=finish_log,
    acc_dtype=torch.float32,
    out_dtype=torch.float32,
    reference=lambda x: x.double().logsumexp(0) - math.log(len(x)),
)


def main(rows: int = 5, length: int = 300) -> None:
    """Run it and compare with float64."""
    tri_reduce.register_monoid(LOG_MEAN_EXP)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = 50 * torch.randn(rows, length, device=device)
    want = x.double().logsumexp(1) - math.log(length)
    torch.testing.assert_close(tri_reduce.reduce(x, "log_mean_exp", 1).double(), want, rtol=1e-6, atol=1e-6)
    r = tri_reduce.Reducer("log_mean_exp", (rows,), torch.float32, device)
    for piece in x.split(120, 1):
        r.update(piece, 1)
    torch.testing.assert_close(r.finalize().double(), want, rtol=1e-6, atol=1e-6)
    print(
        f"log(mean(exp(x))) of {rows} rows of {length} on {device}: {want.tolist()[0]:.4f}, ...; at once and in pieces as float64 has them"
    )


if __name__ == "__main__":
    main()
