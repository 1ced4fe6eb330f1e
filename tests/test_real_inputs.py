"""Real work at real sizes on a GPU: a Llama-3-8B decode step, ResNet-50 batch norm, bias gradients, a vocabulary; each against float64."""

import io

import pytest

from tri_reduce import demo


@pytest.mark.gpu
def test_every_real_input_agrees_with_float64(cuda):
    printed = io.StringIO()
    assert demo.run(printed) == 0, printed.getvalue()
    assert "agrees with torch" in printed.getvalue()
