"""How long a tile takes, in microseconds: a model of a GPU that is full of short programs. It ranks tiles; it promises nothing.

A launch lasts as long as the longest of three things: the bytes at the device's bandwidth, the instructions at its rate, and programs that
wait for their loads, as many at once as registers allow. Programs that share outputs meet at the end. The constants were fitted on sweeps
of these kernels (one H200; docs/selector.md) and scale with what a Target says of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .geometry import Tile, fold_block, tiles_of
from .problem import Problem
from .targets import Target

LAUNCH = 5.34  # us before the first program, as an empty kernel shows
READ = 0.918  # of the target's bandwidth, that a long stream of tiles gets
LINE, SHORT_LINE = 73.6, 0.165  # bytes that lie together; fewer cost this power of what is missing
DEEPER = 0.329  # of a round of loads, for each doubling of the words that a thread reads of a tile
UNROLLED = 2.32  # iterations that the compiler has in flight unasked
IN_FLIGHT = 111.0  # 32-bit words of loads that a thread keeps in flight
REGISTERS, STATE_REGISTERS, LOAD_REGISTERS = 12.6, 0.496, 0.519  # of a thread: always, for each value of a state, for each word in flight
SHARE, FOLD = 2.08, 0.196  # us to meet at a ticket; for each tile of partials that the last one folds
ISSUE = 8.38  # instructions for each load, of a value or of 16 bytes
SHUFFLE = 0.378  # instructions for each step of a fold over lanes
SHARPNESS = 7.09  # 1: the three things follow one another; infinity: they overlap wholly
PLAIN, STATE = 13.7, 20.0  # instructions for a value, and for each further tile of its state
INSTRUCTIONS = {"sum": 4.65, "mean": 4.65, "var": 41.8, "std": 41.8, "logsumexp": 19.8, "argmax": 23.5, "argmin": 23.5, "gemv": 8.49}
RATE = 1.7e3  # instructions a us of one lane

LANES, WARPS, PROGRAMS, MOST_REGISTERS = 128, 64, 32, 255  # of a core; of a thread


class Facts(NamedTuple):
    """Of each tile; those of the problem alone are the same for all."""

    columns: Any
    size: Any  # bytes of a value
    arity: Any
    gemv: Any
    instructions: Any
    nbytes: Any
    vector: Any  # values that a load reads
    line: Any  # bytes that lie together
    programs: Any
    x: Any
    lanes: Any
    warps: Any
    threads: Any
    ahead: Any
    unroll: Any
    chunk: Any  # tiles that a program reads
    split: Any
    partials: Any  # tiles of them that the last program of an output folds


def facts(problem: Problem, target: Target, tiles: Sequence[Tile]) -> Facts:
    """What the model needs to know."""
    size, columns, inner = problem.dtype.itemsize, problem.layout == "columns", problem.reduced[-1].size
    vector = problem.column_vector if columns else problem.vector if problem.aligned_rows else 1
    chunks: dict[Any, int] = {}  # by what they depend on
    rows = []
    for t in tiles:
        shape = t.x, t.r0, t.r1, t.split, t.unroll
        if shape not in chunks:
            chunks[shape] = max(1, -(-tiles_of(problem, t)[1] // t.split))
        together = min(t.x, problem.xnumel) if columns else min(t.r0, inner)
        partials = -(-t.split // fold_block(t, 4 * problem.arity)) if t.split > 1 else 0
        rows.append((
            size * together, -(-problem.xnumel // t.x) * t.split, t.x, t.lanes, t.warps, target.warp * t.warps, t.ahead, t.unroll,
            chunks[shape], t.split, partials,
        ))  # fmt: skip
    alike = (columns, size, problem.arity, problem.op == "gemv", instructions(problem), problem.nbytes, max(vector, 1))
    return Facts(*(np.full(len(rows), value, dtype=float) for value in alike), *np.array(rows, dtype=float).T)


def instructions(problem: Problem) -> float:
    """Of one value: its lift and its combine."""
    return INSTRUCTIONS.get(problem.op, PLAIN + STATE * (problem.arity - 1))


def microseconds(f: Facts, target: Target) -> Any:
    """The predicted time of each tile.

    Source: Little's law (what is in flight, over how long it takes) beside a roofline.
    """
    values = np.maximum(f.lanes / f.threads, 1)  # of a thread, in one tile
    words = np.maximum(values * f.size / 4, 1) * (1 + f.gemv)

    # Rounds of loads: what a thread has in flight together, and how many programs a core holds.
    together = np.where(f.chunk <= 4, f.chunk, np.minimum(np.where(f.ahead > 1, f.ahead, UNROLLED), f.chunk))
    together = np.where(f.unroll > 0, f.unroll, np.maximum(np.minimum(together, IN_FLIGHT / words), 1))
    registers = np.clip(REGISTERS + STATE_REGISTERS * values * f.arity + LOAD_REGISTERS * words * together, 24, MOST_REGISTERS)
    held = np.clip(np.floor(np.minimum(target.registers / (registers * f.threads), WARPS / f.warps)), 1, PROGRAMS) * target.cores
    waves = np.ceil(f.programs / held)
    rounds = np.where(f.unroll > 0, 1, np.ceil(f.chunk / together))

    # The fold over lanes: how many threads hold values of one output, and of how many outputs each holds some.
    apart = np.where(f.columns > 0, np.maximum(f.threads * f.vector / f.x, 1), np.clip(f.lanes / f.x / f.vector, 1, f.threads))
    apart = np.where(f.unroll > 0, 1, apart)
    steps = np.maximum(f.x * apart / f.threads, 1) * np.log2(np.maximum(apart, 1)) * f.arity

    longer = 1 + DEEPER * np.log2(np.maximum(values * f.size / 4, 1))
    waiting = waves * rounds * longer * target.latency
    reading = f.nbytes / (READ * target.bandwidth * 1e-6) / np.minimum(1, f.line / LINE) ** SHORT_LINE
    each = f.instructions + ISSUE * f.size / np.minimum(f.vector * f.size, 16)
    work = f.programs * (f.chunk * f.lanes * each + SHUFFLE * f.threads * steps)
    computing = work / (target.cores * LANES * RATE)
    body = (reading**SHARPNESS + computing**SHARPNESS + waiting**SHARPNESS) ** (1 / SHARPNESS)
    return LAUNCH + body + np.where(f.split > 1, SHARE + FOLD * f.partials, 0)
