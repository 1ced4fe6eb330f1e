"""What a reducer holds between launches: slots that any plan may write, merges, epochs, checkpoints, tuning, segments, captured graphs."""

import io

import pytest
import torch
from devices import REFERENCE

import tri_reduce
from tri_reduce import Monoid, Reducer, autotune

NEEDS_KERNELS = pytest.mark.skipif(REFERENCE, reason="no plans without kernels")
LAYOUTS = {
    "rows": lambda x: x.contiguous(),
    "columns": lambda x: x.t().contiguous().t(),
    "expanded": lambda x: x[:, :1].expand_as(x),
    "stepped": lambda x: torch.stack([x, -x], -1)[..., 0],
    "reversed dims": lambda x: x.t().contiguous().reshape(x.shape[1], 1, -1).permute(2, 1, 0)[:, 0],
}


def ints(*shape, device="cpu", seed=0):
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).to(device)


def test_layouts_and_dims_mix_in_one_stream(device):
    r, want = Reducer("sum", (5, 3), torch.int64, device), torch.zeros(5, 3, dtype=torch.int64, device=device)
    for n, layout in enumerate(LAYOUTS.values()):
        x = layout(ints(40, 15, device=device, seed=n)).reshape(40, 5, 3)
        r.update(x)
        r.update(x.permute(1, 0, 2), dim=1)
        r.update(x.permute(1, 2, 0), dim=-1)
        want += 3 * x.sum(0)
    assert torch.equal(r.finalize(), want)


@NEEDS_KERNELS
@pytest.mark.parametrize("op", ["sum", "max", "var", "argmax"])
def test_plans_may_change_in_the_middle_of_a_stream(op, device):
    x = ints(96, 6, device=device).float()
    r, plain = Reducer(op, (6,), torch.float32, device), Reducer(op, (6,), torch.float32, device)
    plans = [
        dict(split=1),
        dict(split=3, config={"R0_BLOCK": 4, "XBLOCK": 2}),
        *(dict(regime=name) for name in ("rows", "columns", "strided")),
    ]
    plans.append(dict(split=2, config={"XBLOCK": 8, "R0_BLOCK": 4}))
    for n, plan in enumerate(plans):
        tile, at = x[16 * n : 16 * n + 16], {"offset": 16 * n} if op == "argmax" else {}
        with tri_reduce.force(**plan):
            r.update(tile, **at)
        plain.update(tile, **at)
    assert torch.allclose(r.finalize(), plain.finalize(), rtol=1e-6)


@NEEDS_KERNELS
@pytest.mark.parametrize("op", ["sum", "count_nonzero", "mean", "xor"])
def test_tuning_in_the_middle_of_a_stream_counts_nothing_twice(op, device):
    x = ints(300, 4, device=device).to(torch.int64 if op == "xor" else torch.float32)
    r, first = Reducer(op, (4,), x.dtype, device), autotune.stats()["tuned"] if hasattr(autotune, "stats") else None
    r.update(x[:100])
    with autotune.policy("tune"):
        r.update(x[100:201])  # tuned here
        r.update(x[201:202])
    r.update(x[202:])
    assert first is None or autotune.stats()["tuned"] > first
    assert torch.allclose(r.finalize().double(), tri_reduce.reduce(x, op, 0).double(), rtol=1e-6)


@NEEDS_KERNELS
def test_updates_allocate_nothing_and_slots_stay_where_they_are(device):
    r = Reducer("var", (7,), torch.float32, device)
    before = [s.data_ptr() for s in r._parts[0].states]
    for n in (1, 50, 3):
        r.update(torch.ones(n, 7, device=device))
    assert [s.data_ptr() for s in r._parts[0].states] == before
    r.finalize()


@pytest.mark.parametrize("op", ["sum", "prod", "max", "mean", "var", "logsumexp", "argmin", "any", "xor"])
def test_a_merge_adds_what_the_other_had(op, device):
    dtype = torch.int32 if op == "xor" else torch.float32
    x = ints(30, 3, device=device, seed=4).to(dtype).clamp(1, 3) if op == "prod" else ints(30, 3, device=device, seed=4).to(dtype)
    a, b = Reducer(op, (3,), dtype, device), Reducer(op, (3,), dtype, device)
    at = (lambda first: {"offset": first}) if op == "argmin" else lambda first: {}
    a.update(x[:11], **at(0))
    b.update(x[20:], **at(20))
    a.merge(b)
    a.update(x[11:20], **at(11))
    assert torch.allclose(a.finalize().double(), tri_reduce.reduce(x, op, 0).double(), rtol=1e-6)


@pytest.mark.parametrize("mine, theirs", [(5, None), (None, 5), (5, 5)])
def test_a_merge_keeps_the_seed_once(mine, theirs, device):
    a, b = Reducer("sum", (), torch.float32, device, initial=mine), Reducer("sum", (), torch.float32, device, initial=theirs)
    a.update(torch.ones(2, device=device))
    b.update(torch.ones(3, device=device))
    a.merge(b)
    assert a.finalize().item() == 10


def test_a_reset_starts_over_with_the_seed(device):
    r = Reducer("sum", (2,), torch.float32, device, initial=5)
    for epoch in range(3):
        r.update(torch.full((4, 2), float(epoch + 1), device=device))
        if epoch == 1:
            r.reset()  # unfinished: dropped
            r.update(torch.ones(1, 2, device=device))
        assert r.epoch == epoch + (epoch > 0) and r.finalize().tolist() == [[9.0, 9.0], [6.0, 6.0], [17.0, 17.0]][epoch]
        r.reset()


def saved_and_loaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("op", ["sum", "mean", "var", "argmax", "max", "logsumexp"])
def test_a_checkpoint_goes_on_with_the_same_bits(op, device):
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(2)).to(device)
    at = (lambda first: {"offset": first}) if op == "argmax" else lambda first: {}
    r, whole = Reducer(op, (3,), torch.float32, device), Reducer(op, (3,), torch.float32, device)
    whole.update(x[:40], **at(0))
    r.update(x[:40], **at(0))
    state = r.state_dict()
    r.update(x[40:], **at(40))  # does not change the snapshot
    r.finalize()
    resumed = Reducer(op, (3,), torch.float32, device)
    resumed.update(x[:5])  # replaced by the snapshot
    resumed.load_state_dict(saved_and_loaded(state))
    resumed.update(x[40:], **at(40))
    whole.update(x[40:], **at(40))
    assert torch.equal(resumed.finalize(), whole.finalize())


def test_a_checkpoint_keeps_seed_epoch_and_faults(device):
    r = Reducer("sum", (2,), torch.float32, device, initial=3)
    r.reset()
    r.update(torch.ones(2, device=device), index=torch.tensor([0, 9], device=device))
    other = Reducer("sum", (2,), torch.float32, device)
    other.load_state_dict(saved_and_loaded(r.state_dict()))
    r.reset()
    assert other.epoch == 1
    with pytest.raises(IndexError, match="index 9 at row 1 of update 1"):
        other.finalize()
    other.reset()
    assert other.finalize().tolist() == [3.0, 3.0]


def test_a_checkpoint_of_more_slots_can_be_loaded(device):
    state = Reducer("mean", (2,), torch.float32, device)
    state.update(torch.tensor([[1.0, 2.0], [3.0, 6.0]], device=device))
    saved = state.state_dict()
    state.finalize()
    fill = [torch.zeros_like(t[:1]).expand(7, -1) for t in saved["states"][0]]
    saved["states"][0] = [torch.cat([t, f]) for t, f in zip(saved["states"][0], fill, strict=True)]
    r = Reducer("mean", (2,), torch.float32, device)
    r.load_state_dict(saved)
    assert r.finalize().tolist() == [2.0, 4.0]


@pytest.mark.parametrize("other", [dict(op="max"), dict(shape=(3,)), dict(dtype=torch.float64), dict(initial=4)])
def test_a_checkpoint_of_another_kind_is_refused(other, device):
    make = dict(op="sum", shape=(2,), dtype=torch.float32, device=device, initial=3)
    r = Reducer(**(make | other))
    with pytest.raises(tri_reduce.ReducerError, match="load_state_dict"):
        r.load_state_dict(Reducer(**make).state_dict())
    for broken in ({}, None, {"format": 0}):
        with pytest.raises(tri_reduce.ReducerError, match="state_dict"):
            r.load_state_dict(broken)


def test_only_an_active_reducer_is_saved_or_loaded(device):
    r = Reducer("sum", (2,), torch.float32, device)
    state = r.state_dict()
    r.finalize()
    with pytest.raises(tri_reduce.ReducerError, match="finalized"):
        r.state_dict()
    with pytest.raises(tri_reduce.UpdateAfterFinalizeError, match="finalized"):
        r.load_state_dict(state)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 2, 3)])
def test_rows_go_where_their_index_says(kind, shape, device):
    x, index = (
        ints(200, *shape[1:], device=device),
        torch.randint(0, 6, (200,), generator=torch.Generator().manual_seed(1)).to(kind).to(device),
    )
    r = Reducer("sum", shape, torch.int64, device)
    r.update(x[:130], index=index[:130])
    r.update(x[130:].flip(0), index=index[130:].flip(0))
    assert torch.equal(r.finalize(), torch.zeros(shape, dtype=torch.int64, device=device).index_add(0, index, x))


def test_indexed_rows_of_any_layout_with_a_mask(device):
    x, where = ints(3, 90, device=device).t(), ints(90, 3, device=device, seed=7) > 0
    index = ints(180, device=device, seed=8).abs()[::2] % 4
    r = Reducer("sum", (4, 3), torch.int64, device)
    r.update(x, index=index, where=where)
    r.update(x, index=index, where=where[:, :1])
    want = torch.zeros(4, 3, dtype=torch.int64, device=device)
    want = want.index_add(0, index, x * where).index_add(0, index, x * where[:, :1])
    assert torch.equal(r.finalize(), want)


@pytest.mark.parametrize("bad", [6, -1, 2**31 - 1, -(2**31)])
def test_the_first_bad_index_is_named_and_nothing_is_written_outside(bad, device):
    r, x = Reducer("sum", (6,), torch.float32, device), torch.ones(50, device=device)
    index = torch.zeros(50, dtype=torch.int32, device=device)
    r.update(x, index=index)
    index[33], index[41] = bad, 77
    r.update(x, index=index)
    index[3] = 99
    r.update(x, index=index)  # later updates do not take the first one's place
    for _ in range(2):  # it stays active, and stays wrong
        with pytest.raises(IndexError, match=rf"index {bad} at row 33 of update 2 .*6 outputs"):
            r.finalize()
    assert "active" in repr(r)
    states = r._parts[0].states[0]
    assert states.sum().item() == 50 + 48 + 47 and states[:, 1:].sum().item() == 0
    r.reset()
    r.update(x, index=torch.full((50,), 5, device=device))
    assert r.finalize().tolist() == [0.0] * 5 + [50.0]


def test_a_bad_index_is_not_lost_in_a_merge(device):
    a, b = Reducer("sum", (2,), torch.float32, device), Reducer("sum", (2,), torch.float32, device)
    b.update(torch.ones(1, device=device), index=torch.tensor([5], device=device))
    a.merge(b)
    b.reset()
    assert b.finalize().tolist() == [0.0, 0.0]
    with pytest.raises(IndexError, match="index 5"):
        a.finalize()
    a.reset()


def test_a_monoid_of_ones_own_streams(device):
    built_in = tri_reduce.MONOIDS["sum_sq"]
    functions = (built_in.lift, built_in.combine, built_in.fold, built_in.finish)
    mine = Monoid("energy", built_in.identity, *functions, torch.float32, torch.float32,
                  reference=lambda x, dims: (x * x).sum(dims))  # fmt: skip
    x = ints(20, 3, device=device).float()
    r, other = Reducer(mine, (3,), torch.float32, device), Reducer(mine, (3,), torch.float32, device)
    r.update(x[:7], where=x[:7] > 0)
    other.update(x[7:])
    r.merge(other)
    again = Reducer(mine, (3,), torch.float32, device)
    again.load_state_dict(saved_and_loaded(r.state_dict()))
    r.reset()
    assert torch.allclose(again.finalize(), ((x[:7] * (x[:7] > 0)) ** 2).sum(0) + (x[7:] ** 2).sum(0))
