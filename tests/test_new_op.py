"""An op is one entry of the table of monoids: everything else follows from it."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl  # noqa: F401  (Triton's interpreter looks for it)

import tri_reduce
from tri_reduce import cli, plans, targets, verify

ROOT = Path(__file__).parent.parent


@triton.jit
def lift_cube(x):
    return x * x * x


@pytest.fixture(autouse=True)
def sum_cube(monkeypatch):
    entry = replace(
        tri_reduce.MONOIDS["sum"], name="sum_cube", lift=lift_cube, reference=lambda x, dims, keepdim: (x.double() ** 3).sum(dims, keepdim)
    )
    monkeypatch.setitem(tri_reduce.MONOIDS, "sum_cube", replace(entry, gradient=None))
    yield
    plans.PLANS.clear()


X = torch.tensor([[1.0, 2.0, -3.0], [0.5, 0.0, 2.0]])
WANT = (X**3).sum(1)


def test_it_reduces_with_masks_and_seeds(device):
    x = X.to(device)
    assert torch.equal(tri_reduce.reduce(x, "sum_cube", 1).cpu(), WANT)
    assert torch.equal(tri_reduce.reduce(x, "sum_cube", 1, initial=1.0, where=x > 0).cpu(), (X.clamp(min=0) ** 3).sum(1) + 1)


def test_it_shares_a_read_with_others(device):
    cubes, sums = tri_reduce.reduce_many(X.to(device), ["sum_cube", "sum"], 1)
    assert torch.equal(cubes.cpu(), WANT) and torch.equal(sums.cpu(), X.sum(1))


def test_it_streams(device):
    r = tri_reduce.Reducer("sum_cube", (2,), torch.float32, device)
    for column in X.to(device).unbind(1):
        r.update(column)
    assert torch.equal(r.finalize().cpu(), WANT)


def test_it_is_explained_and_named_to_who_mistypes_it(capsys):
    assert cli.main(["explain", "64x4096", "--op", "sum_cube"]) == 0
    assert capsys.readouterr().out.startswith("sum_cube of fp32")
    with pytest.raises(ValueError, match="sum_cube"):
        tri_reduce.reduce(X, "sum_cubes")


def test_it_is_in_the_table_of_the_reference():
    spec = importlib.util.spec_from_file_location("conf", ROOT / "docs" / "conf.py")
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    assert "| `sum_cube` | 1 | 0 | float32, int64 | yes | yes |  |" in conf.ops_table()


@pytest.mark.skipif(targets.interpreting(), reason="kernels are interpreted in this process")
def test_its_kernels_compile_without_a_gpu_and_are_deferred():
    records = list(verify.library_kernels("cuda:90", problems=[("sum_cube", (4096, 4096), 1, "fp32")]))
    assert {r.role for r in records} == {"main", "combine"}
    for r in (records[0], *(r for r in records if r.role == "combine")):
        verify.assert_deferred(r.fn, r.signature, r.constexprs, num_reduce=r.num_reduce, attrs=r.attrs, options=r.options)


def test_the_default_list_of_kernels_to_prove_has_every_op():
    from tri_reduce import inventory

    assert {*tri_reduce.MONOIDS} - {"sum_cube"} <= {p[0] for p in inventory.PROBLEMS}


def test_reference_runs_it_where_no_kernel_does(reference):
    assert torch.equal(tri_reduce.reduce(X, "sum_cube", 1), WANT)
