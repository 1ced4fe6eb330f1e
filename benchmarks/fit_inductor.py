"""The tables of docs/inductor.md: fit the coefficients of `configs.inductor_candidates` on some kernels, judge them on others.

    python benchmarks/fit_inductor.py [benchmarks/data/inductor_dense.json] [--json FILE]

A loss is the time of a candidate over the best time of the kernel's whole lattice; a candidate that was not timed counts as infinitely
slow. The fit is a coordinate descent over halvings and doublings from random starts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tri_reduce.inductor_list import FITTED, Coefficients, Kernel, candidates_of, kernel_of
from tri_reduce.targets import H200

DATA = Path(__file__).parent / "data" / "inductor_dense.json"
EDGES = (1.05, 1.10, 1.30)
FOLDS = 5
STARTS = 6


class Timed(NamedTuple):
    """A kernel with the times of its lattice, over their least, and Inductor's own max-autotune list."""

    model: str
    kernel: Kernel
    persistent: bool
    loss: dict[tuple[int, int | None, int], float]
    inductor: list[tuple[int, int | None, int]]


class Judged(NamedTuple):
    """What a list of candidates is worth on a kernel."""

    first: float
    best: float
    tried: int


def load(path: Path) -> list[Timed]:
    """The timed kernels of a data file."""
    found = []
    for k in json.loads(path.read_text())["kernels"]:
        kernel = kernel_of(k.get("numels") or k["size_hints"], k["hint"], k["num_load"], k["num_reduction"], k["ptrs"], H200)
        times = {(x, r0, warps): us for x, r0, warps, us in k["t"] if us is not None}
        least = min(times.values())
        loss = {config: us / least for config, us in times.items()}
        found.append(Timed(k["model"], kernel, k["kind"] != "REDUCTION", loss, [(x, r0, w) for x, r0, w in k["base"]]))
    return found


def judge(timed: Timed, candidates: Sequence[tuple[int, int | None, int]]) -> Judged:
    """The losses of the first candidate and of the best."""
    losses = [timed.loss.get(c, math.inf) for c in candidates]
    return Judged(losses[0], min(losses), len(candidates))


def ours(kernels: Iterable[Timed], c: Coefficients) -> list[Judged]:
    """Our lists under coefficients c."""
    return [judge(t, candidates_of(t.kernel, H200, t.persistent, c)) for t in kernels]


def cost(kernels: Sequence[Timed], c: Coefficients) -> float:
    """What a fit minimises: the first guess's loss and, for half as much, the best of the list's; each loss past 5% and 30% counts more."""

    def price(loss: float) -> float:
        return min(math.log2(loss), 2) + (loss > EDGES[0]) * 0.25 + (loss > EDGES[2])

    return sum(price(j.first) + price(j.best) / 2 for j in ours(kernels, c)) / len(kernels)


def moved(c: Coefficients, name: str, factor: float) -> Coefficients:
    """c with one coefficient multiplied."""
    return dataclasses.replace(c, **{name: max(1, round(getattr(c, name) * factor))})


def fit(kernels: Sequence[Timed], seed: int) -> Coefficients:
    """The cheapest coefficients that descents from random starts find."""
    rng = random.Random(seed)
    names = [f.name for f in dataclasses.fields(Coefficients)]
    ends = []
    for _ in range(STARTS):
        here = FITTED
        for name in names:
            here = moved(here, name, rng.choice((0.5, 1, 2)))
        least = cost(kernels, here)
        while True:
            near = [moved(here, name, factor) for name in names for factor in (0.5, 2)]
            best = min(near, key=lambda c: cost(kernels, c))
            if cost(kernels, best) >= least:
                break
            here, least = best, cost(kernels, best)
        ends.append(here)
    found = min(ends, key=lambda c: cost(kernels, c))
    for name in names:  # these kernels may say nothing of a coefficient: then it keeps its shipped value
        shipped = dataclasses.replace(found, **{name: getattr(FITTED, name)})
        found = shipped if cost(kernels, shipped) == cost(kernels, found) else found
    return found


def bands(losses: Sequence[float]) -> list[float]:
    """Per cent of losses up to 5%, 5 to 10%, 10 to 30%, over 30%."""
    place = [sum(loss > edge for edge in EDGES) for loss in losses]
    return [round(100 * place.count(band) / len(place), 1) for band in range(4)]


def row(name: str, judged: Sequence[Judged]) -> dict[str, Any]:
    """One line of a table."""
    return {
        "list": name,
        "kernels": len(judged),
        "first": bands([j.first for j in judged]),
        "best": bands([j.best for j in judged]),
        "candidates": round(sum(j.tried for j in judged) / len(judged), 1),
    }


def kept_out(kernels: Sequence[Timed], keep: Sequence[bool], name: str, seed: int) -> tuple[dict[str, Any], dict[str, Any], list[Judged]]:
    """Rows of the kernels fitted on and of those kept out, under coefficients fitted on the first."""
    inside = [t for t, out in zip(kernels, keep) if not out]
    outside = [t for t, out in zip(kernels, keep) if out]
    c = fit(inside, seed)
    return row(f"fitted on all but {name}", ours(inside, c)), row(f"... judged on {name}", ours(outside, c)), ours(outside, c)


def tables(kernels: Sequence[Timed]) -> list[dict[str, Any]]:
    """Every row of docs/inductor.md."""
    rows = [row("Inductor, max-autotune", [judge(t, t.inductor) for t in kernels]), row("shipped coefficients", ours(kernels, FITTED))]
    for model in sorted({t.model for t in kernels}):
        rows += kept_out(kernels, [t.model == model for t in kernels], model, seed=0)[:2]
    order = random.Random(0).sample(range(len(kernels)), len(kernels))
    folds = [kept_out(kernels, [order[i] % FOLDS == f for i in range(len(kernels))], f"fold {f}", seed=f)[2] for f in range(FOLDS)]
    rows.append(row(f"kept out, {FOLDS} folds together", [j for fold in folds for j in fold]))
    for f in dataclasses.fields(Coefficients):
        rows += [row(f"{f.name} x {factor}", ours(kernels, moved(FITTED, f.name, factor))) for factor in (0.5, 1.5)]
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    rows = tables(load(args.data))
    print("| list | kernels | first guess: <=5%, 5-10, 10-30, >30% | best of list: <=5%, 5-10, 10-30, >30% | candidates |")
    print("|---|---|---|---|---|")
    for r in rows:
        first, best = (" / ".join(f"{b:g}" for b in r[key]) for key in ("first", "best"))
        print(f"| {r['list']} | {r['kernels']} | {first} | {best} | {r['candidates']} |")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
