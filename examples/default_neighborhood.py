"""No H is given: seven multiples of AdamW's learning rate. The best weights are judged."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import EmbeddedTuner

EPOCHS = 15

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, validation, test = random_split(digits, [1257, 180, 360])
batches = DataLoader(training, batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
base = torch.optim.AdamW(model.parameters())
opt = EmbeddedTuner(base, model=model, total_steps=EPOCHS * len(batches))


def error(data):
    x, y = data[:]
    return (model(x).argmax(1) != y).double().mean().item()


for _ in range(EPOCHS):
    for x, y in batches:
        opt.step(lambda: loss_fn(model(x), y))
    opt.validate(lambda: error(validation))  # remembers the best weights

opt.load_best()
model.eval()
accuracy = 1 - error(test)
print(opt.summary())
print(f"test accuracy {accuracy:.1%}")
