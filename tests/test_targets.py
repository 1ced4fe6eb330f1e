"""Which Target a device is: facts of a known card where it is that card, the driver's where it is not."""

import dataclasses
import types

import pytest
import torch

from tri_reduce import targets
from tri_reduce.targets import H200, Target, by_name, compiler_target, current, named_device, runs_kernels


@pytest.fixture
def card(monkeypatch):
    """Pretend to be a card: its Target, from what the driver says of it."""
    pytest.importorskip("triton")

    def pretend(name, cores, major=9, minor=0, hip=None, gbps=1008.0):
        facts = types.SimpleNamespace(
            name=name, multi_processor_count=cores, major=major, minor=minor, gcnArchName=f"{hip}:sramecc+", warp_size=64
        )
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: facts)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr("triton.testing.get_dram_gbps", lambda index: gbps)
        monkeypatch.setattr(targets, "HAS_TRITON", True)
        monkeypatch.setattr(targets, "interpreting", lambda: False)
        return targets.of_device.__wrapped__("cuda", 0)

    return pretend


def test_a_known_card_is_itself(card):
    assert card("NVIDIA H200", 132) is H200
    assert card("NVIDIA H100 80GB HBM3", 132) is by_name("h100") and card("NVIDIA A100-SXM4-80GB", 108, 8) is by_name("a100")


def test_a_relative_has_its_facts_but_nothing_that_was_timed_or_tuned(card):
    relative = card("NVIDIA GH200 480GB", 132)
    assert relative == dataclasses.replace(H200, name="nvidia gh200 480gb", timed="") and relative.key != H200.key


def test_a_part_of_a_card_or_an_unknown_one_is_what_the_driver_says(card):
    part = card("NVIDIA H200 MIG 1g.18gb", 16)
    assert (part.cores, part.arch, part.timed, part.backend) == (16, 90, "", "cuda")
    other = card("NVIDIA RTX 4090", 128, 8, 9)
    assert (other.arch, other.cores, other.warp, other.overlaps) == (89, 128, 32, False)
    assert other.bandwidth == pytest.approx(0.92 * 1008e9) and card("NVIDIA RTX 4090", 128, 8, 9, gbps=0).bandwidth == 1e12
    amd = card("AMD Instinct MI250X", 110, hip="gfx90a")
    assert (amd.backend, amd.arch, amd.warp, amd.max_threads) == ("hip", "gfx90a", 64, targets.HIP_THREADS)


def test_a_new_card_is_one_target(card, monkeypatch):
    new = Target("x100", "cuda", 110, 32, 200, 9e12)
    monkeypatch.setitem(targets._KNOWN, "x100", new)
    assert by_name("X100") is new and by_name(new) is new and card("NVIDIA X100", 200, 11) is new
    assert not new.timed and new.overlaps == H200.overlaps
    with pytest.raises(ValueError, match=r"unknown target 'y100': expected one of h200, .*x100"):
        by_name("y100")


def test_what_the_compiler_is_told():
    pytest.importorskip("triton")
    found = compiler_target(by_name("mi300x"))
    assert (found.backend, found.arch, found.warp_size) == ("hip", "gfx942", 64)


def test_devices_by_name(monkeypatch):
    assert named_device(None) == torch.device("cpu") and named_device("cuda:1") == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert named_device("cuda") == torch.device("cuda", 3)
    with current(torch.device("cpu")) as nothing:
        assert nothing is None
    assert not runs_kernels(torch.device("meta")) and runs_kernels(torch.device("cuda"))


@pytest.mark.gpu
def test_what_the_driver_says_of_a_known_card_is_near_what_was_measured():
    known = targets.of_device("cuda", 0)
    if known.name not in targets._KNOWN:
        pytest.skip(f"nothing was measured of {known.name}")
    assert targets._bandwidth(0) == pytest.approx(known.bandwidth, rel=0.15)
