"""One `device` for every test, memory that is never zero by luck, and GPU tests that say so when they cannot run.

TRI_REDUCE_TEST_DEVICE=cpu|cuda|npu|cpu,cuda   overrides the device (default: cuda where there is one, else cpu)
TRI_REDUCE_TEST_REFERENCE=1                cpu tensors take the PyTorch reference instead of the interpreted kernels
"""

import itertools
import os
import tempfile

import pytest
import torch
from devices import DEVICES, HAS_CUDA, ON_NPU, REFERENCE

NO_GPU = "NO CUDA DEVICE: this test needs a GPU and was NOT run"

# Triton reads this when a kernel is decorated, so it has to be set before the library is imported.
if REFERENCE:
    os.environ.pop("TRITON_INTERPRET", None)
elif not HAS_CUDA and not ON_NPU:
    os.environ["TRITON_INTERPRET"] = "1"
# What is tuned here must not steer the next run, nor the user's own programs.
STORES = os.environ.setdefault("TRI_REDUCE_CACHE_DIR", tempfile.mkdtemp(prefix="tri_reduce_test_"))
NUMBERS = itertools.count()

DEVICE_PARAMS = [pytest.param(d, marks=pytest.mark.gpu) if d.startswith("cuda") else d for d in DEVICES]


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA device; skipped with a loud reason where there is none")


def pytest_collection_modifyitems(items):
    if HAS_CUDA:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=NO_GPU))


def pytest_terminal_summary(terminalreporter):
    missed = [r for r in terminalreporter.stats.get("skipped", []) if NO_GPU in str(r.longrepr)]
    if missed:
        terminalreporter.write_line(f"{len(missed)} GPU tests were NOT run: no CUDA device on this machine", yellow=True, bold=True)


@pytest.fixture(params=DEVICE_PARAMS)
def device(request):
    return request.param


@pytest.fixture
def cuda():
    """The device of a test that makes sense on a GPU only (mark it `gpu`)."""
    if not HAS_CUDA:
        pytest.skip(NO_GPU)
    return "cuda"


@pytest.fixture(autouse=True)
def store_of_its_own(monkeypatch):
    """What one test tunes does not steer the next."""
    monkeypatch.setenv("TRI_REDUCE_CACHE_DIR", os.path.join(STORES, str(next(NUMBERS))))


def poison(t):
    """Fill a fresh tensor with what an unwritten output would be recognised by."""
    if not isinstance(t, torch.Tensor) or t.is_meta or t.numel() == 0:
        return t
    with torch.no_grad():
        if t.is_floating_point() or t.is_complex():
            t.fill_(float("nan"))
        elif t.dtype is torch.bool:
            t.fill_(True)
        elif not t.is_quantized:
            t.fill_(int.from_bytes(b"\x5b" * t.element_size(), "big"))
    return t


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Every `torch.empty*` comes back full of NaN (or 0x5B bytes): an output that no kernel wrote cannot look right."""

    def patched(original):
        def empty(*args, **kwargs):
            return poison(original(*args, **kwargs))

        return empty

    for owner, names in (
        (torch, ("empty", "empty_like", "empty_strided", "empty_permuted")),
        (torch.Tensor, ("new_empty", "new_empty_strided")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, patched(getattr(owner, name)))


@pytest.fixture
def no_remembered_plans():
    """Calls are planned anew, and what this test plans is forgotten."""
    from tri_reduce import plans

    plans.PLANS.clear()
    yield
    plans.PLANS.clear()


@pytest.fixture
def directory(monkeypatch, tmp_path, no_remembered_plans):
    """Where tuned entries are kept: not there yet, and no plans made under another store."""
    monkeypatch.setenv("TRI_REDUCE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def reference(monkeypatch, no_remembered_plans):
    """CPU tensors take the PyTorch reference: for tests of what stands above the kernels, which need thousands of calls."""
    from tri_reduce import targets

    runs_kernels = targets.runs_kernels
    monkeypatch.setattr(targets, "runs_kernels", lambda d: d.type != "cpu" and runs_kernels(d))


@pytest.fixture
def long(monkeypatch):
    """Counts calls that were not recalled."""
    from tri_reduce import recall

    seen = []
    for name in ("_reduction", "_product"):
        original = getattr(recall, name)
        monkeypatch.setattr(recall, name, lambda *given, original=original: (seen.append(given), original(*given))[1])
    return seen
