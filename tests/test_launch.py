"""From a call to the driver: plans are remembered under what changes them, and a failed launch leaves nothing behind."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from devices import REFERENCE

import tri_reduce
from tri_reduce import autotune, launcher, plans, targets

reduce, gemv, force, policy = tri_reduce.reduce, tri_reduce.gemv, tri_reduce.force, autotune.policy
pytestmark = pytest.mark.usefixtures("no_remembered_plans")
needs_kernels = pytest.mark.skipif(REFERENCE, reason="about kernels: without them no tile is picked")


def ramp(device, *shape, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return (torch.arange(n, device=device) * 37 % 19 - 9).view(shape).to(dtype)


def planned(call):
    """How many plans a call adds."""
    before = len(plans.PLANS)
    call()
    return len(plans.PLANS) - before


def test_a_repeated_call_is_planned_once(device):
    x = ramp(device, 3, 40)
    assert planned(lambda: reduce(x, "sum", 1)) == 1 and planned(lambda: gemv(x, x[0])) == 1
    assert planned(lambda: (reduce(x, "sum", 1), reduce(x.clone(), "sum", 1), gemv(x, x[0]), gemv(x.clone(), x[0]))) == 0


def test_whatever_changes_a_reduction_has_a_plan_of_its_own(device):
    buf = ramp(device, 600)
    x, mask, out = buf[:120].view(3, 40), ramp(device, 3, 40) > 0, torch.zeros(3, device=device)
    calls = {
        "plain": lambda: reduce(x, "sum", 1),
        "op": lambda: reduce(x, "max", 1),
        "dim": lambda: reduce(x, "sum", 0),
        "keepdim": lambda: reduce(x, "sum", 1, True),
        "shape": lambda: reduce(x[:2], "sum", 1),
        "strides": lambda: reduce(buf[:240].view(3, 80)[:, ::2], "sum", 1),
        "alignment": lambda: reduce(buf[1:121].view(3, 40), "sum", 1),
        "dtype": lambda: reduce(x.half(), "sum", 1),
        "dtype=": lambda: reduce(x, "sum", 1, dtype=torch.float64),
        "out": lambda: reduce(x, "sum", 1, out=out),
        "out's strides": lambda: reduce(x, "sum", 1, out=torch.zeros(3, 2, device=device)[:, 0]),
        "out's dtype": lambda: reduce(x, "sum", 1, out=out.double()),
        "accumulate": lambda: reduce(x, "sum", 1, out=out, accumulate=True),
        "where": lambda: reduce(x, "sum", 1, where=mask),
        "where's strides": lambda: reduce(x, "sum", 1, where=mask[:1].expand(3, 40)),
        "initial": lambda: reduce(x, "sum", 1, initial=1.0),
        "another initial": lambda: reduce(x, "sum", 1, initial=2.0),
        "determinism": lambda: reduce(x, "sum", 1, determinism="invariant"),
        "norm": lambda: reduce(x, "norm", 1),
        "ord": lambda: reduce(x, "norm", 1, ord=1),
        "var": lambda: reduce(x, "var", 1),
        "correction": lambda: reduce(x, "var", 1, correction=0),
    }
    assert [name for name, call in calls.items() if planned(call) != 1] == []
    assert [name for name, call in calls.items() if planned(call) != 0] == []


def test_whatever_changes_a_product_has_a_plan_of_its_own(device):
    buf = ramp(device, 400)
    a, x, y = buf[:81].view(9, 9), buf[100:109], buf[200:209]
    calls = {
        "plain": lambda: gemv(a, x),
        "trans": lambda: gemv(a, x, trans=True),
        "alpha": lambda: gemv(a, x, alpha=2),
        "beta": lambda: gemv(a, x, beta=2, y=y),
        "another beta": lambda: gemv(a, x, beta=3, y=y),
        "y's strides": lambda: gemv(a, x, beta=2, y=buf[200:218:2]),
        "a's alignment": lambda: gemv(buf[1:82].view(9, 9), x),
        "x's alignment": lambda: gemv(a, buf[101:110]),
        "x's strides": lambda: gemv(a, buf[100:118:2]),
        "a's strides": lambda: gemv(a.t(), x),
        "out": lambda: gemv(a, x, out=torch.zeros(9, device=device)),
        "determinism": lambda: gemv(a, x, determinism="invariant"),
        "dtype": lambda: gemv(a.half(), x.half()),
    }
    assert [name for name, call in calls.items() if planned(call) != 1] == []
    assert [name for name, call in calls.items() if planned(call) != 0] == []


@needs_kernels
def test_policy_and_forced_plan_are_part_of_the_key(device):
    x = ramp(device, 2, 40)
    reduce(x, "sum", 1)
    for context in (force(split=2, config={"R0_BLOCK": 16}), force(regime="columns"), policy("cached"), policy("heuristic")):
        with context:
            assert planned(lambda: reduce(x, "sum", 1)) == 1
    assert planned(lambda: reduce(x, "sum", 1)) == 0


def test_the_plan_cache_is_bounded_and_forgets_the_oldest(reference, monkeypatch):
    monkeypatch.setattr(plans, "MAX_PLANS", 32)
    tensors = [torch.ones(2, n) for n in range(1, 101)]
    for x in tensors:
        assert reduce(x, "sum", 1).tolist() == [x.shape[1]] * 2
        assert len(plans.PLANS) <= 32
    assert planned(lambda: reduce(tensors[-1], "sum", 1)) == 0 and planned(lambda: reduce(tensors[0], "sum", 1)) != 0


def test_sixteen_threads_may_plan_and_call_at_once(reference, monkeypatch):
    monkeypatch.setattr(plans, "MAX_PLANS", 24)  # so that plans are dropped while others are looked up
    start = threading.Barrier(16)

    def work(k):
        start.wait()
        for n in range(60):
            x = torch.full((2, 1 + (n * (k + 1)) % 50), float(k))
            assert reduce(x, "sum", 1).tolist() == [k * x.shape[1]] * 2 and gemv(x, x[0]).tolist() == [k * k * x.shape[1]] * 2
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))
    assert len(plans.PLANS) <= 24 + 16


def test_eight_threads_may_launch_at_once(device):
    start = threading.Barrier(8)

    def work(k):
        x = torch.full((3, 40 + k), float(k), device=device)
        start.wait()
        for _ in range(3):
            assert reduce(x, "sum", 1).tolist() == [k * x.shape[1]] * 3 and gemv(x, x[0]).tolist() == [k * k * x.shape[1]] * 3
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_forced_plan_and_a_policy_hold_in_their_own_thread_only():
    with force(split=7), policy("tune"), ThreadPoolExecutor(1) as pool:
        inside = pool.submit(autotune.MODE.get).result()
        assert (inside.split, inside.policy) == (None, None) and autotune.MODE.get().split == 7
    assert autotune.MODE.get().split is None


@pytest.mark.parametrize("bad", [1.0, (True,), (1.0,), True])
def test_a_dim_that_only_equals_a_legal_one_stays_an_error_once_that_is_planned(bad, device):
    x = ramp(device, 3, 40)
    for legal in (1, (1,)):
        reduce(x, "sum", legal)
        with pytest.raises(TypeError, match="dim"):
            reduce(x, "sum", bad)


@needs_kernels
@pytest.mark.parametrize("alive", [1, 2, 5])
def test_a_kernel_that_fails_midway_leaves_tickets_for_the_next(alive, monkeypatch):
    if not targets.interpreting():
        pytest.skip("fails a program of the interpreter")
    from triton.runtime import interpreter

    x, original, seen = ramp("cpu", 2, 48), interpreter.interpreter_builder.set_grid_idx, []

    def fail(*index):
        seen.append(index)
        if len(seen) > alive:
            raise KeyboardInterrupt
        original(*index)

    with force(split=3, config={"XBLOCK": 1, "R0_BLOCK": 16}):
        want = reduce(x, "sum", 1)
        monkeypatch.setattr(interpreter.interpreter_builder, "set_grid_idx", fail)
        with pytest.raises((KeyboardInterrupt, RuntimeError, interpreter.InterpreterError)):
            reduce(x, "sum", 1)
        monkeypatch.setattr(interpreter.interpreter_builder, "set_grid_idx", original)
        assert len(seen) == alive + 1
        for _ in range(2):
            assert torch.equal(reduce(x, "sum", 1), want) and torch.equal(reduce(x, "max", 1), x.amax(1))


class Loading:
    """A compiled kernel that is loaded by whoever asks for its `run` first, which is there before its `function` is."""

    packed_metadata, function, _run = (), None, None

    @property
    def run(self):
        if self._run is None:
            self._run = type("Launcher", (), {"arg_annotations": ()})()
            time.sleep(0.05)
            self.function = 7
        return self._run


def test_a_kernel_that_another_thread_is_loading_is_waited_for():
    kernel, start = Loading(), threading.Barrier(4)

    def first_launch(_):
        start.wait()
        return launcher.launcher(kernel)[1][0]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(first_launch, range(4))) == [7] * 4
