"""A decode step of a Llama-style model, batch size 1: every linear layer is a matrix-vector product, and those are where the time goes.

Tokens a second in CUDA graphs, with `torch.nn.functional.linear` and with `tri_reduce.gemv`, each called as it is and in layers that
torch.compile compiled. Weights are read as they lie and accumulated in float32; the residual is added in the same launch (`beta`, `y`).
Weights are random, and positions are not encoded.

    python examples/decode_step.py                                   # on a GPU of 32 GB, at the size of Llama-3-8B
    TRITON_INTERPRET=1 python examples/decode_step.py --width 256    # the kernels without a GPU: checked, not timed
"""

import argparse
import functools
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F

import tri_reduce

Weights = dict[str, torch.Tensor]
Gemv = Callable[..., torch.Tensor]


def random(shape: tuple[int, ...], device: str, scale: float) -> torch.Tensor:
    return (torch.randn(shape, device=device) * scale).bfloat16()


def weights(width: int, hidden: int, context: int, device: str) -> Weights:
    """One layer: [out features, in features], and keys and values [key heads, context, head size], a quarter as many heads as queries."""
    shapes = {"qkv": (width + width // 2, width), "o": (width, width), "gate_up": (2 * hidden, width), "down": (width, hidden)}
    size = min(128, width // 4)
    past = {name: random((width // 4 // size, context, size), device, 1) for name in ("keys", "values")}
    return {name: random(shape, device, shape[1] ** -0.5) for name, shape in shapes.items()} | past


def norm(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape, eps=1e-6)


def layer(x: torch.Tensor, w: Weights, gemv: Gemv) -> torch.Tensor:
    """x: [width] -> [width]; the last position of the keys and values is this token's."""
    heads, _, size = w["keys"].shape
    q, k, v = gemv(w["qkv"], norm(x)).split([x.numel(), heads * size, heads * size])
    w["keys"][:, -1], w["values"][:, -1] = k.view(heads, size), v.view(heads, size)
    # The queries that share a key head stand where positions do: no mask tells them apart.
    mixed = F.scaled_dot_product_attention(q.view(1, heads, -1, size), w["keys"][None], w["values"][None])
    x = gemv(w["o"], mixed.reshape(-1), beta=1, y=x)  # the residual in the same launch
    gate, up = gemv(w["gate_up"], norm(x)).chunk(2)
    return gemv(w["down"], F.silu(gate) * up, beta=1, y=x)


def by_linear(a: torch.Tensor, x: torch.Tensor, *, beta: float = 0, y: torch.Tensor | None = None) -> torch.Tensor:
    """The same product by torch."""
    return F.linear(x, a) if y is None else y + F.linear(x, a)


def by_row(a: torch.Tensor, x: torch.Tensor, *, beta: float = 0, y: torch.Tensor | None = None) -> torch.Tensor:
    """As `by_linear`, of the [1, width] that most models have: torch takes other ways then."""
    return by_linear(a, x[None], y=y)[0]


def by_float64(a: torch.Tensor, x: torch.Tensor, *, beta: float = 0, y: torch.Tensor | None = None) -> torch.Tensor:
    """The same product in float64, rounded once."""
    exact = a.double() @ x.double()
    return (exact if y is None else exact + beta * y.double()).to(a.dtype)


def logits(x: torch.Tensor, layers: list[Weights], head: torch.Tensor, gemv: Gemv, one_layer: Gemv = layer) -> torch.Tensor:
    """The whole step: x: [width] -> [vocabulary]."""
    for w in layers:
        x = one_layer(x, w, gemv)
    return gemv(head, norm(x))


def captured(step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
    """A step as a CUDA graph: what replays it, and its result."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    graph.replay()
    return graph.replay, y


def seconds(replays: dict[str, Callable[[], None]], rounds: int = 9, times: int = 8) -> dict[str, float]:
    """Median time of a replay, in rounds that take turns."""
    found: dict[str, list[float]] = {name: [] for name in replays}
    for _ in range(rounds):
        for name, replay in replays.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(times):
                replay()
            end.record()
            end.synchronize()
            found[name].append(start.elapsed_time(end) / 1e3 / times)
    return {name: statistics.median(measured) for name, measured in found.items()}


@torch.inference_mode()
def main(
    width: int = 4096, hidden: int = 14336, depth: int = 32, vocabulary: int = 128256, context: int = 1024, device: str = "cuda"
) -> None:
    """Check each way against float64 products; on a GPU, time them."""
    torch.manual_seed(0)
    layers = [weights(width, hidden, context, device) for _ in range(depth)]
    head, x = random((vocabulary, width), device, width**-0.5), random((width,), device, 1)
    want = logits(x, layers, head, by_float64).double()
    bound = 2**-8 * (8 * depth + 2) ** 0.5  # roundings to bfloat16, about eight a layer, which add up as independent errors do

    on_gpu = device == "cuda"
    ways: dict[str, Gemv] = {"F.linear of [width]": by_linear, "F.linear of [1, width]": by_row, "tri_reduce.gemv": tri_reduce.gemv}
    forms: dict[str, Gemv] = {"": layer}
    if on_gpu:
        forms[", compiled"] = torch.compile(layer, fullgraph=True, dynamic=False)
    print(f"{depth} layers of {width} x {hidden}, {vocabulary} tokens to choose from, {context} in the past, on {device}")
    times: dict[str, float] = {}
    right = True
    for form, one_layer in forms.items():
        replays = {}
        for name, gemv in ways.items():
            step = functools.partial(logits, x, layers, head, gemv, one_layer)
            replays[name + form], got = captured(step) if on_gpu else (step, step())
            error = ((got.double() - want).norm() / want.norm()).item()
            print(f"  {name + form:34} relative error {error:.2e}, at most {bound:.2e} by rounding")
            right = right and (error <= bound or gemv is not tri_reduce.gemv)
        if on_gpu:
            times |= seconds(replays)
    best = {kind: min(s for name, s in times.items() if kind in name) for kind in ("F.linear", "tri_reduce")} if times else {}
    for name, s in times.items():
        print(f"  {name:34} {1 / s:7.1f} tokens a second, {best['F.linear'] / s:.3f}x")
    if best:
        print(f"  ours over torch's best: {best['F.linear'] / best['tri_reduce']:.3f}x")
    assert right, "an error of gemv is above what rounding makes"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, help="without the option, that of Llama-3-8B")
    width = parser.parse_args().width
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if width is None:
        main(device=device)
    else:
        main(width, width * 7 // 2, 2, 8 * width, 64, device)
