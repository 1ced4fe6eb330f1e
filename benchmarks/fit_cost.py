"""Fit the constants of `tri_reduce.cost` on a stored sweep, so that the tiles it predicts to be fast are.

    python benchmarks/fit_cost.py [--data benchmarks/data/h200_reduce.json] [--seconds 200] [--seed 1]

Families that are kept out decide nothing; their bands are printed beside. The result is printed, to be copied into cost.py. The search is
CMA-ES on the logarithms of the constants (`pip install cma`, or the extra `bench`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import cma
import numpy as np
from lattice import tile_at

from tri_reduce import cost, evaluation, targets

HERE = Path(__file__).parent
FITTED = (
    "LAUNCH", "READ", "CORE_READ", "LINE", "SHORT_LINE", "ROUND", "DEEPER", "ASKED", "REGISTERS", "STATE_REGISTERS",
    "LOAD_REGISTERS", "BARRIER", "START", "SHARE", "FOLD", "ISSUE", "HEAD", "SHUFFLE", "BUSY", "SHARPNESS", "PLAIN", "STATE",
)  # fmt: skip
OPS = ("sum", "var", "logsumexp", "argmax", "gemv")
WORST, CLOSE = 0.6, 0.06  # a loss beyond e^0.6 counts no more: one odd problem decides nothing; what 7% count beside 3%
TIE = 0.02  # predictions as near as this are drawn by lot: the score then has a slope
LISTED = 12  # tiles of a list
SPREAD = 0.4  # what predictions of good tiles count that are off


class Data:
    """Facts of every tile of every problem, and how much longer each takes than the best of its problem."""

    def __init__(self, sweep: dict[str, Any]) -> None:
        self.target = targets.by_name(sweep["meta"]["target"])
        found, times, ends, ops, kept_out = [], [], [0], [], []
        for record in sweep["problems"].values():
            problem = evaluation.problem_of(record)
            found.append(cost.facts(problem, self.target, [tile_at(problem, tuple(row[:-1])) for row in record["tiles"]]))
            times += [row[-1] for row in record["tiles"]]
            ends.append(len(times))
            ops += [problem.op] * len(record["tiles"])
            kept_out.append(record["family"] in sweep["meta"]["kept_out"])
        self.facts = cost.Facts(*(np.concatenate(column) for column in zip(*found, strict=True)))
        self.times, self.ops = np.array(times), np.array(ops)
        self.begin, self.group = np.array(ends[:-1]), np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        self.loss = self.times / self.best(self.times)[self.group] - 1
        self.felt = np.minimum(np.log1p(self.loss), WORST) + CLOSE * np.clip((self.loss - 0.03) / 0.04, 0, 1)
        self.fit = ~np.array(kept_out)

    def best(self, values: Any) -> Any:
        """The least of each problem."""
        return np.minimum.reduceat(values, self.begin)

    def predict(self, values: dict[str, float]) -> Any:
        """Microseconds of every tile, with these constants."""
        table = {op: values[f"INSTRUCTIONS[{op}]"] for op in OPS} | {
            "mean": values["INSTRUCTIONS[sum]"],
            "std": values["INSTRUCTIONS[var]"],
        }
        table["argmin"] = table["argmax"]
        plain = values["PLAIN"] + values["STATE"] * (self.facts.arity - 1)
        counts = np.select([self.ops == op for op in table], list(table.values()), plain)
        saved = {name: getattr(cost, name) for name in FITTED}
        try:
            for name in FITTED:
                setattr(cost, name, values[name])
            return cost.microseconds(self.facts._replace(instructions=counts), self.target)
        finally:
            for name, value in saved.items():
                setattr(cost, name, value)

    def ranked(self, predicted: Any) -> tuple[Any, Any]:
        """(all tiles, fastest of each problem first; the rank of each of them in its problem)."""
        order = np.lexsort((predicted, self.group))
        return order, np.arange(len(order)) - self.begin[self.group]

    def score(self, values: dict[str, float]) -> float:
        """To be lowered: what the first pick loses, what the best of the list loses, how far predictions are off."""
        predicted = self.predict(values)
        log = np.log(predicted)
        weight = np.exp((self.best(log)[self.group] - log) / TIE)
        first = np.add.reduceat(weight * self.felt, self.begin) / np.add.reduceat(weight, self.begin)
        order, rank = self.ranked(predicted)
        listed = self.best(np.where(rank < LISTED, self.felt[order], np.inf))
        near = (self.loss < 0.2) & self.fit[self.group]
        spread = np.sqrt(np.mean((log - np.log(self.times))[near] ** 2))
        return float(first[self.fit].mean() + listed[self.fit].mean() + SPREAD * spread)

    def report(self, values: dict[str, float]) -> str:
        """Percentages within 5%, 10%, 30%, beyond: the first pick and the best of the list."""
        order, rank = self.ranked(self.predict(values))
        first, listed = self.loss[order[rank == 0]], self.best(np.where(rank < LISTED, self.loss[order], np.inf))
        sides = (("fit", self.fit), ("kept out", ~self.fit))
        return ", ".join(f"{name}: first {bands(first[side])} list {bands(listed[side])}" for name, side in sides)


def bands(loss: Any) -> str:
    """Percentages within 5%, 10%, 30%, beyond."""
    edges = np.histogram(loss, [-1, 0.05, 0.10, 0.30, np.inf])[0] / len(loss) * 100
    return " ".join(f"{share:.1f}" for share in edges)


def search(data: Data, begin: dict[str, float], seconds: float, seed: int) -> dict[str, float]:
    """The best constants that were found in that time."""

    def lost(logs: Any) -> float:
        values = dict(zip(begin, np.exp(logs)))
        beyond = max(0.0, values["READ"] - 1)
        return float(data.score(values | {"READ": min(values["READ"], 1)}) + beyond)

    options = {"seed": seed, "verbose": -9, "timeout": seconds, "popsize": 24}
    strategy = cma.CMAEvolutionStrategy(np.log(list(begin.values())), 0.25, options)
    strategy.optimize(lost)
    found = dict(zip(begin, map(float, np.exp(strategy.result.xbest))))
    return found | {"READ": min(found["READ"], 1)}


def main() -> None:
    """Search, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "data" / "h200_reduce.json")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data = Data(evaluation.load(options.data))
    begin = {name: float(getattr(cost, name)) for name in FITTED} | {f"INSTRUCTIONS[{op}]": cost.INSTRUCTIONS[op] for op in OPS}
    print(f"as it is: {data.score(begin):.4f} {data.report(begin)}", flush=True)
    found = search(data, begin, options.seconds, options.seed)
    print(f"found: {data.score(found):.4f} {data.report(found)}")
    for name, value in found.items():
        print(f"{name} = {value:.3g}")


if __name__ == "__main__":
    main()
