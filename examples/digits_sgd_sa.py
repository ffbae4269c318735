"""SGD-SA in an ordinary loop: no rate, no schedule, no temperature to choose."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from annealtune import SGDSA

EPOCHS = 15

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
training, test = random_split(digits, [1437, 360])

model = nn.Sequential(
    nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
)
loss_fn = nn.CrossEntropyLoss()
opt = SGDSA(model, epochs=EPOCHS)

for epoch in range(EPOCHS):
    for x, y in DataLoader(training, batch_size=64, shuffle=True):
        opt.step(lambda: loss_fn(model(x), y))
    opt.cool()
    move = opt.last_step
    print(
        f"epoch {epoch}: loss {move.loss:.3f} -> {move.new_loss:.3f} with rate "
        f"{move.setting['lr']}, {'accepted' if move.accepted else 'rejected'} at T = "
        f"{move.temperature:.3g}"
    )

model.eval()
with torch.no_grad():
    x, y = test[:]
    accuracy = (model(x).argmax(1) == y).double().mean().item()
print(opt.summary())
print(f"test accuracy {accuracy:.1%} after {opt.moves.total.tried} moves")
