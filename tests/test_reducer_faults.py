"""The deferred reducer where it is easily wrong: seeds, strided results, NaN across updates, a failed end."""

import math

import pytest
import torch

import tri_reduce

nan = math.nan
pytestmark = pytest.mark.skipif(not hasattr(tri_reduce, "Reducer"), reason="THE REDUCER IS NOT BUILT YET: not tested")


def test_a_finalize_that_fails_leaves_the_reducer_active_and_counts_nothing_twice(device):
    x = torch.ones(4, 3, device=device)
    r = tri_reduce.Reducer("sum", (3,), torch.float32, device)
    r.update(x, dim=0)
    for bad in (torch.zeros(7, 2, device=device), torch.zeros(3, dtype=torch.int64, device=device)):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            r.finalize(out=bad)
        assert not bool(bad.any())
    r.update(x, dim=0)
    assert r.finalize().tolist() == [8.0] * 3


def test_finalize_writes_into_a_strided_out_itself(device):
    buf, x = torch.full((3, 2), -1.0, device=device), torch.arange(12.0, device=device).reshape(3, 4).t()
    r = tri_reduce.Reducer("sum", (3,), torch.float32, device)
    r.update(x, dim=0)
    got = r.finalize(out=buf[:, 1])
    assert got.data_ptr() == buf[:, 1].data_ptr()
    assert buf.tolist() == [[-1.0, 6.0], [-1.0, 22.0], [-1.0, 38.0]]


@pytest.mark.parametrize("op, seed, want", [("max", -1.0, [7.0, -1.0]), ("min", 9.0, [2.0, -5.0]), ("sum", 1.0, [10.0, -8.0])])
@pytest.mark.parametrize("nan_first", [True, False])
def test_a_nan_stays_whichever_update_brought_it(op, seed, want, nan_first, device):
    tiles = [[[nan, 7.0, -5.0]], [[7.0, 2.0, -4.0]]]
    r = tri_reduce.Reducer(op, (3,), torch.float16, device, initial=seed)
    for tile in tiles if nan_first else tiles[::-1]:
        r.update(torch.tensor(tile, dtype=torch.float16, device=device), dim=0)
    got = r.finalize().tolist()
    assert math.isnan(got[0]) and got[1:] == want


def test_a_seed_counts_once_over_many_updates(device):
    r = tri_reduce.Reducer("sum", (259,), torch.float32, device, initial=5.0)
    r.update(torch.ones(303, 259, device=device), dim=0)
    r.update(torch.ones(307, 259, device=device), dim=0)
    assert r.finalize().tolist() == [615.0] * 259
