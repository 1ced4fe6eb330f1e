"""Where tuned entries are kept: a JSON file for each kind of device, shared by processes, never torn and never trusted.

A reader sees a whole file, old or new, as writers replace it by renaming; writers take turns at a lock beside it. A file that cannot be
used costs a warning and the entries in it, nothing else.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from . import targets

FORMAT = 1
LOCK_SECONDS = 30.0  # a writer needs milliseconds
POLL_SECONDS = 0.002


class StoreWarning(UserWarning):
    """A store's file cannot be used or written; the message begins with its path."""


def cache_dir() -> Path:
    """Where tuned entries are kept: TRI_REDUCE_CACHE_DIR, or the user's cache directory."""
    given = os.environ.get("TRI_REDUCE_CACHE_DIR")
    return Path(os.path.expanduser(given or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tri_reduce")))


def device_name(device: torch.device | str | None = None) -> str:
    """What devices that may share tuned entries have in common: the driver's name for them, the architecture and the number of cores.

    Args:
        device: None is the current accelerator, or the CPU where there is none; a string that torch does not know as a device, or whose
            device is not here, is a name itself.
    """
    if device is None:
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        device = torch.device("cpu") if found is None else torch.device(found.type)
    elif isinstance(device, str):
        try:
            device = torch.device(device)
        except RuntimeError:
            return str(device)
    if device.type == "cpu":
        return targets.of_device("cpu", 0).key
    module = torch.get_device_module(device) if targets.runs_kernels(device) else None
    if module is None or not module.is_available() or (device.index or 0) >= module.device_count():
        return str(device)
    index = module.current_device() if device.index is None else device.index
    target = targets.of_device(device.type, index)
    return target.key if targets.interpreting() else f"{module.get_device_name(index)}-{target.backend}-{target.arch}-{target.cores}"


class Store:
    """Tuned entries of one kind of device, by key. Threads and processes may share it.

    Args:
        directory: where its file is, made when something is put; the default is `cache_dir()`.
        device: a torch.device or its name; the default is the current one (see `device_name`).

    Example:
        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp(), "some device")
        >>> store.put("sum", {"XBLOCK": 4})
        >>> Store(store.path.parent, "some device").get("sum"), store.get("max"), store.keys()
        ({'XBLOCK': 4}, None, ['sum'])
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, device: torch.device | str | None = None) -> None:
        self.device = device_name(device)
        self.path = (cache_dir() if directory is None else Path(directory)) / _file_name(self.device)
        self._entries: dict[str, dict[str, Any]] = {}  # of the file
        self._unsaved: dict[str, dict[str, Any]] = {}  # in memory, as the file could not be written
        self._seen: tuple[int, ...] | None = None  # which file they are of
        self._refused: object = None  # which file, or why, was warned of last
        self._lock = threading.RLock()

    def get(self, key: str) -> dict[str, Any] | None:
        """A copy of the entry, or None; StoreWarning where the file cannot be used."""
        with self._lock:
            self._refresh()
            return copy.deepcopy(self._unsaved.get(key, self._entries.get(key)))

    def keys(self) -> list[str]:
        """The keys of all entries, sorted; StoreWarning where the file cannot be used."""
        with self._lock:
            self._refresh()
            return sorted(self._entries | self._unsaved)

    def put(self, key: str, entry: dict[str, Any]) -> None:
        """Keep an entry: on disk on return, beside what others wrote. Where that fails it is kept in memory, with a StoreWarning.

        Raises:
            TypeError, ValueError: the key is no string, or the entry no dict that JSON can hold.
        """
        if not isinstance(key, str) or not isinstance(entry, dict):
            raise TypeError(f"an entry is a dict under a string, got {type(entry).__name__} under {type(key).__name__}")
        with self._lock:
            self._unsaved[key] = json.loads(json.dumps(entry, allow_nan=False))
            try:
                self._save()
            except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
                self._warn(f"cannot be written ({_reason(error)}): what is tuned stays in this process")

    def _save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock").acquire(timeout=LOCK_SECONDS, poll_interval=POLL_SECONDS):
            self._seen = None  # a file's times are too coarse to tell that nobody wrote since
            if not self._read():
                os.replace(self.path, f"{self.path}.unusable")
            entries = self._entries | self._unsaved
            scratch = f"{self.path}.tmp"  # whoever has the lock owns it, so that a crash leaves one at most
            with open(scratch, "w", encoding="utf-8") as file:
                file.write(json.dumps({"format": FORMAT, "device": self.device, "entries": entries}, separators=(",", ":")))
                file.flush()
                os.fsync(file.fileno())  # else a power cut may leave the new name with none of the data
            os.replace(scratch, self.path)
            self._entries, self._unsaved, self._refused = entries, {}, None

    def _refresh(self) -> None:
        try:
            self._read()
        except OSError as error:
            self._entries, self._seen = {}, None
            if self._refused != (why := _reason(error)):
                self._refused = why
                self._warn(f"cannot be read ({why}): it is ignored")

    def _read(self) -> bool:
        """Read the file, if it is another than before; False: there is one that cannot be used. OSError: it cannot be read."""
        try:
            with open(self.path, "rb") as file:
                facts = os.fstat(file.fileno())
                seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
                if seen == self._seen:
                    return seen != self._refused
                text = file.read()
        except (FileNotFoundError, NotADirectoryError):
            self._entries, self._seen = {}, None
            return True
        self._entries, self._seen = {}, seen
        try:
            self._entries = _entries_of(text, self.device)
        except ValueError as why:
            if seen != self._refused:
                self._refused = seen
                self._warn(f"{why}: it is ignored")
            return False
        return True

    def _warn(self, what: str) -> None:
        warnings.warn(StoreWarning(f"{self.path} {what}"), stacklevel=3)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"


def _file_name(device: str) -> str:
    """The device's name as a file's; what that cannot hold is told apart by a hash."""
    plain = device.replace(" ", "_")
    name = re.sub(r"[^A-Za-z0-9._-]", "_", plain)[:100]
    return f"{name}.json" if name == plain and name else f"{name}-{hashlib.sha256(device.encode()).hexdigest()[:8]}.json"


def _entries_of(text: bytes, device: str) -> dict[str, dict[str, Any]]:
    """The entries in a file's text; ValueError says why there are none to be had."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"is not a store of format {FORMAT}")
    if found.get("device") != device:
        raise ValueError(f"is of another device ({found.get('device')!r})")
    entries = found.get("entries")
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise ValueError("has entries that are none")
    return entries


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
