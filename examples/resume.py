"""Save in the middle, continue in new objects: the very same moves, weights and temperature."""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

from annealtune import SGDSA

EPOCHS = 6

pixels, labels = load_digits(return_X_y=True)
inputs, targets = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
loss_fn = nn.CrossEntropyLoss()


def build():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)
    )
    return model, SGDSA(model, epochs=EPOCHS, seed=7)


def train(model, opt, epochs):
    for epoch in epochs:
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(epoch))
        for chosen in order.split(64):
            opt.step(lambda: loss_fn(model(inputs[chosen]), targets[chosen]))
        opt.cool()


model, opt = build()
train(model, opt, range(EPOCHS // 2))
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "checkpoint.pt"
    # The dropout masks come from torch's own generator: a loop saves it beside its optimizer.
    states = {"model": model.state_dict(), "opt": opt.state_dict(), "torch": torch.get_rng_state()}
    torch.save(states, path)
    train(model, opt, range(EPOCHS // 2, EPOCHS))

    resumed, resumed_opt = build()
    states = torch.load(path, weights_only=True)
resumed.load_state_dict(states["model"])
resumed_opt.load_state_dict(states["opt"])
torch.set_rng_state(states["torch"])
train(resumed, resumed_opt, range(EPOCHS // 2, EPOCHS))

pairs = zip(model.state_dict().values(), resumed.state_dict().values(), strict=True)
same_weights = all(torch.equal(a, b) for a, b in pairs)
same_moves = opt.last_step == resumed_opt.last_step and opt.summary() == resumed_opt.summary()
print(f"identical weights: {same_weights}, identical moves: {same_moves}")
