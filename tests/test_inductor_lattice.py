"""`benchmarks/inductor_lattice.py`: what a sweep times, and how it reaches a compile worker. No GPU is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from inductor_lattice import half, halved, kernels_of, lattice
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.runtime import triton_heuristics

BENCHMARKS = sys.path[0]
SIZES = {"x": 4096, "r0_": 512}
OWN, OURS = [(64, 8, 4)], [(16, 16, 2), (32, 16, 4), (16, 4, 2), (8, 64, 4), (4, 64, 2), (4, 32, 2), (2, 2, 2)]


def test_own_configs_their_halves_and_the_best_of_ours_come_first():
    found = lattice(SIZES, OWN, OURS, 16)
    assert found[:9] == [(64, 8, 4), (64, 4, 4), *OURS]
    assert len(set(found)) == len(found) == 16


def test_the_rest_are_one_step_from_an_anchor():
    for x, r0, warps in lattice(SIZES, OWN, OURS, 16)[9:]:
        ratios = [(x / a, r0 / b, warps / c) for a, b, c in (OWN[0], OURS[0])]
        assert any(sorted(steps) in ([0.5, 1, 1], [1, 1, 2]) for steps in ratios)


def test_every_config_is_within_the_sizes():
    for x, r0, warps in lattice({"x": 4, "r0_": 16}, [(4, 16, 2)], [(1, 16, 2)], 50):
        assert 1 <= x <= 4 and 1 <= r0 <= 16 and 1 <= warps <= 2


def test_persistent_kernels_have_no_r0_block():
    found = lattice({"x": 4096, "r0_": 1024}, [(1, None, 1)], [(4, None, 16)], 16)
    assert {r0 for _, r0, _ in found} == {None}
    assert (1, None, 2) in found and (8, None, 16) in found


def test_own_configs_are_never_cut():
    own = [(1 << n, None, 2) for n in range(5)]
    assert lattice(SIZES, own, [(1, None, 4)], 3) == own


def test_inductor_halves_what_keeps_programs_from_a_core():
    config = (1, 2048, 16)
    assert halved([config], {config: 64}, x=4096, cores=132) == [half(config)] == [(1, 1024, 16)]
    assert halved([config], {config: 32}, x=4096, cores=132) == []
    assert halved([config], {config: 64}, x=128, cores=132) == []
    assert halved([(64, 8, 4)], {(64, 8, 4): 64}, x=1 << 20, cores=132) == []


def test_a_compile_worker_gets_the_lattice_from_the_source_alone(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.utils._triton.triton_hash_with_backend", lambda: "hash")
    before = triton_heuristics.cached_autotune, TritonKernel.__dict__["inductor_meta_common"]
    with kernels_of(12) as kernels:
        meta = TritonKernel.inductor_meta_common()
    assert kernels == [] and before == (triton_heuristics.cached_autotune, TritonKernel.__dict__["inductor_meta_common"])
    source = f"""
import json, sys, triton
sys.path.insert(0, {BENCHMARKS!r})
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties, ReductionHint
device = DeviceProperties("cuda", 0, 132, 90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32)
meta = {{**{meta!r}, "num_load": 1, "num_reduction": 3, "kernel_name": "k", "autotune_local_cache": False}}
@triton.jit
def generated(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK, R0_BLOCK):
    pass
triton_meta = {{"signature": {{"in_ptr0": "*bf16", "out_ptr0": "*fp32"}}, "device": device, "constants": {{}}, "configs": [{{}}]}}
tuner = triton_heuristics.reduction({SIZES!r}, ReductionHint.OUTER, triton_meta, "f.py", meta)(generated)
tried = [(c.kwargs["XBLOCK"], c.kwargs["R0_BLOCK"], c.num_warps) for c in tuner.configs]
print(json.dumps([tried, tuner.inductor_meta["tri_reduce_lattice"], tuner.inductor_meta["dynamic_scale_rblock"]]))
"""
    (tmp_path / "kernel.py").write_text(source)  # Triton reads a kernel's source from its file
    done = subprocess.run([sys.executable, tmp_path / "kernel.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tried, marks, scaled = json.loads(done.stdout)
    assert len(tried) == 12 and not scaled
    assert tried[: len(marks["own"])] == marks["own"] and marks["ours"][0] in tried
