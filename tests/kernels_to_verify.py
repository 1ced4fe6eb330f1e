"""Kernels of a user, deferred and not, for test_verify.py. A line that folds too early ends in a comment `# early`."""

import triton
import triton.language as tl

import tri_reduce.language as trl


@triton.jit
def deferred_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    acc = trl.init("sum", (BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc = trl.update(acc, tl.load(x_ptr + at, mask=at < n, other=0), "sum", mask=at < n)
    tl.store(out_ptr, trl.finalize(acc, "sum", axis=0))


@triton.jit
def per_tile_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + at, mask=at < n, other=0), 0)  # early
    tl.store(out_ptr, total)


@triton.jit
def per_tile_by_language_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    best = float("-inf")
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc = trl.init("max", (BLOCK,), tl.float32)
        acc = trl.update(acc, tl.load(x_ptr + at), "max", mask=at < n)
        best = tl.maximum(best, trl.finalize(acc, "max", axis=0))  # early
    tl.store(out_ptr, best)


@triton.jit
def while_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    start = 0
    while start < n:
        total += tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)), 0)  # early
        start += BLOCK
    tl.store(out_ptr, total)


@triton.jit
def unrolled_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in tl.static_range(0, 4):
        total += tl.sum(tl.load(x_ptr + start * BLOCK + tl.arange(0, BLOCK)), 0)
    tl.store(out_ptr, total)


@triton.jit
def atomic_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)), 0))  # early


@triton.jit
def in_memory_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        tl.store(out_ptr, tl.load(out_ptr) + tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)), 0))  # early


@triton.jit
def persistent_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Rows of n values, one after another: each is folded and stored once."""
    for row in range(tl.program_id(0), 1000, tl.num_programs(0)):
        acc = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            acc += tl.load(x_ptr + row * n + start + tl.arange(0, BLOCK))
        mean = tl.sum(acc, 0) / n
        for start in range(0, n, BLOCK):
            at = row * n + start + tl.arange(0, BLOCK)
            tl.store(out_ptr + at, tl.load(x_ptr + at) - mean)


@triton.jit
def persistent_per_tile_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """The same rows, but each tile of a row is folded."""
    for row in range(tl.program_id(0), 1000, tl.num_programs(0)):
        total = 0.0
        for start in range(0, n, BLOCK):
            total += tl.sum(tl.load(x_ptr + row * n + start + tl.arange(0, BLOCK)), 0)  # early
        tl.store(out_ptr + row, total)


@triton.jit
def queue_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Rows are taken from a counter in memory."""
    row = tl.atomic_add(out_ptr.to(tl.pointer_type(tl.int32)), 1)
    while row < 1000:
        tl.store(out_ptr + 1 + row, tl.sum(tl.load(x_ptr + row * BLOCK + tl.arange(0, BLOCK)), 0))
        row = tl.atomic_add(out_ptr.to(tl.pointer_type(tl.int32)), 1)


@triton.jit(noinline=True)
def fold_tile(x_ptr, start, BLOCK: tl.constexpr):
    return tl.sum(tl.load(x_ptr + start + tl.arange(0, BLOCK)), 0)  # early


@triton.jit
def noinline_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        total += fold_tile(x_ptr, start, BLOCK)
    tl.store(out_ptr, total)


@triton.jit
def noinline_after_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, fold_tile(x_ptr, n, BLOCK))


@triton.jit(noinline=True)
def fold_and_store(x_ptr, out_ptr, start):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + start + tl.arange(0, 64)), 0))  # early


@triton.jit
def noinline_store_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        fold_and_store(x_ptr, out_ptr, start)


@triton.jit
def noinline_rows_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for row in range(n):
        fold_and_store(x_ptr, out_ptr + row, row * BLOCK)


@triton.jit
def conditional_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """What a fold in a loop decides is stored after it, though its value never is."""
    last = 0
    for start in range(0, n, BLOCK):
        if tl.max(tl.load(x_ptr + start + tl.arange(0, BLOCK)), 0) > 0:  # early
            last = start
    tl.store(out_ptr, last.to(tl.float32))


@triton.jit
def early_return_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    if n < 3:
        best, at = tl.max(x, 0, return_indices=True)
        tl.store(out_ptr + at, best)
        return
    for row in range(n):
        tl.store(out_ptr + row, tl.sum(x * row, 0))


@triton.jit
def ordinary_write_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """An ordinary write in the loop, beside a reduction that is deferred."""
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + tl.arange(0, BLOCK))
        tl.store(out_ptr + 1 + start + tl.arange(0, BLOCK), x * 2)
        acc += x
    tl.store(out_ptr, tl.sum(acc, 0))
