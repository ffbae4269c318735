"""H of anything: rate, momentum or Nesterov or none, label smoothing, dropout, clipping.

The head of the net has half the rate. A setting is picked before the forward, so that both losses
of the accept test are those of its smoothing and its dropout; a rejection puts all of it back.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from annealtune import Attribute, EmbeddedTuner, Value, grid

EPOCHS = 10
torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
order = torch.randperm(len(labels))
x, y = torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
clip_norm = Value(1.0)  # the closure looks it up
opt = EmbeddedTuner(
    torch.optim.SGD([{"params": model[0].parameters()},
                     {"params": model[3].parameters(), "name": "head"}], lr=0.1),
    model=model,
    neighborhood=grid(
        lr=[0.3, 0.1, 0.03],
        momentum=[0.0, 0.9],
        nesterov=[False, True],  # Nesterov without momentum is dropped
        label_smoothing=[0.0, 0.1],
        dropout=[0.0, 0.2],
        clip_norm=[0.5, 5.0],
    ),
    loop={
        "label_smoothing": Attribute("label_smoothing", loss_fn),
        "dropout": Attribute("p", model[2]),
        "clip_norm": clip_norm,
    },
    group_scales={"head": 0.5},
    epochs=EPOCHS,
)  # fmt: skip

for _ in range(EPOCHS):
    for batch in torch.randperm(1437).split(64):

        def closure():
            opt.zero_grad()
            loss = loss_fn(model(x[batch]), y[batch])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm.value)
            return loss

        opt.step(closure)
    opt.cool()

with torch.no_grad():
    accuracy = (model.eval()(x[1437:]).argmax(1) == y[1437:]).double().mean().item()
print(f"{len(opt.neighborhood)} settings of {', '.join(opt.neighborhood.options)}")
print(f"test accuracy {accuracy:.1%} after {opt.moves.total.tried} moves")
