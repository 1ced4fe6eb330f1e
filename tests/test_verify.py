"""assert_deferred tells a kernel that folds per tile from one that defers, and says where; library_kernels lists all that is launched."""

import inspect
import re

import kernels_to_verify as kernels
import pytest
import triton

import tri_reduce
from tri_reduce import configs, targets, verify

COMPILES = not targets.interpreting()
needs_compiler = pytest.mark.skipif(
    not COMPILES, reason="kernels are interpreted in this process: the run without TRITON_INTERPRET compiles"
)
SIGNATURE = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}


def check(kernel, **options):
    return verify.assert_deferred(kernel, SIGNATURE, {"BLOCK": 64}, **options)


def early_lines(*functions):
    """file.py:line of the lines that end in `# early`."""
    found = []
    for function in functions:
        lines, first = inspect.getsourcelines(function.fn)
        found += [f"kernels_to_verify.py:{first + n}" for n, line in enumerate(lines) if line.rstrip().endswith("# early")]
    return found


@needs_compiler
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("deferred", 1), ("persistent", 1), ("queue", 1), ("noinline_after", 1), ("noinline_rows", 1), ("early_return", 2),
        ("ordinary_write", 1), ("unrolled", 4),
    ],
)  # fmt: skip
def test_a_kernel_that_defers_passes_with_its_number_of_reductions(name, count):
    assert check(getattr(kernels, f"{name}_kernel"), num_reduce=count) == count


@needs_compiler
@pytest.mark.parametrize(
    ("name", "helper"),
    [
        ("per_tile", None), ("per_tile_by_language", None), ("while", None), ("atomic", None), ("in_memory", None),
        ("persistent_per_tile", None), ("conditional", None), ("noinline", "fold_tile"), ("noinline_store", "fold_and_store"),
    ],
)  # fmt: skip
def test_a_fold_inside_a_loop_over_the_reduced_axis_is_refused_with_its_line(name, helper):
    kernel = getattr(kernels, f"{name}_kernel")
    with pytest.raises(verify.NotDeferredError) as error:
        check(kernel)
    (line,) = early_lines(getattr(kernels, helper) if helper else kernel)
    assert re.search(rf"{re.escape(line)}\b", str(error.value)), error.value
    assert isinstance(error.value, AssertionError) and kernel.__name__ in str(error.value)


@needs_compiler
def test_another_number_of_reductions_than_asked_is_refused_with_the_line_of_each():
    with pytest.raises(verify.NotDeferredError, match=r"unrolled_kernel has 4 tt\.reduce, not 1") as error:
        check(kernels.unrolled_kernel, num_reduce=1)
    assert str(error.value).count("kernels_to_verify.py:") == 4


@needs_compiler
@pytest.mark.parametrize("target", ["cuda:80", "cuda:86", "cuda:100", "hip:gfx942"])
def test_the_proof_needs_no_gpu_of_any_target(target):
    assert check(kernels.deferred_kernel, target=target, options={"num_warps": 2}, attrs={(0,): [["tt.divisibility", 16]]}) == 1
    with pytest.raises(verify.NotDeferredError):
        check(kernels.per_tile_kernel, target=target)


@needs_compiler
def test_a_tuned_kernel_is_looked_at_like_any_other():
    assert check(triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=[])(kernels.deferred_kernel)) == 1
    with pytest.raises(verify.NotDeferredError, match="per_tile_kernel folds"):
        check(triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=[])(kernels.per_tile_kernel))


@needs_compiler
def test_what_cannot_be_compiled_is_named():
    with pytest.raises(ValueError, match="neither signature nor constexprs has n"):
        verify.assert_deferred(kernels.deferred_kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, {"BLOCK": 64})
    with pytest.raises(ValueError, match="unknown target 'tpu'"):
        check(kernels.deferred_kernel, target="tpu")
    with pytest.raises(RuntimeError, match=r"no backend for 'ascend'.*triton-ascend"):
        check(kernels.deferred_kernel, target="ascend")


@pytest.mark.skipif(COMPILES, reason="kernels are compiled in this process")
def test_interpreted_kernels_are_refused_with_the_remedy():
    with pytest.raises(RuntimeError, match="without TRITON_INTERPRET"):
        check(kernels.deferred_kernel)


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "ascend"])
def test_the_librarys_kernels_are_listed_by_unique_name_with_every_op(target):
    records = list(verify.library_kernels(target))
    assert len({r.name for r in records}) == len(records)
    assert {r.role for r in records} == {"main", "combine"}
    ops = {r.problem.op for r in records if r.role == "main"}
    assert ops == {*tri_reduce.MONOIDS, "gemv"}
    for r in records:
        assert r.fn.__name__.endswith("_kernel")
        assert set(r.signature) == set(r.fn.arg_names)
        assert {n for n, kind in r.signature.items() if kind == "constexpr"} == set(r.constexprs)


def test_a_problem_yields_one_main_record_for_each_candidate_best_first():
    problem = ("argmax", (64, 4096), 1, "bf16")
    records = [r for r in verify.library_kernels("cuda:90", problems=[problem]) if r.role == "main"]
    chosen = configs.select_configs(records[0].problem, "cuda:90")
    assert [(r.config.kwargs, r.config.num_warps) for r in records] == [(c.kwargs, c.num_warps) for c in chosen]
    for r in records:
        assert r.options == {"num_warps": r.config.num_warps}
        assert r.constexprs["XBLOCK"] == r.config.kwargs["XBLOCK"]
        assert r.num_reduce == (4 if r.config.kwargs["SPLIT"] > 1 else 2)


def test_repeated_problems_are_listed_once():
    problem = ("sum", (64, 64), 1, "fp32")
    assert [r.name for r in verify.library_kernels("cuda:90", problems=[problem] * 2)] == [
        r.name for r in verify.library_kernels("cuda:90", problems=[problem])
    ]
