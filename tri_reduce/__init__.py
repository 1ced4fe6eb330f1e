"""tri_reduce: reductions in Triton, each contribution counted exactly once.

A reduction is local accumulation of a monoid and one collective at the end: over lanes, programs, launches and ranks.
"""

from . import autotune, configs, ops, problem, targets
from .autotune import force
from .functional import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    gemv,
    logsumexp,
    mean,
    norm,
    prod,
    reduce,
    reduce_many,
    std,
    sum,
    var,
)
from .monoids import MONOIDS, Monoid

__version__ = "0.1.0"

__all__ = [
    "MONOIDS",
    "Monoid",
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "autotune",
    "configs",
    "count_nonzero",
    "force",
    "gemv",
    "logsumexp",
    "mean",
    "norm",
    "ops",
    "problem",
    "prod",
    "reduce",
    "reduce_many",
    "std",
    "sum",
    "targets",
    "var",
]
