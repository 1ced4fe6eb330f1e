"""Host code that torch.compile runs as it is, at a graph break, and does not trace: it keeps state, and launches kernels by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo import eval_frame


def untraced(function: Any, why: str) -> Callable[..., Any]:
    """The function, never traced, nor what it calls. Under `fullgraph=True` the compiler raises, with `why`.

    What `torch.compiler.disable` does, which costs 0.9 us in every call and the compiler's import now: it stands in where torch (2.6) has
    no strategies.
    """
    mark = getattr(eval_frame, "set_code_exec_strategy", None)
    if mark is None:
        return torch.compiler.disable(function)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
    function._torchdynamo_disable, function._torchdynamo_disable_msg = True, why
    skip = eval_frame._FrameAction.SKIP
    mark(function.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return function  # type: ignore[no-any-return]
