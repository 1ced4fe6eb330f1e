"""A pytest plugin, `-p as_ascend`: CPU tensors are taken for an Ascend device's, so that the interpreter runs its kernels.

A test that asks for what Ascend refuses is skipped, with the refusal as its reason.
"""

import os

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported
from tri_reduce import targets

REFUSALS = ("Ascend has no float64", "which Ascend does not have", "do not compile for Ascend", "Ascend's compiler")
targets.of_device = lambda device_type, index: targets.by_name("ascend")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    try:
        return (yield)
    except (TypeError, NotImplementedError) as error:
        if any(text in str(error) for text in REFUSALS):
            pytest.skip(f"refused: {error}")
        raise
