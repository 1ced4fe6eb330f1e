"""What `bench` says: a line a problem, ratios to everybody measured in the same run, geometric means, the worst, and a plot."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .figures import _pyplot

Row = dict[str, Any]
OURS = ("heuristic", "tuned")
WORST = 5
CLIFF = 1.3  # in time per byte, between neighbouring sizes
COLOURS = {"heuristic": "tab:blue", "tuned": "tab:cyan", "eager": "tab:orange", "compile": "tab:green", "max-autotune": "tab:olive"}


def best_peer(row: Row) -> float | None:
    """The fastest contestant that is neither ours nor the floor, and right."""
    found = [us for name, us in row["us"].items() if name not in (*OURS, "floor") and name not in row["wrong"]]
    return min(found, default=None)


def ratios(row: Row, ours: str) -> dict[str, float]:
    """Our time over each contestant's and over the best peer's."""
    us = row["us"]
    if ours not in us:
        return {}
    best = best_peer(row)
    others = {name: us[ours] / other for name, other in us.items() if name not in OURS}
    return others | ({} if best is None else {"best": us[ours] / best})


def line(row: Row) -> str:
    """One problem: microseconds on the device, and ratios of our first choice."""
    us = row["us"]
    times = "  ".join(f"{name} {t:.2f}" for name, t in us.items())
    over = "  ".join(f"/{name} {r:.2f}" for name, r in ratios(row, OURS[0]).items())
    return f"{row['case']:44} {row['MiB']:9.3f} MiB  {times}  |  {over}{_notes(row)}"


def _notes(row: Row) -> str:
    wrong = "".join(f"  {name}: WRONG by {x:.3g} bounds" for name, x in row["wrong"].items())
    return wrong + "".join(f"  {name}: {why}" for name, why in row["errors"].items())


def table(rows: Sequence[Row]) -> str:
    """All problems: microseconds of everybody, then our first choice over each, worst against the floor last."""
    names = list(dict.fromkeys(name for r in rows for name in r["us"]))
    over = list(dict.fromkeys(name for r in rows for name in ratios(r, OURS[0])))
    head = f"{'problem':44} {'MiB':>9} " + " ".join(f"{n:>12}" for n in names) + "  " + " ".join(f"{'/' + n:>13}" for n in over)
    lines = [head]
    for row in sorted(rows, key=lambda r: ratios(r, OURS[0]).get("floor", 0)):
        found = ratios(row, OURS[0])
        times = " ".join(f"{row['us'][n]:12.2f}" if n in row["us"] else " " * 12 for n in names)
        quotients = " ".join(f"{found[n]:13.2f}" if n in found else " " * 13 for n in over)
        lines.append(f"{row['case']:44} {row['MiB']:9.3f} {times}  {quotients}{_notes(row)}")
    return "\n".join(line.rstrip() for line in lines)


def geomean(values: Sequence[float]) -> float:
    """The geometric mean.

    Example:
        >>> geomean([1.0, 4.0])
        2.0
    """
    return math.exp(statistics.fmean(map(math.log, values)))


def kind_of(row: Row) -> str:
    """gemv apart from reductions."""
    return "gemv" if row["op"] == "gemv" else "reduce"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """By kind and policy: geometric means of ratios, the worst, and how many are within 3% of the best peer."""
    found: dict[str, Any] = {}
    for kind in ("reduce", "gemv"):
        chosen = [r for r in rows if kind_of(r) == kind]
        for ours in OURS:
            each = [(r["case"], ratios(r, ours)) for r in chosen if ours in r["us"]]
            names = dict.fromkeys(name for _, ratio in each for name in ratio)
            if each:
                found[f"{kind} {ours}"] = {
                    name: {
                        "geomean": geomean(values := [ratio[name] for _, ratio in each if name in ratio]),
                        "problems": len(values),
                        "worst": sorted(((case, ratio[name]) for case, ratio in each if name in ratio), key=lambda w: -w[1])[:WORST],
                        "within 3%": sum(v <= 1.03 for v in values),
                    }
                    for name in names
                }
        peers = dict.fromkeys(name for r in chosen for name in r["us"] if name not in (*OURS, "floor"))
        over = {p: [r["us"][p] / r["us"]["floor"] for r in chosen if p in r["us"] and "floor" in r["us"]] for p in peers}
        found[f"{kind} peers over the floor"] = {p: {"geomean": geomean(v), "problems": len(v)} for p, v in over.items() if v}
    return found


def cliffs(rows: Sequence[Row], ours: str = OURS[0]) -> list[tuple[str, str, float]]:
    """Neighbours in bytes, of inputs over 4 MiB, whose times per byte differ by more than 1.3: (faster, slower, ratio)."""
    sized = sorted((r for r in rows if r["series"] == "bytes" and r["bytes"] > 4 << 20 and ours in r["us"]), key=lambda r: r["bytes"])
    found = []
    for one, other in itertools.pairwise(sized):
        fast, slow = sorted((one, other), key=lambda r: r["us"][ours] / r["bytes"])
        ratio = slow["us"][ours] / slow["bytes"] / (fast["us"][ours] / fast["bytes"])
        if ratio > CLIFF and max(one["bytes"], other["bytes"]) < 2 * min(one["bytes"], other["bytes"]):
            found.append((fast["case"], slow["case"], ratio))
    return found


def summary_text(found: dict[str, Any]) -> str:
    """The same for a person."""
    lines = ["geometric means of our time over another's (below 1: faster)"]
    for title, names in found.items():
        if names:
            means = "  ".join(f"{name} {s['geomean']:.3f} ({s['problems']})" for name, s in names.items())
            lines.append(f"{title:28} {means}")
            for name in ("floor", "best"):
                if name in names and "worst" in names[name]:
                    s = names[name]
                    worst = ", ".join(f"{case} {ratio:.2f}" for case, ratio in s["worst"])
                    lines.append(f"    worst against the {name}: {worst}; {s['within 3%']} of {s['problems']} within 3%")
    return "\n".join(lines)


def text(rows: Sequence[Row]) -> str:
    """What is printed at the end."""
    steps = [f"a cliff: {slow} takes {ratio:.2f} times as long a byte as {fast}" for fast, slow, ratio in cliffs(rows)]
    return "\n".join((table(rows), "", summary_text(summary(rows)), _host_text(rows), *steps))


def _host_text(rows: Sequence[Row]) -> str:
    """Medians over problems of the host's time of one call, caches cold, in microseconds."""
    names = dict.fromkeys(name for r in rows for name in r["host_us"] if name != "floor")
    medians = {name: statistics.median(r["host_us"][name] for r in rows if name in r["host_us"]) for name in names}
    return "host us a call (median over problems): " + "  ".join(f"{name} {us:.1f}" for name, us in medians.items())


def check_plot(path: Path) -> None:
    """RuntimeError where matplotlib is missing; ValueError for a file that it does not write."""
    formats = _pyplot().figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise ValueError(f"--plot {path}: not a kind of picture (one of {', '.join(sorted(formats))})")


def plot(rows: Sequence[Row], path: Path) -> None:
    """Achieved bandwidth, a panel a series: against bytes, or the number of outputs where the bytes are fixed. The floor is a line."""
    plt = _pyplot()
    series = list(dict.fromkeys(r["series"] for r in rows))
    figure, panels = plt.subplots(1, len(series), figsize=(7 * len(series), 5), squeeze=False)
    for name, axes in zip(series, panels[0]):
        chosen = [r for r in rows if r["series"] == name]
        by_bytes = name in ("", "bytes")
        for who in dict.fromkeys(who for r in chosen for who in r["us"]):
            points = sorted((r["bytes"] if by_bytes else r["outputs"], r["bytes"] / r["us"][who] / 1e3) for r in chosen if who in r["us"])
            xs, ys = zip(*points)
            if who == "floor":
                axes.plot(xs, ys, color="black", linewidth=1, label="floor: a cold read")
            else:
                axes.scatter(xs, ys, s=16, color=COLOURS.get(who), label=who, alpha=0.8)
        axes.set_ylim(bottom=0)
        axes.set(xscale="log", xlabel="bytes" if by_bytes else f"outputs ({name})", ylabel="GB/s")
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
