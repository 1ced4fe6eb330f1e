"""Policies and `force`: tuning changes speed alone, and what is not a policy or a plan is refused by name."""

import pytest
import torch
from bounds import check
from devices import REFERENCE
from gemv_oracle import check_gemv

import tri_reduce
from tri_reduce import autotune, plans

reduce, gemv, force, policy = tri_reduce.reduce, tri_reduce.gemv, tri_reduce.force, autotune.policy
needs_kernels = pytest.mark.skipif(REFERENCE, reason="about kernels: without them no tile is picked")


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(autotune, "_TUNED", {})
    plans.PLANS.clear()
    yield
    plans.PLANS.clear()


def ramp(device, *shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return (torch.arange(n, device=device) * 37 % 19 - 9).view(shape).to(dtype)


@needs_kernels
def test_tuning_gives_the_same_result_and_reads_nothing_of_out(device):
    x, m = ramp(device, 3, 70), ramp(device, 3, 70, dtype=torch.int32)
    with policy("tune"):
        for dim in (0, 1):
            check(reduce(x, "sum", dim), x, "sum", dim)
        assert torch.equal(reduce(m, "sum", 1), m.sum(1)) and torch.equal(reduce(m, "argmax", 0), m.argmax(0))
        out = torch.full((3,), float("nan"), device=device)
        check(reduce(x, "sum", 1, out=out), x, "sum", 1)
        check_gemv(gemv(x, x[0], out=out), x, x[0])
    assert autotune._TUNED


@needs_kernels
@pytest.mark.parametrize("gap", [1, 3])
def test_tuning_adds_to_an_old_value_once_and_writes_between_its_elements_never(gap, device):
    m = ramp(device, 5, 67, dtype=torch.int32)
    buf = torch.full((5, gap + 1), 1000, dtype=torch.int64, device=device)
    out = buf[:, 0]
    with policy("tune"):
        for n in (1, 2):
            reduce(m, "sum", 1, out=out, accumulate=True, initial=7)
            assert torch.equal(out, 1000 + n * (m.sum(1) + 7))
    assert bool((buf[:, 1:] == 1000).all())


@needs_kernels
def test_tuning_a_product_into_a_strided_out_leaves_its_neighbours(device):
    a, buf = ramp(device, 5, 33), torch.full((5, 4), 3.0, device=device)
    with policy("tune"):
        gemv(a, a[0], beta=2, y=buf[:, 1], out=buf[:, 1])
    check_gemv(buf[:, 1], a, a[0], beta=2, y=torch.full((5,), 3.0, device=device))
    assert bool((buf[:, [0, 2, 3]] == 3).all())


@needs_kernels
def test_a_trial_runs_every_candidate_on_scratch_and_the_fastest_is_remembered(device, monkeypatch):
    x, times = ramp(device, 3, 90), []

    def measure(run, target):
        run()
        times.append(10.0 if len(times) != 2 else 1.0)
        return times[-1]

    monkeypatch.setattr(autotune, "measure", measure)
    with policy("tune"):
        check(reduce(x, "sum", 1), x, "sum", 1)
    ((problem, target),) = autotune._TUNED
    found = tri_reduce.configs.candidates(problem, target)
    assert len(times) == len(found) and autotune._TUNED[problem, target] == found[min(2, len(found) - 1)]
    with policy("cached"):
        check(reduce(x, "sum", 1), x, "sum", 1)
    assert len(times) == len(found)


def test_an_unknown_policy_is_a_value_error_naming_the_three():
    for bad in ("fastest", "TUNE", ""):
        with pytest.raises(ValueError, match="heuristic, cached, tune"), policy(bad):
            pass


@needs_kernels
def test_an_unknown_policy_in_the_environment_is_named_with_the_variable(device, monkeypatch):
    monkeypatch.setenv("TRI_REDUCE_AUTOTUNE", "fastest")
    for call in (lambda x: reduce(x, "sum", 1), lambda x: gemv(x, x[0])):
        with pytest.raises(ValueError, match=r"'fastest'.*TRI_REDUCE_AUTOTUNE.*heuristic, cached, tune"):
            call(ramp(device, 3, 40))
        with policy("heuristic"):
            call(ramp(device, 3, 40))


@pytest.mark.parametrize("bad, said", [
    (dict(regime="diagonal"), "diagonal.*thread, rows, columns, strided"), (dict(split=0), "split.*0"), (dict(split=-1), "split.*-1"),
    (dict(split=True), "split.*True"), (dict(split=1.5), r"split.*1\.5"), (dict(config={"XBLOCK": [1]}), "XBLOCK"),
], ids=str)  # fmt: skip
def test_force_refuses_what_no_problem_could_run(bad, said):
    with pytest.raises(ValueError, match=said), force(**bad):
        reduce(torch.ones(3, 4), "sum", 1)
    assert autotune.MODE.get() is autotune._DEFAULT


def test_force_ends_with_its_context_also_after_an_error():
    with pytest.raises(ZeroDivisionError), force(split=2):
        raise ZeroDivisionError
    assert autotune.MODE.get() is autotune._DEFAULT
