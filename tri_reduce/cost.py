"""How long a tile takes, in microseconds: a model of a GPU that is full of short programs. It ranks tiles; it promises nothing.

A launch lasts as long as the longest of three things: the bytes at the device's bandwidth, the instructions at its rate, and programs that
wait for their loads, as many at once as registers allow. Programs that share outputs meet at the end. The constants were fitted on sweeps
of these kernels (one H200; docs/selector.md) and scale with what a Target says of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .geometry import Tile, fold_block, output_tiles, seen, slanted, tiles_of
from .problem import Problem
from .targets import Target

LAUNCH = 4.96  # us before the first program, as an empty kernel shows
READ = 1  # of the target's bandwidth, that a long stream of tiles gets
CORE_READ = 1.65  # times its share of that, at most, that one core gets: fewer programs than cores cannot read at full speed
LINE, SHORT_LINE = 0.235, 16.4  # bytes: those that lie together, beside them, to this power, are how well memory is used
ROUND = 0.14  # of the target's latency, that a round of loads takes
DEEPER = 0.093  # of a round, for each doubling of the words that a thread reads of a tile
ASKED = 0.364  # to this power of the iterations that a loop is asked to have in flight, rounds of loads are fewer
REGISTERS, STATE_REGISTERS, LOAD_REGISTERS = 36.6, 1.13, 0.148  # of a thread: always, for each value of a state, for each word in flight
BARRIER = 0.0115  # us a program takes to fold what its warps hold of an output, for each doubling of them and each tile of a state
START = 0.00482  # us a core takes to begin a program
SHARE, FOLD = 0.0721, 2.23  # us to meet at a ticket; for the square root of the tiles of partials that the last one folds
APART = 2.2  # us that a second launch takes, begun early, to fold; measured, not fitted
ISSUE = 1.01  # instructions for each load, of a value or of 16 bytes
HEAD = 0.333  # instructions for each value of rows that start between vectors and are masked throughout: two masks
SHUFFLE = 0.634  # instructions for each step of a fold over lanes
BUSY = 6.56e03  # threads that keep the lanes of a core busy: each waits for its own results
SHARPNESS = 1.23  # 1: the three things follow one another; infinity: they overlap wholly
PLAIN, STATE = 0.306, 13.5  # instructions for a value, and for each further tile of its state
INSTRUCTIONS = {"sum": 0.149, "mean": 0.149, "var": 0.672, "std": 0.672, "logsumexp": 0.948, "argmax": 0.3, "argmin": 0.3, "gemv": 0.0289}
RATE = 1.7e3  # instructions a us of one lane

LANES, WARPS, PROGRAMS, MOST_REGISTERS = 128, 64, 32, 255  # of a core; of a thread


class Facts(NamedTuple):
    """Of each tile; those of the problem alone are the same for all."""

    columns: Any
    size: Any  # bytes of a value
    arity: Any
    gemv: Any
    head: Any  # rows start between vectors, every tile is masked
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
    apart: Any  # a second launch folds


def facts(problem: Problem, target: Target, tiles: Sequence[Tile]) -> Facts:
    """What the model needs to know."""
    size, columns = problem.dtype.itemsize, problem.layout == "columns"
    chunks: dict[Any, int] = {}  # by what they depend on
    rows = []
    for t in tiles:
        shape = t.x, t.r0, t.r1, t.split, t.unroll, t.abreast
        if shape not in chunks:
            chunks[shape] = max(1, -(-tiles_of(problem, t)[1] // t.split))
        partials = -(-t.split // fold_block(t, 4 * problem.arity)) if t.split > 1 else 0
        rows.append((
            vector(problem, t), size * together(problem, t), output_tiles(problem, t) * t.split, t.x, t.lanes, t.warps,
            target.warp * t.warps, t.ahead, t.unroll, chunks[shape], t.split, partials, t.abreast > 0,
        ))  # fmt: skip
    head = problem.layout == "rows" and not problem.aligned_rows and not problem.busy
    same = (columns, size, problem.arity, problem.op == "gemv", head, instructions(problem), problem.nbytes)
    return Facts(*(np.full(len(rows), value, dtype=float) for value in same), *np.array(rows, dtype=float).T)


def vector(problem: Problem, tile: Tile) -> int:
    """Values that a load reads."""
    problem = seen(problem, tile)
    if problem.layout == "columns":
        return problem.vector if slanted(problem, tile) else problem.column_vector
    return tile.r0 if tile.unroll else problem.vector if problem.layout == "rows" and tile.r0 >= problem.vector else 1


def together(problem: Problem, tile: Tile) -> int:
    """Values of a tile that lie together: along the inner axis, and on along the next where the tile has all of the inner one."""
    problem = seen(problem, tile)
    kept, reduced = problem.kept[-1], problem.reduced[-1]
    inner, lanes, outer, more = (kept, tile.x, reduced, tile.r0) if problem.layout == "columns" else (reduced, tile.r0, kept, tile.x)
    if (lanes < inner.size and not tile.unroll) or outer.strides[0] != inner.size:
        return min(lanes, inner.size)
    return inner.size * max(1, min(more, outer.size))


def instructions(problem: Problem) -> float:
    """Of one value: its lift and its combine."""
    return INSTRUCTIONS.get(problem.op, PLAIN + STATE * (problem.arity - 1))


def microseconds(f: Facts, target: Target) -> Any:
    """The predicted time of each tile.

    Source: Little's law (what is in flight, over how long it takes) beside a roofline, both of the core that has most programs.
    """
    values = np.maximum(f.lanes / f.threads, 1)  # of a thread, in one tile
    words = np.maximum(np.where(f.vector > 1, values * f.size / 4, values), 1)  # registers that loads fill

    # Rounds of loads: few tiles are read together, a loop reads one after another; and how many programs a core holds.
    together = np.where((f.chunk <= 4) | (f.unroll > 0), f.chunk, f.ahead**ASKED)
    loaded = words * (1 + f.gemv) * together
    registers = np.clip(REGISTERS + STATE_REGISTERS * values * f.arity + LOAD_REGISTERS * loaded, 24, MOST_REGISTERS)
    held = np.clip(np.floor(np.minimum(target.registers / (registers * f.threads), WARPS / f.warps)), 1, PROGRAMS)
    most = np.ceil(f.programs / target.cores)
    rounds = np.ceil(f.chunk / together)

    # The fold over lanes: how many threads hold values of one output, and of how many outputs each holds some.
    apart = np.where(f.columns > 0, np.maximum(f.threads * f.vector / f.x, 1), np.clip(f.lanes / f.x / f.vector, 1, f.threads))
    apart = np.where(f.unroll > 0, 1, apart)
    steps = np.maximum(f.x * apart / f.threads, 1) * np.log2(np.maximum(apart, 1)) * f.arity
    barriers = BARRIER * f.arity * np.log2(f.warps) * ((f.unroll == 0) & ((f.columns > 0) | (apart > target.warp)))

    waiting = np.ceil(most / held) * (rounds * (1 + DEEPER * np.log2(words)) * ROUND * target.latency + barriers)
    alone = most * target.cores / (f.programs * CORE_READ)
    reading = f.nbytes / (READ * target.bandwidth * 1e-6) * np.maximum(1, alone) * (1 + LINE / f.line) ** SHORT_LINE
    reads = np.maximum(f.unroll, 1) / f.vector  # threads that walk rows of their own read apart
    each = f.instructions + HEAD * f.head + ISSUE * (reads + f.gemv * np.where(f.head > 0, 1, 1 / f.vector))
    work = most * (f.chunk * f.lanes * each + SHUFFLE * f.threads * steps)
    computing = work / (LANES * RATE * np.minimum(np.minimum(most, held) * f.threads / BUSY, 1))
    body = (reading**SHARPNESS + computing**SHARPNESS + waiting**SHARPNESS) ** (1 / SHARPNESS)
    end = np.where(f.split > 1, SHARE + FOLD * np.sqrt(f.partials), 0)
    return LAUNCH + body + START * most + np.where(f.apart > 0, APART, end)
