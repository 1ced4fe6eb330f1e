"""The tables of docs/inductor.md: fit the formula of `configs.inductor_candidates` on some kernels, judge it on others.

    python benchmarks/fit_inductor.py [--json FILE]

A loss is the time of a candidate over the best time of the kernel's whole lattice. The fit is a coordinate descent over halvings and
doublings of the coefficients from random starts, then a greedy choice of neighbours.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tri_reduce.inductor_list import FITTED, NEIGHBOURS, Coefficients, Config, Factors, candidates_of, with_own
from tri_reduce.inductor_tiles import Kernel, first_shape, kernel_of
from tri_reduce.targets import H200

DATA = [Path(__file__).parent / "data" / name for name in ("inductor_dense.json", "inductor_models.json")]
EDGES = (1.05, 1.10, 1.30)
FOLDS = 5
STARTS = 4
UNTIMED = 1.3  # what a fit takes the loss of a candidate for that is not in the lattice
POOL = [f for f in itertools.product((1 / 4, 1 / 2, 1, 2, 4), (1 / 4, 1 / 2, 1, 2, 4), (1 / 8, 1 / 4, 1 / 2, 1, 2)) if f != (1, 1, 1)]
Neighbours = Mapping[str, Sequence[Factors]]
Formula = tuple[Coefficients, Neighbours]
SHIPPED: Formula = (FITTED, NEIGHBOURS)


class Timed(NamedTuple):
    """A kernel with the losses of its lattice (with a cold L2; with a warm one where that was timed), and Inductor's own lists."""

    model: str
    kernel: Kernel
    persistent: bool
    losses: list[dict[Config, float]]
    own: list[Config]
    halves: list[Config]
    most: list[Config]


class Judged(NamedTuple):
    """What a list is worth on a kernel: losses of the first candidate (None: not timed), the best, Inductor's own list; its length."""

    first: float | None
    best: float
    own: float | None
    tried: int


def load(paths: Iterable[Path]) -> list[Timed]:
    """The timed kernels of the data files."""
    found = []
    for k in itertools.chain.from_iterable(json.loads(path.read_text())["kernels"] for path in paths):
        kernel = kernel_of(k.get("numels", k["size_hints"]), k["hint"], k["num_load"], k["num_reduction"], k["ptrs"], H200)
        rows = [row for row in k["t"] if row[3] is not None]
        least = [min(column) for column in zip(*(row[3:] for row in rows))]
        losses = [{tuple(row[:3]): row[3 + n] / best for row in rows} for n, best in enumerate(least)]
        lists = ([tuple(config) for config in k.get(name, [])] for name in ("own", "halves", "base"))
        found.append(Timed(k["model"], kernel, k["kind"] != "REDUCTION", losses, *lists))
    return found


def listed(t: Timed, formula: Formula) -> list[Config]:
    """What is benchmarked in mode "tune"."""
    c, neighbours = formula
    return with_own(candidates_of(t.kernel, H200, t.persistent, c, neighbours), t.own)


def judge(t: Timed, candidates: Sequence[Config], clock: int = 0) -> Judged:
    """A list under a clock: 0 is a cold L2, 1 a warm one."""
    losses = t.losses[clock]
    own = [losses[c] for c in (*t.own, *t.halves) if c in losses]
    best = min((losses[c] for c in candidates if c in losses), default=math.inf)
    return Judged(losses.get(candidates[0]), best, min(own, default=None), len(candidates))


def ours(kernels: Iterable[Timed], formula: Formula = SHIPPED, clock: int = 0) -> list[Judged]:
    """Our lists, judged."""
    return [judge(t, listed(t, formula), clock) for t in kernels]


def price(loss: float) -> float:
    """What a fit pays: each loss past 5% and 30% counts more."""
    return min(math.log2(loss), 2) + (loss > EDGES[0]) * 0.25 + (loss > EDGES[2])


def cost(kernels: Sequence[Timed], formula: Formula) -> float:
    """What a fit minimises: the first guess's loss and, for half as much, the best of the list's, over the clocks."""

    def of(t: Timed) -> float:
        candidates = listed(t, formula)
        judged = [judge(t, candidates, clock) for clock in range(len(t.losses))]
        return statistics.fmean(price(j.first or UNTIMED) + price(min(j.best, UNTIMED)) / 2 for j in judged)

    return statistics.fmean(map(of, kernels))


def moved(c: Coefficients, name: str, factor: float) -> Coefficients:
    """c with one coefficient multiplied."""
    return dataclasses.replace(c, **{name: max(1, round(getattr(c, name) * factor))})


def fit(kernels: Sequence[Timed], seed: int) -> Formula:
    """The cheapest coefficients that descents from random starts find, and the neighbours that then help most."""
    rng = random.Random(seed)
    names = [f.name for f in dataclasses.fields(Coefficients)]

    def paid(c: Coefficients) -> float:
        return cost(kernels, (c, NEIGHBOURS))

    ends = []
    for _ in range(STARTS):
        here = FITTED
        for name in names:
            here = moved(here, name, rng.choice((0.5, 1, 2)))
        least = paid(here)
        while True:
            near = {c: paid(c) for c in (moved(here, name, factor) for name in names for factor in (0.5, 2))}
            best = min(near, key=near.__getitem__)
            if near[best] >= least:
                break
            here, least = best, near[best]
        ends.append(here)
    found = min(ends, key=paid)
    for name in names:  # these kernels may say nothing of a coefficient: then it keeps its shipped value
        shipped = dataclasses.replace(found, **{name: getattr(FITTED, name)})
        found = shipped if paid(shipped) == paid(found) else found
    return found, neighbours_of(kernels, found)


def neighbours_of(kernels: Sequence[Timed], c: Coefficients) -> Neighbours:
    """As many neighbours for each regime as are shipped, each what lowers the price of the lists most; or the shipped ones."""
    found = {}
    for regime, shipped in NEIGHBOURS.items():
        inside = [t for t in kernels if first_shape(t.kernel, t.persistent, c)[0] == regime]
        near = [{f: candidates_of(t.kernel, H200, t.persistent, c, {regime: [f]})[1:] for f in POOL} for t in inside]
        least = [[min(losses.get(o, UNTIMED) for o in listed(t, (c, {regime: ()}))) for losses in t.losses] for t in inside]
        chosen: list[Factors] = []
        for _ in shipped:
            gains = {f: _gain(inside, near, least, f) for f in POOL}
            best = max(gains, key=gains.__getitem__)
            if gains[best] <= 0:
                break
            chosen.append(best)
            for t, tiles, known in zip(inside, near, least):
                known[:] = [min([a, *(losses.get(o, a) for o in tiles[best])]) for a, losses in zip(known, t.losses)]
        found[regime] = tuple(chosen) or shipped
    return found


def _gain(kernels: Sequence[Timed], near: Sequence[Any], least: Sequence[list[float]], f: Factors) -> float:
    found = 0.0
    for t, tiles, known in zip(kernels, near, least):
        for a, losses in zip(known, t.losses):
            found += price(a) - price(min([a, *(losses.get(o, a) for o in tiles[f])]))
    return found


def bands(losses: Sequence[float]) -> list[float]:
    """Per cent of losses up to 5%, 5 to 10%, 10 to 30%, over 30%."""
    place = [sum(loss > edge for edge in EDGES) for loss in losses]
    return [round(100 * place.count(band) / max(1, len(place)), 1) for band in range(4)]


def row(name: str, judged: Sequence[Judged]) -> dict[str, Any]:
    """One line of a table, with ratios of Inductor's own time to ours."""
    first = [j.first for j in judged if j.first]
    picks = [j.own / j.first for j in judged if j.own and j.first]
    tunes = [j.own / j.best for j in judged if j.own]
    return {
        "list": name,
        "kernels": len(judged),
        "untimed": len(judged) - len(first),
        "first": bands(first),
        "best": bands([j.best for j in judged]),
        "candidates": round(statistics.fmean(j.tried for j in judged), 1),
        "pick": [round(statistics.geometric_mean(picks), 3), round(min(picks), 3), sum(r < 1 / EDGES[0] for r in picks)],
        "tune": [round(statistics.geometric_mean(tunes), 3), round(min(tunes), 3)],
    }


def both(name: str, kernels: Sequence[Timed], formula: Formula = SHIPPED) -> list[dict[str, Any]]:
    """Rows for each clock that the kernels were timed with."""
    clocks = min(len(t.losses) for t in kernels)
    return [row(f"{name}, {('cold', 'warm')[clock]}", ours(kernels, formula, clock)) for clock in range(clocks)]


def tables(kernels: Sequence[Timed]) -> list[dict[str, Any]]:
    """Every row of docs/inductor.md."""
    sets = {model: [t for t in kernels if t.model == model] for model in dict.fromkeys(t.model for t in kernels)}
    rows = [row(f"Inductor, max-autotune: {name}, cold", [judge(t, t.most) for t in inside]) for name, inside in sets.items()]
    for name, inside in sets.items():
        rows += both(f"shipped: {name}", inside)
    for family in ("micro", "resnet50", "llama"):
        formula = fit([t for t in kernels if not t.model.startswith(family)], seed=0)
        for name, inside in sets.items():
            if name.startswith(family):
                rows += both(f"fitted on all but {family}: {name}", inside, formula)
    rows += folded(sets)
    for f in dataclasses.fields(Coefficients):
        rows += [row(f"{f.name} x {factor}", ours(kernels, (moved(FITTED, f.name, factor), NEIGHBOURS))) for factor in (0.5, 1.5)]
    return rows


def folded(sets: Mapping[str, Sequence[Timed]]) -> list[dict[str, Any]]:
    """Rows of kernels each judged by a formula fitted on four fifths of the others; those described alike are kept out together."""
    alike = sorted({t.kernel for inside in sets.values() for t in inside}, key=repr)
    fold = dict(zip(random.Random(0).sample(alike, len(alike)), itertools.cycle(range(FOLDS))))
    kernels = [t for inside in sets.values() for t in inside]
    formulas = [fit([t for t in kernels if fold[t.kernel] != n], seed=n) for n in range(FOLDS)]
    rows = []
    for name, inside in sets.items():
        for clock in range(len(inside[0].losses)):
            judged = [judge(t, listed(t, formulas[fold[t.kernel]]), clock) for t in inside]
            rows.append(row(f"kept out, {FOLDS} folds: {name}, {('cold', 'warm')[clock]}", judged))
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    rows = tables(load(DATA))
    print("| list | kernels (untimed) | first: <=5%, 5-10, 10-30, >30% | best of list | candidates | pick over Inductor | tune |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        cells = (" / ".join(f"{b:g}" for b in r[key]) for key in ("first", "best"))
        pick, tune = (" / ".join(map(str, r[key])) for key in ("pick", "tune"))
        print(f"| {r['list']} | {r['kernels']} ({r['untimed']}) | {' | '.join(cells)} | {r['candidates']} | {pick} | {tune} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
