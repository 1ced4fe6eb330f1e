"""Whether a launch follows another one directly in a CUDA graph under capture.

The launches of a stream run one after another, and each pays for filling and draining the device. An update may read its values while
the update before it still runs: slots are all that both touch, and for those it waits. But whatever else lies between the two may have
written the values, and only a capture can be asked: its stream knows the nodes that the next one will depend on.

The first update of a chain waits at its start until all before it has ended and been flushed, and then says that the next may begin. Those
that follow say so at once, read their values, and wait for the one before just before they touch their slots. So values written before
the chain are there for all of it, slots change in order, and what comes after the chain, which is no update, waits for its end, which
waits for all the others. Outside a capture every update is the first of a chain: it is set up while what is before it ends, no more.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE


@functools.cache
def _query() -> Any:
    """The driver's cuStreamGetCaptureInfo_v2, or None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuStreamGetCaptureInfo_v2
    except (OSError, AttributeError):
        return None


def tail(stream: int) -> tuple[int, int] | None:
    """(capture, node) where the next launch will depend on just one node, else None."""
    query = _query()
    if query is None:
        return None
    status, capture, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
    nodes = ctypes.POINTER(ctypes.c_void_p)()
    error = query(ctypes.c_void_p(stream), *map(ctypes.byref, (status, capture)), None, ctypes.byref(nodes), ctypes.byref(count))
    if error or status.value != _ACTIVE or count.value != 1 or not nodes[0]:
        return None
    return capture.value, int(nodes[0])


_last: tuple[int, int] | None = None  # of the update that was captured last; other threads' captures only break the chain


def goes_on(stream: int) -> bool:
    """Nothing was captured on the stream since the last update: the next one follows it directly."""
    return _last is not None and tail(stream) == _last


def launched(stream: int) -> None:
    """Remember the update that was captured just now."""
    global _last
    _last = tail(stream)
