"""How good the selector's candidates are, from stored sweeps: no device. The candidates are those of the rules as they now stand.

A sweep (`benchmarks/sweep.py`) has the times of a dense lattice of tiles for each problem. A loss is how much longer a tile takes than the
best of them. Judged are the first pick, which policy "heuristic" runs, and the best of the list, which tuning finds: as emitted (snap 1),
and as if a candidate stood for every tile within 2x of it in each coordinate (snap 2).
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import configs, cost, rules, targets
from .geometry import Coordinates, coordinates
from .problem import Problem, describe
from .targets import Target

BANDS = ((0.05, "<=5%"), (0.10, "5-10%"), (0.30, "10-30%"), (math.inf, ">30%"))
SHAPE = 5  # coordinates that snap 2 compares: x, r0, r1, split, warps
DEFAULT = Path(__file__).parent.parent / "benchmarks" / "data" / "h200_reduce.json"
COEFFICIENTS = {  # and the module of each
    name: module for module in (rules, cost) for name, value in vars(module).items() if name.isupper() and type(value) in (int, float)
}


@dataclass(frozen=True)
class Judged:
    """One problem. Losses are fractions, None where no such tile was measured.

    emitted: what a tuner would compile, best guess first. missing: those of them that the sweep lacks.
    """

    key: str
    family: str
    kept_out: bool
    regime: str
    xnumel: int
    rnumel: int
    emitted: tuple[Coordinates, ...]
    missing: tuple[Coordinates, ...]
    winner: Coordinates
    first: float | None
    best: float | None
    best_near: float | None


def load(path: Path) -> dict[str, Any]:
    """A sweep. ValueError: the file is none."""
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"no sweep at {path}: make one with benchmarks/sweep.py, or give --data") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is no sweep: {error}") from None
    if not isinstance(data, dict) or not {"meta", "columns", "problems"} <= data.keys() or "target" not in data["meta"]:
        raise ValueError(f"{path} is no sweep: it lacks meta, columns or problems")
    return data


def facts_of(record: dict[str, Any]) -> list[Any]:
    """What `describe` takes, of a sweep's record; an old one has neither pitch nor start."""
    return [*(record[fact] for fact in ("op", "shape", "dim", "dtype", "trans")), record.get("pitch", 0), record.get("start", 0)]


def problem_of(record: dict[str, Any]) -> Problem:
    """The problem of a sweep's record."""
    return describe(*facts_of(record))


def families(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The records of a sweep by family, each by its key."""
    found: dict[str, dict[str, Any]] = {}
    for key, record in data["problems"].items():
        found.setdefault(record["family"], {})[key] = record
    return found


def judge(data: dict[str, Any], timed: str = "others", done: Callable[[str], None] | None = None) -> list[Judged]:
    """Every problem of a sweep that has a measured tile.

    timed: which timed problems the selector looks at. "others": it is judged on new ones, so not at the problem itself, nor, for a family
    that is kept out, at any that is. "all": as a user's call does. "none": rules and estimate alone. done: is told of each family.
    """
    target = targets.by_name(data["meta"]["target"])
    if timed == "none":
        target = replace(target, timed="")
    kept_out = data["meta"].get("kept_out", ())
    out = frozenset(key for key, record in data["problems"].items() if record["family"] in kept_out)
    found = []
    for family, records in families(data).items():
        for key, record in records.items():
            apart = frozenset() if timed == "all" else out if key in out else frozenset([key])
            if record["tiles"]:
                found.append(_judged(key, record, target, apart, family in kept_out))
        if done:
            done(f"{family}: {len(records)} problems")
    return found


def _judged(key: str, record: dict[str, Any], target: Target, apart: frozenset[str], kept_out: bool) -> Judged:
    us = {tuple(row[:-1]): row[-1] for row in record["tiles"]}
    failed = {tuple(row[:-1]) for row in record["failed"]}
    problem = problem_of(record)
    tiles = configs.candidates(problem, target, apart)
    emitted = tuple(dict.fromkeys(coordinates(problem, t) for t in tiles))
    dense = min(us.values())
    near = [t for t in us if any(within(t, c) for c in emitted)]
    return Judged(
        key,
        record["family"],
        kept_out,
        tiles[0].regime,
        problem.xnumel,
        problem.rnumel,
        emitted,
        tuple(c for c in emitted if c not in us and c not in failed),
        min(us, key=lambda c: us[c]),
        _loss(us, emitted[:1], dense),
        _loss(us, emitted, dense),
        _loss(us, [*near, *emitted], dense),
    )


def _loss(us: dict[Coordinates, float], tiles: Sequence[Coordinates], dense: float) -> float | None:
    return min((us[t] for t in tiles if t in us), default=math.nan) / dense - 1 if any(t in us for t in tiles) else None


def within(a: Coordinates, b: Coordinates, factor: float = 2) -> bool:
    """Each coordinate of the tile's shape within a factor of the other's."""
    return a[-1] == b[-1] and all(m <= factor * n and n <= factor * m for m, n in zip(a[:SHAPE], b[:SHAPE]))


def bands(losses: Sequence[float | None]) -> dict[str, float]:
    """The share of problems in each band of loss, of those measured.

    Example:
        >>> bands([0.0, 0.02, 0.2, 0.5])
        {'<=5%': 0.5, '5-10%': 0.0, '10-30%': 0.25, '>30%': 0.25}
    """
    known = [x for x in losses if x is not None]
    counts = dict.fromkeys((name for _, name in BANDS), 0)
    for loss in known:
        counts[next(name for limit, name in BANDS if loss <= limit)] += 1
    return {name: n / max(len(known), 1) for name, n in counts.items()}


def summary(found: Sequence[Judged]) -> dict[str, Any]:
    """Bands of all three judgements, the length of the list, and how often the winner itself is emitted (snap 1) or nearly (snap 2)."""
    return {
        "problems": len(found),
        "first": bands([j.first for j in found]),
        "best": bands([j.best for j in found]),
        "best at snap 2": bands([j.best_near for j in found]),
        "candidates": statistics.fmean(len(j.emitted) for j in found) if found else 0.0,
        "winner emitted": sum(j.winner in j.emitted for j in found) / max(len(found), 1),
        "winner within 2x": sum(any(within(j.winner, c) for c in j.emitted) for j in found) / max(len(found), 1),
        "first not measured": sum(j.first is None for j in found),
        "not measured": sum(len(j.missing) for j in found),
    }


def report(found: Sequence[Judged]) -> dict[str, Any]:
    """Summaries of all problems, those that rules were fitted on and those kept out, each regime and each family."""
    chosen: dict[str, list[Judged]] = {"all": list(found)}
    chosen |= {"fit": [j for j in found if not j.kept_out], "kept out": [j for j in found if j.kept_out]}
    chosen |= {f"regime {r}": [j for j in found if j.regime == r] for r in configs.REGIMES}
    chosen |= {f: [j for j in found if j.family == f] for f in sorted({j.family for j in found})}
    return {name: summary(members) for name, members in chosen.items() if members}


def table(groups: dict[str, Any]) -> str:
    """A report for a person: percentages of problems by loss."""
    names = [name for _, name in BANDS]
    head = f"{'':22}{'n':>5}{'list':>6} " + "".join(f"| {title:25}" for title in ("first pick", "best of list", "best at snap 2"))
    lines = [head, " " * 34 + "".join("| " + "".join(f"{n:>6}" for n in names) + " " for _ in range(3))]
    for group, s in groups.items():
        cells = "".join("| " + "".join(f"{100 * s[k][n]:6.1f}" for n in names) + " " for k in ("first", "best", "best at snap 2"))
        lines.append(f"{group:22}{s['problems']:5}{s['candidates']:6.1f} {cells}")
    return "\n".join(lines)


def moved(value: float, factor: float) -> float:
    """A coefficient times a factor; counts stay whole, and sizes of tiles powers of two.

    Example:
        >>> moved(3, 1.5), moved(4096, 1.5), moved(0.07, 0.5)
        (4, 8192, 0.035)
    """
    if value != int(value):
        return value * factor
    return 1 << round(math.log2(value * factor)) if value >= 256 else max(1, round(value * factor))


@contextlib.contextmanager
def perturbed(name: str, factor: float) -> Iterator[None]:
    """Within the context, a coefficient of the rules or of the estimate is another."""
    module = COEFFICIENTS[name]
    value = getattr(module, name)
    setattr(module, name, moved(value, factor))
    configs.candidates.cache_clear()
    try:
        yield
    finally:
        setattr(module, name, value)
        configs.candidates.cache_clear()


def perturbations(data: dict[str, Any], done: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """The summary of all problems with each coefficient moved by half, down and up; `done` is told of each of them."""
    found = {"as they stand": summary(judge(data, "none"))}
    for name in COEFFICIENTS:
        for factor in (0.5, 1.5):
            with perturbed(name, factor):
                found[f"{name} x {factor}"] = summary(judge(data, "none"))
            done(f"{name} x {factor}")
    return found
