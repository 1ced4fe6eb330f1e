"""The examples of docs/tuning.md run."""

import re
import runpy
from pathlib import Path

import pytest
from devices import ON_GPU, REFERENCE

from tri_reduce import autotune, plans

PAGE = Path(__file__).parent.parent / "docs" / "tuning.md"


@pytest.mark.skipif(REFERENCE, reason="about kernels: without them nothing is tuned")
def test_the_examples_run_and_say_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRI_REDUCE_CACHE_DIR", str(tmp_path / "cache"))
    if not ON_GPU:  # Triton's own tuner times with a driver
        monkeypatch.setattr("triton.runtime.autotuner.Autotuner.do_bench", staticmethod(lambda call, quantiles: (call(), [1.0] * 3)[1]))
    plans.PLANS.clear()
    before = autotune.stats()
    script = tmp_path / "page.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    kernel = runpy.run_path(str(script))["row_sum_kernel"]
    assert len(kernel.configs) > 1 and len(kernel.cache) == 1
    assert {name: n - before[name] for name, n in autotune.stats().items()} == {"hits": 1, "misses": 1, "tuned": 1}
    assert "call/sum/fp32x1/rows4/3@512/512@1 {" in capsys.readouterr().out


def test_the_page_names_the_files_that_are_there():
    assert (PAGE.parent.parent / "tri_reduce" / "common_problems.txt").is_file() and "common_problems.txt" in PAGE.read_text()
