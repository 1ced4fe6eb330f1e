# `make demo` and `make test` do everything on a fresh machine: an environment in .venv, the install, the run.
# PYTHON, TORCH and TRITON may be overridden; pip's own settings (an index of CPU-only torch wheels, say) are respected.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test test-ascend lint format docs dist clean

PYTHON ?= python3
TORCH ?= torch==2.13.0
TRITON ?= triton==3.6.0
JOBS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
# The setuptools that is there, if it is new enough: then nothing is downloaded to build.
HAS_SETUPTOOLS := import sys, setuptools; sys.exit(int(setuptools.__version__.split(".")[0]) < 77)
EDITABLE = $(PIP) $$($(PY) -c '$(HAS_SETUPTOOLS)' 2>/dev/null && echo --no-build-isolation) -e

ASCEND_VENV := .venv-ascend
ASCEND_PY := $(ASCEND_VENV)/bin/python
ASCEND_PIP := $(ASCEND_PY) -m pip install --quiet --disable-pip-version-check
# The newest compiler in an environment that borrows all else from the first.
ASCEND_NEWEST := .venv-ascend-newest
ASCEND_NEWEST_PY := $(ASCEND_NEWEST)/bin/python
PURELIB := import sysconfig; print(sysconfig.get_path("purelib"))
ASCEND_PYTHON ?=
ASCEND_NUMBERS := $(addprefix tests/test_,reduce_contract.py numerics.py gemv.py reducer.py)
IS_ASCEND_PYTHON := import sys; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 11)))

demo: $(VENV)/.installed
	@$(PY) -m tri_reduce demo

# First the PyTorch reference, then the kernels: on the GPU where there is one, in Triton's interpreter elsewhere.
test: $(VENV)/.test
	@TRI_REDUCE_TEST_REFERENCE=1 $(PY) -m pytest -x -q -n $(JOBS)
	@$(PY) -m pytest -x -q -n $(JOBS)

# Every kernel through Ascend's compiler, no NPU needed, a sample through the newest, then the numbers in its Triton's interpreter.
# Python 3.10 or 3.11.
test-ascend: $(ASCEND_VENV)/.installed $(ASCEND_NEWEST)/.installed
	@$(ASCEND_PY) tests/ascend/check.py --jobs $(JOBS)
	@TRI_REDUCE_TEST_REFERENCE=1 $(ASCEND_PY) -m pytest -q -n $(JOBS) $(wildcard tests/ascend/test_*.py)
	@$(ASCEND_NEWEST_PY) tests/ascend/check.py --jobs $(JOBS) --sample 600
	@TRI_REDUCE_TEST_REFERENCE=1 $(ASCEND_NEWEST_PY) -m pytest -q tests/ascend/test_check.py
	@PYTHONPATH=tests/ascend $(ASCEND_PY) -m pytest -q -n $(JOBS) -p as_ascend $(ASCEND_NUMBERS)

lint: $(VENV)/.dev
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

format: $(VENV)/.dev
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .
	@$(PY) docs/lines.py

# The site in docs/_build/html; a warning is an error.
docs: $(VENV)/.docs
	@$(VENV)/bin/sphinx-build -E -W --keep-going -q -b html docs docs/_build/html
	@echo docs/_build/html/index.html

# The wheel and the source distribution, in dist/.
dist: $(VENV)/.test
	@$(PY) -m build --no-isolation .

clean:
	rm -rf $(VENV) $(ASCEND_VENV) $(ASCEND_NEWEST) build dist *.egg-info docs/_build .pytest_cache .mypy_cache .ruff_cache

# Where $(PYTHON) already has a torch that sees a GPU, the environment borrows its packages. A .pth line does that, since
# --system-site-packages would miss them when $(PYTHON) is itself in a virtual environment.
$(VENV)/.created:
	@$(PYTHON) -m venv $(VENV)
	@host=$$($(PYTHON) -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)) if torch.cuda.is_available() else "")' 2>/dev/null || true); \
	if [ -n "$$host" ]; then echo "$$host" > "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/host_packages.pth"; fi
	@touch $@

# On Linux with a GPU torch brings the Triton it wants; a CPU build brings none, and then the interpreter's is installed.
$(VENV)/.installed: $(VENV)/.created pyproject.toml
	@$(PY) -c 'import torch' 2>/dev/null || { echo "installing $(TORCH)"; $(PIP) '$(TORCH)'; }
	@$(PY) -c 'import triton' 2>/dev/null || { echo "installing $(TRITON)"; $(PIP) '$(TRITON)'; }
	@if $(PY) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then $(EDITABLE) .; else $(EDITABLE) '.[interpreter]'; fi
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@$(EDITABLE) '.[test]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(EDITABLE) '.[docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(EDITABLE) '.[dev]'
	@touch $@

# triton-ascend installs as `triton`, so it has its own environment; a CUDA build of torch brings the other one, which has to go first.
$(ASCEND_VENV)/.installed: pyproject.toml
	@python=""; \
	for p in $(ASCEND_PYTHON) $(PYTHON) python3.11 python3.10; do \
	  if "$$p" -c '$(IS_ASCEND_PYTHON)' 2>/dev/null; then python="$$p"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "THE ASCEND KERNELS WERE NOT CHECKED: triton-ascend needs Python 3.10 or 3.11, and none was found (set ASCEND_PYTHON)" >&2; exit 1; \
	fi; \
	"$$python" -m venv $(ASCEND_VENV)
	@$(ASCEND_PIP) '$(TORCH)' 'numpy<2.4' pybind11 ascendnpu-ir==1.0.0
	@$(ASCEND_PY) -m pip uninstall --quiet --yes triton
	@$(ASCEND_PIP) --no-deps triton-ascend==3.2.0
	@$(subst $(PY),$(ASCEND_PY),$(EDITABLE)) '.[test]'
	@$(ASCEND_PY) -c 'import triton.backends.ascend'
	@touch $@

$(ASCEND_NEWEST)/.installed: $(ASCEND_VENV)/.installed
	@$(ASCEND_PY) -m venv $(ASCEND_NEWEST)
	@$(ASCEND_NEWEST_PY) -m pip install --quiet --disable-pip-version-check --no-deps ascendnpu-ir==1.2.0
	@echo "import site; site.addsitedir('$$(realpath "$$($(ASCEND_PY) -c '$(PURELIB)')")')" > "$$($(ASCEND_NEWEST_PY) -c '$(PURELIB)')/borrowed.pth"
	@touch $@
