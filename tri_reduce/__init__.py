"""tri_reduce: reductions in Triton, each contribution counted exactly once.

A reduction is local accumulation of a monoid and one collective at the end: over lanes, programs, launches and ranks.
"""

from . import autotune, configs, dtensors, inductor, ops, problem, targets, verify
from .autotune import force
from .errors import (
    CollectiveMismatchError,
    DoubleFinalizeError,
    ReadBeforeFinalizeError,
    ReducerDtypeError,
    ReducerError,
    ReducerMergeError,
    ReducerShapeError,
    UpdateAfterFinalizeError,
)
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
from .override import override_torch
from .reducer import Reducer
from .registry import register_monoid

__version__ = "0.1.0"

__all__ = [
    "MONOIDS",
    "CollectiveMismatchError",
    "DoubleFinalizeError",
    "Monoid",
    "ReadBeforeFinalizeError",
    "Reducer",
    "ReducerDtypeError",
    "ReducerError",
    "ReducerMergeError",
    "ReducerShapeError",
    "UpdateAfterFinalizeError",
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "autotune",
    "configs",
    "count_nonzero",
    "dtensors",
    "force",
    "gemv",
    "inductor",
    "logsumexp",
    "mean",
    "norm",
    "ops",
    "override_torch",
    "problem",
    "prod",
    "reduce",
    "reduce_many",
    "register_monoid",
    "std",
    "sum",
    "targets",
    "var",
    "verify",
]
