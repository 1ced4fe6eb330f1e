"""What a launch passes: on CUDA the arguments that the binary takes, no constants. Without a GPU: the launcher records what it is given."""

import contextlib
import itertools

import pytest
import torch
from devices import REFERENCE

import tri_reduce
from tri_reduce import apart, launch, launcher, plans, targets, workspaces

pytestmark = pytest.mark.skipif(REFERENCE, reason="about kernels")
MIDDLE = (1, False, False, None, None, (4, 1, 0), None, None, None)
HEAD = 4 + len(MIDDLE)


class Launched(list):
    """Launches that were made, in their order; `tell` hears of each."""

    def __init__(self):
        self.tell = self.append


@pytest.fixture
def launched(monkeypatch):
    """(plan's specialisation, what came behind the fixed arguments) of each launch, as on an H200."""
    seen = Launched()

    def prepare(plan):
        return lambda *given: seen.tell((plan.spec, given[0], given[HEAD:])), MIDDLE

    monkeypatch.setattr(targets, "interpreting", lambda: False)
    monkeypatch.setattr(targets, "runs_kernels", lambda device: True)
    monkeypatch.setattr(targets, "of_device", lambda kind, index: targets.H200)
    monkeypatch.setattr(launch.Plan, "_prepare", prepare)
    for name, value in (("current_device", 0), ("current_stream", 0), ("_capturing", False)):
        monkeypatch.setattr(launch, name, lambda *_, value=value: value)
    plans.PLANS.clear()
    workspaces.WORKSPACES.clear()
    yield seen
    plans.PLANS.clear()
    workspaces.WORKSPACES.clear()


def expected(spec, pointers):
    """In the order of the kernel's signature: integers of the specialisation, and these addresses; None: any."""
    values = dict(spec.values)
    return [pointers.get(n) if kind.startswith("*") else values[n] for n, kind in spec.signature if kind != "constexpr"]


def check(seen, times, **tensors):
    assert len(seen) == times
    for spec, programs, given in seen:
        want = expected(spec, {n: t.data_ptr() for n, t in tensors.items()})
        assert len(given) == len(want) and programs == spec.programs
        assert all(w is None or w == g for w, g in zip(want, given, strict=True)), (spec.signature, want, given)
        assert all(type(g) is int for g in given)
    seen.clear()


@pytest.mark.parametrize("op", ["sum", "argmax", "var"])
def test_rows_read_as_one_are_two_launches_that_meet_in_memory_of_their_own(op, launched, monkeypatch):
    rooms = []
    monkeypatch.setattr(
        apart, "allocator", lambda device: lambda *how: rooms.append(torch.empty_strided(*how[:2], dtype=how[2])) or rooms[-1]
    )
    x, out = torch.zeros(81001, 251), torch.zeros(251, dtype=torch.int64 if op == "argmax" else torch.float32)
    for call in (lambda: tri_reduce.reduce(x, op, 0), lambda: tri_reduce.reduce(x, op, 0, out=out)):
        for _ in range(2):  # planned, and found again
            result = call()
            (first, programs, given), (second, folding, then) = launched
            assert first.fold == second and (programs, folding) == (first.programs, second.programs)
            assert dict(first.constexprs)["SINK"] == "apart" and dict(second.constexprs)["LATE"]
            states = len(first.op.partial.dtypes)
            room = given[1 : 1 + states]
            assert given[0] == x.data_ptr() and then[0] == result.data_ptr() and then[1 : 1 + states] == room
            for spec, passed in ((first, given), (second, then)):
                want = expected(spec, {})
                assert len(want) == len(passed) and all(w is None or w == g for w, g in zip(want, passed, strict=True))
            widest = max(d.primitive_bitwidth // 8 for d in first.op.partial.dtypes)
            assert all(a % 16 == 0 and a + first.outputs * first.slots * widest <= b for a, b in itertools.pairwise(room))
            assert rooms[-1].nbytes >= room[-1] - room[0] + first.outputs * first.slots * widest and rooms[-1].data_ptr() == room[0]
            launched.clear()


@pytest.mark.parametrize("between", ["read as one", "shared"])
def test_a_call_between_the_two_launches_of_another_leaves_its_states_alone(between, launched, monkeypatch):
    """As when two threads call on one stream: a launcher lets go of the interpreter's lock."""
    x, other = torch.zeros(81001, 251), torch.zeros(4, 1 << 20)
    call = (lambda: tri_reduce.sum(x, 0)) if between == "read as one" else (lambda: tri_reduce.sum(other, 1))
    call(), tri_reduce.amax(x, 0)  # planned
    launched.clear()

    def interrupted(launch):
        launched.append(launch)
        if len(launched) == 1:
            call()

    launched.tell = interrupted
    tri_reduce.amax(x, 0)
    (_, _, first), *others, (_, _, last) = launched
    room = first[1]
    assert last[1] == room and others and all(room not in given for _, _, given in others)


@pytest.mark.parametrize("split", [None, 4])
def test_a_reduction_passes_what_its_kernel_takes(split, launched):
    x, out = torch.zeros(8, 1 << 14), torch.zeros(8)
    mask = x > 0
    with tri_reduce.force(split=split) if split else contextlib.nullcontext():
        for op in ("sum", "argmax", "var"):
            target = out if op != "argmax" else out.long()
            results = [tri_reduce.reduce(x, op, 1) for _ in range(3)]
            assert all(r.shape == (8,) for r in results)
            check(launched, 3, x_ptr=x)
            for _ in range(3):
                assert tri_reduce.reduce(x, op, 1, out=target) is target
            check(launched, 3, x_ptr=x, out_ptr=target)
            for _ in range(2):
                tri_reduce.reduce(x, op, 1, where=mask, out=target)
            check(launched, 2, x_ptr=x, where_ptr=mask, out_ptr=target)
        tri_reduce.reduce(x, "sum", 1, initial=3.0, out=out, accumulate=True)
        check(launched, 1, x_ptr=x, out_ptr=out)


@pytest.mark.parametrize("split", [None, 4])
def test_a_product_passes_what_its_kernel_takes(split, launched):
    a, v, y, out = torch.zeros(8, 1 << 14), torch.zeros(1 << 14), torch.zeros(8), torch.zeros(8)
    with tri_reduce.force(split=split) if split else contextlib.nullcontext():
        for _ in range(3):
            tri_reduce.gemv(a, v)
        check(launched, 3, a_ptr=a, v_ptr=v)
        for _ in range(3):
            tri_reduce.gemv(a, v, out=out)
        check(launched, 3, a_ptr=a, v_ptr=v, out_ptr=out)
        for _ in range(2):
            tri_reduce.gemv(a, v, beta=2, alpha=3, y=y, out=out)
        check(launched, 2, a_ptr=a, v_ptr=v, y_ptr=y, out_ptr=out)


@pytest.mark.parametrize("op, split, sink", [("sum", 2, "pair"), ("max", 4, "words"), ("var", 4, "split"), ("argmax", 2, "split")])
def test_programs_meet_in_the_workspace_of_their_stream(op, split, sink, launched):
    x = torch.zeros(24, 1 << 14)
    with tri_reduce.force(split=split):
        for _ in range(2):
            tri_reduce.reduce(x, op, 1)
    ((marks, room, _),) = workspaces.WORKSPACES.values()
    assert bool((marks == -1).all())
    for spec, _, given in launched:
        names = [n for n, kind in spec.signature if kind != "constexpr"]
        passed = {n: g for n, g in zip(names, given, strict=True) if n in launch.STATES}
        states = [a for n, a in passed.items() if n != "ticket_ptr"]
        assert dict(spec.constexprs)["SINK"] == sink and ("ticket_ptr" in passed) == (sink != "pair")
        assert all(address % 16 == 0 for address in passed.values())
        memory = room if sink == "split" else marks
        size = spec.slots * spec.outputs * (8 if spec.op.partial.dtypes[0].primitive_bitwidth == 64 else 4)
        ends = [*states[1:], memory.data_ptr() + memory.nbytes]
        assert states[0] >= memory.data_ptr() and all(a + size <= b for a, b in zip(states, ends, strict=True))
        if sink == "words":
            assert states[0] + size <= passed["ticket_ptr"]
        if sink != "pair":
            assert passed["ticket_ptr"] + 4 * spec.output_tiles <= marks.data_ptr() + marks.nbytes


def test_misaligned_rows_start_at_the_vector_before_them(launched):
    base = torch.zeros(8 * 1024 + 16)
    x = base[1 : 1 + 8 * 1024].view(8, 1024)
    for _ in range(3):
        tri_reduce.sum(x, 1)
    assert {given[0] for _, _, given in launched} == {base.data_ptr()}
    check(launched, 3)


@pytest.mark.parametrize(("op", "dim"), list(itertools.product(["sum", "argmax", "var", ("sum", "max", "min")], [0, 1])))
def test_a_reducer_passes_what_its_kernels_take(op, dim, launched):
    r, x = tri_reduce.Reducer(op, (64,), torch.float32), torch.zeros(64, 64)
    mask = x > 0
    for n in range(3):
        r.update(x, dim, offset=n * 64 if op == "argmax" else None)
    for spec, _, given in launched:
        names = [n for n, kind in spec.signature if kind != "constexpr"]
        assert len(names) == len(given)
        passed = dict(zip(names, given, strict=True))
        assert passed["x_ptr"] == x.data_ptr() and passed["follows"] == 0
        assert next(passed[n] for n in launch.STATES if n in passed) == r._parts[0].states[0].data_ptr()
    if op == "argmax":
        assert [dict(zip([n for n, k in s.signature if k != "constexpr"], g))["seed"] for s, _, g in launched] == [0, 64, 128]
    launched.clear()
    r.update(x, dim, where=mask, offset=192 if op == "argmax" else None)
    for spec, _, given in launched:
        names = [n for n, kind in spec.signature if kind != "constexpr"]
        assert dict(zip(names, given, strict=True))["where_ptr"] == mask.data_ptr()
    launched.clear()
    r.finalize()
    check(launched, len(r._parts))


def test_all_pointers_look_alike_to_a_launcher():
    signature = (("x_ptr", "*bf16"), ("where_ptr", "constexpr"), ("out_ptr", "*fp32"), ("K", "i32"), ("R", "i64"), ("OP", "constexpr"))
    assert launcher.Passed.of(signature).signature == {0: "*i8", 1: "*i8", 2: "i32", 3: "i64"}


def test_a_backend_whose_launcher_takes_every_argument_is_given_them(launched, monkeypatch):
    monkeypatch.setattr(targets, "of_device", lambda kind, index: targets.by_name("mi300x"))
    x, out = torch.zeros(8, 1 << 14), torch.zeros(8)
    for _ in range(3):
        tri_reduce.sum(x, 1, out=out)
        tri_reduce.gemv(x, x[0], out=out)
    for spec, _, given in launched:
        names = spec.fn.arg_names
        passed = dict(zip(names, given, strict=True))
        assert passed[names[0]] == x.data_ptr() and passed["out_ptr"] == out.data_ptr()
        assert all(passed[n] in (None, 0) or n in launch.STATES for n, kind in spec.signature if kind == "constexpr")
        assert all(passed[n] == value for n, value in spec.values)


def test_a_negated_view_is_resolved_before_its_address_is_passed(launched):
    negated = torch.complex(torch.zeros(8, 64), torch.ones(8, 64)).conj().imag
    plain = torch.zeros(8, 128)[:, 1::2]
    assert negated.is_neg() and negated.stride() == plain.stride()
    r = tri_reduce.Reducer("sum", (8,), torch.float32)
    calls = [lambda x: tri_reduce.sum(x, 1), lambda x: tri_reduce.reduce_many(x, ["sum", "max"], 1), lambda x: r.update(x, 1)]
    for call in calls:
        for x in (*[plain] * 3, negated, negated):
            launched.clear()
            call(x)
            (given,) = [dict(zip([n for n, k in s.signature if k != "constexpr"], g))["x_ptr"] for s, _, g in launched]
            assert (given != negated.data_ptr() & ~15) and (x is negated or given == plain.data_ptr() & ~15)
    launched.clear()
    r.finalize(negated[:, 0])
    assert launched[-1][2][0] != negated.data_ptr()
