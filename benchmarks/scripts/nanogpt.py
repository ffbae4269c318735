"""A character transformer on a text, in the style of nanoGPT: its configuration for a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer

from .common import Part, Script, Tuned, batched, cosine, warm_up_and
from .data import Characters


class Block(nn.Module):
    def __init__(self, width: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width, bias=bias)
        self.attention = nn.Linear(width, 3 * width, bias=bias)
        self.projection = nn.Linear(width, width, bias=bias)
        self.norm_2 = nn.LayerNorm(width, bias=bias)
        self.up = nn.Linear(width, 4 * width, bias=bias)
        self.down = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.attention(self.norm_1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Transformer(nn.Module):
    """Predict the next of so many symbols; ``tied`` uses the embedding as the last layer too."""

    def __init__(
        self,
        symbols: int,
        length: int,
        *,
        layers: int,
        heads: int,
        width: int,
        bias: bool = False,
        tied: bool = True,
    ) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, bias) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=bias)
        self.head = nn.Linear(width, symbols, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim >= 2:
                is_residual = name.endswith(("projection.weight", "down.weight"))
                scale = 0.02 / math.sqrt(2 * layers) if is_residual else 0.02
                nn.init.normal_(parameter, std=scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if tied:
            self.head.weight = self.symbols.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        x = self.blocks(self.symbols(tokens) + self.places(places))
        return self.head(self.norm(x))


class NanoGPT(Script):
    steps = 2000
    batch_size = 12
    block_size = 64
    layers, heads, width = 4, 4, 128
    clip = 1.0

    def load(self) -> None:
        self.text = Characters(self.sources.read_text())

    def model(self) -> nn.Module:
        symbols = self.text.symbols
        sizes = {"layers": self.layers, "heads": self.heads, "width": self.width}
        return Transformer(symbols, self.block_size, **sizes)

    def minibatch(self) -> tuple[Tensor, Tensor]:
        return self.text.windows(self.batch_size, self.block_size)

    def held_out(self, part: Part) -> Iterator[tuple[Tensor, ...]]:
        return batched(*self.text.held_out(part, self.block_size), size=64)

    def loss(self, model: nn.Module, *minibatch: Tensor) -> Tensor:
        tokens, following = minibatch
        return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())

    def hand_tuned(self, model: nn.Module) -> Tuned:
        optimizer = self.adamw(model)
        warm_up = round(0.05 * self.steps)  # 100 of 2,000
        return optimizer, warm_up_and(cosine(lowest=0.1), optimizer, warm_up, self.steps)

    def adamw(self, model: nn.Module) -> Optimizer:
        parameters = list(model.parameters())
        groups = [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        return AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
