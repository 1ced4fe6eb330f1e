"""`TRI_REDUCE_LOG=plan`: a line on standard error for each new plan, through Python's logging (logger "tri_reduce", level DEBUG).

Plans are made once for each layout of a call; a call whose plan is remembered comes nowhere near this module.
"""

from __future__ import annotations

import functools
import logging
import os

from .geometry import Tile
from .problem import Problem

LOGGER = logging.getLogger("tri_reduce")
KINDS = ("plan",)


@functools.cache
def follow_environment() -> None:
    """Obey TRI_REDUCE_LOG, which is read at first use. ValueError: it is something else."""
    wanted = os.environ.get("TRI_REDUCE_LOG")
    if not wanted:
        return
    if wanted not in KINDS:
        raise ValueError(f"unknown TRI_REDUCE_LOG {wanted!r}: expected {' or '.join(KINDS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.propagate = False  # a program that logs everything would print each line twice


def plan(what: Problem | str, tile: Tile | None, why: str) -> None:
    """A plan was made: for which problem, with which tile (None: no kernel), and why this one."""
    follow_environment()
    if LOGGER.isEnabledFor(logging.DEBUG):
        LOGGER.debug("plan: %s | %s | %s", _named(what), "no kernel" if tile is None else _config(tile), why)


def _named(what: Problem | str) -> str:
    if isinstance(what, str):
        return what
    return f"{what.op} of {what.dtype.name}, {what.xnumel} outputs from {what.rnumel} values each" + ", masked" * what.masked


def _config(tile: Tile) -> str:
    """The regime and the knobs, as `force` takes them.

    >>> _config(Tile("rows", 1, 2048, split=4, warps=8))
    'rows | XBLOCK=1 R0_BLOCK=2048 R1_BLOCK=1 SPLIT=4 AHEAD=1 num_warps=8'
    """
    knobs = f"XBLOCK={tile.x} R0_BLOCK={tile.r0} R1_BLOCK={tile.r1} SPLIT={tile.split} AHEAD={tile.ahead} num_warps={tile.warps}"
    knobs += f" ABREAST={tile.abreast}" * (tile.abreast > 0)
    return f"{tile.regime} | {knobs}"
