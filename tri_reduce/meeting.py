"""How programs that share an output meet, and what for: a choice between the ways of `kernels/meeting.py`."""

from __future__ import annotations

from .geometry import Tile, fold_block, straight
from .kernels.compat import tl
from .monoids import DeviceOp
from .problem import Problem
from .specialization import POINTEES

BRIEF_BYTES = 16 << 20  # below it the loops of the last fold, which nobody has run before, are 2% of the time


def sink_of(problem: Problem, tile: Tile, op: DeviceOp, words: bool) -> str:
    """What becomes of a program's states: "own", "pair", "words" or "split" (see `reduce_kernel`).

    words: the target's programs may wait for a word in memory.
    """
    if tile.split == 1:
        return "own"
    if tile.programs or op.many or op.partial.dtypes != (tl.float32,):  # no word, or one of which all values are states
        return "split"
    if tile.split == 2:
        return "pair"
    looping = problem.layout == "columns" and not straight(problem, tile) and problem.nbytes > BRIEF_BYTES  # gets other registers by it
    return "words" if words and not looping and folded_together(tile, op) >= tile.split else "split"


def folded_together(tile: Tile, op: DeviceOp) -> int:
    """Partials of an output in one tile of the last fold."""
    return fold_block(tile, sum(d.primitive_bitwidth // 8 for d in op.partial.dtypes))


def is_brief(problem: Problem, tile: Tile, op: DeviceOp, sink: str) -> bool:
    """All partials of an output are folded at once: words, and where so little is read that latencies count."""
    small = sink in ("split", "pair") and not tile.programs and problem.nbytes <= BRIEF_BYTES
    return sink == "words" or (small and folded_together(tile, op) >= tile.split)


def pointers_of(sink: str, problem: Problem, op: DeviceOp, slots: int) -> tuple[dict[str, str], int]:
    """(the pointers that programs meet at, how many words of 32 bits they meet in)."""
    if sink == "pair":
        return {"p0": "i64"}, 2 * problem.xnumel
    if sink == "words":
        return {"p0": "i32", "ticket_ptr": "i32"}, slots * problem.xnumel
    states = {} if sink == "own" else {f"p{n}": POINTEES[d] for n, d in enumerate(op.partial.dtypes)}
    return states | ({"ticket_ptr": "i32"} if sink == "split" else {}), 0
