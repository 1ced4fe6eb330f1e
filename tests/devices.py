"""Which devices this run tests, and how (see conftest for the environment variables)."""

import os

import torch

HAS_CUDA = torch.cuda.is_available()
REFERENCE = os.environ.get("TRI_REDUCE_TEST_REFERENCE") == "1"
DEVICES = os.environ.get("TRI_REDUCE_TEST_DEVICE", "cuda" if HAS_CUDA else "cpu").split(",")
ON_GPU = any(d.startswith("cuda") for d in DEVICES)
ON_NPU = any(d.startswith("npu") for d in DEVICES)
