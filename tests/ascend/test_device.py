"""Tensors of an NPU take the library's path to the launch; the driver says what the device is, or that there is none."""

import fake_npu
import pytest
import toolchain
import torch

toolchain.install()

import tri_reduce  # noqa: E402
from tri_reduce import plans, targets  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    targets.of_device.cache_clear()
    plans.PLANS.clear()
    fake_npu.LAUNCHES.clear()


@pytest.fixture
def npu(monkeypatch):
    """CPU tensors are an NPU's."""
    fake_npu.install()
    target = targets.of_device("npu", 0)
    monkeypatch.setattr(targets, "of_device", lambda device_type, index: target)
    monkeypatch.setattr(targets, "runs_kernels", lambda device: True)
    return target


def test_the_driver_says_what_the_device_is():
    fake_npu.install()
    assert targets.of_device("npu", 0) is targets.by_name("ascend")


@pytest.mark.parametrize(("arch", "cores"), [("Ascend910B1", 50), ("Ascend910B4", 40), ("Ascend910_9382", 48)])
def test_other_parts_of_the_family_have_their_own_cores(arch, cores):
    fake_npu.install(arch, cores)
    found = targets.of_device("npu", 0)
    assert (found.arch, found.cores, found.buffer) == (arch, cores, 192 * 1024)
    assert found.key != targets.by_name("ascend").key


def test_without_cann_the_error_says_what_is_missing(monkeypatch):
    from triton.runtime import driver

    class Broken:
        def __getattr__(self, name):
            raise OSError("libascendcl.so: cannot open shared object file")

    driver.set_active(Broken())
    with pytest.raises(RuntimeError, match=r"needs triton-ascend and CANN .*libascendcl\.so"):
        targets.of_device("npu", 0)


def test_a_gpu_driver_is_not_an_npus():
    fake_npu.install("gfx942")
    with pytest.raises(RuntimeError, match="needs triton-ascend and CANN"):
        targets.of_device("npu", 0)


@pytest.mark.parametrize("op", ["sum", "mean", "max", "any", "argmax", "argmin", "var", "std", "logsumexp", "norm"])
@pytest.mark.parametrize("dims", [1, 0])
def test_a_reduction_is_one_launch_of_at_most_as_many_programs_as_cores(op, dims, npu):
    x = torch.randn(3000, 500)
    y = tri_reduce.reduce(x, op, dims)
    ((name, grid, given),) = fake_npu.LAUNCHES
    assert name == "persistent_reduce_kernel"
    assert 1 <= grid[0] <= npu.cores and grid[1:] == (1, 1)
    assert given[0] is x and any(g is y for g in given)


def test_where_out_and_a_seed_reach_the_kernel(npu):
    x, where, out = torch.randn(30, 500), torch.randn(30, 500) > 0, torch.empty(30)
    tri_reduce.reduce(x, "sum", 1, where=where, out=out, initial=2.0)
    ((_, _, given),) = fake_npu.LAUNCHES
    assert [g for g in given if isinstance(g, torch.Tensor)][1] is where
    assert any(g is out for g in given)


def test_a_product_is_one_launch(npu):
    tri_reduce.gemv(torch.randn(512, 300), torch.randn(300), beta=2, y=torch.randn(512))
    ((name, grid, _),) = fake_npu.LAUNCHES
    assert name == "persistent_gemv_kernel" and grid[0] <= npu.cores


@pytest.mark.parametrize("op", ["sum", "mean", "argmax", "var", "logsumexp"])
def test_a_reducer_updates_merges_and_ends_in_launches(op, npu):
    a, b = (tri_reduce.Reducer(op, (300,), torch.float32) for _ in range(2))
    for r in (a, b):
        r.update(torch.randn(50, 300), **({"offset": 0} if op == "argmax" else {}))
    a.merge(b)
    a.finalize()
    names = [name for name, _, _ in fake_npu.LAUNCHES]
    assert names == ["persistent_reduce_kernel"] * 2 + ["persistent_merge_kernel", "persistent_combine_kernel"]


def test_several_ops_are_a_launch_each(npu):
    tri_reduce.reduce_many(torch.randn(64, 64), ["sum", "max", "var"], 1)
    assert len(fake_npu.LAUNCHES) == 3


@pytest.mark.parametrize(
    ("call", "error", "why"),
    [
        (lambda x: tri_reduce.sum(x.double(), 1), TypeError, "Ascend has no float64"),
        (lambda x: tri_reduce.norm(x, 3.0, 1), TypeError, "float64"),
        (lambda x: tri_reduce.sum(x, 1, dtype=torch.float64), TypeError, "float64"),
        (lambda x: tri_reduce.gemv(x.double(), x[0].double()), TypeError, "Ascend has no float64"),
        (lambda x: tri_reduce.prod(x.int(), 1), NotImplementedError, "no product of integers"),
        (lambda x: tri_reduce.reduce(x, mine(), 1), NotImplementedError, "only the library's own ops"),
        (lambda x: indexed(x), NotImplementedError, "do not compile for Ascend"),
        (lambda x: force_split(x), ValueError, "split"),
    ],
)  # fmt: skip
def test_what_the_compiler_cannot_do_is_refused_before_it_is_asked(call, error, why, npu):
    with pytest.raises(error, match=why):
        call(torch.randn(4, 100))
    assert not fake_npu.LAUNCHES


def mine():
    from dataclasses import replace

    return replace(tri_reduce.MONOIDS["sum"], name="mine")


def indexed(x):
    r = tri_reduce.Reducer("sum", (4, 100), torch.float32)
    try:
        r.update(x, index=torch.tensor([0, 1, 2, 3]))
    finally:
        r.reset()


def force_split(x):
    with tri_reduce.force(split=2):
        tri_reduce.sum(x, 1)
