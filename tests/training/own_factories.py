"""Data and models as a user would write them, for runs of a fraction of a second."""

import torch
from torch import nn


def _numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def table():
    """Four columns, far from zero, and a sum of them with a little noise."""
    inputs = 3 * _numbers(80, 4) + 10
    targets = 0.2 * (inputs - 10).sum(1) + 0.05 * _numbers(80)
    train, test = (inputs[:60], targets[:60]), (inputs[60:], targets[60:])
    return {"train": train, "test": test, "standardize": True}


def table_of_two():
    """The same with two targets a row."""
    (inputs, targets), (test_inputs, test_targets) = (table()[part] for part in ("train", "test"))
    both, test_both = (torch.stack([t, -t], 1) for t in (targets, test_targets))
    return {"train": (inputs, both), "test": (test_inputs, test_both), "standardize": True}


def rows_with_classes():
    """Whether a sum is positive; no scaling."""
    inputs = _numbers(80, 4)
    labels = (inputs.sum(1) > 0).long()
    train, test = (inputs[:60], labels[:60]), (inputs[60:], labels[60:])
    return {"train": train, "test": test, "classes": ["low", "high"]}


def text():
    """A text in which the next token is the one before plus one, of five."""
    tokens = torch.arange(400) % 5
    return {"train": tokens[:300], "test": tokens[300:], "length": 6}


def reviews():
    """Texts with two classes: whether they begin with token 0."""
    tokens = torch.randint(4, (80, 6), generator=torch.Generator().manual_seed(0))
    labels = (tokens[:, 0] == 0).long()
    return (tokens[:60], labels[:60]), (tokens[60:], labels[60:])


def pictures():
    """Grey images, bright or dark."""
    labels = torch.arange(60) % 2
    noise = torch.randint(100, (60, 8, 8), generator=torch.Generator().manual_seed(0))
    images = (noise + 100 * labels[:, None, None]).to(torch.uint8)
    return (images[:40], labels[:40]), (images[40:], labels[40:])


def brightness():
    """How bright an image is: regression of an image."""
    (images, _), (test_images, _) = pictures()
    targets, test_targets = (i.float().mean((1, 2)) / 100 for i in (images, test_images))
    return (images, targets), (test_images, test_targets)


def float_pictures():
    """The same images as floats, in colour."""
    (images, labels), (test_images, test_labels) = pictures()
    colour, test_colour = (
        i[:, None].float().expand(-1, 3, -1, -1) / 255 for i in (images, test_images)
    )
    return {"train": (colour, labels), "test": (test_colour, test_labels), "standardize": True}


def waves():
    """Two channels of ten numbers each, and how high they are."""
    inputs = _numbers(80, 2, 10)
    return (inputs[:60], inputs[:60].mean((1, 2))), (inputs[60:], inputs[60:].mean((1, 2)))


class NextToken(nn.Module):
    """One layer that looks at each token alone."""

    def __init__(self, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 8)
        self.scores = nn.Linear(8, vocabulary)

    def forward(self, tokens):
        return self.scores(self.embedding(tokens))


def next_token(*, vocabulary):
    return NextToken(vocabulary)


def bag_of_tokens(vocabulary, classes):
    return nn.Sequential(nn.EmbeddingBag(vocabulary, 8), nn.Linear(8, classes))


def line(features, outputs):
    return nn.Linear(features, outputs)


class Flat(nn.Module):
    """Gives (samples,) where (samples, 1) is meant."""

    def __init__(self, features):
        super().__init__()
        self.layer = nn.Linear(features, 1)

    def forward(self, inputs):
        return self.layer(inputs)[:, 0]


def flat(features):
    return Flat(features)
