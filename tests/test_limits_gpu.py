"""What only a GPU can show: sizes past 2**31, grid limits, graphs, streams, other devices, tuning."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from bounds import check

import tri_reduce

pytestmark = pytest.mark.gpu
reduce = tri_reduce.reduce
GIB = 1 << 30


def needs(gib):
    free = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0
    if free < gib * GIB:
        pytest.skip(f"needs {gib} GiB of free GPU memory")


def test_more_than_two_to_the_31_elements(cuda):
    needs(4)
    x = torch.full((2**31 + 5,), -5, dtype=torch.int8, device=cuda)
    x[-1] = 7
    assert int(reduce(x, "max")) == 7 and int(reduce(x, "argmax")) == 2**31 + 4
    assert int(reduce(x, "sum")) == -5 * (2**31 + 4) + 7
    assert int(reduce(x[: 2**31], "max")) == -5 and int(reduce(x, "count_nonzero")) == 2**31 + 5
    square = x[: 2**31].view(2**16, 2**15)
    for dim in (0, 1):
        assert bool((reduce(square, "sum", dim) == -5 * square.shape[dim]).all())


def test_strides_past_int32(cuda):
    needs(5)
    base = torch.ones(2**32 + 64, dtype=torch.int8, device=cuda)
    x = base.as_strided((3, 17), (2**31 + 5, 1))[:2]
    x[1] = 3
    for dim in (0, 1, None):
        check(reduce(x, "sum", dim), x, "sum", dim)
        check(reduce(x, "argmax", dim), x, "argmax", dim)
    column = base[:: 2**31][:2]
    check(reduce(column, "sum"), column, "sum")
    a = base.as_strided((2, 64), (2**31 + 5, 1))
    assert tri_reduce.gemv(a, torch.ones(64, dtype=torch.int8, device=cuda)).tolist() == [64, 64 + 2 * 17]


@pytest.mark.parametrize("shape, dim", [((2, 3, 193601), 1), ((70001, 3, 2), 1), ((65536, 1, 5), 2), ((3, 193601), 0), ((2**21 + 1, 3), 1)])
def test_any_number_of_rows_or_columns_launches(shape, dim, cuda):
    x = torch.ones(shape, device=cuda)
    for op, want in (("sum", shape[dim]), ("max", 1), ("argmax", 0)):
        got = reduce(x, op, dim)
        assert got.shape == x.sum(dim).shape and bool((got == want).all())


def test_one_row_longer_than_any_tile(cuda):
    x = torch.zeros(1, 1_500_001, device=cuda)
    x[0, 1_234_567] = 2.0
    assert float(reduce(x, "sum", 1)) == 2.0 and float(reduce(x, "max", -1)) == 2.0 and int(reduce(x, "argmax", 1)) == 1_234_567
    assert float(reduce(x.t(), "sum", 0)) == 2.0


def test_more_matrix_rows_than_a_grid_axis(cuda):
    a = (torch.arange(65537 * 4, device=cuda) % 5).reshape(65537, 4).float()
    x = torch.tensor([1.0, 2, 3, 4], device=cuda)
    assert torch.equal(tri_reduce.gemv(a, x).double(), a.double() @ x.double())
    assert torch.equal(tri_reduce.gemv(a, torch.ones(65537, device=cuda), trans=True).double(), a.double().sum(0))
    assert bool((tri_reduce.gemv(torch.ones(70001, 2, 3, device=cuda), torch.ones(3, device=cuda)) == 3).all())


def test_a_captured_reduction_replays_on_new_data_and_survives_eager_calls_between(cuda):
    x, out = torch.ones(3, 100003, device=cuda), torch.zeros(3, device=cuda)
    a, v, p = torch.ones(5, 30001, device=cuda), torch.ones(30001, device=cuda), torch.zeros(5, device=cuda)
    for _ in range(2):
        reduce(x, "sum", 1, out=out)
        tri_reduce.gemv(a, v, out=p)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        reduce(x, "sum", 1, out=out)
        tri_reduce.gemv(a, v, out=p)
    for k in (1.0, 2.0, 3.0, 4.0):
        x.fill_(k)
        v.fill_(k)
        graph.replay()
        eager = reduce(x, "sum", 1)
        torch.cuda.synchronize()
        assert out.tolist() == eager.tolist() == [k * 100003] * 3 and p.tolist() == [k * 30001] * 5


def test_work_is_queued_on_the_current_stream(cuda):
    x, side = torch.zeros(1 << 20, device=cuda), torch.cuda.Stream()
    reduce(x, "sum")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        x.fill_(1.0)
        got = reduce(x, "sum")
    side.synchronize()
    assert float(got) == 1 << 20


def test_two_streams_do_not_share_scratch(cuda):
    xs = [torch.full((3, 400003), float(k), device=cuda) for k in (1, 2)]
    streams = [torch.cuda.Stream() for _ in xs]
    for x in xs:
        reduce(x, "sum", 1)
    torch.cuda.synchronize()
    results = [[], []]
    for _ in range(50):
        for x, stream, got in zip(xs, streams, results):
            with torch.cuda.stream(stream):
                got.append(reduce(x, "sum", 1))
    torch.cuda.synchronize()
    for k, got in zip((1, 2), results):
        assert all(y.tolist() == [400003.0 * k] * 3 for y in got)


def test_a_tensor_on_another_gpu_runs_there_and_the_current_device_stays(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("NEEDS TWO GPUS: was NOT run")
    other = torch.device("cuda:1")
    torch.cuda.set_device(0)
    x = torch.ones(64, 4099, dtype=torch.bfloat16, device=other)
    s, v = reduce(x, "sum", 1, dtype=torch.float32), tri_reduce.gemv(x.float(), x[0].float())
    assert s.device == v.device == other and torch.cuda.current_device() == 0
    assert s.tolist() == v.tolist() == [4099.0] * 64


def test_no_call_waits_for_the_device(cuda):
    x = torch.ones(64, 4096, device=cuda)
    reduce(x, "sum", 1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for op in ("sum", "max", "var", "argmax"):
            reduce(x, op, 1, where=x > 0)
        tri_reduce.gemv(x, x[0], alpha=2, beta=1, y=x[:, 0])
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_tuning_leaves_results_and_old_values_as_they_were(cuda):
    x, out, y = torch.ones(5003, device=cuda), torch.full((), 123.0, device=cuda), torch.full((67,), 10.0, device=cuda)
    with tri_reduce.autotune.policy("tune"):
        assert [float(reduce(x, "sum", out=out)) for _ in range(4)] == [5003.0] * 4
        assert [float(reduce(x, "sum", out=out, accumulate=True)) for _ in range(3)] == [10006.0, 15009.0, 20012.0]
        a, v = torch.ones(67, 301, device=cuda), torch.ones(301, device=cuda)
        assert tri_reduce.gemv(a, v, beta=1, y=y, out=y).tolist() == [311.0] * 67


def test_a_large_reduction_allocates_almost_nothing(cuda):
    needs(2)
    x = torch.ones(2**28, device=cuda)
    reduce(x, "sum")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    got = float(reduce(x.view(2**14, 2**14).t(), "sum"))
    assert torch.cuda.max_memory_allocated() - before < 8 << 20
    assert abs(got - 2**28) <= 4 * torch.finfo(torch.float32).eps * 28 * 2**28


def test_threads_get_their_own_answers(cuda):
    def work(k):
        x = torch.full((3 + k % 5, 100003), float(k), device=cuda)
        return all(reduce(x, "sum", 1).tolist() == [100003.0 * k] * x.shape[0] for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))
