"""Your own text, as tokens, and a net that predicts the next one.

From this folder:

    annealtune train --data own_text:data --model own_text:model --epochs 10 --out text

Each part is one long row of whole numbers. It is cut into windows of `length` tokens, and the
target of each token is the one after it: cross-entropy and accuracy are per token.
"""

from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

TEXT = "\n".join(topics[name] for name in sorted(topics))[:60_000]  # about Python, from Python
ALPHABET = sorted(set(TEXT))


def data():
    """Return two texts as character numbers, and how they are cut."""
    numbers = {character: number for number, character in enumerate(ALPHABET)}
    tokens = torch.tensor([numbers[character] for character in TEXT])
    return {
        "train": tokens[:50_000],
        "test": tokens[50_000:],
        "length": 32,
        "vocabulary": len(ALPHABET),
    }


class Recurrent(nn.Module):
    """Reads from left to right."""

    def __init__(self, vocabulary: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.scores = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores of shape (samples, length, vocabulary) for (samples, length) tokens."""
        states, _ = self.memory(self.embedding(tokens))
        scores: Tensor = self.scores(states)
        return scores


def model(*, vocabulary):
    """Return a net for tokens 0 to vocabulary - 1."""
    return Recurrent(vocabulary)
