"""Host code that torch.compile runs as it is, at a graph break, and does not trace: it keeps state, and launches kernels by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo import eval_frame

# Private, and not in every torch: none of them may keep the library from being imported.
_mark, _action, _strategy = (getattr(eval_frame, n, None) for n in ("set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy"))


def untraced(function: Any, why: str) -> Callable[..., Any]:
    """The function, never traced, nor what it calls. Under `fullgraph=True` the compiler raises, with `why`.

    What `torch.compiler.disable` does, which costs 0.9 us in every call and the compiler's import now: it stands in where torch has no
    strategies.
    """
    if _mark is None or _action is None or _strategy is None:
        return torch.compiler.disable(function)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
    function._torchdynamo_disable, function._torchdynamo_disable_msg = True, why
    _mark(function.__code__, _strategy(_action.SKIP, _action.SKIP))
    return function  # type: ignore[no-any-return]
