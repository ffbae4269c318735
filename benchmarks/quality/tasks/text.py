"""Tasks on text and sequences: the next character or word, marks, lines, sums to remember."""

from __future__ import annotations

import collections
import re

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import Part, Task, fixed_noise, generator, pretrain

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


class Dilated(nn.Module):
    """Looks back by some places, twice as far as the one before; its inputs are added."""

    def __init__(self, width: int, distance: int) -> None:
        super().__init__()
        self.distance = distance
        self.convolution = nn.Conv1d(width, width, 2, dilation=distance)
        self.projection = nn.Conv1d(width, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        seen = self.convolution(F.pad(features, (self.distance, 0)))
        return features + self.projection(F.relu(seen))


class LookingBack(nn.Module):
    """Five dilated convolutions: a character is predicted from the 32 before it."""

    def __init__(self, characters: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.blocks = nn.Sequential(*[Dilated(width, 2**layer) for layer in range(5)])
        self.head = nn.Conv1d(width, characters, 1)

    def forward(self, codes: Tensor) -> Tensor:
        features = self.blocks(self.embedding(codes).transpose(1, 2))
        return self.head(features).transpose(1, 2)


class DilatedConvolutions(Characters):
    """Characters by convolutions that look back ever farther."""

    steps = 1200
    batch_size = 8
    window = 48
    test_windows = 1200

    def build(self) -> nn.Module:
        return LookingBack(self.characters, 48)


class Tagger(nn.Module):
    """Vectors of words, and a convolution that sees two words on each side."""

    def __init__(self, words: int, width: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, width)
        self.convolution = nn.Conv1d(width, hidden, 5, padding=2)
        self.head = nn.Linear(hidden, tags)

    def forward(self, words: Tensor) -> Tensor:
        seen = self.convolution(self.vectors(words).transpose(1, 2))
        return self.head(torch.tanh(seen).transpose(1, 2))


class Punctuation(Task):
    """Which mark follows each of sixteen words, if any; 2,000 words are known."""

    steps = 1500
    batch_size = 16
    words, window = 2000, 16
    marks = " ,.;:?!"

    def load(self) -> None:
        found = re.findall(r"([a-z']+)[ \n]*([,.;:?!]?)", self.sources.read_text().lower())
        frequent = collections.Counter(word for word, _ in found).most_common(self.words - 1)
        codes = {word: code for code, (word, _) in enumerate(frequent, start=1)}
        words = torch.tensor([codes.get(word, 0) for word, _ in found])
        marks = torch.tensor([self.marks.index(mark or " ") for _, mark in found])
        count = len(found) // self.window
        order = torch.randperm(count, generator=generator(96))
        inputs, targets = (
            stream[: count * self.window].view(count, self.window)[order]
            for stream in (words, marks)
        )
        self.inputs, self.test_inputs = inputs[2000:], inputs[:2000]
        self.targets, self.test_targets = targets[2000:], targets[:2000]

    def build(self) -> nn.Module:
        return Tagger(self.words, 32, 64, len(self.marks))

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        words, marks = minibatch
        return F.cross_entropy(network(words).flatten(0, 1), marks.flatten())


class Bag(nn.Module):
    """The mean of the vectors of a line's words, and a linear layer; word 0 is none."""

    def __init__(self, words: int, width: int, classes: int) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(words, width, mode="mean", padding_idx=0)
        self.head = nn.Linear(width, classes)

    def forward(self, lines: Tensor) -> Tensor:
        return self.head(self.vectors(lines))


class BagOfWords(Task):
    """In which eighth of the text a line stands; lines that name a speaker are left out."""

    steps = 2000
    parts, words, test_lines = 8, 2000, 4000

    def load(self) -> None:
        text = self.sources.read_text().lower()
        spoken = [line for line in text.split("\n") if line and not line.endswith(":")]
        found = [re.findall(r"[a-z']+", line) for line in spoken]
        order = torch.randperm(len(found), generator=generator(82))
        to_train = order[self.test_lines :].tolist()
        counts = collections.Counter(word for place in to_train for word in found[place])
        frequent = counts.most_common(self.words - 1)
        codes = {word: code for code, (word, _) in enumerate(frequent, start=1)}
        # Rare words are left out, as if the line were shorter.
        rows = [torch.tensor([codes[word] for word in line if word in codes]) for line in found]
        lines = nn.utils.rnn.pad_sequence([row.long() for row in rows], batch_first=True)[order]
        parts = order * self.parts // len(order)
        self.inputs, self.test_inputs = lines[self.test_lines :], lines[: self.test_lines]
        self.targets, self.test_targets = parts[self.test_lines :], parts[: self.test_lines]

    def build(self) -> nn.Module:
        return Bag(self.words, 32, self.parts)


class Memory(nn.Module):
    """One LSTM, and a number from where it ends."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.memory = nn.LSTM(inputs, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, sequences: Tensor) -> Tensor:
        features, _ = self.memory(sequences)
        return self.head(features[:, -1])[:, 0]


class AddingProblem(Task):
    """The sum of the two numbers of twenty that are marked, with a little noise."""

    steps = 1200
    batch_size = 32
    length = 20

    def load(self) -> None:
        source = generator(41)
        numbers = torch.rand(6000, self.length, generator=source)
        marked = torch.rand(6000, self.length, generator=source).topk(2).indices
        marks = torch.zeros(6000, self.length).scatter(1, marked, 1.0)
        noise = 0.1 * torch.randn(6000, generator=source)
        sequences, sums = torch.stack([numbers, marks], 2), (numbers * marks).sum(1) + noise
        self.inputs, self.test_inputs = sequences[:4000], sequences[4000:]
        self.targets, self.test_targets = sums[:4000], sums[4000:]

    def build(self) -> nn.Module:
        return Memory(2, 32)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        sequences, sums = minibatch
        return F.mse_loss(network(sequences), sums)


class WordVectors(nn.Module):
    """Two vectors for each word, as in word2vec: for when it stands in the middle, and around."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.middles = nn.Embedding(words, width)
        self.around = nn.Embedding(words, width)
        nn.init.uniform_(self.middles.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.around.weight)

    def forward(self, middles: Tensor, others: Tensor) -> Tensor:
        """Return how well each of several other words fits a word in the middle."""
        return (self.around(others) @ self.middles(middles)[..., None])[..., 0]


class SkipGram(Task):
    """Word vectors from neighbours, which are to be told from five words drawn by frequency."""

    steps = 2000
    batch_size = 256
    words, negatives = 1000, 5

    def load(self) -> None:
        found = re.findall(r"[a-z']+", self.sources.read_text().lower())[:150_000]
        frequent = collections.Counter(found).most_common(self.words)
        codes = {word: code for code, (word, _) in enumerate(frequent)}
        stream = torch.tensor([codes[word] for word in found if word in codes])
        shares = torch.tensor([float(count) for _, count in frequent]) ** 0.75
        repeats = (shares / shares.sum() * 50_000).ceil().long()
        self.bag = torch.arange(self.words).repeat_interleave(repeats)
        last = len(stream) * 9 // 10
        self.inputs, self.targets = self.pairs(stream[:last])
        middles, around = self.pairs(stream[last:])
        order = torch.randperm(len(middles), generator=generator(42))[:6000]
        self.test_inputs, self.test_targets = middles[order], around[order]

    def pairs(self, stream: Tensor) -> tuple[Tensor, Tensor]:
        """Return words with those one or two places off, on both sides."""
        pairs = [(stream[:-distance], stream[distance:]) for distance in (1, 2)]
        pairs += [(after, before) for before, after in pairs]
        middles, around = zip(*pairs, strict=True)
        return torch.cat(middles), torch.cat(around)

    def build(self) -> nn.Module:
        return WordVectors(self.words, 24)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        middles, around = minibatch
        drawn = self.bag[torch.randint(len(self.bag), (len(middles), self.negatives))]
        others = torch.cat([around[:, None], drawn], 1)
        fits = network(middles, others)
        return F.softplus(-fits[:, 0]).mean() + F.softplus(fits[:, 1:]).sum(1).mean()

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        with fixed_noise(43):
            return float(self.loss(network, self.held_out(part)))
