"""Kernels on CPU tensors, in Triton's interpreter."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .specialization import Specialization

_ONE_AT_A_TIME = threading.Lock()  # the interpreter's grid and its patches of triton.language are the process's
OVERHANG = 16  # elements: a row is read to the end of its last vector


def _flat(t: Tensor, shift: int) -> Tensor:
    """The elements that a tensor spans, behind `shift` others, as bytes for bool and as float32 for bfloat16.

    The interpreter truncates to bfloat16 where hardware rounds; and rounding a first element down to 16 bytes may leave its storage.
    """
    t = t.detach()
    span = sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1 if t.numel() else 0
    kind = {torch.bool: torch.uint8, torch.bfloat16: torch.float32}.get(t.dtype, t.dtype)
    flat = torch.zeros(shift + span + OVERHANG, dtype=kind)
    flat[shift : shift + span] = t.as_strided((span,), (1,), t.storage_offset()).to(kind)
    return flat


def interpret(spec: Specialization, shift: int, operands: Sequence[Tensor | None], rest: Sequence[Any]) -> None:
    """Run every program of a kernel. operands: the input, `shift` elements after a 16-byte boundary, what is read beside it, and the
    output.
    """
    flats = [None if t is None else _flat(t, shift if n == 0 else 0) for n, t in enumerate(operands)]
    constants = dict(spec.constexprs)
    arguments = dict(zip(spec.fn.arg_names, [*flats, *rest]))
    with _ONE_AT_A_TIME, np.errstate(all="ignore"):  # masked lanes compute too
        spec.fn[(spec.programs,)](**(arguments | constants))
    out, written = operands[-1], flats[-1]
    if out is not None and written is not None and out.numel():
        out.detach().copy_(written.as_strided(out.shape, out.stride(), 0))
