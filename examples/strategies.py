"""Every built-in strategy by its name, on the same data from the same weights."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from annealtune import SGDSA, grid
from annealtune.annealing import STRATEGIES

EPOCHS, BATCH = 8, 64

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
order = torch.randperm(len(labels))
x, y = torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
train_x, train_y, test_x, test_y = x[:1437], y[:1437], x[1437:], y[1437:]
loss_fn = nn.CrossEntropyLoss()


def accuracy_of(strategy: str) -> tuple[float, float]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    # Rates that ruin this net are in H: a strategy earns its keep by not using them.
    opt = SGDSA(model, grid(lr=[10.0, 3.0, 1.0, 0.3, 0.1]), strategy=strategy, epochs=EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(train_x)).split(BATCH):
            opt.step(lambda: loss_fn(model(train_x[batch]), train_y[batch]))
        opt.cool()
    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).double().mean().item()
    return accuracy, opt.moves.total.acceptance_rate


print("strategy               test accuracy  accepted")
for strategy in STRATEGIES:
    accuracy, accepted = accuracy_of(strategy)
    print(f"{strategy:<22} {accuracy:13.1%} {accepted:9.1%}")
