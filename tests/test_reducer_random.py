"""Random streams of every op against the oracle: tiles of any layout, masks, segments, merges, resets, checkpoints and plans.

TRI_REDUCE_TEST_STREAMS=n        how many streams (default 60, on a GPU 4096)
TRI_REDUCE_TEST_STREAMS_SEED=s   the first seed (default 0): one stream again is `..._STREAMS=1 ..._STREAMS_SEED=s`
"""

import os

import pytest
from devices import ON_GPU
from streams import Stream

COUNT = int(os.environ.get("TRI_REDUCE_TEST_STREAMS", 4096 if ON_GPU else 60))
FIRST = int(os.environ.get("TRI_REDUCE_TEST_STREAMS_SEED", 0))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_random_stream_agrees_with_the_oracle(seed, device):
    stream = Stream(seed, device, 100_000 if ON_GPU else 1000)
    about = f"seed {seed}: {stream.op} {stream.dtype} {stream.shape} {stream.options} initial={stream.initial} {stream.determinism}"
    print(about)
    for _ in range(stream.rng.randint(0, 4)):
        stream.step()
    problem = stream.check()
    assert problem is None, f"{about}\n{problem}"
