"""One collective over ranks for a finalize: the right result with the same bits everywhere, or the same error and nothing lost."""

import functools
import time

import pytest
import torch
import torch.distributed as dist
from ranks import results_of, run
from user_monoids import NOISY_OR

import tri_reduce
from tri_reduce import CollectiveMismatchError, Reducer, dtensors

OPS = (
    "sum",
    "max",
    "min",
    "prod",
    "mean",
    "var",
    "logsumexp",
    "norm",
    "any",
    "all",
    "xor",
    "argmax",
    "count_nonzero",
    "abs_max",
    ["sum", "max", "var"],
)


def tile_of(rank, op, dtype=torch.float32):
    x = torch.randn(5 + 2 * rank, 3, generator=torch.Generator().manual_seed(rank)) * 3
    return x.round().to(torch.int32) if op == "xor" else x.to(dtype)


def collectives_of(group):
    """How many collectives the group has begun."""
    return group._get_sequence_number_for_group()


def every_op(rank, world):
    group, found = dist.group.WORLD, []
    for op in OPS:
        x, dtype = tile_of(rank, op), torch.int32 if op == "xor" else torch.float32
        r = Reducer(op, (3,), dtype, initial=100.0 if op == "sum" else None)
        first = sum(len(tile_of(n, op)) for n in range(rank))
        r.update(x[:2], **({"offset": first} if op == "argmax" else {}))
        r.update(x[2:], **({"offset": first + 2} if op == "argmax" else {}))
        before = collectives_of(group)
        y = r.finalize(group=group)
        assert collectives_of(group) - before == 1
        found.append([t.tolist() for t in y] if isinstance(y, tuple) else y.tolist())
    return found


@pytest.mark.parametrize("world", [2, 4])
def test_every_op_over_ranks_in_one_collective_with_the_same_bits(world, ran):
    found = results_of(ran(world), every_op)
    assert all(f == found[0] for f in found)
    for op, got in zip(OPS, found[0], strict=True):
        whole = torch.cat([tile_of(n, op) for n in range(world)])
        many = tuple(tri_reduce.reduce(whole, o, 0) for o in (op if isinstance(op, list) else [op]))
        want = torch.stack([t.double() for t in many]) + (100.0 if op == "sum" else 0)
        assert torch.allclose(torch.tensor(got).double().reshape(want.shape), want, rtol=1e-5), op


def users_monoid(rank, world):
    r = Reducer(NOISY_OR, (3,), torch.float32)
    r.update(tile_of(rank, "users").sigmoid())
    before = collectives_of(dist.group.WORLD)
    y = r.finalize(group=dist.group.WORLD)
    return y.tolist(), collectives_of(dist.group.WORLD) - before


@pytest.mark.parametrize("world", [2, 4])
def test_a_users_monoid_over_ranks_with_uneven_streams(world, ran):
    found = results_of(ran(world), users_monoid)
    whole = torch.cat([tile_of(n, "users") for n in range(world)]).sigmoid()
    want = 1 - (1 - whole.double()).prod(0)
    for got, collectives in found:
        assert got == found[0][0] and collectives == 1
        assert torch.allclose(torch.tensor(got).double(), want, rtol=1e-5)


def specials(rank, world):
    nan, found = float("nan"), []
    for op in ("max", "min", "sum", "argmax"):
        r = Reducer(op, (3,), torch.float32)
        r.update(torch.tensor([[nan if rank == 1 else 1.0, -0.0, -float(rank)]]), **({"offset": rank} if op == "argmax" else {}))
        found.append(r.finalize(group=dist.group.WORLD).tolist())
    out = torch.zeros(3, 2, dtype=torch.float64)
    r = Reducer("mean", (3,), torch.float32)
    if rank == 0:
        r.update(torch.tensor([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]))  # the other rank has none
    r.finalize(out[:, 1], group=dist.group.WORLD)
    half = dist.new_group([0])
    if rank == 0:
        alone = Reducer("sum", (), torch.float32)
        alone.update(torch.ones(4))
        assert alone.finalize(group=half).item() == 4
    return found, out.tolist()


def test_nan_empty_ranks_strided_outs_and_subgroups(ran):
    a, b = results_of(ran(2), specials)
    assert repr(a) == repr(b)
    (most, least, total, where), out = a
    assert most[0] != most[0] and least[0] != least[0] and total[0] != total[0]
    assert most[1:] == [0.0, 0.0] and least[2] == -1.0 and where == [1, 0, 0]
    assert out == [[0.0, 3.0], [0.0, 4.0], [0.0, 5.0]]


def mismatches(rank, world):
    group, seen = dist.group.WORLD, []
    makes = {
        "op": lambda: Reducer("max" if rank == 1 else "sum", (3,), torch.float32),
        "shape": lambda: Reducer("sum", (4,) if rank == 1 else (3,), torch.float32),
        "dtype": lambda: Reducer("sum", (3,), torch.float64 if rank == 1 else torch.float32),
        "number of ops": lambda: Reducer(["sum", "max"] if rank == 1 else ["sum"], (3,), torch.float32),
        "options": lambda: Reducer("var", (3,), torch.float32, correction=rank),
        "seed": lambda: Reducer("sum", (3,), torch.float32, initial=float(rank)),
        "epoch": lambda: Reducer("mean", (3,), torch.float32),
        "out": lambda: Reducer("sum", (3,), torch.float32),
        "index": lambda: Reducer("sum", (3,), torch.float32),
        "state": lambda: Reducer("sum", (3,), torch.float32),
    }
    for what, make in makes.items():
        r, kept = make(), None
        if what == "epoch" and rank == 1:
            r.reset()
        r.update(torch.ones(2, *r.shape))
        if what == "index" and rank == 1:
            r.update(torch.ones(1), index=torch.tensor([7]))
        if what == "state" and rank == 1:
            kept = r.finalize()
        before, start = collectives_of(group), time.monotonic()
        try:
            r.finalize(torch.zeros(5) if what == "out" and rank == 1 else None, group=group)
            seen.append((what, "no error"))
        except CollectiveMismatchError as error:
            seen.append((what, type(error).__name__, [c.__name__ for c in type(error).__mro__], str(error)))
        assert time.monotonic() - start < 20 and collectives_of(group) == before
        assert "active" in repr(r) or kept is not None
        if what == "index" and rank == 1:
            r.reset()
        elif kept is None:
            r.finalize()
        again = Reducer("sum", (), torch.float32)
        again.update(torch.ones(2))
        assert again.finalize(group=group).item() == 2 * world  # the group still works
    return seen


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_that_disagree_all_raise_soon_stay_active_and_can_go_on(world, ran):
    for rank, seen in enumerate(results_of(ran(world), mismatches)):
        assert [s[1] for s in seen] == ["CollectiveMismatchError"] * 10
        assert all("rank 1" in s[3] for s in seen)
        own = {s[0]: s[2] for s in seen}
        assert ("ValueError" in own["out"], "IndexError" in own["index"], "DoubleFinalizeError" in own["state"]) == (rank == 1,) * 3


def partials(rank, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial

    mesh, found = init_device_mesh("cpu", (world,)), []
    local = torch.tensor([1.0, -2.0, 3.0]) * (rank + 1)
    for placement, op in (("sum", "sum"), ("max", "max"), ("min", "min"), ("avg", "mean")):
        held = DTensor.from_local(local, mesh, [Partial(placement)], run_check=False)
        mine = dtensors.from_partial(held).finalize(group=mesh.get_group())
        r = Reducer(op, (3,), torch.float32, initial=10.0 if op == "sum" else None)
        r.update(local[None])
        theirs = dtensors.to_partial(r, mesh)
        assert theirs.placements == (Partial(placement),)
        found.append((mine.tolist(), held.full_tensor().tolist(), theirs.full_tensor().tolist()))
    with pytest.raises(tri_reduce.ReducerError, match="Partial"):
        dtensors.from_partial(DTensor.from_local(local, mesh, [Partial("product")], run_check=False))
    with pytest.raises(tri_reduce.ReducerError, match="finalize"):
        dtensors.to_partial(Reducer("var", (3,), torch.float32), mesh)
    return found


def test_dtensors_partials_are_read_and_made(ran):
    for found in results_of(ran(2), partials):
        for n, (mine, theirs, made) in enumerate(found):
            assert mine == theirs and made == [v + 10.0 * (n == 0) for v in theirs]


@pytest.fixture(scope="module")
def ran():
    """Processes are slow to start: one set for all tests of a size."""
    return functools.cache(lambda world: run(world, every_op, users_monoid, mismatches, *((specials, partials) if world == 2 else ())))


def test_a_process_outside_the_group_and_no_group_at_all():
    r = Reducer("sum", (), torch.float32)
    r.update(torch.ones(3))
    with pytest.raises((ValueError, RuntimeError)):
        r.finalize(group=object())
    assert r.finalize().item() == 3
