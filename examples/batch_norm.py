"""Batch-norm statistics over [N, C, H, W], and over a batch that arrives in pieces: the same numbers from one Reducer.

python examples/batch_norm.py
TRITON_INTERPRET=1 python examples/batch_norm.py    # the kernels without a GPU
"""

import torch

import tri_reduce

PER_CHANNEL = (0, 2, 3)


def whole(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean, biased variance) of each channel, in any memory format."""
    return tri_reduce.mean(x, PER_CHANNEL), tri_reduce.var(x, PER_CHANNEL, correction=0)


def in_pieces(pieces: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of a batch that does not fit at once: accumulated alone, folded once."""
    r = tri_reduce.Reducer(["mean", "var"], (pieces[0].shape[1],), torch.float32, pieces[0].device, correction=0)
    for x in pieces:
        r.update(x, PER_CHANNEL)
    mean, var = r.finalize()
    return mean, var


def main(shape: tuple[int, ...] = (8, 16, 14, 14)) -> None:
    """Run both and compare with torch in float64."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = 3 + torch.randn(shape, device=device)
    want = x.double().mean(PER_CHANNEL), x.double().var(PER_CHANNEL, correction=0)
    for got in (whole(x), whole(x.to(memory_format=torch.channels_last)), in_pieces(list(x.split((1, shape[0] - 3, 2))))):
        for mine, exact in zip(got, want, strict=True):
            torch.testing.assert_close(mine.double(), exact, rtol=1e-6, atol=0)
    print(f"{list(shape)} on {device}: mean {want[0].mean():.4f}, variance {want[1].mean():.4f}; whole, channels last and in pieces agree")


if __name__ == "__main__":
    main()
