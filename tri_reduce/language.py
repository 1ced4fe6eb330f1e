"""The device-side reducer for people who write their own Triton kernels: `init`, `update`, `finalize`. See `kernels/language.py`."""

from .kernels.language import finalize, init, update

__all__ = ["finalize", "init", "update"]
