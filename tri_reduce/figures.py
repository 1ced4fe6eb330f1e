"""Two figures of an evaluation. They need matplotlib, from the extra `plots`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import rules
from .evaluation import BANDS, Judged

COLOURS = ("tab:green", "gold", "tab:orange", "tab:red")
MARKERS = {"thread": "v", "rows": "o", "columns": "s", "strided": "x"}


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise RuntimeError("figures need matplotlib: pip install 'tri-reduce[plots]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def check() -> None:
    """RuntimeError where matplotlib is missing."""
    _pyplot()


def _band(loss: float) -> int:
    return next(n for n, (limit, _) in enumerate(BANDS) if loss <= limit)


def losses(found: Sequence[Judged], path: Path) -> None:
    """The best of the candidates over the dense optimum, against the reduced length: coloured by band, a marker a regime.

    Lines stand where a thread no longer holds a row (16 and 32 elements) and where a row no longer fits a tile (fp32, 16 bits).
    """
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(9, 4.5))
    for regime, marker in MARKERS.items():
        judged = [(j.rnumel, j.best) for j in found if j.regime == regime and j.best is not None]
        if judged:
            lengths, best = zip(*judged)
            axes.scatter(lengths, [1 + b for b in best], c=[COLOURS[_band(b)] for b in best], marker=marker, s=18, label=regime)
    axes.axvline(4 * rules.THREAD_LOADS, color="grey", linewidth=0.6, linestyle="--")  # rows that a thread may hold, of 4 bytes each
    axes.set(xscale="log", xlabel="reduced length", ylabel="best of the candidates / dense optimum")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def winners(found: Sequence[Judged], path: Path) -> None:
    """Where the winners lie among the emitted candidates, in the XBLOCK-R0_BLOCK plane: areas are counts."""
    plt = _pyplot()
    emitted = Counter(c[:2] for j in found for c in j.emitted)
    won = Counter(j.winner[:2] for j in found)
    figure, axes = plt.subplots(figsize=(6.5, 6))
    for counts, colour, label in ((emitted, "lightgrey", "candidates"), (won, "tab:blue", "winners")):
        most = max(counts.values(), default=1)
        xs, rs = [x for x, _ in counts], [r for _, r in counts]
        axes.scatter(xs, rs, s=[20 + 380 * n / most for n in counts.values()], c=colour, alpha=0.8, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xlabel="XBLOCK", ylabel="R0_BLOCK")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw(found: Sequence[Judged], folder: Path) -> list[Path]:
    """Both, as PNG files in a folder."""
    paths = [folder / "selector_losses.png", folder / "selector_winners.png"]
    losses(found, paths[0])
    winners(found, paths[1])
    return paths
