"""torch_npu's own candidates beside ours: the reading of the wheel, and, where TORCH_NPU_WHEEL names one, every difference explained."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
pytest.importorskip("triton")

import compare_torch_npu

MODULE = """
import math
from nowhere import absent
from .here import relative

LIMIT = ask_the_chip()
BROKEN = absent()

def log(n: Unknown) -> Unknown:
    return math.log2(n)

def half(n):
    return log(n) / LIMIT

def unwanted():
    return BROKEN
"""


def test_only_what_a_function_needs_is_run():
    found = compare_torch_npu.isolated(MODULE, ["half"], {"ask_the_chip": lambda: 2})
    assert found["half"](16) == 2.0
    assert "unwanted" not in found and "BROKEN" not in found


def test_a_name_that_the_module_lacks_is_named():
    with pytest.raises(KeyError, match="double"):
        compare_torch_npu.isolated(MODULE, ["double"], {})


def test_a_file_that_is_no_wheel_gets_one_line(tmp_path):
    (tmp_path / "x.whl").write_text("no zip")
    with pytest.raises(SystemExit, match="no torch_npu wheel"):
        compare_torch_npu.Generator(tmp_path / "x.whl")


def test_every_difference_has_a_reason():
    wheel = os.environ.get("TORCH_NPU_WHEEL")
    if not wheel:
        pytest.skip("NOT COMPARED with torch_npu: set TORCH_NPU_WHEEL to its wheel (pip download --no-deps torch_npu==2.14.0)")
    theirs = compare_torch_npu.Generator(Path(wheel))
    found = compare_torch_npu.compare(theirs, 500)
    assert found["equal"] > 300
    names = {c["class"] for c in found["classes"]}
    assert names <= {compare_torch_npu.NAME, compare_torch_npu.CAP, compare_torch_npu.MEAN, compare_torch_npu.NONE}
    assert "unexplained" not in {t["class"] for t in found["tiles"]}
