"""H of any option of any optimizer: rate, momentum or Nesterov or none, weight decay.

The head of the net has half the rate of the body, in every setting.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from annealtune import EmbeddedTuner, grid

EPOCHS = 10
torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
order = torch.randperm(len(labels))
x, y = torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
groups = [
    {"params": model[0].parameters()},
    {"params": model[3].parameters(), "lr_scale": 0.5},
]
opt = EmbeddedTuner(
    torch.optim.SGD(groups, lr=0.1),
    model,
    neighborhood=grid(
        lr=[0.3, 0.1, 0.03],
        momentum=[0.0, 0.9],
        nesterov=[False, True],  # Nesterov without momentum is dropped
        weight_decay=[0.0, 1e-4],
    ),
    epochs=EPOCHS,
)
compute_loss = opt.record(lambda x, y: loss_fn(model(x), y))

for _ in range(EPOCHS):
    for batch in torch.randperm(1437).split(64):
        compute_loss(x[batch], y[batch]).backward()
        opt.step()
        opt.zero_grad()
    opt.cool()

with torch.no_grad():
    accuracy = (model.eval()(x[1437:]).argmax(1) == y[1437:]).double().mean().item()
print(f"{len(opt.neighborhood)} settings of {', '.join(opt.neighborhood.options)}")
print(f"test accuracy {accuracy:.1%} after {opt.moves.total.tried} moves")
