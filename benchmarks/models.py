"""The models of inductor_models.py in plain torch: nothing but torch is needed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """[B, T, width] -> [B, T, width]; turn: cosines and sines [T, width / heads]."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k = ((t * turn[0] + torch.cat((-t.chunk(2, -1)[1], t.chunk(2, -1)[0]), -1) * turn[1]).to(v.dtype) for t in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Layer(nn.Module):
    """One layer of a Llama: both halves after a root-mean-square norm, with a gated feed-forward."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up, self.down = (nn.Linear(i, o, bias=False) for i, o in ((width, hidden), (width, hidden), (hidden, width)))

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """[B, T, width] -> [B, T, width]."""
        x = x + self.attention(self.before(x), turn)
        y = self.between(x)
        out: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class Llama(nn.Module):
    """A small Llama in plain torch."""

    def __init__(self, width: int = 1024, heads: int = 16, hidden: int = 2816, layers: int = 4, vocabulary: int = 32000) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, T] -> logits [B, T, vocabulary]."""
        size = self.width // self.heads
        rates = 10000 ** (-torch.arange(0, size, 2, device=tokens.device) / size)
        angles = torch.outer(torch.arange(tokens.shape[1], device=tokens.device), rates).repeat(1, 2)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, (angles.cos(), angles.sin()))
        out: torch.Tensor = self.head(self.norm(x))
        return out


class Bottleneck(nn.Module):
    """A block of a ResNet: 1x1, 3x3 and 1x1 convolutions, each with a batch norm, beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *convolution(channels, width, 1), nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride), nn.ReLU(inplace=True),
            *convolution(width, 4 * width, 1),
        )  # fmt: skip
        same = stride == 1 and channels == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(channels, 4 * width, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, channels, H, W] -> [B, 4 * width, H / stride, W / stride]."""
        return F.relu(self.body(x) + self.shortcut(x))


def convolution(channels: int, out: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)


class ResNet(nn.Sequential):
    """ResNet-50 with the stride in the 3x3 convolutions, as torchvision has it: images [B, 3, H, W] -> [B, classes]."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> None:
        layers = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for n, count in enumerate(blocks):
            for m in range(count):
                layers.append(Bottleneck(channels, 64 << n, 2 if n and not m else 1))
                channels = 256 << n
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
