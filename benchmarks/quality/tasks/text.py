"""Tasks on text: the next character, the next word."""

from __future__ import annotations

import collections
import re

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import Task, generator, pretrain

# Of the text: what is trained on, what a net is pre-trained on, where fine-tuning begins and ends.
TRAINED, PRETRAINED, OTHERS_BEGIN, OTHERS_END = 900_000, 600_000, 1_060_000, 1_090_000


class Characters(Task):
    """Each character of a window is to be predicted from those before it."""

    window = 32
    test_windows = 128

    def load(self) -> None:
        text = self.sources.read_text()
        alphabet = sorted(set(text))
        codes = {character: code for code, character in enumerate(alphabet)}
        self.codes = torch.tensor([codes[character] for character in text])
        self.characters = len(alphabet)
        self.take(self.codes[:TRAINED], self.codes[TRAINED:])

    def take(self, stretch: Tensor, test_stretch: Tensor) -> None:
        """Train on windows of one stretch of the text, test on windows of another."""
        self.stretch = stretch
        last = len(test_stretch) - self.window - 1
        starts = torch.randint(last, (self.test_windows,), generator=generator(3))
        self.test_inputs, self.test_targets = self.windows(test_stretch, starts)

    def rows(self) -> int:
        return len(self.stretch) - self.window - 1

    def windows(self, stretch: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Return windows that begin there, and the same moved on by one character."""
        codes = stretch[starts[:, None] + torch.arange(self.window + 1)]
        return codes[:, :-1], codes[:, 1:]

    def minibatch(self, index: int) -> tuple[Tensor, Tensor]:
        self.begin_noise(index)
        return self.windows(self.stretch, self.chosen[index])

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        return F.cross_entropy(network(inputs).flatten(0, 1), targets.flatten())


class RecurrentNet(nn.Module):
    """One GRU of width 64."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 24)
        self.memory = nn.GRU(24, 64, batch_first=True)
        self.head = nn.Linear(64, characters)

    def forward(self, codes: Tensor) -> Tensor:
        features, _ = self.memory(self.embedding(codes))
        return self.head(features)


class Recurrent(Characters):
    """Characters by a GRU."""

    steps = 1000
    batch_size = 16
    window = 24

    def build(self) -> nn.Module:
        return RecurrentNet(self.characters)


class Block(nn.Module):
    """A causal pre-norm block with four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.perceptron_norm = nn.LayerNorm(width)
        self.widening = nn.Linear(width, 4 * width)
        self.narrowing = nn.Linear(4 * width, width)

    def forward(self, features: Tensor) -> Tensor:
        parts = self.attention(self.attention_norm(features))
        parts = parts.view(*features.shape[:2], 3, 4, self.width // 4).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        features = features + self.projection(seen.transpose(1, 2).flatten(2))
        return features + self.narrowing(F.gelu(self.widening(self.perceptron_norm(features))))


class SmallTransformer(nn.Module):
    """Two blocks of width 32."""

    def __init__(self, characters: int, window: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.positions = nn.Parameter(torch.randn(window, width) * 0.02)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        features = self.embedding(codes) + self.positions
        return self.head(self.norm(self.blocks(features)))


class Transformer(Characters):
    """Characters by a small GPT."""

    steps = 1200
    batch_size = 8

    def build(self) -> nn.Module:
        return SmallTransformer(self.characters, self.window)


class FineTunedTransformer(Transformer):
    """The GPT pre-trained on 600,000 characters, trained on with 30,000 others."""

    steps = 1000
    test_windows = 256

    def load(self) -> None:
        super().load()
        self.take(self.codes[OTHERS_BEGIN:OTHERS_END], self.codes[OTHERS_END:])

    def build(self) -> nn.Module:
        network = super().build()
        network.load_state_dict(self.sources.pretrained("transformer", self._pretrained))
        return network

    def _pretrained(self) -> nn.Module:
        torch.manual_seed(5)
        network = super().build()

        def loss() -> Tensor:
            return self.loss(network, self.windows(self.codes, torch.randint(PRETRAINED, (16,))))

        return pretrain(network, loss, rate=5e-3, steps=3000)


class Words(Task):
    """The next word from the two before it, 800 words."""

    steps = 1200
    batch_size = 128

    def load(self) -> None:
        words = re.findall(r"[a-z']+|[.,;:!?]", self.sources.read_text().lower())[:120_000]
        frequent = collections.Counter(words).most_common(799)
        codes = {word: code for code, (word, _) in enumerate(frequent)}
        stream = torch.tensor([codes.get(word, 799) for word in words])
        inputs, targets = torch.stack([stream[:-2], stream[1:-1]], 1), stream[2:]
        self.inputs, self.test_inputs = inputs[:100_000], inputs[-4000:]
        self.targets, self.test_targets = targets[:100_000], targets[-4000:]

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Embedding(800, 24),
            nn.Flatten(),
            nn.Linear(48, 48),
            nn.Tanh(),
            nn.Linear(48, 800),
        )
