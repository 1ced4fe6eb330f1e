"""These tests are about Ascend's compiler: they are collected in the environment that `make test-ascend` makes, and nowhere else."""

import importlib.util


def _has_ascend() -> bool:
    try:
        return importlib.util.find_spec("triton.backends.ascend") is not None
    except ModuleNotFoundError:
        return False


collect_ignore_glob = [] if _has_ascend() else ["*.py"]
