"""The problems whose kernels are compiled for Ascend: what the published report measured, what networks reduce, and edges."""

import itertools

REPORT = [(64, 401408), (65536, 49), (2048, 768)]  # outputs, contributions: the three worked calls
# Bias and batch-norm gradients of ResNet-18/50: (N, C, H, W) over (0, 2, 3).
RESNET = [
    (32, 64, 112, 112), (32, 64, 56, 56), (32, 256, 56, 56), (32, 128, 28, 28), (32, 512, 28, 28), (32, 256, 14, 14), (32, 1024, 14, 14),
    (32, 512, 7, 7), (32, 2048, 7, 7),
]  # fmt: skip
# Rows of hidden states, attention and vocabularies.
ROWS = [
    (8192, 50257), (4096, 32000), (2048, 128256), (8192, 4096), (16384, 768), (32768, 1024), (4096, 11008), (512, 14336), (131072, 128),
    (65536, 64), (1000000, 8), (1, 16777216), (7, 3), (1, 1), (100000, 1), (3, 65537), (4194304, 4), (49152, 512),
]  # fmt: skip
COLUMNS = [(8192, 4096), (16384, 768), (32768, 1024), (1048576, 8), (65536, 3), (401408, 64), (256, 50257)]
GEMV = [(4096, 4096, False), (4096, 4096, True), (11008, 4096, False), (4096, 11008, True), (32000, 4096, False), (1, 65536, False),
        (1024, 4095, False), (17, 33, True)]  # fmt: skip
FLOATS = ("fp32", "bf16", "fp16")
INTS = ("i32", "i8", "u8", "bool")
NO_FLOATS = ("and", "or", "xor")
NO_INTS = ("prod", "logsumexp")


def shapes() -> list[tuple[tuple[int, ...], object]]:
    """(shape, dim) of every reduction."""
    found: list[tuple[tuple[int, ...], object]] = [((x, r), 1) for x, r in REPORT + ROWS]
    return found + [(s, (0, 2, 3)) for s in RESNET] + [(s, (2, 3)) for s in RESNET] + [(s, 0) for s in COLUMNS] + [((64, 300, 96), 1)]


def takes(op: str, dtype: str, dim: object) -> bool:
    """Ascend runs the op on such values."""
    from tri_reduce import MONOIDS

    if op in ("argmax", "argmin") and isinstance(dim, tuple):
        return False
    return op not in NO_FLOATS if dtype in FLOATS else op not in NO_INTS and not MONOIDS[op].floats_only


def problems(every: bool = False) -> list[tuple[object, ...]]:
    """As `verify.library_kernels` takes them: every op with every dtype, every shape with a sum and another op in turn;
    with `every`, all of all.
    """
    from tri_reduce import MONOIDS

    dtypes, found = (*FLOATS, *INTS), []
    if every:
        found = [(op, s, d, dtype) for s, d in shapes() for op in MONOIDS for dtype in dtypes if takes(op, dtype, d)]
    else:
        few = itertools.cycle([((65536, 49), 1), ((4096, 4000), 1), ((8192, 4096), 0)])
        found = [(op, *next(few), dtype) for op in MONOIDS for dtype in dtypes if takes(op, dtype, 0)]
        turns = itertools.cycle([op for op in MONOIDS if op not in NO_FLOATS])
        for (s, d), dtype in zip(shapes(), itertools.cycle(FLOATS)):
            found += [(op, s, d, dtype) for op in ("sum", next(turns)) if takes(op, dtype, d)]
    return found + [("gemv", (m, k), trans, dtype) for m, k, trans in GEMV for dtype in (*FLOATS, "i8")]
