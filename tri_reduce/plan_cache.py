"""Planned calls, remembered under everything that could change them: one of the package's two module-level caches.

Bounded, and safe under threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

MAX_PLANS = 8192
PLANS: dict[Hashable, Any] = {}
_LOCK = threading.Lock()


def keep(key: Hashable, call: Any) -> Any:
    """Keep a planned call; the oldest half goes when there are too many."""
    with _LOCK:
        if len(PLANS) >= MAX_PLANS:
            for old in list(PLANS)[: MAX_PLANS // 2]:
                del PLANS[old]
        PLANS[key] = call
    return call


def drop(which: Callable[[Any], bool]) -> None:
    """Forget the calls whose key `which` is true of: they are planned anew."""
    with _LOCK:
        for key in [k for k in PLANS if which(k)]:
            del PLANS[key]
