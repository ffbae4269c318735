"""Accelerate: record the loss before the loop, which stays as it is; here with accumulation."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import SelfTuner

EPOCHS, ACCUMULATE = 12, 2

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, test = random_split(digits, [1437, 360])
batches = DataLoader(training, batch_size=32, shuffle=True, drop_last=True)
steps = EPOCHS * len(batches) // ACCUMULATE

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE, mixed_precision="bf16")
model = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
tuner = SelfTuner(torch.optim.AdamW(model.parameters()), model=model, total_steps=steps)
model, optimizer, batches = accelerator.prepare(model, tuner, batches)
compute_loss = tuner.record(lambda x, y: nn.functional.cross_entropy(model(x), y))

for _ in range(EPOCHS):
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(compute_loss(x, y))
            optimizer.step()
            optimizer.zero_grad()

model.eval()
optimizer.eval()  # the average of the weights, until optimizer.train()
with torch.no_grad():
    x, y = test[:]
    accuracy = (model(x).argmax(1) == y).double().mean().item()
print(tuner.races[-1])
print(f"{tuner.steps} steps, test accuracy {accuracy:.1%}")
