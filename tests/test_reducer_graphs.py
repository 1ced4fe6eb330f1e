"""A reducer's updates in CUDA graphs and beside other kernels of a stream."""

import pytest
import torch
import triton
import triton.language as tl

import tri_reduce
from tri_reduce import Reducer
from tri_reduce.kernels.compat import gdc_launch_dependents, gdc_wait


def ints(*shape, device="cpu", seed=0):
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).to(device)


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["sum", "var", "argmax"])
def test_a_captured_update_contributes_once_a_replay(op, cuda):
    x = torch.zeros(1000, 8, device=cuda)
    r, at = Reducer(op, (8,), torch.float32, cuda), {"offset": 0} if op == "argmax" else {}
    r.update(x, **at)
    r.reset()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        r.update(x, **at)
    tiles = [ints(1000, 8, device=cuda, seed=n).float() for n in range(3)]
    for tile in tiles:
        x.copy_(tile)
        graph.replay()
    whole = torch.cat(tiles) if op != "argmax" else torch.stack(tiles).amax(0)
    assert torch.allclose(r.finalize().double(), tri_reduce.reduce(whole, op, 0).double(), rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("op", ["sum", "var", "max"])
def test_updates_that_follow_one_another_in_a_graph_count_once(op, between, cuda):
    """Also where the values of one are written between it and the update before."""
    source, tile = ints(64, 4096, 512, device=cuda).float(), torch.zeros(4096, 512, device=cuda)
    r, out = Reducer(op, (512,), torch.float32, cuda), torch.zeros(512, device=cuda)
    r.update(tile)
    r.finalize(out)
    r.reset()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for part in source:
            r.update(tile.copy_(part) if between else part)
        r.finalize(out)
    for replay in range(1, 4):
        graph.replay()
        whole = source.reshape(-1, 512).repeat(replay, 1) if replay == 1 or op != "max" else source.reshape(-1, 512)
        assert torch.allclose(out.double(), tri_reduce.reduce(whole, op, 0).double(), rtol=1e-5)
        del whole


@triton.jit
def late_kernel(x_ptr, n, spins, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    """Write n ones, after a while; EARLY: the next launch may begin long before."""
    if EARLY:
        gdc_launch_dependents()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.full((BLOCK,), 0.0, tl.float32)
    for _ in range(spins):
        value = tl.sqrt(value + 1.0)
    if EARLY:
        gdc_wait()
    tl.store(x_ptr + at, tl.where(value > 0, 1.0, 0.0), mask=at < n)


@pytest.mark.gpu
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_an_update_reads_what_a_slow_kernel_before_it_writes(captured, early, cuda):
    """Whether that kernel lets the next launch begin early or not, and through the whole chain of updates that follow it."""
    if early and gdc_wait is None:
        pytest.skip("this Triton has no programmatic dependent launch")
    tiles = torch.zeros(4, 2048, 512, device=cuda)
    r, out = Reducer("sum", (512,), torch.float32, cuda), torch.zeros(512, device=cuda)
    n = tiles.numel()

    def stream():
        tiles.zero_()
        for tile in tiles:
            r.update(tile)  # zeros
        options = {"launch_pdl": True} if early else {}
        late_kernel[(triton.cdiv(n, 1024),)](tiles, n, 20000, early, 1024, **options)
        for tile in tiles:
            r.update(tile)
        r.finalize(out)
        r.reset()

    stream()
    torch.cuda.synchronize()
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stream()
        for _ in range(3):
            graph.replay()
            assert torch.equal(out, torch.full_like(out, 4 * 2048))
    assert torch.equal(out, torch.full_like(out, 4 * 2048))


@pytest.mark.gpu
def test_an_update_neither_waits_nor_allocates(cuda):
    x, rows, index = torch.ones(4096, 64, device=cuda), torch.ones(4096, device=cuda), torch.zeros(4096, dtype=torch.int64, device=cuda)
    r = Reducer("mean", (64,), torch.float32, cuda)
    r.update(x)
    r.update(rows, index=index)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        r.update(x)
        r.update(rows, index=index)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    r.reset()
