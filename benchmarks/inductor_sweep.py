"""Every reduction kernel of the compiled training steps, timed over a lattice of configs on the arguments of its first call: needs a GPU.

    python benchmarks/inductor_sweep.py FILE [--models llama resnet50] [--limit 28] [--budget 230]

FILE: JSON, a record a kernel. own: Inductor's configs, with the halves of R0_BLOCK that it would add on this GPU; ours: tri_reduce's list;
t: [XBLOCK, R0_BLOCK (null: persistent), num_warps, microseconds with a cold L2, with a warm one, registers a thread, spills], medians of
the GPU's own time of the kernel. What fitted `tri_reduce.inductor_list` is in there, and what judges it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from inductor_lattice import KEY, Captured, halved, kernels_of, keys
from inductor_models import MODELS, REDUCTIONS, training_step

FLUSH = 256 << 20  # bytes written before a cold call: several times the L2
COLD, WARM = 20, 10  # calls of each config


class Unseen(RuntimeError):
    """The profiler lost calls, so that times cannot be told apart."""


def captured(name: str, batch: int, limit: int) -> list[Captured]:
    """The kernels of one training step."""
    from torch._inductor.async_compile import AsyncCompile

    torch.compiler.reset()
    AsyncCompile.wait_pool_ready()
    with torch._inductor.config.patch(force_disable_caches=True), kernels_of(limit) as kernels:
        training_step(name, batch)()
        torch.cuda.synchronize()
    return kernels


def timed(kernel: Captured, flush: torch.Tensor) -> list[tuple[float, float] | None]:
    """(cold, warm) microseconds of each launcher, None where the GPU refused it."""
    args, _ = kernel.tuner.clone_args(*kernel.args)  # it may write to its inputs
    stream = torch.cuda.current_stream().cuda_stream
    runs = [n for n, launcher in enumerate(kernel.launchers) if _launches(launcher, args, stream)]
    rng = random.Random(0)
    order = [rng.sample(runs, len(runs)) for _ in range(COLD + WARM)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for round_, launchers in enumerate(order):
            for n in launchers:
                if round_ < COLD:
                    flush.zero_()
                kernel.launchers[n](*args, stream=stream)
            torch.cuda.synchronize()
    events = sorted((e for e in profile.events() if on_gpu(e)), key=lambda e: e.time_range.start)
    calls = [n for launchers in order for n in launchers]
    if len(events) != len(calls):
        raise Unseen(f"{kernel.tuner.fn.__name__}: the profiler saw {len(events)} of {len(calls)} calls")
    times: dict[int, list[float]] = {n: [] for n in runs}
    for n, event in zip(calls, events):
        times[n].append(event.time_range.elapsed_us())
    both = {n: (statistics.median(us[:COLD]), statistics.median(us[COLD:])) for n, us in times.items()}
    return [both.get(n) for n in range(len(kernel.launchers))]


def _launches(launcher: Any, args: Sequence[Any], stream: int) -> bool:
    try:
        launcher(*args, stream=stream)
        torch.cuda.synchronize()
    except RuntimeError as reason:  # more registers or shared memory than a program may have
        print(f"  {launcher.config}: {reason}")
        return False
    return True


def on_gpu(event: Any) -> bool:
    """A call of the kernel, among the flushes and what the host did."""
    return event.device_type.name == "CUDA" and REDUCTIONS.match(event.name) is not None


def record(model: str, kernel: Captured, times: Sequence[tuple[float, float] | None]) -> dict[str, Any]:
    """A kernel as the file has it."""
    tuner, configs = kernel.tuner, keys(kernel.launchers)
    meta, signature = tuner.inductor_meta, tuner.triton_meta["signature"]
    passed = dict(zip(signature, kernel.args))
    tensors = {name: arg for name, arg in passed.items() if isinstance(arg, torch.Tensor)}
    regs = {config: launcher.n_regs for config, launcher in zip(configs, kernel.launchers)}
    own = [tuple(config) for config in meta[KEY]["own"]]
    cores = torch.cuda.get_device_properties().multi_processor_count
    return {
        "model": model,
        "name": tuner.fn.__name__,
        "size_hints": tuner.size_hints,
        "numels": {name: arg for name, arg in passed.items() if isinstance(arg, int)},
        "hint": meta["reduction_hint"].name,
        "kind": tuner.heuristic_type.name,
        "meta": {name: value for name, value in meta.items() if name.startswith(("num_", "tiling", "kernel_num_gb", "optimize_mem"))},
        "pointers": {name: [signature[name], arg.numel(), arg.nbytes] for name, arg in tensors.items()},
        "mutated": list(tuner.mutated_arg_names),
        "own": [*own, *halved(own, regs, tuner.size_hints["x"], cores)],
        "ours": meta[KEY]["ours"],
        "t": [
            [*config, *(time_ or (None, None)), launcher.n_regs, launcher.n_spills]
            for config, time_, launcher in zip(configs, times, kernel.launchers)
        ],
    }


def report(found: dict[str, Any]) -> None:
    """Print a kernel's best times: Inductor's own, our first, our list's, the lattice's."""
    cold = {(x, r0, warps): us for x, r0, warps, us, *_ in found["t"] if us}
    own = min(cold.get(tuple(c), math.inf) for c in found["own"])
    ours = [cold.get(tuple(c), math.inf) for c in found["ours"]]
    first, best = ours[0], min(ours)
    sizes = "x".join(map(str, found["size_hints"].values()))
    print(f"  {found['name'][:60]:60} {sizes:>14} {own:8.2f} {first:8.2f} {best:8.2f} {min(cold.values()):8.2f} us", flush=True)


def main() -> int:
    """Sweep the models; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--batch", type=int, default=64, help="as inductor_models.py has it (default: 64)")
    parser.add_argument("--limit", type=int, default=28, help="configs a kernel (default: 28)")
    parser.add_argument("--budget", type=float, default=230, help="seconds after which no kernel is timed (default: 230)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "no GPU: torch.compile generates Triton kernels for one only\n")
    began = time.perf_counter()
    flush = torch.empty(FLUSH, dtype=torch.int8, device="cuda")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "kernels": []}
    for model in args.models:
        kernels = captured(model, args.batch, args.limit)
        print(f"{model}: {len(kernels)} kernels compiled after {time.perf_counter() - began:.0f} s; own, our first, our best, best")
        for n, kernel in enumerate(kernels):
            if time.perf_counter() - began > args.budget:
                print(f"{model}: {len(kernels) - n} kernels left out, the budget of {args.budget:g} s is spent")
                break
            try:
                found["kernels"].append(record(model, kernel, timed(kernel, flush)))
            except Unseen as reason:
                print(f"  {reason}")
                continue
            report(found["kernels"][-1])
        args.file.write_text(json.dumps(found, default=str) + "\n")
        del kernels
    print(f"{len(found['kernels'])} kernels, {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
