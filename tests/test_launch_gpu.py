"""Split plans where launches overlap: tickets and partials of graphs, streams, threads and devices never meet."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import tri_reduce

pytestmark = pytest.mark.gpu
reduce, gemv, force = tri_reduce.reduce, tri_reduce.gemv, tri_reduce.force
SPLITS = (2, 3, 7, 16)


@pytest.fixture(params=[torch.int32, torch.float32], ids=str)
def dtype(request):
    """Of integers all programs take tickets; of floats pairs exchange words, and more leave words."""
    return request.param


def split_sums(x):
    """The sum of each row under several splits."""
    sums = []
    for split in SPLITS:
        with force(split=split, config={"R0_BLOCK": 256, "XBLOCK": 2}):
            sums.append(reduce(x, "sum", 1))
    return sums


def captured(call):
    for _ in range(2):  # compiles and grows what it needs
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()
    return graph, results


def all_equal(results, want):
    return all(bool((y == want).all()) for y in results)


def test_splits_of_several_sizes_in_one_graph_replay_right(dtype, cuda):
    x = torch.ones(37, 8192, dtype=dtype, device=cuda)
    graph, results = captured(lambda: split_sums(x))
    for k in (1, 2, 3, 4):
        x.fill_(k)
        graph.replay()
        torch.cuda.synchronize()
        assert all_equal(results, 8192 * k)


def test_a_graph_outlives_the_workspace_it_was_captured_beside(dtype, cuda):
    x = torch.ones(3, 65536, dtype=dtype, device=cuda)
    graph, results = captured(lambda: split_sums(x))
    wide = torch.ones(70001, 512, dtype=dtype, device=cuda)  # more tickets and partials than there were
    with force(split=2, config={"R0_BLOCK": 256, "XBLOCK": 1}):
        assert all_equal([reduce(wide, "sum", 1)], 512)
    for k in (2, 3):
        x.fill_(k)
        graph.replay()
        torch.cuda.synchronize()
        assert all_equal(results, 65536 * k)


def test_two_graphs_and_eager_calls_on_three_streams_at_once(dtype, cuda):
    xs = [torch.full((37, 16384), k, dtype=dtype, device=cuda) for k in (1, 2, 3)]
    graphs = [captured(lambda x=x: split_sums(x)) for x in xs[:2]]
    streams, eager = [torch.cuda.Stream() for _ in xs], []
    torch.cuda.synchronize()
    for _ in range(30):
        for (graph, _), stream in zip(graphs, streams):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(streams[2]):
            eager += split_sums(xs[2])
    torch.cuda.synchronize()
    assert all_equal(graphs[0][1], 16384) and all_equal(graphs[1][1], 2 * 16384) and all_equal(eager, 3 * 16384)


def test_branches_of_one_graph_do_not_share_tickets(dtype, cuda):
    xs = [torch.full((37, 16384), k, dtype=dtype, device=cuda) for k in (1, 2)]
    side = torch.cuda.Stream()

    def both():
        side.wait_stream(torch.cuda.current_stream())
        here = split_sums(xs[0])
        with torch.cuda.stream(side):
            there = split_sums(xs[1])
        torch.cuda.current_stream().wait_stream(side)
        return here, there

    graph, (here, there) = captured(both)
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    assert all_equal(here, 16384) and all_equal(there, 2 * 16384)


def test_nothing_is_tuned_while_a_graph_is_captured(cuda, monkeypatch):
    x = torch.ones(3, 40009, device=cuda)
    with tri_reduce.force(split=1):
        reduce(x, "sum", 1)
    reduce(x, "sum", 1)  # compiled

    def no_measuring(run, target):
        raise AssertionError("measured inside a capture")

    monkeypatch.setattr(tri_reduce.autotune, "measure", no_measuring)
    graph, out = torch.cuda.CUDAGraph(), torch.zeros(3, device=cuda)
    with torch.cuda.graph(graph), tri_reduce.autotune.policy("tune"):
        reduce(x, "sum", 1, out=out)
    graph.replay()
    torch.cuda.synchronize()
    assert out.tolist() == [40009.0] * 3


def test_threads_whose_workspace_grows_under_them_get_their_own_answers(dtype, cuda):
    """All on one stream: a thread's launch may use the workspace that another thread is just replacing."""
    tri_reduce.workspaces.WORKSPACES.clear()
    start, width = threading.Barrier(8), 512

    def work(k):
        start.wait()
        for n in range(12):
            x = torch.full((1000 * (n + 1) + k, width), k, dtype=dtype, device=cuda)
            with force(split=2, config={"R0_BLOCK": 256, "XBLOCK": 1}):
                assert all_equal([reduce(x, "sum", 1)], width * k)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_splits_on_two_devices_at_once_have_tickets_of_their_own(dtype, cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("NEEDS TWO GPUS: was NOT run")
    xs = [torch.full((37, 16384), k + 1, dtype=dtype, device=f"cuda:{k}") for k in range(2)]
    results = [[], []]
    for _ in range(20):
        for x, got in zip(xs, results):
            got += split_sums(x)
    for k in range(2):
        torch.cuda.synchronize(k)
        assert all_equal(results[k], 16384 * (k + 1)) and all(y.device.index == k for y in results[k])
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("op, dim", itertools.product(("sum", "var", "argmax"), (0, 1)))
def test_a_gibibyte_reduced_along_either_axis_needs_little_room(op, dim, cuda):
    if torch.cuda.mem_get_info()[0] < 3 << 30:
        pytest.skip("needs 3 GiB of free GPU memory")
    x = torch.ones(2**17, 2**11, device=cuda)
    out = torch.zeros(x.shape[1 - dim], dtype=torch.int64 if op == "argmax" else x.dtype, device=cuda)
    torch.cuda.synchronize()
    tri_reduce.workspaces.WORKSPACES.clear()  # what tests before this one needed
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    reduce(x, op, dim, out=out)
    assert torch.cuda.max_memory_allocated() - before < x.nbytes // 100
    assert all_equal([out], {"sum": x.shape[dim], "var": 0, "argmax": 0}[op])
