"""Training steps that torch.compile compiled, with Inductor's own candidates and with tri_reduce's: needs a GPU.

    python benchmarks/inductor_models.py [--models resnet50 llama] [--modes pick] [--budget 170] [--json FILE]

For each generated reduction kernel (triton_red_*, triton_per_*): its mean GPU time in a step, from torch's profiler, and the ratio of the
two; for the step: the GPU time of all its kernels, and from start to end. A ratio above 1 means that tri_reduce's candidates are faster.
What does not fit in the budget of seconds is left out, and said so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tri_reduce import inductor

REDUCTIONS = re.compile(r"triton_(red|per)_")
OWN = "inductor"  # the mode without a patch
Step = Callable[[], torch.Tensor]


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """[B, T, width] -> [B, T, width]; turn: cosines and sines [T, width / heads]."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k = ((t * turn[0] + torch.cat((-t.chunk(2, -1)[1], t.chunk(2, -1)[0]), -1) * turn[1]).to(v.dtype) for t in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Layer(nn.Module):
    """One layer of a Llama: both halves after a root-mean-square norm, with a gated feed-forward."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up, self.down = (nn.Linear(i, o, bias=False) for i, o in ((width, hidden), (width, hidden), (hidden, width)))

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """[B, T, width] -> [B, T, width]."""
        x = x + self.attention(self.before(x), turn)
        y = self.between(x)
        out: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class Llama(nn.Module):
    """A small Llama in plain torch."""

    def __init__(self, width: int = 1024, heads: int = 16, hidden: int = 2816, layers: int = 4, vocabulary: int = 32000) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, T] -> logits [B, T, vocabulary]."""
        size = self.width // self.heads
        rates = 10000 ** (-torch.arange(0, size, 2, device=tokens.device) / size)
        angles = torch.outer(torch.arange(tokens.shape[1], device=tokens.device), rates).repeat(1, 2)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, (angles.cos(), angles.sin()))
        out: torch.Tensor = self.head(self.norm(x))
        return out


def resnet50(batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """torchvision's ResNet-50 with images and labels."""
    from torchvision.models import resnet50 as build

    return build(), torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))


def llama(batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A small Llama with tokens and the ones that follow them."""
    tokens = torch.randint(32000, (max(1, batch // 16), 1025))
    return Llama(), tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


MODELS = {"resnet50": resnet50, "llama": llama}


def training_step(name: str, batch: int) -> Step:
    """A compiled forward and backward in bfloat16 with an AdamW step, from the same weights and data each time."""
    torch.manual_seed(0)
    model, inputs, labels = MODELS[name](batch)
    model, inputs, labels = model.cuda(), inputs.cuda(), labels.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

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
    if mode == OWN:
        step = training_step(name, batch)
        first = step()
    else:
        with inductor.patched(mode):
            step = training_step(name, batch)
            first = step()
    torch.cuda.synchronize()
    compiled = time.perf_counter() - began
    for _ in range(3):
        step()
    whole = []
    for _ in range(steps):
        start, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
        start.record()
        step()
        end.record()
        end.synchronize()
        whole.append(start.elapsed_time(end))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            last = step()
        torch.cuda.synchronize()
    totals = {e.key: (e.self_device_time_total / steps, e.count // steps) for e in profile.key_averages() if e.self_device_time_total}
    return {
        "compile_s": round(compiled, 1),
        "first_loss": first.item(),
        "last_loss": last.item(),
        "step_ms": statistics.median(whole),
        "gpu_ms": sum(us for us, _ in totals.values()) / 1e3,
        "kernels": {key: us / max(count, 1) for key, (us, count) in totals.items() if REDUCTIONS.match(key)},
        "reductions_ms": sum(us for key, (us, _) in totals.items() if REDUCTIONS.match(key)) / 1e3,
    }


def compare(own: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Ratios of Inductor's times to ours, of the kernels that both have by name."""
    both = [key for key in own["kernels"] if key in ours["kernels"]]
    ratios = {key: own["kernels"][key] / ours["kernels"][key] for key in both}
    return {
        "kernels": ratios,
        "geomean": statistics.geometric_mean(ratios.values()) if ratios else math.nan,
        "unmatched": len(own["kernels"]) + len(ours["kernels"]) - 2 * len(both),
        **{key: own[key] / ours[key] for key in ("reductions_ms", "gpu_ms", "step_ms") if ours[key]},
    }


def report(name: str, mode: str, own: dict[str, Any], ours: dict[str, Any], ratio: dict[str, Any]) -> None:
    """Print one comparison."""
    print(
        f"\n{name}, {mode}: loss {own['last_loss']:.4f} / {ours['last_loss']:.4f}, compiled in {own['compile_s']} / {ours['compile_s']} s"
    )
    for key, value in sorted(ratio["kernels"].items(), key=lambda item: -own["kernels"][item[0]]):
        print(f"  {key[:72]:72} {own['kernels'][key]:8.2f} {ours['kernels'][key]:8.2f} us {value:6.2f}x")
    print(f"  geometric mean of {len(ratio['kernels'])} kernels: {ratio['geomean']:.3f}x ({ratio['unmatched']} without a partner)")
    for key in ("reductions_ms", "gpu_ms", "step_ms"):
        print(f"  {key:14} {own[key]:9.3f} {ours[key]:9.3f} {ratio.get(key, math.nan):6.3f}x")


def main() -> int:
    """Run the models; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--modes", nargs="+", choices=list(inductor.MODES), default=["pick"], help="compared to Inductor's own")
    parser.add_argument("--batch", type=int, default=64, help="images; a sixteenth as many sequences of 1024 tokens (default: 64)")
    parser.add_argument("--steps", type=int, default=10, help="timed steps, and as many profiled ones (default: 10)")
    parser.add_argument("--budget", type=float, default=170, help="seconds after which nothing more is begun (default: 170)")
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "no GPU: torch.compile generates Triton kernels for one only\n")
    began = time.perf_counter()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "models": {}}
    for name in args.models:
        if name == "resnet50" and importlib.util.find_spec("torchvision") is None:
            print("resnet50: left out, it needs torchvision (pip install torchvision)")
            continue
        timed: dict[str, Any] = {}
        for mode in (OWN, *args.modes):
            if time.perf_counter() - began > args.budget:
                print(f"{name}, {mode}: left out, the budget of {args.budget:g} s is spent")
                continue
            timed[mode] = measure(name, mode, args.batch, args.steps)
            if mode != OWN and OWN in timed:
                timed[f"{OWN}/{mode}"] = compare(timed[OWN], timed[mode])
                report(name, mode, timed[OWN], timed[mode], timed[f"{OWN}/{mode}"])
        found["models"][name] = timed
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
