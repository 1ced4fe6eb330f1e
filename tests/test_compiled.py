"""What the compiler makes of the kernels, for devices that need not be there: they fold outside their loops, spill nothing, read whole
vectors, and leave tiny rows to single threads. The first candidate of select_configs is judged, as it runs by default.
"""

import functools
import math
import os
import re
import subprocess
import tempfile
from collections import Counter

import pytest

from tri_reduce import MONOIDS, configs, dtypes, inventory, targets, verify
from tri_reduce.monoids import counted, lookup
from tri_reduce.problem import describe, of_strides
from tri_reduce.specialize import of_reduce

pytestmark = pytest.mark.skipif(targets.interpreting(), reason="interpreted in this process: the run without TRITON_INTERPRET compiles")
CUDA = ("cuda:80", "cuda:90", "cuda:100")
TARGETS = (*CUDA, "hip:gfx942")
STREAMED = ("sum", "argmax", "var", "logsumexp")  # arities 1 to 3, float and integer states


def strided(op, dtype, sizes, strides, dims=(1,), shift=0, where=None):
    monoid, kind = lookup(op), dtypes.named(dtype)
    arity = len(monoid.identity_for(kind.torch))
    return of_strides(op, kind, sizes, dims, strides, where, None, shift=shift, indexed=monoid.indexed, arity=arity)


@functools.cache
def first(problem, target):
    """The record that runs by default."""
    return next(inventory.library_kernels(target, problems=[problem]))


def prove(record, target):
    verify.assert_deferred(
        record.fn, record.signature, record.constexprs, target, num_reduce=record.num_reduce, attrs=record.attrs, options=record.options
    )


def binary(record, target):
    return verify.compile_kernel(record.fn, record.signature, record.constexprs, target, attrs=record.attrs, options=record.options)


def spilled(kernel):
    """Bytes of local memory of a thread."""
    if "amdgcn" in kernel.asm:
        return sum(int(re.search(rf"\.{n}: +(\d+)", kernel.asm["amdgcn"])[1]) for n in ("vgpr_spill_count", "private_segment_fixed_size"))
    import triton.backends.nvidia as nvidia

    tool = os.path.join(os.path.dirname(nvidia.__file__), "bin", "cuobjdump")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True).stdout
    return sum(int(re.search(rf"{n}:(\d+)", text)[1]) for n in ("STACK", "LOCAL"))


def streamed_loads(kernel):
    """{bytes: count} of the loads of the input: those that are evicted first."""
    loads = re.findall(r"ld\.global([\w.:]*?)(?:\.v(\d))?\.[bfsu](\d+)", kernel.asm["ptx"])
    return Counter(int(lanes or 1) * int(bits) // 8 for how, lanes, bits in loads if "evict_first" in how)


def shuffles(kernel):
    return len(re.findall(r"\b(?:shfl|redux)\.sync", kernel.asm["ptx"]))


@pytest.mark.parametrize("problem", inventory.PROBLEMS, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles_folds_once_and_spills_nothing(target, problem):
    record = first(problem, target)
    prove(record, target)
    assert spilled(binary(record, target)) == 0, record


@pytest.mark.parametrize("op", STREAMED)
@pytest.mark.parametrize("target", TARGETS)
def test_a_reducers_kernels_compile_fold_once_and_spill_nothing(target, op):
    records = [r for r in inventory.library_kernels(target, problems=[(op, (512, 768), 0, "fp32")]) if r.role == "combine"]
    assert {r.fn.__name__ for r in records} == {"reduce_kernel", "segment_kernel", "merge_kernel", "combine_kernel"}
    for record in records:
        prove(record, target)
        assert spilled(binary(record, target)) == 0, record


@pytest.mark.parametrize("op", STREAMED)
@pytest.mark.parametrize("dim", [0, 1])
def test_an_update_lets_the_next_begin_and_waits_before_it_touches_its_slots(op, dim):
    """Values are read before that wait, slots only after it, and by no other path than the second-level cache."""
    record = next(r for r in inventory.library_kernels("cuda:90", problems=[(op, (4096, 1024), dim, "fp32")]) if "update" in r.name)
    text = binary(record, "cuda:90").asm["ptx"]
    begins, waits = text.index("griddepcontrol.launch_dependents"), text.rindex("griddepcontrol.wait")
    assert (
        text.count("griddepcontrol.wait") == 2 and text.index("griddepcontrol.wait") < begins
    )  # for all before, where it follows no update
    reads, writes = ([m.start() for m in re.finditer(rf"{kind}\.global\S*", text)] for kind in ("ld", "st"))
    of_slots = [m.start() for m in re.finditer(r"ld\.global\.cg", text)]
    assert begins < reads[0] < waits < min(of_slots) and waits < min(writes)
    assert all(at < waits for at in set(reads) - set(of_slots))
    assert "griddepcontrol" not in binary(first((op, (4096, 1024), dim, "fp32"), "cuda:90"), "cuda:90").asm["ptx"]


@pytest.mark.parametrize("op", [op for op in MONOIDS if op not in STREAMED])
def test_the_kernels_of_every_reducer_fold_once(op):
    dtype = "i32" if MONOIDS[op].ints_only else "fp32"
    for record in inventory.library_kernels("cuda:90", problems=[(op, (64, 4096), 1, dtype)]):
        if record.role == "combine":
            prove(record, "cuda:90")


MANY = [("var", (4096, 768), 0, "bf16"), ("sum", (64, 401408), 1, "fp32"), ("gemv", (1000, 4096), True, "bf16")]


@pytest.mark.parametrize("problem", MANY, ids=str)
def test_every_candidate_compiles_and_folds_once(problem):
    records = [r for r in inventory.library_kernels("cuda:90", problems=[problem]) if r.role == "main"]
    assert len(records) > 1
    for record in records:
        prove(record, "cuda:90")


@pytest.mark.parametrize("dtype", ["bool", "u8", "i8", "i16", "i64", "fp16", "fp64"])
def test_every_dtype_compiles(dtype):
    for op in ("sum", "max", "argmin", "var") if dtypes.named(dtype).is_float else ("sum", "max", "argmin", "xor"):
        prove(first((op, (300, 1000), 1, dtype), "cuda:90"), "cuda:90")


@pytest.mark.parametrize("case", ["masked", "seeded", "accumulated", "wide", "deep", "invariant"])
def test_the_rarer_variants_compile_and_fold_once(case):
    sizes, strides, dims = (300, 3000), (3000, 1), (1,)
    if case == "wide":
        sizes, strides = (3, 2**31 + 5), (2**31 + 5, 1)
    elif case == "deep":
        sizes, strides, dims = (3, 4, 5, 6, 7, 8), (100000, 20000, 3000, 400, 50, 5), (1, 3, 5)
    for op in ("sum", "argmax", "logsumexp"):
        monoid = lookup(op)
        problem = strided(op, "bf16", sizes, strides, dims, where=strides if case == "masked" else None)
        op = (counted(monoid) if case == "masked" else monoid).device(problem.dtype.torch, problem.rnumel >= 2**31)
        tile = configs.canonical(problem, targets.H200) if case == "invariant" else configs.candidates(problem, targets.H200)[0]
        seed = 2.0 if case == "seeded" and monoid.seed else None
        out = dtypes.of(monoid.out_for(problem.dtype.torch))
        spec = of_reduce(problem, tile, op, out, seed=seed, seed_kind=monoid.seed, accumulate=case == "accumulated" and monoid.accumulates)
        signature, constexprs, options = dict(spec.signature), dict(spec.constexprs), {"num_warps": spec.warps}
        verify.assert_deferred(spec.fn, signature, constexprs, num_reduce=spec.num_reduce, attrs=spec.attrs, options=options)


ALIGNED = [("sum", (4096, 4096), 1, d) for d in ("fp32", "bf16", "fp64", "i8")] + [
    ("logsumexp", (4096, 4096), 1, "bf16"),
    ("argmax", (64, 401408), 1, "fp32"),
    ("var", (512, 1000), 1, "fp32"),
    ("sum", (4096, 4096), 0, "bf16"),
    ("sum", (32, 64, 56, 56), (0, 2, 3), "bf16"),
    ("gemv", (4096, 4096), False, "bf16"),
    ("gemv", (4096, 4096), True, "bf16"),
]
UNALIGNED = [
    ("sum", (8192, 50257), 1, "bf16"),
    ("argmax", (8192, 50257), 1, "bf16"),
    ("logsumexp", (512, 4097), 1, "fp32"),
    strided("sum", "fp32", (4096, 4097), (4099, 1)),
    strided("sum", "fp32", (4096, 4096), (4096, 1), shift=1),
    strided("max", "bf16", (4096, 1000), (1003, 1), shift=3),
]
PADDED = [strided("sum", "fp32", (4096, 1000), (1024, 1)), strided("sum", "bf16", (4096, 1001), (1024, 1))]


@pytest.mark.parametrize("problem", ALIGNED + PADDED + UNALIGNED, ids=lambda p: p if isinstance(p, str) else str(p)[:60])
@pytest.mark.parametrize("target", CUDA)
def test_contiguous_rows_are_read_16_bytes_at_a_time_whatever_their_stride(target, problem):
    record = first(problem, target)
    loads = streamed_loads(binary(record, target))
    assert loads and min(loads) >= 16, (record.config, loads)


@pytest.mark.parametrize("target", CUDA)
def test_gemv_reads_rows_that_start_anywhere_in_vectors_and_its_vector_by_elements(target):
    """8 bytes at least: lanes of 16 share less of the vector, which starts elsewhere in each row."""
    for shape in ((4096, 4095), (65536, 257)):
        loads = streamed_loads(binary(first(("gemv", shape, False, "bf16"), target), target))
        assert loads and min(loads) >= 8, loads


SLANTED = [
    describe("sum", (20011, 1543), 0, "bf16"),
    describe("mean", (15, 12202, 1191), 1, "fp16"),
    strided("max", "fp32", (300, 320, 1331), (400 * 1331, 1331, 1), (0, 1), shift=2),
    strided("min", "fp32", (30, 3200, 1331), (4000 * 1331 + 1, 1331, 1)),
    describe("gemv", (4096, 8191), None, "bf16", trans=True),
    *(describe(op, (8192, 4096), 0, dtype, start=3) for op, dtype in (("max", "i8"), ("argmax", "fp32"), ("var", "bf16"))),
]


@pytest.mark.parametrize("problem", SLANTED, ids=lambda p: f"{p.op} {p.dtype.name}")
@pytest.mark.parametrize("target", CUDA)
def test_columns_that_start_anywhere_are_read_as_wide_as_threads_hold_them(target, problem):
    records = [r for r in inventory.library_kernels(target, problems=[problem]) if r.role == "main" and r.constexprs["HOW"].slanted]
    assert records
    for record in records[:2]:
        prove(record, target)
        lanes, config = 1, record.config
        for block in ("XBLOCK", "R0_BLOCK", "R1_BLOCK"):
            lanes *= config.kwargs.get(block, 1)
        held = lanes // (32 * config.num_warps) * problem.dtype.itemsize
        assert min(streamed_loads(binary(record, target))) == min(16, held) > problem.dtype.itemsize, config


TINY = [(n, "fp32") for n in (1, 2, 3, 4)] + [(n, "bf16") for n in (1, 2, 3, 5, 7, 8)] + [(2, "fp64"), (3, "i32"), (15, "i8"), (16, "i8")]


@pytest.mark.parametrize(("n", "dtype"), TINY)
@pytest.mark.parametrize("op", ["sum", "max", "argmax"])
def test_no_lane_talks_to_another_about_rows_of_up_to_16_bytes(op, n, dtype):
    for problem in ((op, (100000, n), 1, dtype), strided(op, dtype, (100000, n), (n + 2, 1), shift=1)):
        assert shuffles(binary(first(problem, "cuda:90"), "cuda:90")) == 0, problem


@pytest.mark.parametrize(("n", "dtype"), [(n, "fp32") for n in (5, 7, 8, 12, 16, 17, 32, 49)] + [(n, "bf16") for n in (9, 16, 17, 49)])
def test_longer_tiny_rows_take_the_fewest_steps(n, dtype):
    """Threads that share a row meet in log2 of their number; a row shares no more threads than it may touch vectors."""
    record = first(("sum", (100000, n), 1, dtype), "cuda:90")
    kernel = binary(record, "cuda:90")
    size = dtypes.named(dtype).itemsize
    vectors = n * size // 16 if n * size % 16 == 0 else -(-(n * size + 16 - size) // 16)
    loads = streamed_loads(kernel)
    assert min(loads) >= 16
    assert shuffles(kernel) <= loads.total() * math.ceil(math.log2(vectors)), (record.config, loads)


@pytest.mark.parametrize("length", [8, 16, 31])
def test_sums_of_bytes_fold_in_32_bits(length):
    """Rows that lie within a thread, where nothing but our own doing keeps the compiler from folding in what results are kept in."""
    ptx = binary(first(describe("sum", (967741, length), 1, "i8"), "cuda:90"), "cuda:90").asm["ptx"]
    assert len(re.findall(r"\badd\.s32", ptx)) > 2 * len(re.findall(r"\badd\.s64", ptx))
