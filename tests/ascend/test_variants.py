"""The rarer forms of every kind of kernel compile as the common ones do."""

import pytest
import toolchain

toolchain.install()

import check  # noqa: E402
import variants  # noqa: E402

CASES = variants.reductions() + variants.products()


@pytest.mark.parametrize(("name", "spec"), CASES, ids=[name for name, _ in CASES])
def test_a_variant_compiles_on_vectors_with_its_own_folds(name, spec):
    finding = check.examine(name, spec.fn, dict(spec.signature), dict(spec.constexprs), spec.attrs, spec.options)
    assert finding.outcome in ("compiled", "scalar"), finding
