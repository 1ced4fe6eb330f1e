"""Mean, variance and maximum of a loss over many batches of uneven size, on several ranks, interrupted halfway.

Each rank feeds its own batches into one Reducer; a checkpoint is saved and loaded into a new one midway; the ranks meet once, at the end.

    python examples/streaming_evaluation.py --batches 10000 --ranks 2
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import tri_reduce

OPS = ["mean", "var", "max"]


def losses(batch: int) -> torch.Tensor:
    """The losses of one batch, as many as its number decides: far from zero, where a naive variance would lose its digits."""
    g = torch.Generator().manual_seed(batch)
    return 1000 + torch.randn(1 + batch * 7 % 61, generator=g)


def evaluate(rank: int, ranks: int, batches: int, folder: str) -> None:
    """What one rank does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    mine = range(rank, batches, ranks)
    half = len(mine) // 2

    r = tri_reduce.Reducer(OPS, (), torch.float32)
    for batch in mine[:half]:
        r.update(losses(batch))
    torch.save(r.state_dict(), f"{folder}/rank{rank}.pt")
    r.reset()  # the interruption: what was not saved is gone

    resumed = tri_reduce.Reducer(OPS, (), torch.float32)
    resumed.load_state_dict(torch.load(f"{folder}/rank{rank}.pt", weights_only=True))
    for batch in mine[half:]:
        resumed.update(losses(batch))
    result = resumed.finalize(group=dist.group.WORLD)  # one collective for all three
    torch.save(result, f"{folder}/result{rank}.pt")
    dist.destroy_process_group()


def main(batches: int = 10000, ranks: int = 2) -> tuple[float, ...]:
    """Run all ranks; every one has the same bits, which are those of all losses at once."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(evaluate, (ranks, batches, folder), nprocs=ranks)
        results = [torch.load(f"{folder}/result{n}.pt", weights_only=True) for n in range(ranks)]
    assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))
    every = torch.cat([losses(n) for n in range(batches)]).double()
    for got, want in zip(results[0], (every.mean(), every.var(), every.max()), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-6, atol=0)
    print(
        f"{len(every)} losses in {batches} batches on {ranks} ranks: "
        + ", ".join(f"{o} {v:.6g}" for o, v in zip(OPS, results[0], strict=True))
    )
    return tuple(float(v) for v in results[0])


if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)  # CPU tensors take the reference here
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=10000)
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    main(arguments.batches, arguments.ranks)
