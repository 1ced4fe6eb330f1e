"""Compile every kernel that the library would launch on Ascend910B3 and look at what became of it.

    .venv-ascend/bin/python tests/ascend/check.py [--jobs 2] [--every | --sample KERNELS]

A kernel passes if it fits the Unified Buffer, runs on the vector cores, each fold is one primitive in TTIR and the same primitive in the
planned HIVM (a compound combine is compiled to another one without a word), and no data goes through a scalar loop. Sums of 64-bit integers
have no primitive and do: they are counted apart.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import toolchain

PRIMITIVES = {
    "arith.addf": "sum", "arith.addi": "sum", "arith.mulf": "prod", "arith.maxnumf": "max", "arith.minnumf": "min", "arith.maxsi": "max",
    "arith.minsi": "min", "arith.andi": "andi", "arith.ori": "ori", "arith.xori": "xori",
}  # fmt: skip
_FOLD = re.compile(r'"tt\.reduce"\([^)]*\) <\{axis = (\d+) : i32\}> \(\{(.*?)tt\.reduce\.return.*?\}\) : \(([^)]*)\)', re.DOTALL)
_VECTOR_FOLD = re.compile(r"hivm\.hir\.vreduce <(\w+)> ins\([^:]*: memref<[^,>]*x(\w+)")
# Newer than ascendnpu-ir 1.0.0: the text has calls of the compiler's library, named after the fold, the axes and the element type.
_LIBRARY_FOLD = re.compile(r"\bcall @(?:enablevc_)?reduce_([a-z]+)_[ar01]+_(\w+)\(")
_LIBRARY_TYPES = {"float": "f32", "half": "f16", "bfloat16_t": "bf16", "int8_t": "i8", "int16_t": "i16", "int32_t": "i32", "int64_t": "i64"}


class Finding(NamedTuple):
    """What became of a kernel. outcome: "compiled", "scalar" (64-bit integers), or a fault: "overflow", "error", "miscompiled", "slow"."""

    name: str
    outcome: str
    detail: str
    seconds: float


FAULTS = ("overflow", "error", "miscompiled", "slow")


def folds(ttir: str) -> Counter[tuple[str, str]]:
    """(primitive, element type) of each fold of a kernel; ("compound", type) of one that is none."""
    found: Counter[tuple[str, str]] = Counter()
    for axis, body, types in _FOLD.findall(ttir):
        ops = re.findall(r"= ([a-z]+\.[a-z_]+)", body)
        first = types.split(">")[0].split("<")[-1]
        *sizes, kind = first.split("x")
        if sizes[int(axis)] == "1":
            continue  # nothing is folded
        simple = len(ops) == 1 and types.count("tensor") == 1
        found[PRIMITIVES.get(ops[0], "compound") if simple else "compound", kind] += 1
    return found


def vector_folds(hivm: str) -> Counter[tuple[str, str]]:
    """(primitive, element type) of each fold that the vector cores run."""
    found = Counter(_VECTOR_FOLD.findall(hivm))
    return found + Counter((name, _LIBRARY_TYPES.get(kind, kind)) for name, kind in _LIBRARY_FOLD.findall(hivm))


def judge(ttir: str, hivm: str, mode: str) -> tuple[str, str]:
    """(outcome, detail) of a compiled kernel."""
    wanted, got = folds(ttir), vector_folds(hivm)
    compound = [kind for name, kind in wanted if name == "compound"]
    if compound:
        return "miscompiled", f"a fold of more than one primitive over {', '.join(compound)}"
    vectors = Counter({k: n for k, n in wanted.items() if k[1] != "i64"})
    if got != vectors:
        return "miscompiled", f"folds {dict(vectors)} became {dict(got)}"
    if mode != "aiv":
        return "slow", f"mode {mode}, not of the vector cores"
    loops = toolchain.scalar_loops(hivm)
    if not loops:
        return "compiled", ""
    return ("scalar", f"{loops} scalar accesses") if "i64" in ttir_types(ttir) else ("slow", f"{loops} scalar accesses in loops")


def ttir_types(ttir: str) -> set[str]:
    """Element types of the tiles that a kernel computes with."""
    return set(re.findall(r"tensor<(?:\d+x)+(\w+)>", ttir))


def examine(name: str, fn: Any, signature: dict[str, str], constexprs: dict[str, Any], attrs: Any, options: dict[str, Any]) -> Finding:
    """Compile one kernel and judge it."""
    start = time.perf_counter()
    try:
        kernel = toolchain.compile_record(fn, signature, constexprs, attrs, options)
        outcome, detail = judge(kernel.asm["ttir"], toolchain.hivm(kernel), kernel.metadata.mix_mode)
    except toolchain.BufferOverflow as error:
        outcome, detail = "overflow", str(error)
    except Exception as error:  # whatever the compiler says is a finding
        outcome, detail = "error", " ".join(str(error).split())[-300:]
    return Finding(name, outcome, detail, time.perf_counter() - start)


def records(problems: list[Any]) -> list[Any]:
    """The library's kernels for some problems, each once: sizes and strides are arguments, so many problems share kernels."""
    from tri_reduce import verify

    found = {}
    for r in verify.library_kernels("ascend", problems=problems):
        found.setdefault((r.fn.__name__, repr(sorted(r.signature.items())), repr(sorted(r.constexprs.items())), repr(r.options)), r)
    return list(found.values())


def _share(task: tuple[list[Any], int | None, int, int]) -> list[Finding]:
    """Every `jobs`-th record, of all or of a sample."""
    problems, sample, part, jobs = task
    toolchain.install()
    found = records(problems)
    if sample is not None and sample < len(found):
        found = random.Random(0).sample(found, sample)
    return [examine(r.name, r.fn, r.signature, r.constexprs, r.attrs, r.options) for r in found[part::jobs]]


def run(problems: list[Any], jobs: int, sample: int | None = None) -> list[Finding]:
    """Findings on every kernel of some problems, or on so many of them: always the same."""
    tasks = [(problems, sample, part, jobs) for part in range(jobs)]
    if jobs == 1:
        return _share(tasks[0])
    with ProcessPoolExecutor(jobs) as pool:
        return [f for part in pool.map(_share, tasks) for f in part]


def report(findings: list[Finding]) -> bool:
    """Print the counts and every fault; True if there is none."""
    for f in findings:
        if f.outcome in FAULTS:
            print(f"{f.outcome.upper():12s} {f.name}: {f.detail}")
    counts = Counter(f.outcome for f in findings)
    print(
        f"Ascend910B3, ascendnpu-ir {toolchain.version()}: {len(findings)} kernels, {counts['compiled']} on vectors, "
        f"{counts['scalar']} scalar (64-bit integers), " + ", ".join(f"{counts[fault]} {fault}" for fault in FAULTS)
    )
    return not any(counts[fault] for fault in FAULTS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--every", action="store_true", help="every op, dtype and shape: an hour or two")
    which.add_argument("--sample", type=int, metavar="KERNELS", help="so many of the kernels, drawn at random: always the same ones")
    given = parser.parse_args()
    toolchain.install()
    from problems import problems

    chosen = problems(given.every)
    start = time.perf_counter()
    findings = run(chosen, given.jobs, given.sample)
    print(f"{len(chosen)} problems, {time.perf_counter() - start:.0f} s, {sum(f.seconds for f in findings):.0f} s of compilation")
    return 0 if findings and report(findings) else 1


if __name__ == "__main__":
    sys.exit(main())
