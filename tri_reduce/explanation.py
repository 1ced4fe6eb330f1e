"""What a problem gets on a device that need not be there: regime, plan, candidates, and the predicted time beside the floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import configs, cost
from .geometry import Tile, output_tiles, tiles_of
from .nearest import nearest, neighbour, source
from .problem import Problem
from .targets import Target

LATENCY_US, SUSTAINED = 5.0, 0.97  # a cold read of an H200 takes so long, and gets so much of its bandwidth: within 10% of 48 floors
REASONS = {
    "thread": "a row fits in one thread's registers: no collective at all",
    "rows": "a reduced axis is contiguous: lanes run along it",
    "columns": "a kept axis is contiguous: lanes run along it, the reduced axis is walked",
    "strided": "no axis is contiguous",
}


def floor_us(problem: Problem, target: Target) -> float:
    """Microseconds of moving everything once, with cold caches; without the latency where nothing is known of it."""
    vector = problem.rnumel if problem.op == "gemv" else 0
    moved = problem.nbytes + (vector + problem.xnumel) * problem.dtype.itemsize
    return moved / (SUSTAINED * target.bandwidth) * 1e6 + (LATENCY_US if target.registers else 0.0)


def predicted_us(problem: Problem, target: Target, *tiles: Tile) -> list[float | None]:
    """Microseconds of a launch of each tile: as it was timed, for the problem itself or one near it, beside the floors of both; else by
    `cost`; None where nothing is known of the device.

    Example:
        >>> from tri_reduce import problem, targets
        >>> p = problem.describe("sum", (8192, 8192), 1)
        >>> 65 < predicted_us(p, targets.H200, configs.candidates(p, targets.H200)[0])[0] < 80
        True
    """
    if not target.registers or not problem.nbytes:
        return [None] * len(tiles)
    known, timed = nearest(problem, target), neighbour(problem, target)
    scale = floor_us(problem, target) / floor_us(timed.problem, target) if timed else 1
    estimates = cost.microseconds(cost.facts(problem, target, tiles), target)
    return [scale * known[tile] if tile in known else float(us) for tile, us in zip(tiles, estimates)]


@dataclass(frozen=True)
class Explanation:
    """A problem on a target; `tiles` are the candidates, best guess first."""

    problem: Problem
    target: Target
    tiles: tuple[Tile, ...]

    @classmethod
    def of(cls, problem: Problem, target: Target) -> Explanation:
        """What the selector makes of a problem."""
        return cls(problem, target, configs.candidates(problem, target))

    def as_dict(self) -> dict[str, Any]:
        """For programs: plain values. Times in microseconds; `predicted_us` is None where no kernel was ever timed."""
        p, t = self.problem, self.target
        predicted = predicted_us(p, t, *self.tiles)
        regime = configs.regime(p, t)
        return {
            "problem": {"op": p.op, "dtype": p.dtype.name, "outputs": p.xnumel, "reduced": p.rnumel, "bytes": p.nbytes, "layout": p.layout},
            "target": {"name": t.name, "backend": t.backend, "arch": t.arch, "cores": t.cores, "bandwidth": t.bandwidth},
            "regime": regime,
            "why": REASONS[regime],
            "floor_us": round(floor_us(p, t), 2),
            "predicted_us": None if predicted[0] is None else round(predicted[0], 2),
            "candidates": [self._config(tile) for tile in self.tiles],
        }

    def _config(self, tile: Tile) -> dict[str, int]:
        rows = {"ABREAST": tile.abreast} if tile.abreast else {}
        warps = rows | ({"UNROLL": tile.unroll} if tile.unroll else {}) | ({"num_warps": tile.warps} if self.target.warp else {})
        knobs = {"XBLOCK": tile.x, "R0_BLOCK": tile.r0, "R1_BLOCK": tile.r1, "SPLIT": tile.split, "AHEAD": tile.ahead, **warps}
        return knobs | {"programs": output_tiles(self.problem, tile) * tile.split}

    def __str__(self) -> str:
        """One screen for a person."""
        facts, p = self.as_dict(), self.problem
        first, programs = self.tiles[0], facts["candidates"][0]["programs"]
        chunk = -(-tiles_of(p, first)[1] // first.split)
        shared = f"; {first.split} share an output, the last to arrive folds" if first.split > 1 else ""
        if first.abreast:
            shared = f"; {first.abreast} rows are read as one, a second launch folds"
        lines = [
            f"{p.op} of {p.dtype.name}: {_count(p.xnumel, 'output')} from {_count(p.rnumel, 'value')} each, {p.nbytes / 2**20:.1f} MiB",
            f"target: {self.target.name} ({self.target.cores} cores, {self.target.bandwidth / 1e12:.3g} TB/s)",
            f"regime: {facts['regime']} ({facts['why']})",
            f"plan: {_count(programs, 'program')}, each walks {_count(chunk, 'tile')} of {first.x} x {_reduced(first)}{shared}",
            f"time: {facts['floor_us']:.1f} us to move everything once (the floor); {self._prediction(facts)}",
            "candidates, best guess first:",
        ]
        return "\n".join(lines + [f"  {n}: {_line(config)}" for n, config in enumerate(facts["candidates"])])

    def _prediction(self, facts: dict[str, Any]) -> str:
        if facts["predicted_us"] is None:
            return "no kernel was ever timed on such a device"
        timed = source(self.problem, self.target, self.tiles[0])
        how = "a model fitted on an H200, mostly good to 15%" if self.target.name == "h200" else "a model of an H200, never checked here"
        how = f"timed as {timed.key}" if timed else how
        return f"predicted {facts['predicted_us']:.1f} us, {facts['predicted_us'] / facts['floor_us']:.2f} of it ({how})"


def _reduced(tile: Tile) -> str:
    return f"{tile.r1}x{tile.r0}" if tile.r1 > 1 else str(tile.r0)


def _line(config: dict[str, int]) -> str:
    programs = config.pop("programs")
    return " ".join(f"{name}={value}" for name, value in config.items()) + f": {_count(programs, 'program')}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
