"""The published candidate formula for Ascend910B3: which (XBLOCK, R0_BLOCK) tiles a reduction kernel's autotuner should try.

Source: "Reduction autotune" RFC #3464 of the Ascend inductor project (2026-07-29), fitted on dense sweeps of 153 kernels; names and
constants are its own. By the reduced length the search space falls into three regimes, between which no measured kernel lies:

- HOLE (rnumel >= 50000): the Unified Buffer is full, so the best R0_BLOCK does not depend on rnumel: a fixed 4x4 grid.
- SMALL (rnumel <= 64): one tile holds the row (or the power of two above it); only XBLOCK is searched.
- MID: the product of a tile is about constant; a fitted split of it into X and R0 is the anchor, with a grid around it and columns that
  catch what the fit (R^2 = 0.62) misses.
"""

from __future__ import annotations

import math

_NPU_UB_CAPACITY_BYTES = 192 * 1024
NPU_CU_COUNT = 40
_NPU_UB_OVERHEAD_FACTOR = 2.0
HOLE_X = (1, 2, 4, 8)
HOLE_R = (512, 1024, 2048, 4096)
RN_HOLE = 50000
RN_SMALL = 64
SPLIT_INTERCEPT = -2.06
SPLIT_SLOPE = 0.59
FILL_X = 128  # the largest XBLOCK beside a tile that holds whole rows


def _p2floor(n: float) -> int:
    return 1 << math.floor(math.log2(n))


def _p2ceil(n: float) -> int:
    return 1 << math.ceil(math.log2(n))


def _p2round(n: float) -> int:
    """The nearest power of two, by its exponent; at least 1."""
    return 1 if n < 1 else 1 << round(math.log2(n))


def _dt_bytes(dtype: str, min_ptr_elem_bytes: int | None) -> int:
    return min_ptr_elem_bytes or (2 if dtype in ("bf16", "fp16", "f16") else 4)


def select_candidates(
    xnumel: int, rnumel: int, dtype: str, num_load: int, num_reduction: int, min_ptr_elem_bytes: int | None = None
) -> list[tuple[int, int]]:
    """The published list for a reduction kernel on Ascend910B3.

    Args:
        xnumel, rnumel: outputs, and contributions to each.
        dtype: "bf16", "fp16" (or "f16"): 2 bytes an element; anything else: 4.
        num_load, num_reduction: buffers that the kernel reads and reduces.
        min_ptr_elem_bytes: bytes of the smallest element a pointer of the kernel has, in place of the dtype's.

    Returns:
        (XBLOCK, R0_BLOCK) pairs, sorted, none twice: XBLOCK <= xnumel, R0_BLOCK at most the power of two above rnumel.

    Raises:
        ValueError: a size that is not a positive integer.

    Example:
        >>> select_candidates(64, 401408, "fp32", 1, 1)[:3]
        [(1, 512), (1, 1024), (1, 2048)]
    """
    for name, value in (("xnumel", xnumel), ("rnumel", rnumel), ("num_load", num_load), ("num_reduction", num_reduction)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"select_candidates: {name} must be a positive integer, got {value!r}")
    if min_ptr_elem_bytes is not None and min_ptr_elem_bytes < 0:
        raise ValueError(f"select_candidates: min_ptr_elem_bytes must not be negative, got {min_ptr_elem_bytes!r}")
    d = _dt_bytes(dtype, min_ptr_elem_bytes)
    x_cap = _p2floor(xnumel)
    P = 2048 if d <= 2 else 4096  # the product that 88% of the winners are within a step of
    if rnumel >= RN_HOLE:
        tiles = {(x, r) for x in HOLE_X for r in HOLE_R}
    elif rnumel <= RN_SMALL:
        pX = _p2round(P / rnumel)
        tiles = {(x, r) for x in {1, pX // 4, pX // 2, pX, pX * 2, pX * 4} if x <= x_cap for r in (rnumel, _p2ceil(rnumel))}
    else:
        buffers = num_load + num_reduction + 1
        tiles = _mid(xnumel, rnumel, P, x_cap, _NPU_UB_CAPACITY_BYTES / (d * buffers * _NPU_UB_OVERHEAD_FACTOR))
    return sorted((x, r) for x, r in tiles if x <= xnumel and r <= _p2ceil(rnumel))


def _mid(xnumel: int, rnumel: int, P: int, x_cap: int, ub_cap: float) -> set[tuple[int, int]]:
    rmax = _p2floor(min(rnumel, max(ub_cap, 1)))
    split = 2.0 ** (SPLIT_INTERCEPT + SPLIT_SLOPE * math.log2(xnumel / rnumel))
    pX = min(_p2round(math.sqrt(P * split)), x_cap)
    pR = min(_p2round(math.sqrt(P / split)), rmax)
    xs = {1, max(1, pX // 2), pX, min(pX * 2, x_cap), x_cap}
    rs = {max(1, pR // 2), pR, min(pR * 2, rmax)}
    tiles = {(x, r) for x in xs if 1 <= x <= x_cap for r in rs if 1 <= r <= rmax}
    tiles |= {(pX, r) for r in (pR // 4, pR // 8, 16, 32) if 1 <= r < pR and r <= rmax}  # P is too large a product where outputs are few
    if rnumel <= ub_cap:
        tiles |= {(1 << n, rnumel) for n in range(21) if 1 << n <= min(x_cap, FILL_X)}
    return tiles | {(x_cap, 2), (x_cap, min(rnumel, 8))}
