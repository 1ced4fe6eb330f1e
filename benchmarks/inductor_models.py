"""Training steps that torch.compile compiled, with Inductor's own candidates and with tri_reduce's: needs a GPU.

    python benchmarks/inductor_models.py [--models llama resnet50] [--modes pick] [--budget 180] [--json FILE]

For each generated reduction kernel (triton_red_*, triton_per_*): its mean GPU time in a step, from torch's profiler, and the ratio of the
two; for the step: the GPU time of all its kernels, and from start to end as a CUDA graph, since the host takes longer than the GPU to
launch these steps. A ratio above 1 means that tri_reduce's candidates are faster.
What would not fit in the budget of seconds is left out, and said so; the file is written after each measurement.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from models import Llama, ResNet
from torch import nn

from tri_reduce import inductor

REDUCTIONS = re.compile(r"triton_(red|per)_")
OWN = "inductor"  # the mode without a patch
TOTALS = ("reductions_ms", "gpu_ms", "step_ms")
Step = Callable[[], torch.Tensor]


def resnet50(batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """ResNet-50 with images and labels."""
    return ResNet(), torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))


def llama(batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A small Llama with tokens and the ones that follow them."""
    tokens = torch.randint(32000, (max(1, batch // 16), 1025))
    return Llama(), tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


MODELS = {"llama": llama, "resnet50": resnet50}  # the quicker to compile first


def training_step(name: str, batch: int) -> Step:
    """A compiled forward and backward in bfloat16 with an AdamW step, from the same weights and data each time."""
    torch.manual_seed(0)
    model, inputs, labels = MODELS[name](batch)
    model, inputs, labels = model.cuda(), inputs.cuda(), labels.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)

    @torch.compile(dynamic=False)
    def loss_of(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            out = model(inputs)
        return F.cross_entropy(out.float().flatten(0, -2), labels.flatten())

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: torch.Tensor = loss_of(inputs, labels)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    return step


def measure(name: str, mode: str, batch: int, steps: int) -> dict[str, Any]:
    """Compile a step under a mode and time it: microseconds on the GPU by kernel, milliseconds for the step."""
    torch.compiler.reset()
    began = time.perf_counter()
    with contextlib.nullcontext() if mode == OWN else inductor.patched(mode):
        step = training_step(name, batch)
        first = step().item()
    compiled = time.perf_counter() - began
    for _ in range(3):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            last = step()
        torch.cuda.synchronize()
    took = as_graph(step, 3 * steps)
    totals = {e.key: (e.self_device_time_total, e.count) for e in profile.key_averages() if on_device(e)}
    reductions = {key: (us, count) for key, (us, count) in totals.items() if REDUCTIONS.match(key)}
    return {
        "compile_s": compiled,
        "took_s": time.perf_counter() - began,
        "first_loss": first,
        "last_loss": last.item(),
        "step_ms": took,
        "gpu_ms": sum(us for us, _ in totals.values()) / steps / 1e3,
        "reductions_ms": sum(us for us, _ in reductions.values()) / steps / 1e3,
        "kernels": {key: us / count for key, (us, count) in reductions.items()},
    }


def as_graph(step: Step, replays: int) -> float:
    """Milliseconds of a replay of the step as a CUDA graph: the median."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    whole = []
    for _ in range(replays):
        start, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        whole.append(start.elapsed_time(end))
    return statistics.median(whole)


def on_device(event: Any) -> bool:
    """A kernel or a copy, not the stretch of the GPU's time line that some named range of the host spans."""
    named = getattr(event, "is_user_annotation", False) or event.key.startswith(("##", "Torch-Compiled"))
    return event.device_type.name == "CUDA" and event.self_device_time_total > 0 and not named


def compare(own: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Ratios of Inductor's times to ours, of the kernels that both have by name."""
    both = [key for key in own["kernels"] if key in ours["kernels"]]
    ratios = {key: own["kernels"][key] / ours["kernels"][key] for key in both}
    return {
        "kernels": ratios,
        "geomean": statistics.geometric_mean(ratios.values()) if ratios else None,
        "worst": min(ratios.values(), default=None),
        "slower_by_5": sum(ratio < 0.95 for ratio in ratios.values()),
        "unmatched": len(own["kernels"]) + len(ours["kernels"]) - 2 * len(both),
        **{key: own[key] / ours[key] if ours[key] else None for key in TOTALS},
    }


def report(name: str, mode: str, own: dict[str, Any], ours: dict[str, Any], ratio: dict[str, Any]) -> None:
    """Print one comparison."""
    losses = f"{own['first_loss']:.4f} to {own['last_loss']:.4f} / {ours['first_loss']:.4f} to {ours['last_loss']:.4f}"
    print(f"\n{name}, {OWN} / {mode}: loss {losses}, compiled in {own['compile_s']:.1f} / {ours['compile_s']:.1f} s")
    for key, value in sorted(ratio["kernels"].items(), key=lambda item: -own["kernels"][item[0]]):
        print(f"  {key[:72]:72} {own['kernels'][key]:8.2f} {ours['kernels'][key]:8.2f} us {value:6.2f}x")
    if ratio["kernels"]:
        print(
            f"  {len(ratio['kernels'])} kernels: geometric mean {ratio['geomean']:.3f}x, worst {ratio['worst']:.3f}x, "
            f"{ratio['slower_by_5']} slower by more than 5% ({ratio['unmatched']} without a partner)"
        )
    for key in TOTALS:
        print(f"  {key:14} {own[key]:9.3f} {ours[key]:9.3f} {ratio[key] or 0:6.3f}x", flush=True)


def main() -> int:
    """Run the models; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--modes", nargs="+", choices=list(inductor.MODES), default=["pick"], help="compared to Inductor's own")
    parser.add_argument("--batch", type=int, default=64, help="images; a sixteenth as many sequences of 1024 tokens (default: 64)")
    parser.add_argument("--steps", type=int, default=10, help="timed steps, and as many profiled ones (default: 10)")
    parser.add_argument("--budget", type=float, default=180, help="seconds: what would end later is not begun (default: 180)")
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "no GPU: torch.compile generates Triton kernels for one only\n")
    began = time.perf_counter()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "models": {}}
    longest = 0.0  # that a measurement of the models before took
    for name in args.models:
        timed: dict[str, Any] = {}
        found["models"][name] = timed
        for mode in (OWN, *args.modes):
            expected = timed[OWN]["took_s"] if OWN in timed else longest
            if time.perf_counter() - began + expected > args.budget:
                print(f"{name}, {mode}: left out, it would pass the budget of {args.budget:g} s")
                continue
            timed[mode] = measure(name, mode, args.batch, args.steps)
            longest = max(longest, timed[mode]["took_s"])
            if mode != OWN and OWN in timed:
                timed[f"{OWN}/{mode}"] = compare(timed[OWN], timed[mode])
                report(name, mode, timed[OWN], timed[mode], timed[f"{OWN}/{mode}"])
            if args.json:
                args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
