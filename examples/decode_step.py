"""The matrix-vector products of one decode step of a Llama-style layer, batch size 1: where a language model's time goes.

Weights are read as they lie, accumulated in float32, and the residual is added in the same launch (`beta`, `y`).

    python examples/decode_step.py                                   # on a GPU, at the size of Llama-3-8B
    TRITON_INTERPRET=1 python examples/decode_step.py --width 256    # the kernels without a GPU
"""

import argparse

import torch

import tri_reduce

Weights = dict[str, torch.Tensor]


def layer(width: int, hidden: int, device: str) -> Weights:
    """Random weights, [out features, in features]."""
    g = torch.Generator(device).manual_seed(0)
    shapes = {
        "qkv": (width + width // 2, width),
        "o": (width, width),
        "gate": (hidden, width),
        "up": (hidden, width),
        "down": (width, hidden),
    }
    return {n: (torch.randn(s, generator=g, device=device) * s[1] ** -0.5).bfloat16() for n, s in shapes.items()}


def norm(x: torch.Tensor) -> torch.Tensor:
    """RMSNorm of one token: its mean square is one reduction."""
    mean_square = tri_reduce.reduce(x, "sum_sq", dtype=torch.float32) / x.numel()
    return (x * torch.rsqrt(mean_square + 1e-6)).bfloat16()


def step(x: torch.Tensor, w: Weights, gemv=tri_reduce.gemv) -> torch.Tensor:
    """A layer without its attention over the past: x: [width] -> [width]."""
    qkv = gemv(w["qkv"], norm(x))
    x = gemv(w["o"], qkv[: x.numel()], beta=1, y=x)  # the residual in the same launch
    h = norm(x)
    return gemv(w["down"], torch.nn.functional.silu(gemv(w["gate"], h)) * gemv(w["up"], h), beta=1, y=x)


def by_torch(a: torch.Tensor, x: torch.Tensor, *, beta: float = 0, y: torch.Tensor | None = None) -> torch.Tensor:
    """The same product in float64, rounded once."""
    exact = a.double() @ x.double()
    return (exact if y is None else exact + beta * y.double()).to(a.dtype)


def main(width: int = 4096, hidden: int = 14336, device: str = "cuda") -> None:
    """Run it and compare with float64 products: equal but where a rounding to bfloat16 fell the other way."""
    w, x = layer(width, hidden, device), torch.randn(width, device=device).bfloat16()
    got, want = step(x, w), step(x, w, by_torch)
    torch.testing.assert_close(got, want, rtol=2**-6, atol=2**-6)  # two places of bfloat16, through five roundings
    print(f"a layer of {width} x {hidden} on {device}: {(got == want).float().mean():.0%} of the outputs have the bits of float64 products")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=4096)
    width = parser.parse_args().width
    main(width, width * 7 // 2, "cuda" if torch.cuda.is_available() else "cpu")
