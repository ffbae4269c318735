"""Loops without a closure: gradient clipping, then gradient accumulation."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from annealtune import SGDSA

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
opt = SGDSA(model)

# The gradient is in place and clipped before the tuner is asked; the probe says how to measure the
# loss again. The model was given, so its dropout repeats the mask of the forward above.
for x, y in DataLoader(digits, batch_size=64, shuffle=True):
    opt.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    opt.step(loss=loss, probe=lambda: loss_fn(model(x), y))
print(f"clipped: {opt.moves.total.tried} moves, {opt.moves.total.accepted} accepted")

# Four minibatches make one step: the loss of the accept test is theirs together.
waiting = []
for minibatch in DataLoader(digits, batch_size=16, shuffle=True, drop_last=True):
    waiting.append(minibatch)
    if len(waiting) < 4:
        continue
    opt.zero_grad()
    total = 0.0
    for x, y in waiting:
        loss = loss_fn(model(x), y) / len(waiting)
        loss.backward()
        total += loss.item()
    setting = opt.propose(total)
    with opt.probing():
        new_total = sum(loss_fn(model(x), y).item() for x, y in waiting) / len(waiting)
    verdict = opt.resolve(new_total)
    waiting.clear()
print(f"the last move was {setting}, worsening {verdict.worsening:.4f}")
print(f"accumulated: {opt.moves.total.tried} moves, {opt.moves.total.accepted} accepted")
