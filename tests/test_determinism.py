"""`determinism`: what each level promises, and that a level nobody knows is refused."""

import pytest
import torch
from bounds import check
from devices import REFERENCE

import tri_reduce

LEVELS = ("run_to_run", "invariant", "none")


def noise(device, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(device)


def test_an_unknown_determinism_is_a_value_error_naming_the_three(device):
    x = torch.ones(3, device=device)
    for call in (lambda d: tri_reduce.reduce(x, "sum", determinism=d), lambda d: tri_reduce.gemv(x[None], x, determinism=d)):
        for bad in ("bitwise", "RUN_TO_RUN", ""):
            with pytest.raises(ValueError) as e:
                call(bad)
            assert all(level in str(e.value) for level in LEVELS)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("op", ["sum", "max", "logsumexp", "var", "argmax"])
def test_every_level_gives_the_right_answer(level, op, device):
    x = noise(device, 3, 4099)
    for dim in (0, 1, None):
        check(tri_reduce.reduce(x, op, dim, determinism=level), x, op, dim)


@pytest.mark.parametrize("level", ["run_to_run", "invariant"])
def test_the_same_call_gives_the_same_bits(level, device):
    x, a = noise(device, 2, 20011), noise(device, 5, 3001)
    first = tri_reduce.reduce(x, "sum", 1, determinism=level)
    product = tri_reduce.gemv(a, x[0, :3001], determinism=level)
    for _ in range(5):
        assert torch.equal(tri_reduce.reduce(x, "sum", 1, determinism=level), first)
        assert torch.equal(tri_reduce.gemv(a, x[0, :3001], determinism=level), product)


@pytest.mark.parametrize("op", ["sum", "mean", "var", "logsumexp", "norm"])
def test_invariant_gives_a_row_the_same_bits_alone_and_in_any_batch(op, device):
    x = noise(device, 67, 3001)
    whole = tri_reduce.reduce(x, op, 1, determinism="invariant")
    for a, b in ((0, 1), (0, 2), (5, 13), (66, 67), (1, 67)):
        assert torch.equal(tri_reduce.reduce(x[a:b], op, 1, determinism="invariant"), whole[a:b])


def test_invariant_gives_the_same_bits_whatever_was_tuned_before(device):
    x = noise(device, 4, 5003)
    want = tri_reduce.reduce(x, "sum", 1, determinism="invariant")
    with tri_reduce.autotune.policy("tune"):
        assert torch.equal(tri_reduce.reduce(x, "sum", 1, determinism="invariant"), want)
    assert torch.equal(tri_reduce.reduce(x, "sum", 1, determinism="invariant"), want)


def test_invariant_gemv_gives_a_row_the_same_bits_in_any_batch(device):
    a, x = noise(device, 33, 2049), noise(device, 2049)
    whole = tri_reduce.gemv(a, x, determinism="invariant")
    for i, j in ((0, 1), (7, 9), (32, 33)):
        assert torch.equal(tri_reduce.gemv(a[i:j], x, determinism="invariant"), whole[i:j])


@pytest.mark.skipif(REFERENCE, reason="without kernels a forced split is ignored")
def test_an_illegal_split_is_a_value_error_that_says_split(device):
    x = torch.ones(2, 64, device=device)
    for n in (0, -1):
        with pytest.raises(ValueError, match="split"), tri_reduce.force(split=n):
            tri_reduce.reduce(x, "sum", 1)


def test_a_planned_call_is_refused_once_torch_forbids_it(device):
    x = noise(device, 5, 300)
    tri_reduce.reduce(x, "sum", 1, determinism="none")
    tri_reduce.gemv(x, x[0], determinism="none")
    torch.use_deterministic_algorithms(True)
    try:
        for call in (lambda: tri_reduce.reduce(x, "sum", 1, determinism="none"), lambda: tri_reduce.gemv(x, x[0], determinism="none")):
            with pytest.raises(RuntimeError, match="determinism"):
                call()
    finally:
        torch.use_deterministic_algorithms(False)
