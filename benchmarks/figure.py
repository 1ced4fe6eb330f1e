"""The README's figure: bandwidth of each problem of docs/performance.md beside the floor and the peers.

python benchmarks/figure.py      # writes docs/drawings/h200.svg; needs matplotlib
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
from measured import Measured, problems

OUT = Path(__file__).parent.parent / "docs" / "drawings" / "h200.svg"
PEERS = (("eager", "eager torch", "x", "#c44e52"), ("compiled", "torch.compile", "+", "#8172b3"), ("us", "tri_reduce", "o", "#1f6f8b"))


def bandwidth(p: Measured, us: float) -> float:
    """TB/s."""
    return p.mib * 2**20 / us / 1e6


def draw(found: list[Measured], path: Path) -> None:
    """Reductions and gemvs side by side; the same bytes from the same numbers, so that the file changes with them alone."""
    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "tri_reduce", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3), sharey=True)
    for axis, title in zip(axes, ("reductions", "gemv"), strict=True):
        chosen = sorted((p for p in found if (p.op == "gemv") == (title == "gemv")), key=lambda p: p.mib)
        axis.plot([p.mib for p in chosen], [bandwidth(p, p.floor) for p in chosen], color="0.6", lw=1.5, label="floor: a plain cold read")
        for field, label, marker, colour in PEERS:
            points = [bandwidth(p, getattr(p, field)) for p in chosen]
            axis.plot([p.mib for p in chosen], points, marker, color=colour, ms=5, mew=1.2, label=label)
        axis.set(title=f"{title} ({len(chosen)} problems)", xlabel="MiB read and written", xscale="log", ylim=(0, 4.5))
        axis.set_xticks([2, 8, 32, 128, 512], ["2", "8", "32", "128", "512"])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("TB/s")
    axes[0].legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    OUT.parent.mkdir(exist_ok=True)
    draw(problems(), OUT)
    print(OUT)
