"""Any optimizer, any of its options: AdamW with rate and weight decay picked at every step."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import EmbeddedTuner, grid

EPOCHS = 10

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, test = random_split(digits, [1437, 360])
batches = DataLoader(training, batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
opt = EmbeddedTuner(
    torch.optim.AdamW(model.parameters()),
    model=model,
    neighborhood=grid(lr=[1e-3, 1e-2, 1e-1], weight_decay=[0.0, 0.05]),
    total_steps=EPOCHS * len(batches),
)

for _ in range(EPOCHS):
    for x, y in batches:
        opt.step(lambda: loss_fn(model(x), y))

with torch.no_grad():
    x, y = test[:]
    accuracy = (model(x).argmax(1) == y).double().mean().item()
print(opt.summary())
print(f"test accuracy {accuracy:.1%}, temperature {opt.temperature:.2g} at the end")
