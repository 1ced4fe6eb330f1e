"""The Ascend compiler without CANN, torch_npu or an NPU: Triton source to planned HIVM, as on a host that has them.

`triton-ascend` and `ascendnpu-ir` hold everything up to the plan of the Unified Buffer; only `hivmc`, the last step to machine code, is
part of CANN alone. A stub takes its place and hands its input on, so that a kernel's "binary" is the text of its planned HIVM.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import stat
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

ARCH = "Ascend910B3"
_HIVMC = """#!/bin/sh
in=""; out=""; previous=""
for a in "$@"; do
  case "$a" in --version) echo "hivmc 1.2.0 (stub)"; exit 0;; esac
  if [ "$previous" = "-o" ]; then out="$a"; else case "$a" in -*) ;; *) in="$a";; esac; fi
  previous="$a"
done
[ -n "$in" ] && [ -n "$out" ] && cp "$in" "$out.o"
"""
_OVERFLOW = re.compile(r"ub overflow, requires (\d+) bits while (\d+) bits", re.IGNORECASE)


class BufferOverflow(Exception):
    """The tiles of a kernel do not fit the Unified Buffer."""

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(f"needs {needed} of {available} bytes of Unified Buffer")
        self.needed, self.available = needed, available


def install() -> None:
    """Make `triton.compile` work for `ARCH` in this process. Call it before Triton is imported."""
    found = importlib.util.find_spec("ascendnpuir")
    if found is None or found.origin is None or importlib.util.find_spec("triton") is None:
        sys.exit(
            "tests/ascend needs triton-ascend, pybind11 and ascendnpu-ir: run `make test-ascend`, which installs them into .venv-ascend"
        )
    os.environ["TRITON_ASCEND_ARCH"] = ARCH
    if "TRITON_CACHE_DIR" not in os.environ:  # Triton's keys do not say which ascendnpu-ir compiled
        os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="tri_reduce_ascend_")
        atexit.register(shutil.rmtree, os.environ["TRITON_CACHE_DIR"], ignore_errors=True)
    stub = Path(tempfile.gettempdir()) / f"hivmc-stub-{os.getuid()}" / "hivmc"
    stub.parent.mkdir(exist_ok=True)
    fresh = stub.with_suffix(f".{os.getpid()}")
    fresh.write_text(_HIVMC)
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR)
    fresh.replace(stub)
    # bishengir-compile is looked for in PATH, and looks for hivmc there in turn
    os.environ["PATH"] = os.pathsep.join([str(stub.parent), str(Path(found.origin).parent / "bin"), os.environ["PATH"]])
    from triton.backends.ascend import driver

    driver.NPUUtils.__init__ = lambda self: None  # it builds an extension against CANN, to ask which chip there is
    driver.NPUUtils.get_arch = lambda self: ARCH


def version() -> str:
    """Of ascendnpu-ir."""
    return metadata.version("ascendnpu-ir")


def compile_record(fn: Any, signature: dict[str, str], constexprs: dict[str, Any], attrs: Any, options: dict[str, Any]) -> Any:
    """The compiled kernel of a library record; BufferOverflow, or the compiler's own error."""
    from tri_reduce import verify

    try:
        return verify.compile_kernel(fn, signature, constexprs, "ascend", attrs=attrs, options=options)
    except Exception as error:
        overflow = _OVERFLOW.search(str(error))
        if overflow is None:
            raise
        raise BufferOverflow(int(overflow[1]) // 8, int(overflow[2]) // 8) from None


def hivm(kernel: Any) -> str:
    """The planned HIVM of a compiled kernel."""
    return kernel.asm["npubin"].decode()


_BYTES = {"i64": 8, "f64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "i8": 1, "i1": 1 / 8}


def buffer_bytes(text: str) -> int:
    """Bytes of Unified Buffer that a planned kernel uses."""
    constants = {m[1]: int(m[2]) for m in re.finditer(r"(%\w+) = arith\.constant (-?\d+) : i64", text)}
    top = 0
    for cast in re.finditer(r"hivm\.hir\.pointer_cast\(([^)]*)\)[^:]*: memref<((?:\d+x)*)(\w+)[^>]*address_space<ub>", text):
        size = _BYTES[cast[3]]
        for n in cast[2].split("x")[:-1]:
            size *= int(n)
        top = max([top, *(constants[c.strip()] + int(size) for c in cast[1].split(","))])
    return top


def scalar_loops(text: str) -> int:
    """Elements that loops read or write one after another: data that the vector unit does not process."""
    counters = set(re.findall(r"scf\.for (%\w+) = ", text))
    accesses = re.findall(r"memref\.(?:load|store) [^\[]*\[([^\]]+)\]", text)
    return sum(bool(counters & set(re.split(r",\s*", indices))) for indices in accesses)
