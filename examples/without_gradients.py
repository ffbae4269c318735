"""Training without gradients: simulated annealing on the accuracy itself."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from annealtune import StochasticSA

EPOCHS = 200

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
parts = train_test_split(pixels / 16, labels, test_size=360, random_state=0)
inputs, test_inputs, targets, test_targets = map(torch.tensor, parts)

model = nn.Linear(64, 10, dtype=torch.float64)
opt = StochasticSA(model, radius=0.1, epochs=EPOCHS)


@torch.no_grad()
def error(x, y):
    """One minus the accuracy: flat almost everywhere, no gradient to follow."""
    return (model(x).argmax(1) != y).double().mean()


before = error(test_inputs, test_targets)
for _ in range(EPOCHS):
    for chosen in torch.randperm(len(targets)).split(512):
        opt.step(lambda: error(inputs[chosen], targets[chosen]))
    opt.cool()
after = error(test_inputs, test_targets)

print(opt.summary())
print(f"test error {before:.1%} before, {after:.1%} after {opt.moves.total.tried} moves")
