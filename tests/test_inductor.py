"""`tri_reduce.inductor`: Inductor's own functions, asked for configs with and without the patch. No GPU is needed."""

import json
import subprocess
import sys
import types

import pytest
import torch

pytest.importorskip("triton")
import triton
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties, ReductionHint
from torch.compiler import config

from tri_reduce import inductor
from tri_reduce.configs import inductor_candidates
from tri_reduce.inductor_list import with_own

DEVICE = DeviceProperties("cuda", 0, 132, 90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32)
SIGNATURE = {"out_ptr0": "*fp32", "in_ptr0": "*bf16", "xnumel": "i32", "r0_numel": "i32"}
SIZES = {"x": 65536, "r0_": 512}
POINTERS = ["*fp32", "*bf16"]
WANTED = inductor_candidates(SIZES, "OUTER", 1, 3, POINTERS)
DYNAMIC = inductor_candidates(SIZES, "OUTER", 1, 3, POINTERS, dynamic=("x", "r0_"))
PATCHED = ["cached_autotune", "reduction", "persistent_reduction"]


@triton.jit
def generated(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK, R0_BLOCK):
    xnumel = 65536
    r0_numel = 512
    return xnumel + r0_numel


@triton.jit
def odd(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK, R0_BLOCK):
    xnumel = 51200
    r0_numel = 511
    return xnumel + r0_numel


@triton.jit
def dynamic(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK, R0_BLOCK):
    pass


@pytest.fixture(autouse=True)
def _leaves_nothing():
    def state():
        held = TritonKernel.__dict__["inductor_meta_common"]
        return [getattr(triton_heuristics, name) for name in PATCHED], held, config.cache_key_tag

    before = state()
    yield
    inductor.uninstall()
    assert state() == before


def tuner(heuristic="reduction", sizes=SIZES, hint="OUTER", device=DEVICE, function=generated, **meta):
    """What a generated kernel becomes."""
    meta = {"num_load": 1, "num_reduction": 3, "kernel_name": "k", "backend_hash": "", "autotune_local_cache": False, **meta}
    decorate = getattr(triton_heuristics, heuristic)(
        dict(sizes),
        reduction_hint=ReductionHint[hint],
        filename=__file__,
        triton_meta={"signature": dict(SIGNATURE), "device": device, "constants": {}, "configs": [{}]},
        inductor_meta=meta,
    )
    return decorate(function)


def configs(*args, **kwargs):
    """(XBLOCK, R0_BLOCK, num_warps) that a generated kernel gets."""
    return keys(tuner(*args, **kwargs).configs)


def keys(configs):
    return [(c.kwargs["XBLOCK"], c.kwargs.get("R0_BLOCK"), c.num_warps) for c in configs]


def test_pick_gives_the_first_candidate():
    with inductor.patched("pick"):
        assert configs() == WANTED[:1]


def test_tune_gives_every_candidate_and_those_of_inductor():
    own = configs()
    with inductor.patched("tune"):
        found = configs()
    assert found == with_own(WANTED, own)
    assert found[0] == WANTED[0] and set(own) <= set(found) and len(found) <= 10


def test_persistent_kernels_get_candidates_without_an_r0_block():
    sizes = {"x": 4096, "r0_": 32}
    own = configs("persistent_reduction", sizes)
    with inductor.patched("tune"):
        found = configs("persistent_reduction", sizes)
    assert found == with_own(inductor_candidates(sizes, "OUTER", 1, 3, POINTERS, persistent=True), own)


@pytest.mark.parametrize("function, sizes", [(odd, {"x": 51200, "r0_": 511}), (generated, SIZES)])
def test_the_sizes_are_those_of_the_source(function, sizes):
    with inductor.patched("pick"):
        assert configs(function=function) == inductor_candidates(sizes, "OUTER", 1, 3, POINTERS)[:1]


def test_a_reduction_that_its_parts_do_not_divide_is_masked():
    source = "    xnumel = 50176\n    r0_numel = 128\n        tmp3 = tl.load(in_ptr0 + (x0 + 512*r0_2), {}, other=0.0)\n"
    hints = {"x": 65536, "r0_": 128}
    assert inductor._sizes(hints, source.format("r0_mask & xmask")) == {"x": 50176, "r0_": 128}
    for mask in ("r0_mask & tmp2 & xmask", "tmp2", "tmp2 & xmask"):
        assert inductor._sizes(hints, source.format(mask)) == {"x": 50176}


def test_sizes_that_are_arguments_are_masked():
    with inductor.patched("pick"):
        assert configs(function=dynamic) == DYNAMIC[:1] != WANTED[:1]
        assert (
            configs(function=odd, sizes={"x": 1, "r0_": 512}, hint="INNER")
            == inductor_candidates({"x": 1, "r0_": 511}, "INNER", 1, 3, POINTERS, dynamic=("x",))[:1]
        )


def test_kernels_that_hold_several_get_the_candidates_too():
    if "return_configs" not in triton_heuristics.reduction.__code__.co_varnames:
        pytest.skip("this torch has no such kernels")
    meta = {"device": DEVICE, "signature": SIGNATURE}
    with inductor.patched("pick"):
        found = triton_heuristics.reduction(
            dict(SIZES), ReductionHint.OUTER, meta, inductor_meta={"num_load": 1, "num_reduction": 3}, return_configs=True
        )
    assert keys(found) == DYNAMIC[:1]


def joined(kernel):
    """What Inductor adds to its configs once they are compiled, where they leave no room for a second program."""

    def compiled(config, n_regs=32):
        return types.SimpleNamespace(config=config, kernel=types.SimpleNamespace(n_regs=n_regs))

    kernel.compile_results = [compiled(config, n_regs=255) for config in kernel.configs]
    kernel._precompile_config = compiled
    kernel._make_launchers = lambda: None
    kernel._ensure_kernel_loaded = lambda: None
    before = len(kernel.compile_results)
    kernel._dynamic_scale_rblock()
    return keys(result.config for result in kernel.compile_results[before:])


@pytest.mark.parametrize("mode", inductor.MODES)
def test_no_config_is_joined_by_smaller_ones(mode):
    case = dict(sizes={"x": 4096, "r0_": 32768}, hint="INNER")
    if not hasattr(tuner(**case), "_dynamic_scale_rblock"):
        pytest.skip("this torch does it elsewhere")
    assert joined(tuner(**case))
    with inductor.patched(mode):
        assert joined(tuner(**case)) == []


def test_other_gpus_are_scaled_by_their_cores():
    with inductor.patched("pick"):
        found = configs(device=DEVICE._replace(multi_processor_count=30))
    assert found[0][0] > WANTED[0][0]


@pytest.mark.parametrize(
    "case",
    [
        dict(deterministic=True),
        dict(batch_invariant=True),
        dict(sizes={"x": 512, "r0_": 64, "r1_": 64}, tiling_scores={"x": 1, "r0_": 1, "r1_": 1}),
        dict(device=DEVICE._replace(type="xpu")),
        dict(tma_min_block_sizes={"XBLOCK": 1}),
    ],
    ids=lambda case: next(iter(case)),
)
def test_what_is_not_ours_to_choose_is_left_to_inductor(case):
    own = configs(**case)
    with inductor.patched("tune"):
        assert configs(**case) == own


def test_cooperative_kernels_are_left_to_inductor():
    def found():
        meta = {"num_load": 1, "num_reduction": 1, "persistent_reduction": False}
        decorate = triton_heuristics.cooperative_reduction(
            {"x": 4, "r0_": 1 << 20}, ReductionHint.INNER, {"device": DEVICE, "signature": SIGNATURE, "configs": [{}]}, __file__, meta
        )
        return [(c.kwargs, c.num_warps) for c in decorate(generated).configs]

    own = found()
    with inductor.patched("tune"):
        assert found() == own


def test_after_uninstall_inductor_has_its_own_again():
    own = configs()
    inductor.install("tune")
    inductor.install("pick")
    assert configs() != own
    inductor.uninstall()
    assert configs() == own


def test_uninstall_without_install_does_nothing():
    inductor.uninstall()


def test_patched_nests_and_restores_after_an_exception():
    own = configs()
    with inductor.patched("pick"):
        with pytest.raises(ZeroDivisionError), inductor.patched("tune"):
            assert configs() == with_own(WANTED, own)
            _ = 1 // 0
        assert configs() == WANTED[:1]
    assert configs() == own


def test_an_unknown_mode_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'fast'.*pick, tune"):
        inductor.install("fast")


@pytest.mark.parametrize("name", PATCHED)
def test_a_torch_with_other_internals_is_refused_and_left_as_it_is(monkeypatch, name):
    with monkeypatch.context() as changed:
        changed.setattr(triton_heuristics, name, lambda sizes, configs: None)
        with pytest.raises(RuntimeError, match=name):
            inductor.install()
        assert not inductor._STATE.undo
    assert "tri_reduce" not in config.cache_key_tag


def test_the_modes_share_no_cache_of_compiled_graphs():
    tags = {config.cache_key_tag}
    for mode in inductor.MODES:
        with inductor.patched(mode):
            tags.add(config.cache_key_tag)
    assert len(tags) == 3


@pytest.fixture
def mark_of(monkeypatch):
    """The mark in the source of what is compiled in a mode; a backend's hash would need a GPU."""
    monkeypatch.setattr(torch.utils._triton, "triton_hash_with_backend", lambda: "hash")

    def mark(mode):
        with inductor.patched(mode):
            return TritonKernel.inductor_meta_common()["tri_reduce"]

    return mark


def test_generated_source_says_its_mode(mark_of):
    with inductor.patched("tune"):
        mark = mark_of("tune")
        assert eval(repr(mark)) == mark
        assert mark.startswith("tune-")


def test_a_compile_worker_gets_the_candidates_from_the_source_alone(mark_of, tmp_path):
    source = f"""
import json, torch, triton
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties, ReductionHint
@triton.jit
def generated(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK, R0_BLOCK):
    xnumel = 65536
    r0_numel = 512
found = {{}}
for mark in ({{"tri_reduce": {mark_of("pick")!r}}}, {{}}):
    meta = {{"num_load": 1, "num_reduction": 3, "kernel_name": "k", "backend_hash": "", "autotune_local_cache": False, **mark}}
    triton_meta = {{"signature": {SIGNATURE!r}, "device": {DEVICE!r}, "constants": {{}}, "configs": [{{}}]}}
    tuner = triton_heuristics.reduction({SIZES!r}, ReductionHint.OUTER, triton_meta, "f.py", meta)(generated)
    found[str(bool(mark))] = [(c.kwargs["XBLOCK"], c.kwargs["R0_BLOCK"], c.num_warps) for c in tuner.configs]
print(json.dumps(found))
"""
    (tmp_path / "kernel.py").write_text(source)  # Triton reads a kernel's source from its file
    done = subprocess.run([sys.executable, tmp_path / "kernel.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["True"] == [list(c) for c in WANTED[:1]]
    assert found["False"] != found["True"]


@pytest.mark.gpu
@pytest.mark.parametrize("mode", inductor.MODES)
def test_a_compiled_function_gives_the_same_result(mode):
    def function(x):
        return torch.var_mean(x.float(), 0), torch.softmax(x.float(), 1).sum(0)

    x = torch.randn(2048, 768, device="cuda", dtype=torch.bfloat16)
    torch.compiler.reset()
    with inductor.patched(mode):
        found = torch.compile(function)(x)
    torch.compiler.reset()
    torch.testing.assert_close(found, function(x))
