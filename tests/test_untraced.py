"""Reducers in functions that torch.compile compiled: what surrounds them is compiled, they are not."""

import pytest
import torch
import torch._dynamo.testing

from tri_reduce import Reducer

TILES = [torch.linspace(-1, 1, 6 * n).reshape(n, 6) for n in range(2, 22)]


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()


@pytest.mark.parametrize("op", ["sum", "var", "max"])
def test_updates_of_every_length_share_one_compiled_surrounding(op, device):
    counter = torch._dynamo.testing.CompileCounter()

    def double(r, tile):
        r.update(2 * tile, 0)
        return tile + 1

    compiled = torch.compile(double, backend=counter)
    r, plain = (Reducer(op, (6,), torch.float32, device) for _ in range(2))
    for tile in TILES:
        compiled(r, tile.to(device))
        plain.update(2 * tile.to(device), 0)
    assert torch.equal(r.finalize(), plain.finalize())
    assert counter.frame_count <= 4  # what is before the update and what is after it: once with a length, once for all


def test_a_whole_stream_may_be_compiled(device):
    def stream(tiles):
        r = Reducer("sum", (6,), torch.float32, device)
        for tile in tiles:
            r.update(tile + 1, 0)
        return r.finalize() * 2

    tiles = [t.to(device) for t in TILES[:3]]
    assert torch.equal(torch.compile(stream, backend="eager")(tiles), stream(tiles))


def test_a_full_graph_is_refused_with_the_reason(device):
    r = Reducer("sum", (6,), torch.float32, device)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="keeps state over calls"):
        torch.compile(lambda tile: r.update(tile, 0), backend="eager", fullgraph=True)(TILES[0].to(device))
    r.update(TILES[0].to(device), 0)
    r.finalize()
