"""Small nets in every precision in which numbers break: in activations, gradients, weights, losses.

A case is drawn by a ``random.Random``; the same seed is the same case everywhere.
"""

import math

import torch
from torch import nn, optim
from torch.nn import functional as F

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
PLACES = ("activation", "gradient", "weight", "loss")
BROKEN = (math.nan, math.inf, -math.inf, 1e30, -1e30)
BASES = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": optim.Adam,
    "adamw": lambda p: optim.AdamW(p, amsgrad=True),
    "rmsprop": lambda p: optim.RMSprop(p, centered=True, momentum=0.5),
    "adagrad": optim.Adagrad,
    "adadelta": optim.Adadelta,
    "adamax": optim.Adamax,
    "nadam": optim.NAdam,
    "radam": optim.RAdam,
    "asgd": optim.ASGD,
    "rprop": optim.Rprop,
    "adafactor": optim.Adafactor,
}


class Masked(nn.Module):
    """The gradient of a square root at 0 is NaN, and a weight of NaN falls behind the mask."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[1.0, 0.0], [0.5, 2.0], [1.0, 1.0], [0.0, 0.2]]))

    def forward(self, x):
        roots = self.weight.clamp(min=0).sqrt()
        return x @ torch.where(self.weight > 0, roots, torch.zeros_like(roots))


class Rows(nn.Module):
    """Most minibatches use few of the rows: the others may be broken and no loss shows it."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(12, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.rows((3 * x[:, 0].float().abs()).long().clamp(0, 11)))


NETS = {
    "linear": lambda: nn.Linear(4, 2),
    "tanh": lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)),
    "layer norm": lambda: nn.Sequential(
        nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2)
    ),
    "batch norm": lambda: nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 2)
    ),
    "masked": Masked,
    "rows": Rows,
}


class Breaking:
    """A net with its minibatches, whose numbers break at random steps.

    A fault hits the first evaluation of its minibatch, those after it, or all of them.

    Attributes:
        share: how many of the steps have a fault.
    """

    def __init__(self, rng, share):
        self.rng, self.share = rng, share
        self.dtype = rng.choice(DTYPES)
        self.net, self.base = rng.choice(list(NETS)), rng.choice(list(BASES))
        self.noise = torch.Generator().manual_seed(rng.randrange(2**31))
        torch.manual_seed(rng.randrange(2**31))
        self.model = NETS[self.net]().to(self.dtype)
        self.unit = 10.0 ** rng.choice([0, 0, rng.uniform(-30, 30)])
        self._fault = None
        self.model.register_forward_hook(self._forward)
        for p in self.model.parameters():
            p.register_hook(self._backward)

    def make_base(self):
        return BASES[self.base](self.model.parameters())

    def next(self, *, breaks=True, weights=True):
        """Go on to the next minibatch, with or without a fault."""
        x, y = torch.randn(6, 4, generator=self.noise), torch.randn(6, 2, generator=self.noise)
        self.x, self.y, self._evaluations, self._fault = x.to(self.dtype), y.to(self.dtype), 0, None
        if breaks and self.rng.random() < self.share:
            place = self.rng.choice(PLACES if weights else ("activation", "gradient", "loss"))
            when, index = self.rng.choice(["first", "later", "always"]), self.rng.randrange(1000)
            self._fault = (place, when, self.rng.choice(BROKEN), index)
            if place == "weight":
                weight = self.rng.choice(self.weights())
                weight.data.copy_(self._broken(weight))
        return self._fault

    def loss(self):
        self._evaluations += 1
        loss = F.mse_loss(self.model(self.x), self.y) * self.unit
        return loss * self._fault[2] if self._is_hit("loss") else loss

    def weights(self):
        return list(self.model.parameters())

    def copies(self):
        return [p.detach().clone() for p in self.weights()]

    @torch.no_grad()
    def put(self, copies):
        for p, kept in zip(self.weights(), copies, strict=True):
            p.copy_(kept)

    def are_finite(self):
        return all(bool(p.isfinite().all()) for p in self.weights())

    def __str__(self):
        return f"{self.net} in {self.dtype} over {self.base}, loss times {self.unit:.3g}"

    def _is_hit(self, place):
        if self._fault is None or self._fault[0] != place:
            return False
        return self._fault[1] in ("always", "first" if self._evaluations <= 1 else "later")

    def _broken(self, tensor):
        tensor = tensor.detach().clone()
        tensor.view(-1)[self._fault[3] % tensor.numel()] = self._fault[2]
        return tensor

    def _forward(self, module, inputs, output):
        if not self._is_hit("activation"):
            return output
        broken = self._broken(output)
        return output + (broken - output).detach()

    def _backward(self, gradient):
        return self._broken(gradient) if self._is_hit("gradient") else gradient


def bits(tensors):
    return [t.contiguous().view(-1).view(torch.uint8).tolist() for t in tensors]
