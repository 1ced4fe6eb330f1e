"""A pytest plugin, `-p as_ascend`: the library's own tests with Ascend's kernels; what is refused there is skipped with the reason.

On an NPU with TRI_REDUCE_TEST_DEVICE=npu; elsewhere CPU tensors are taken for an NPU's and Triton's interpreter runs the kernels.
"""

import os

import pytest

ON_NPU = os.environ.get("TRI_REDUCE_TEST_DEVICE", "").startswith("npu")
if not ON_NPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported
from tri_reduce import targets  # noqa: E402

REFUSALS = ("Ascend has no float64", "which Ascend does not have", "do not compile for Ascend", "Ascend's compiler")
DIFFERS = {
    "test_ops_of_one_tile_share_a_launch": "on Ascend each op has a launch of its own",
    "test_a_variance_far_from_zero_keeps_its_digits": "streams keep their means in float32 where there is no float64",
}


def in_its_dtype(to_tensor):
    """Triton 3.2's interpreter leaves a fold in numpy's dtype, int64 for a sum of int32: stored, it would write over its neighbour."""

    def cast(self, value, dtype):
        kind = numpy_dtype(dtype)
        return to_tensor(self, value.astype(kind) if getattr(value, "shape", ()) else value, dtype)

    return cast


if not ON_NPU:
    from triton.runtime.interpreter import ReduceOps
    from triton.runtime.interpreter import _get_np_dtype as numpy_dtype

    ReduceOps.to_tensor = in_its_dtype(ReduceOps.to_tensor)
    targets.of_device = lambda device_type, index: targets.by_name("ascend")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    try:
        return (yield)
    except (TypeError, NotImplementedError) as error:
        if any(text in str(error) for text in REFUSALS):
            pytest.skip(f"refused: {error}")
        raise


def pytest_collection_modifyitems(items):
    for item in items:
        if reason := DIFFERS.get(item.originalname):
            item.add_marker(pytest.mark.skip(reason=reason))
