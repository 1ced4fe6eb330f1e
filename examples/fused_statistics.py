"""RMSNorm's statistics from a kernel of one's own: one pass over the rows, written with `tri_reduce.language`.

The loop over K accumulates lane by lane, does an ordinary write beside it, and each statistic is folded once, after the loop.

    python examples/fused_statistics.py                       # on a GPU
    TRITON_INTERPRET=1 python examples/fused_statistics.py    # without one
"""

import torch
import triton
import triton.language as tl

import tri_reduce.language as trl


@triton.jit
def statistics_kernel(x_ptr, w_ptr, y_ptr, rms_ptr, peak_ptr, M, K, eps: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """x: [M, K], w: [K] -> y = x * w, and for each row sqrt(mean(x^2) + eps) and max |x|."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    energy = trl.init("sum_sq", (BLOCK_M, BLOCK_K), tl.float32)
    peak = trl.init("abs_max", (BLOCK_M, BLOCK_K), tl.float32)
    for k in range(0, K, BLOCK_K):
        columns = k + tl.arange(0, BLOCK_K)[None, :]
        mask = (rows < M) & (columns < K)
        x = tl.load(x_ptr + rows * K + columns, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + columns, mask=columns < K, other=0.0)
        tl.store(y_ptr + rows * K + columns, x * w, mask=mask)  # every lane writes; only updates are reductions
        energy = trl.update(energy, x, "sum_sq", mask=mask)
        peak = trl.update(peak, x, "abs_max", mask=mask)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    mean = trl.finalize(energy, "sum_sq", axis=1) / K
    tl.store(rms_ptr + row, tl.sqrt(mean + eps), mask=row < M)
    tl.store(peak_ptr + row, trl.finalize(peak, "abs_max", axis=1), mask=row < M)


def statistics(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(x * w, root mean square of each row, largest magnitude of each row) of a contiguous x: [M, K]."""
    m, k = x.shape
    y, rms, peak = torch.empty_like(x), torch.empty(m, device=x.device), torch.empty(m, device=x.device)
    statistics_kernel[(triton.cdiv(m, 4),)](x, w, y, rms, peak, m, k, eps, BLOCK_M=4, BLOCK_K=128)
    return y, rms, peak


def main(m: int = 37, k: int = 1000) -> None:
    """Run it and compare with torch."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, w = torch.randn(m, k, device=device), torch.randn(k, device=device)
    y, rms, peak = statistics(x, w)
    torch.testing.assert_close(y, x * w)
    torch.testing.assert_close(rms, (x.double().square().mean(1) + 1e-6).sqrt().float())
    assert torch.equal(peak, x.abs().amax(1))
    print(f"[{m}, {k}] on {device}: rms {rms.mean():.4f} on average, peak {peak.max():.4f}; all as torch has them")


if __name__ == "__main__":
    main()
