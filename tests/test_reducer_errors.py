"""Every misuse of a reducer is its own error, which says what was done, what state it met and what to do; and it changes nothing."""

import copy
import gc
import pickle
import warnings

import numpy as np
import pytest
import torch

import tri_reduce
from tri_reduce import Reducer

READS = {
    "value": lambda r: r.value,
    "float": float,
    "int": int,
    "bool": bool,
    "add": lambda r: r + 1,
    "radd": lambda r: 1 + r,
    "neg": lambda r: -r,
    "less": lambda r: r < 1,
    "equal": lambda r: r == 1,
    "tensor radd": lambda r: torch.ones(3) + r,
    "torch function": lambda r: torch.add(r, 1),
    "as_tensor": torch.as_tensor,
    "tensor": torch.tensor,
    "asarray": np.asarray,
    "index": lambda r: r[0],
    "iteration": list,
    "len": len,
    "in": lambda r: 1 in r,
}
STORES = {
    "item": lambda r: r.__setitem__(0, 1.0),
    "value": lambda r: setattr(r, "value", 1.0),
    "iadd": lambda r: r.__iadd__(1),
    "imul": lambda r: r.__imul__(1),
}


def active(op="sum", shape=(3,), dtype=torch.float32, device="cpu", updates=1, **options):
    r = Reducer(op, shape, dtype, device, **options)
    for _ in range(updates):
        r.update(torch.ones(2, *shape, dtype=dtype, device=device))
    return r


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_before_finalize(read, device):
    r = active(device=device)
    with pytest.raises(tri_reduce.ReadBeforeFinalizeError, match=r"(?s)active.*finalize\(\)"):
        read(r)
    assert r.finalize().tolist() == [2.0] * 3


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_storing(store, device):
    r = active(device=device)
    with pytest.raises(tri_reduce.ReducerError, match=r"update\(\)"):
        store(r)
    assert r.finalize().tolist() == [2.0] * 3
    with pytest.raises(tri_reduce.ReducerError):
        store(r)


def test_after_finalize_it_reads_as_its_result(device):
    r = active(shape=(), device=device)
    r.finalize()
    assert r.value.item() == float(r) == 2.0 and (r + 1).item() == 3.0 and torch.add(r, 1).item() == 3.0 and bool(r < 3)


def test_update_and_merge_after_finalize(device):
    r = active(device=device)
    r.finalize()
    for misuse in (lambda: r.update(torch.ones(2, 3, device=device)), lambda: r.merge(active(device=device, updates=0))):
        with pytest.raises(tri_reduce.UpdateAfterFinalizeError, match=r"(?s)finalized.*reset\(\)"):
            misuse()
    with pytest.raises(tri_reduce.UpdateAfterFinalizeError, match="finalized"):
        active(device=device, updates=0).merge(r)
    assert r.value.tolist() == [2.0] * 3


def test_second_finalize(device):
    r = active(device=device)
    r.finalize()
    with pytest.raises(tri_reduce.DoubleFinalizeError, match=r"\.value"):
        r.finalize()


def test_a_consumed_reducer(device):
    a, b = active(device=device), active(device=device)
    a.merge(b)
    with pytest.raises(tri_reduce.UpdateAfterFinalizeError, match="consumed"):
        b.update(torch.ones(2, 3, device=device))
    with pytest.raises(tri_reduce.UpdateAfterFinalizeError, match="consumed"):
        a.merge(b)
    with pytest.raises(tri_reduce.ReducerError, match="merge") as caught:
        b.finalize()
    assert not isinstance(caught.value, tri_reduce.DoubleFinalizeError)
    with pytest.raises(tri_reduce.ReadBeforeFinalizeError, match="merged"):
        b.value  # noqa: B018
    assert a.finalize().tolist() == [4.0] * 3


def test_lost_updates_are_warned_of_with_the_line_that_made_the_reducer(device):
    with pytest.warns(ResourceWarning, match=r"test_reducer_errors\.py:\d+.*1 updates"):
        active(device=device)
        gc.collect()


def test_nothing_is_warned_of_where_nothing_is_lost(device):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        merged, whole, fresh = active(device=device), active(device=device), active(device=device)
        whole.merge(merged)
        whole.finalize()
        fresh.reset()
        active(device=device, updates=0)
        del merged, whole, fresh
        gc.collect()


@pytest.mark.parametrize("shape, dim", [((2, 4), None), ((3,), 0), ((2, 3, 3), 0), ((3, 2), 0), ((), None)])
def test_values_whose_reduced_shape_is_another(shape, dim, device):
    r = active(device=device)
    with pytest.raises(tri_reduce.ReducerShapeError) as caught:
        r.update(torch.ones(shape, device=device), dim)
    assert str(tuple(shape)) in str(caught.value) and "(3,)" in str(caught.value)
    assert r.finalize().tolist() == [2.0] * 3


@pytest.mark.parametrize("mine, theirs", [
    (torch.float32, torch.float64), (torch.int32, torch.int64), (torch.int32, torch.float16), (torch.float16, torch.bfloat16),
    (torch.uint8, torch.int8), (torch.float32, torch.complex64),
])  # fmt: skip
def test_values_that_cannot_join_without_loss(mine, theirs, device):
    r = Reducer("sum", (), mine, device)
    with pytest.raises(tri_reduce.ReducerDtypeError, match=str(theirs).removeprefix("torch.")):
        r.update(torch.ones(2, dtype=theirs, device=device))
    assert r.finalize().item() == 0


def test_masks_and_indices_of_other_types_and_shapes(device):
    r, x = active(device=device), torch.ones(2, 3, device=device)
    for wrong in (torch.ones(2, 3, device=device), [True]):
        with pytest.raises(tri_reduce.ReducerDtypeError, match="bool"):
            r.update(x, where=wrong)
    with pytest.raises(tri_reduce.ReducerShapeError, match=r"\(4, 3\)"):
        r.update(x, where=torch.ones(4, 3, dtype=torch.bool, device=device))
    flat = torch.ones(5, device=device)
    for wrong in (torch.zeros(5, device=device), torch.zeros(5, dtype=torch.bool, device=device)):
        with pytest.raises(tri_reduce.ReducerDtypeError, match="int32 or int64"):
            r.update(flat, index=wrong)
    for values, index in ((flat, 4), (x, 2)):
        with pytest.raises(tri_reduce.ReducerShapeError):
            r.update(values, index=torch.zeros(index, dtype=torch.int64, device=device))
    assert r.finalize().tolist() == [2.0] * 3


@pytest.mark.parametrize("other, word", [
    (dict(op="max"), "op"), (dict(shape=(4,)), "shape"), (dict(dtype=torch.float64), "dtype"), (dict(initial=5.0), "seed"),
])  # fmt: skip
def test_merges_of_two_kinds(other, word, device):
    a, b = active(device=device, initial=1.0), active(device=device, **other)
    with pytest.raises(tri_reduce.ReducerMergeError, match=word):
        a.merge(b)
    assert a.finalize().tolist() == [3.0] * 3
    b.finalize()


@pytest.mark.parametrize("op, option", [("var", {"correction": 0}), ("norm", {"ord": 1})])
def test_merges_of_two_options(op, option, device):
    with pytest.raises(tri_reduce.ReducerMergeError, match="correction or ord"):
        active(op, device=device, updates=0).merge(active(op, device=device, updates=0, **option))


def test_a_merge_with_itself(device):
    r = active(device=device)
    with pytest.raises(tri_reduce.ReducerMergeError, match="itself"):
        r.merge(r)
    assert r.finalize().tolist() == [2.0] * 3


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copies(duplicate, device):
    r = active(device=device)
    with pytest.raises(tri_reduce.ReducerError, match="state_dict"):
        duplicate(r)
    r.finalize()


def test_a_position_is_asked_for_from_the_second_update_on(device):
    r = Reducer("argmax", (), torch.float32, device)
    r.update(torch.ones(3, device=device))
    with pytest.raises(tri_reduce.ReducerError, match="offset="):
        r.update(torch.ones(3, device=device))
    for wrong in (-1, 1.5, True):
        with pytest.raises(tri_reduce.ReducerError, match="offset"):
            r.update(torch.ones(3, device=device), offset=wrong)
    with pytest.raises(tri_reduce.ReducerError, match="offset"):
        active(device=device, updates=0).update(torch.ones(2, 3, device=device), offset=0)
    assert r.finalize().item() == 0


@pytest.mark.parametrize("make, error, word", [
    (lambda: Reducer("summ", (), torch.float32), ValueError, "abs_max"),
    (lambda: Reducer("sum", (), torch.float32, determinism="always"), ValueError, "run_to_run, invariant, none"),
    (lambda: Reducer("mean", (), torch.float32, initial=1.0), ValueError, "initial"),
    (lambda: Reducer("mean", (), torch.int64), TypeError, "floating"),
    (lambda: Reducer("logsumexp", (), torch.int64), TypeError, "floating"),
    (lambda: Reducer("xor", (), torch.float32), TypeError, "bitwise"),
    (lambda: Reducer("sum", (), torch.complex64), TypeError, "complex"),
    (lambda: Reducer("sum", (-1,), torch.float32), ValueError, "shape"),
    (lambda: Reducer([], (), torch.float32), ValueError, "op"),
])  # fmt: skip
def test_a_reducer_that_cannot_be(make, error, word):
    with pytest.raises(error, match=word):
        make()


def test_repr_is_never_an_error(device):
    r, other = active(device=device), active(device=device)
    seen = [repr(r)]
    r.merge(other)
    seen.append(repr(other))
    r.finalize()
    assert [word in text for word, text in zip(("active", "consumed", "finalized"), [*seen, repr(r)], strict=True)] == [True] * 3


def test_every_error_is_a_reducer_error():
    names = (
        "ReadBeforeFinalize",
        "UpdateAfterFinalize",
        "DoubleFinalize",
        "ReducerShape",
        "ReducerDtype",
        "ReducerMerge",
        "CollectiveMismatch",
    )
    assert issubclass(tri_reduce.ReducerError, RuntimeError)
    assert all(issubclass(getattr(tri_reduce, f"{name}Error"), tri_reduce.ReducerError) for name in names)
