"""The tables of docs/ascend.md, "Beside torch_npu's own generator": its reduction candidates, read from its wheel, beside ours.

    python benchmarks/compare_torch_npu.py torch_npu-2.14.0-....whl [--problems N] [--json FILE]

Only the generator's functions are run, in a namespace of their own; nothing of the wheel is installed. The formula is compared list by
list, what the library emits tile by tile. The exit status is 1 if a difference falls in none of the classes.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import json
import random
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tri_reduce import MONOIDS, ascend, ascend_configs, dtypes
from tri_reduce.configs import Tile, select_candidates, select_configs
from tri_reduce.geometry import pow2_ceil
from tri_reduce.problem import describe

FILE = "torch_npu/_inductor/triton_experimental/npu_triton_heuristics.py"
GENERATOR, NARROWEST, TO_CONFIG = "_red_formula_configs", "_min_ptr_elem_bytes", "npu_triton_config_reduction"
MOST = 4096  # outputs of a tile, there
BUFFER = 192 * 1024  # bytes, of an Ascend910B3
SIZES = (1, 2, 7, 49, 63, 64, 65, 768, 4096, 4097, 8191, 8192, 49999, 50000, 401408)
DTYPES = ("bf16", "fp16", "fp32", "i8", "i32", "i64", "i1")
OPS = ("sum", "mean", "max", "any", "argmax", "var", "logsumexp")
Pairs = list[tuple[int, int]]

NAME = "the dtype's name says another width than the narrowest pointer"
CAP = "at most 4096 outputs in a tile"
MEAN = "the room of a row by the mean width of the pointers"
NONE = "a count of 0"


class Case(NamedTuple):
    """A call of the formula, and the pointers of the kernel that it is for."""

    xnumel: int
    rnumel: int
    dtype: str
    num_load: int
    num_reduction: int
    min_ptr_elem_bytes: int | None
    pointers: tuple[str, ...]


def isolated(source: str, names: Iterable[str], stand_ins: dict[str, Any]) -> dict[str, Any]:
    """Run the top-level definitions that some names need, and no others.

    Args:
        source: of a module.
        names: what is wanted of it.
        stand_ins: values for names, in place of what the module defines or imports.

    Returns:
        Their namespace.

    Raises:
        KeyError: a name that the module lacks.
    """
    defined: dict[str, ast.FunctionDef | ast.Assign] = {}
    imported: dict[str, tuple[str, str | None]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            defined[node.targets[0].id] = node
        elif isinstance(node, ast.Import):
            imported.update({a.asname or a.name: (a.name, None) for a in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.update({a.asname or a.name: (node.module, a.name) for a in node.names})
    found = dict(stand_ins)

    def provide(name: str) -> None:
        if name in found:
            return
        if name in imported:
            module, attribute = imported[name]
            loaded = importlib.import_module(module)
            found[name] = getattr(loaded, attribute) if attribute else loaded
            return
        node = defined[name]
        found[name] = None  # under way: functions may call each other
        body = node.body if isinstance(node, ast.FunctionDef) else [node.value]
        for part in (p for statement in body for p in ast.walk(statement)):
            if isinstance(part, ast.Name) and (part.id in defined or part.id in imported):
                provide(part.id)
        module_of_one = ast.Module([node], type_ignores=[])
        exec(compile(module_of_one, f"<{name}>", "exec", annotations.compiler_flag, dont_inherit=True), found)

    for name in names:
        provide(name)
    return found


class Generator:
    """The reduction candidates of a torch_npu wheel."""

    def __init__(self, wheel: Path) -> None:
        try:
            source = zipfile.ZipFile(wheel).read(FILE).decode()
            chip = {"get_npu_ub_size_bytes": lambda: BUFFER}
            whole = isolated(source, (GENERATOR, NARROWEST), chip)
            bare = isolated(source, (GENERATOR,), chip | {TO_CONFIG: lambda size_hints, x, r: (x, r)})
        except (OSError, zipfile.BadZipFile, KeyError) as error:
            sys.exit(f"compare_torch_npu: {wheel} is no torch_npu wheel with the generator in {FILE}: {error}")
        self._configs, self._pairs = whole[GENERATOR], bare[GENERATOR]
        self._narrowest = whole[NARROWEST]

    def _call(self, generate: Callable[..., Any], case: Case) -> Any:
        meta = {"num_load": case.num_load, "num_reduction": case.num_reduction}
        return generate({"x": case.xnumel, "r0_": case.rnumel}, {"signature": self._signature(case.pointers)}, meta)

    @staticmethod
    def _signature(pointers: Iterable[str]) -> dict[str, str]:
        return {f"ptr{n}": f"*{kind}" for n, kind in enumerate(pointers)}

    def pairs(self, case: Case) -> Pairs:
        """(XBLOCK, R0_BLOCK) as the formula has them."""
        return sorted(self._call(self._pairs, case))

    def configs(self, case: Case) -> Pairs:
        """(XBLOCK, R0_BLOCK) of the configurations that torch makes of them."""
        return sorted({(c.kwargs["XBLOCK"], c.kwargs["R0_BLOCK"]) for c in self._call(self._configs, case)})

    def narrowest(self, pointers: Iterable[str]) -> int:
        """Bytes of the smallest element."""
        return int(self._narrowest(self._signature(pointers)))


def draw(rng: random.Random, theirs: Generator) -> Case:
    """A random call."""
    x, r = (rng.choice(SIZES) if rng.random() < 0.2 else int(2 ** rng.uniform(0, 22)) for _ in range(2))
    dtype, load, reduction = rng.choice(DTYPES), rng.randint(1, 10), rng.randint(1, 4)
    if rng.random() < 0.02:
        reduction = 0
    outputs = [rng.choice(DTYPES) if rng.random() < 0.3 else dtype for _ in range(reduction)]
    pointers = (*[dtype] * load, *outputs)
    return Case(x, r, dtype, load, reduction, theirs.narrowest(pointers) if rng.random() < 0.5 else None, pointers)


def differences(case: Case, theirs: Generator) -> list[str]:
    """What turns our list into theirs, step by step; "unexplained" where a step is none of the known ones."""
    if not case.num_reduction:
        return [NONE]
    width = theirs.narrowest(case.pointers)
    named, ours = select_candidates(*case[:6]), select_candidates(*case[:5], width)
    same_width = next(kind for kind in case.pointers if theirs.narrowest([kind]) == width)
    alike, formula, made = theirs.pairs(case._replace(pointers=(same_width,))), theirs.pairs(case), theirs.configs(case)
    if formula != made:  # torch's own function makes a configuration of a pair and may change it: it does not
        return ["unexplained"]
    if named == made:
        return []
    found = [NAME] if named != ours else []
    if ours != alike:
        found.append(CAP if alike == sorted({(min(x, MOST), r) for x, r in ours}) else "unexplained")
    if alike != formula:
        found.append(MEAN)
    return found


def tile_classes(op: str, shape: tuple[int, int], dim: int, dtype: str, theirs: Generator) -> Counter[str]:
    """What became of each of their tiles in the list that the library emits for a problem."""
    problem = describe(op, shape, dim, dtype)
    out = dtypes.of(MONOIDS[op].out_for(problem.dtype.torch)).name
    case = Case(problem.xnumel, problem.rnumel, dtype, 1, 1, problem.dtype.itemsize, (dtype, out))
    emitted = {(c.kwargs["XBLOCK"], c.kwargs["R0_BLOCK"]) for c in select_configs(problem, "ascend")}
    formula = {(x, pow2_ceil(r)) for x, r in select_candidates(*case[:6])}
    found: Counter[str] = Counter()
    listed = set()
    for x, r in theirs.configs(case):
        at = (x, pow2_ceil(r))
        listed.add(at)
        if at in emitted:
            found["theirs, kept" if at[1] == r else "theirs, kept with R0_BLOCK rounded up"] += 1
        elif not ascend_configs.fits(ascend.op_of(problem), problem, Tile(problem.layout, *at, warps=0, plain=True)):
            found["theirs, left out: does not fit the buffer"] += 1
        else:
            found[f"theirs only: {CAP}" if x == MOST and at not in formula else "unexplained"] += 1
    found["unexplained"] += len(emitted - listed)
    return +found


def draw_problem(rng: random.Random) -> tuple[str, tuple[int, int], int, str]:
    """A random reduction of rows or columns."""
    kept, reduced = (rng.choice(SIZES) if rng.random() < 0.2 else int(2 ** rng.uniform(0, 22)) for _ in range(2))
    dim = rng.randint(0, 1)
    return rng.choice(OPS), (kept, reduced) if dim else (reduced, kept), dim, rng.choice(("fp32", "bf16", "fp16"))


def example(case: Case, theirs: Generator) -> dict[str, Any]:
    """A call and the first tiles of one list alone."""
    found = {k: v for k, v in case._asdict().items() if k != "pointers"}
    if not case.num_reduction:
        return found
    ours, made = set(select_candidates(*case[:6])), set(theirs.configs(case))
    return found | {"ours alone": sorted(ours - made)[:3], "theirs alone": sorted(made - ours)[:3]}


def compare(theirs: Generator, problems: int) -> dict[str, Any]:
    """Counts of equal lists, of the classes of differences (a list may be in several) with an example of each, and of tiles."""
    rng = random.Random(0)
    lists = [(case, differences(case, theirs)) for case in (draw(rng, theirs) for _ in range(problems))]
    classes = Counter(c for _, found in lists for c in found)
    alone = {c: min((f for f in lists if c in f[1]), key=lambda f: (len(f[1]), f[0].num_load))[0] for c in classes}
    draws = [draw_problem(rng) for _ in range(problems)]
    tiles = [tile_classes(*d, theirs) for d in draws]
    kinds = functools.reduce(lambda a, b: a + b, tiles, Counter[str]())
    return {
        "problems": problems,
        "equal": sum(not found for _, found in lists),
        "classes": [{"class": c, "problems": n, "example": example(alone[c], theirs)} for c, n in classes.most_common()],
        "tiles": [
            {"class": c, "tiles": n, "problems": sum(c in t for t in tiles), "example": next(d for d, t in zip(draws, tiles) if c in t)}
            for c, n in kinds.most_common()
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--problems", type=int, default=5000)
    parser.add_argument("--json", type=Path, help="write the counts and examples here")
    given = parser.parse_args()
    if given.problems < 1:
        parser.error("--problems must be positive")
    found = compare(Generator(given.wheel), given.problems)
    print(f"{found['problems']} calls of the formula, torch {torch.__version__}: {found['equal']} lists equal, the others:")
    for c in found["classes"]:
        print(f"{c['problems']:7d}  {c['class']}\n         {', '.join(f'{k}={v}' for k, v in c['example'].items())}")
    print(f"{found['problems']} problems, tile by tile beside select_configs(problem, 'ascend'):")
    for t in found["tiles"]:
        print(f"{t['tiles']:7d}  {t['class']} ({t['problems']} problems)\n         {t['example']}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return int(any(c["class"].startswith("unexplained") for c in [*found["classes"], *found["tiles"]]))


if __name__ == "__main__":
    sys.exit(main())
