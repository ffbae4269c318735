"""Gradient accumulation, clipping and two groups of rates in a loop of your own."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import SelfTuner

EPOCHS, PARTS = 20, 4

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, test = random_split(digits, [1437, 360])
batches = DataLoader(training, batch_size=64, shuffle=True, drop_last=True)

body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1))
head = nn.Linear(128, 10)
model = nn.Sequential(body, head)
loss_fn = nn.CrossEntropyLoss()

# Only the ratio of the two rates counts: the body learns a tenth as fast as the head.
groups = [{"params": body.parameters(), "lr": 0.1}, {"params": head.parameters(), "lr": 1.0}]
base = torch.optim.AdamW(groups)
opt = SelfTuner(base, model=model, total_steps=EPOCHS * len(batches))
compute_loss = opt.record(lambda x, y: loss_fn(model(x), y))
opt.before_step(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))  # for every arm

for _ in range(EPOCHS):
    for x, y in batches:
        for part_of_x, part_of_y in zip(x.chunk(PARTS), y.chunk(PARTS), strict=True):
            (compute_loss(part_of_x, part_of_y) / PARTS).backward()
        opt.step()
        opt.zero_grad()

with opt.averaged(), torch.no_grad():
    model.eval()
    x, y = test[:]
    accuracy = (model(x).argmax(1) == y).double().mean().item()
slow, fast = (group["lr"] for group in opt.param_groups)
print(f"rates {slow:.3g} and {fast:.3g} at the end, ratio {fast / slow:.0f}")
print(f"test accuracy {accuracy:.1%}")
