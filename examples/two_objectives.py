"""Two objectives: the gradient of the cross-entropy, the verdict of the loss at 2-bit weights.

Quantised weights have no useful gradient. The accept test needs none: it keeps the steps after
which the net, rounded to 4 levels a layer, is better on the minibatch.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call

from annealtune import SGDSA, grid

LEVELS = 4
torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
order = torch.randperm(len(labels))
x, y = torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
train_x, train_y, test_x, test_y = x[:1437], y[:1437], x[1437:], y[1437:]
loss_fn = nn.CrossEntropyLoss()


def rounded(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights, each tensor on a grid of LEVELS equal steps over its range."""
    grids = {}
    for name, p in model.named_parameters():
        step = (p.max() - p.min()) / (LEVELS - 1)
        grids[name] = p.min() + ((p - p.min()) / step).round() * step
    return grids


def trained(seed: int, *, quantised: bool) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    opt = SGDSA(model, grid(lr=[2.0, 1.0, 0.5, 0.2, 0.1]), temperature=0.0)
    for _ in range(30):
        for batch in torch.randperm(len(train_x)).split(128):
            bx, by = train_x[batch], train_y[batch]

            def coarse_loss():
                return loss_fn(functional_call(model, rounded(model), (bx,)), by)

            opt.step(lambda: loss_fn(model(bx), by), objective=coarse_loss if quantised else None)
    return model


@torch.no_grad()
def test_losses(model: nn.Module) -> tuple[float, float]:
    exact = loss_fn(model(test_x), test_y).item()
    return exact, loss_fn(functional_call(model, rounded(model), (test_x,)), test_y).item()


for name, quantised in (("the loss", False), ("the loss at 2-bit weights", True)):
    losses = [test_losses(trained(seed, quantised=quantised)) for seed in (1, 2, 3)]
    exact, coarse = (sum(column) / 3 for column in zip(*losses, strict=True))
    print(f"accepted by {name}: test loss {exact:.3f}, at 2-bit weights {coarse:.3f}")
