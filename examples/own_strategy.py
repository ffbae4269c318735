"""A strategy of one's own: keep a move unless it is much worse than recent ones.

From the command line the same class is chosen by its place, with its folder on PYTHONPATH:

    annealtune train --method sgd-sa --set sgd-sa.strategy=own_strategy:Patience \
        --set sgd-sa.strategy_options.factor=3
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from annealtune import SGDSA, grid
from annealtune.strategies import Strategy, Verdict


class Patience(Strategy):
    """Accept iff the worsening is at most `factor` times the running mean of its size."""

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor
        self.mean = 0.0

    def decide(self, value, new_value, rng):
        return Verdict.of(value, new_value, accepted=new_value - value <= self.factor * self.mean)

    def observe(self, setting, verdict):
        if verdict.accepted:
            self.mean = 0.9 * self.mean + 0.1 * abs(verdict.worsening)

    def state_dict(self):
        return {"mean": self.mean}  # so that a resumed run decides the same

    def load_state_dict(self, state):
        self.mean = state["mean"]


if __name__ == "__main__":
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels))
    x, y = torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    opt = SGDSA(model, grid(lr=[10.0, 3.0, 1.0, 0.3, 0.1]), strategy=Patience())
    for _ in range(8):
        for batch in torch.randperm(1437).split(64):
            opt.step(lambda: nn.functional.cross_entropy(model(x[batch]), y[batch]))
    with torch.no_grad():
        accuracy = (model(x[1437:]).argmax(1) == y[1437:]).double().mean().item()
    print(opt.summary())
    print(f"test accuracy {accuracy:.1%} with {opt.strategy.__class__.__name__}")
