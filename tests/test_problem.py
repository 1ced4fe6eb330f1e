"""`problem`: axes visit exactly the elements that the tensor's own dims do, and they are as few as the strides allow."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tri_reduce import dtypes
from tri_reduce.problem import Axis, Problem, coalesce, contiguous_strides, describe, of_strides

FP32 = dtypes.named("fp32")
SIZES = (0, 1, 2, 3)


def offsets(sizes, strides):
    """[elements, operands]: where each element lies, straight from the definition, in any order."""
    where = np.indices(tuple(sizes), dtype=np.int64).reshape(len(sizes), math.prod(sizes))
    return np.stack([(np.array(s, np.int64).reshape(len(sizes), 1) * where).sum(0) for s in strides], 1)


def visited(axes):
    return offsets([a.size for a in axes], list(zip(*(a.strides for a in axes))))


def in_order(table):
    return table[np.lexsort(table.T)]


def same_elements(axes, sizes, strides):
    return np.array_equal(in_order(visited(axes)), in_order(offsets(sizes, strides)))


def merged_in_order(axes):
    count, last = 0, None
    for size, strides in axes:
        count += last is None or any(o != i * size for o, i in zip(last, strides))
        last = strides
    return count


def fewest(sizes, strides):
    """By trying every order."""
    if 0 in sizes:
        return 1
    axes = [(n, tuple(s[d] for s in strides)) for d, n in enumerate(sizes) if n != 1]
    return max(1, min(merged_in_order(p) for p in itertools.permutations(axes)))


def views(sizes):
    """Strides of every permutation, with every other element of one dim or none, with any dims expanded."""
    n = len(sizes)
    found = set()
    for perm, stepped in itertools.product(itertools.permutations(range(n)), range(-1, n)):
        base = contiguous_strides([max(sizes[p], 1) * (1 + (p == stepped)) for p in perm])
        strides = [base[perm.index(d)] * (1 + (d == stepped)) for d in range(n)]
        for flat in itertools.product((False, True), repeat=n):
            found.add(tuple(0 if f else s for f, s in zip(flat, strides)))
    return sorted(found)


@pytest.mark.parametrize("ndim", range(5))
def test_every_small_view_is_covered_once_by_the_fewest_axes(ndim):
    for sizes in itertools.product(SIZES, repeat=ndim):
        for strides in views(sizes)[:: 20 if 0 in sizes else 1]:
            axes = coalesce(sizes, [strides])
            assert same_elements(axes, sizes, [strides]), (sizes, strides, axes)
            assert len(axes) == fewest(sizes, [strides]), (sizes, strides, axes)
            assert all(a.size != 1 for a in axes) or axes == (Axis(1, (0,)),)


@pytest.mark.parametrize("ndim", range(4))
def test_every_pair_of_small_views_is_walked_in_step_by_the_fewest_axes(ndim):
    for sizes in itertools.product((1, 2, 3), repeat=ndim):
        all_views = views(sizes)
        for n, strides in enumerate(itertools.product(all_views, all_views[:: max(1, len(all_views) // 6)])):
            if n % 5 and ndim == 3:
                continue
            axes = coalesce(sizes, strides)
            assert same_elements(axes, sizes, strides), (sizes, strides, axes)
            assert len(axes) == fewest(sizes, strides), (sizes, strides, axes)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_every_small_reduction_visits_its_elements_mask_outputs_and_positions(indexed, masked):
    for sizes in itertools.product((0, 1, 2, 3), (1, 3), (2, 3), (1, 2)):
        for n, strides in enumerate(views(sizes)):
            dims = [d for d in range(4) if (n * 7 + sizes[0]) >> d & 1]
            where = tuple(s * (d % 2) for d, s in enumerate(contiguous_strides(sizes))) if masked else None
            p = of_strides("sum", FP32, sizes, dims, strides, where, None, indexed=indexed)
            verify(p, sizes, dims, strides, where, None, indexed)


def verify(p, sizes, dims, strides, where, out, indexed=False):
    """Against torch-free first principles: kept (input, mask, output) and reduced (input, mask, position) offsets."""
    kept = [d for d in range(len(sizes)) if d not in dims]
    mask = where or (0,) * len(sizes)
    out = out or contiguous_strides([sizes[d] for d in kept])
    pick = lambda s, of: [s[d] for d in of]  # noqa: E731
    assert same_elements(p.kept, pick(sizes, kept), [pick(strides, kept), pick(mask, kept), out]), p
    order = contiguous_strides(pick(sizes, dims)) if indexed else [0] * len(dims)
    assert same_elements(p.reduced, pick(sizes, dims), [pick(strides, dims), pick(mask, dims), order]), p
    assert (p.xnumel, p.rnumel) == (math.prod(pick(sizes, kept)), math.prod(pick(sizes, dims)))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_larger_reductions_of_any_strides_visit_their_elements(data):
    n = data.draw(st.integers(0, 5))
    sizes = data.draw(st.lists(st.integers(1, 7), min_size=n, max_size=n))
    some = st.lists(st.sampled_from((0, 1, 2, 3, 5, 8, 21, 64, 105, 2**31, 2**33 + 1)), min_size=n, max_size=n)
    strides, where = data.draw(some), data.draw(st.none() | some)
    dims = sorted(data.draw(st.sets(st.integers(0, n - 1)))) if n else []
    out = data.draw(st.lists(st.integers(1, 2**32), min_size=n - len(dims), max_size=n - len(dims)))
    indexed = data.draw(st.booleans())
    verify(of_strides("sum", FP32, sizes, dims, strides, where, out, indexed=indexed), sizes, dims, strides, where, out, indexed)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.permutations(range(4)), st.lists(st.integers(1, 9), min_size=4, max_size=4), st.sets(st.integers(0, 3)))
def test_torchs_own_views_visit_their_elements(perm, sizes, dims):
    x = torch.empty(sizes).permute(perm)[::2].transpose(0, 3)
    dims = sorted(dims)
    verify(of_strides("sum", FP32, x.shape, dims, x.stride(), None, None), tuple(x.shape), dims, x.stride(), None, None)


def test_positions_keep_apart_axes_whose_order_in_memory_is_not_the_logical_one():
    strides = (1, 4)  # of [4, 6], the second dim outermost in memory
    assert len(of_strides("sum", FP32, (4, 6), (0, 1), strides, None, None).reduced) == 1
    p = of_strides("argmax", FP32, (4, 6), (0, 1), strides, None, None, indexed=True)
    assert p.reduced == (Axis(6, (4, 0, 1)), Axis(4, (1, 0, 6)))


def test_an_expanded_reduced_axis_is_dropped_only_where_repetition_changes_nothing():
    expanded = dict(sizes=(5, 7), dims=(0,), strides=(0, 1), out=None)
    assert of_strides("sum", FP32, where=None, **expanded).rnumel == 5
    assert of_strides("max", FP32, where=None, idempotent=True, **expanded).rnumel == 1
    assert of_strides("max", FP32, where=(0, 1), idempotent=True, **expanded).rnumel == 1
    assert of_strides("max", FP32, where=(1, 0), idempotent=True, **expanded).rnumel == 5  # the mask tells them apart
    assert of_strides("argmax", FP32, where=None, idempotent=True, indexed=True, **expanded).rnumel == 5
    assert of_strides("max", FP32, (0, 7), (0,), (0, 1), None, None, idempotent=True).rnumel == 0  # none stay none
    assert of_strides("max", FP32, (5, 7), (1,), (1, 0), None, None, idempotent=True).xnumel == 5
    assert of_strides("max", FP32, (5, 7), (0, 1), (1, 0), None, None, idempotent=True).rnumel == 5


def test_the_contiguous_axis_is_innermost_wherever_it_stood():
    for perm in itertools.permutations(range(3)):
        x = torch.empty(4, 5, 6)[:, :, :3].permute(perm)
        assert coalesce(x.shape, [x.stride()])[-1].strides[0] == 1


def test_a_layout_is_named_after_the_axis_that_is_contiguous():
    def layout(sizes, strides, dims):
        return of_strides("sum", FP32, sizes, dims, strides, None, None).layout

    assert layout((4, 8), (8, 1), [1]) == layout((4, 8), (9, 1), [1]) == layout((4, 8), (1, 4), [0]) == "rows"
    assert layout((4, 8), (8, 1), [0]) == layout((4, 8), (1, 4), [1]) == "columns"
    assert layout((4, 8), (16, 2), [1]) == layout((4, 8), (0, 0), [1]) == layout((1, 1), (1, 1), [1]) == "strided"
    assert layout((4, 1), (1, 1), [1]) == "columns"  # an axis of one element is none
    assert layout((), (), []) == "strided"


def rows(row_stride, shift=0, dtype="fp32", n=64):
    return of_strides("sum", dtypes.named(dtype), (6, n), [1], (row_stride, 1), None, None, shift=shift)


def columns(row_stride, shift=0, dtype="fp32", n=64):
    return of_strides("sum", dtypes.named(dtype), (6, n), [0], (row_stride, 1), None, None, shift=shift)


@pytest.mark.parametrize("dtype, vector", [("fp64", 2), ("fp32", 4), ("bf16", 8), ("i8", 16)])
def test_rows_are_aligned_where_each_starts_on_sixteen_bytes(dtype, vector):
    assert rows(64, dtype=dtype).vector == vector
    for stride, shift in itertools.product(range(64, 64 + 2 * vector), range(vector)):
        p = rows(stride, shift, dtype)
        starts = [shift + k * stride for k in range(6)]
        common = next(a for a in (16, 8, 4, 2, 1) if a <= vector and all(s % a == 0 for s in starts))
        assert p.row_alignment == common and p.aligned_rows == all(s % vector == 0 for s in starts)
        assert columns(stride, shift, dtype).column_vector == (vector if common == vector else 1)


def test_columns_are_read_in_vectors_only_where_none_crosses_into_the_next_row():
    assert columns(64, n=61).column_vector == 4  # one row of outputs: its last vector is read whole
    for inner, want in ((60, 4), (61, 1), (62, 1)):
        assert of_strides("sum", FP32, (3, 6, inner), [1], (640, 64, 1), None, None).column_vector == want
    assert rows(64).column_vector == 1


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(1, 2**33), st.integers(1, 2**33), st.integers(0, 2**33), st.integers(0, 2**33), st.booleans(), st.integers(0, 15))
def test_offsets_are_wide_wherever_one_may_pass_two_to_the_31(kept, reduced, k_stride, r_stride, second, shift):
    axes = [Axis(kept, (0, k_stride, 0) if second else (k_stride, 0, 0))], [Axis(reduced, (0, r_stride, 0) if second else (r_stride, 0, 0))]
    p = Problem("sum", FP32, tuple(axes[0]), tuple(axes[1]), shift)
    far = max((kept - 1) * k_stride + (reduced - 1) * r_stride + shift, kept, reduced)
    if far >= 2**31 - 2**20:  # and the lanes of the last tile beyond it
        assert p.wide
    if far < 2**30:
        assert not p.wide


def test_each_operand_alone_can_need_wide_offsets():
    far = 2**31
    for operand in range(4):
        strides = tuple(far * (o == operand) for o in range(4))
        assert Problem("gemv", FP32, (Axis(2, strides),), (Axis(3, (1, 1)),)).wide
    for operand in range(3):
        assert Problem("sum", FP32, (Axis(2, (1, 0, 1)),), (Axis(2, tuple(far * (o == operand) for o in range(3))),)).wide


def test_describing_what_is_no_problem_is_an_error_that_names_it():
    for bad in ((-1, 3), (2.0, 3), (None,), ("4",)):
        with pytest.raises(ValueError, match="shape"):
            describe("sum", bad)
    with pytest.raises(ValueError, match=r"median.*sum"):
        describe("median", (2, 3))
    with pytest.raises(ValueError, match=r"fp31.*fp32"):
        describe("sum", (2, 3), 1, "fp31")
    with pytest.raises(TypeError, match="complex"):
        describe("sum", (2, 3), 1, torch.complex64)
    with pytest.raises(ValueError, match=r"\(M, K\)"):
        describe("gemv", (2, 3, 4))
    for dim in (2, -3, (0, 2), [5]):
        with pytest.raises(IndexError, match="out of range"):
            describe("sum", (2, 3), dim)


def test_a_described_problem_is_the_one_that_the_shape_makes():
    p = describe("sum", (32, 64, 7, 7), (0, 2, 3), "bf16")
    assert (p.xnumel, p.rnumel, p.layout, p.nbytes) == (64, 32 * 49, "rows", 2 * 32 * 64 * 49)
    assert describe("sum", (), None).rnumel == describe("sum", (), 0).rnumel == 1
    assert describe("sum", (4, 5), ()).rnumel == describe("sum", (4, 5), None).rnumel == 20
    assert describe("sum", (4, 0)).rnumel == 0 and describe("sum", (0, 4)).xnumel == 0
    for trans, layout, outputs in ((False, "rows", 30), (True, "columns", 50)):
        g = describe("gemv", (30, 50), trans=trans)
        assert (g.layout, g.xnumel, g.rnumel) == (layout, outputs, 1500 // outputs)
