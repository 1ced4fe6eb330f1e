"""Where Triton is not installed the library imports, and CPU tensors run the reference."""

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["triton"] = None
import torch, tri_reduce
x = torch.arange(6.0).reshape(2, 3)
assert tri_reduce.sum(x, 1).tolist() == [3.0, 12.0]
assert tri_reduce.gemv(x, x[1]).tolist() == [14.0, 50.0]
reducer = tri_reduce.Reducer("max", (3,), torch.float32)
reducer.update(x)
assert reducer.finalize().tolist() == [3.0, 4.0, 5.0]
assert "rows" in tri_reduce.configs.explain(tri_reduce.problem.describe("sum", (64, 401408), 1), "h200")
"""


def test_everything_but_kernels_works_without_triton():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
