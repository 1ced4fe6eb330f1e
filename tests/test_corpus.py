"""The corpus: enough problems of the right sizes, none twice, and the same on every machine."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import corpus


@pytest.fixture(scope="module")
def cases():
    return corpus.cases()


def test_there_are_at_least_300_problems_and_none_twice(cases):
    assert len(cases) >= 300
    assert len({c.problem for c in cases}) == len({c.key for c in cases}) == len(cases)


def test_inputs_have_64_KiB_to_1_GiB_and_most_1_to_256_MiB(cases):
    sizes = [c.nbytes for c in cases]
    assert min(sizes) >= 1 << 16 and max(sizes) <= 1 << 30
    assert sum(1 << 20 <= n <= 256 << 20 for n in sizes) > 0.75 * len(sizes)


def test_every_dtype_layout_and_kind_of_work_is_there(cases):
    assert {c.dtype for c in cases} == {"bf16", "fp16", "fp32", "i8"}
    assert {c.problem.layout for c in cases} == {"rows", "columns"}
    assert {c.op for c in cases} >= {"sum", "mean", "var", "max", "argmax", "logsumexp", "sum_sq", "norm", "gemv"}


def test_rules_are_judged_on_whole_families(cases):
    counts = Counter(c.family for c in cases)
    assert set(corpus.KEPT_OUT) < set(counts)
    assert 100 <= sum(counts[f] for f in corpus.KEPT_OUT) <= len(cases) - 100


def test_the_corpus_is_the_same_every_time(cases):
    assert corpus.cases() == cases


def test_every_prefix_stands_for_the_whole(cases):
    assert {c.family for c in cases[: len(cases) // 5]} == {c.family for c in cases}


def test_a_transposed_matrix_is_walked_by_columns():
    case = corpus.Case("f", "gemv", (4096, 1024), None, "bf16", trans=True)
    assert case.problem.layout == "columns" and (case.problem.xnumel, case.problem.rnumel) == (1024, 4096)
