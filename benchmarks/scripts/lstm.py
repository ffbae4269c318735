"""A recurrent language model on characters, in the style of PyTorch's word_language_model.

Every minibatch starts at a hidden state of zeros, so that each can be computed again by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau

from .common import Part, Script, Tuned, batched
from .data import Characters


class Recurrent(nn.Module):
    def __init__(self, symbols: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.Embedding(symbols, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.Linear(width, symbols)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.rnn(self.dropout(self.encoder(tokens)))
        return self.decoder(self.dropout(hidden))


class LSTM(Script):
    steps = 800
    batch_size = 20
    bptt = 35
    clip = 0.25

    def load(self) -> None:
        self.text = Characters(self.sources.read_text())

    def model(self) -> nn.Module:
        return Recurrent(self.text.symbols, width=128, dropout=0.2)

    def minibatch(self) -> tuple[Tensor, Tensor]:
        return self.text.windows(self.batch_size, self.bptt)

    def held_out(self, part: Part) -> Iterator[tuple[Tensor, ...]]:
        return batched(*self.text.held_out(part, self.bptt), size=100)

    def loss(self, model: nn.Module, *minibatch: Tensor) -> Tensor:
        tokens, following = minibatch
        return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())

    def hand_tuned(self, model: nn.Module) -> Tuned:
        optimizer = SGD(model.parameters(), lr=20)
        return optimizer, ReduceLROnPlateau(optimizer, factor=0.25, patience=0, threshold=0)
